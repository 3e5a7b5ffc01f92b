"""What ``prepare`` promises of the graph it makes."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch.export import Dim, ExportedProgram
from torch.utils import _pytree as pytree

import edgewright as ew
from edgewright.errors import UnsupportedOperatorError
from edgewright.frontend.decompose.canonical import RULES
from edgewright.frontend.prepare import prepare
from edgewright.frontend.rewriter import _views_of_copies, fake_mode
from edgewright.lowering.kernel_resolution import kernel_set
from tests.program.case import Call, Case
from tests.program.modules import BY_NAME, CASES

KERNELS = kernel_set("wheel")


def prepared(exported: ExportedProgram, runtime: str = "wheel") -> ExportedProgram:
    return prepare(exported, kernel_set(runtime).supports)


def calls(program: ExportedProgram) -> list[fx.Node]:
    return [n for n in program.graph.nodes if n.op == "call_function"]


def values(tree: Any) -> Any:
    return pytree.tree_map_only(fx.Node, lambda n: n.meta["val"], tree)


# ---------------------------------------------------------------------------------------------------- retracing


@pytest.mark.sample(14)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_no_module_is_retraced(case: Case, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "edgewright.frontend"):
        prepared(case.export(), case.runtime)
    retraced = [r.message for r in caplog.records if "retracing" in r.message]
    assert not retraced


class Strided(nn.Module):
    """A write through memory that no view operator describes."""

    def forward(self, x: Tensor) -> Tensor:
        y = x.clone()
        y.as_strided((2,), (4,)).zero_()
        return y


def test_what_rewrites_do_not_cover_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    exported = torch.export.export(Strided(), (torch.randn(2, 3),))
    with caplog.at_level(logging.WARNING, "edgewright.frontend"), pytest.raises(UnsupportedOperatorError):
        prepared(exported)
    assert (
        "retracing the entire graph: functionalization does not support a write through aten.as_strided" in caplog.text
    )


# ----------------------------------------------------------------------------------------------------- metadata

KEPT = [
    "conv_bn_relu",
    "transformer_encoder_layer",
    "lstm",
    "conv3d",
    "state_versions",
    "dynamic_views",
    "dynamic_many",
    "sdpa_gqa",
    "reductions",
    "products",
    "creation",
    "pads",
    "quantized_per_channel",
    "dynamic_conv",
]


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", KEPT)
def test_metadata_is_what_the_operator_gives(name: str) -> None:
    """Every node run again on fakes gives the shape and type its metadata says."""
    program = prepared(BY_NAME[name].export())
    mode = fake_mode(n.meta.get("val") for n in program.graph.nodes)
    for node in calls(program):
        function: Any = _views_of_copies().get(node.target, node.target)  # torch cannot copy what is symbolic
        with mode:
            again = function(*values(node.args), **values(node.kwargs))
        for have, want in zip(pytree.tree_leaves(node.meta["val"]), pytree.tree_leaves(again), strict=True):
            if isinstance(want, Tensor):
                assert have.dtype == want.dtype, node.format_node()
                assert [str(s) for s in have.shape] == [str(s) for s in want.shape], node.format_node()


@pytest.mark.parametrize("name", ["transformer_encoder_layer", "lstm", "conv_bn_relu", "state_submodules", "branches"])
def test_every_node_says_where_it_came_from(name: str) -> None:
    exported = BY_NAME[name].export()
    paths = {str(n.meta.get("nn_module_stack")) for n in exported.graph.nodes if n.op == "call_function"}
    for node in calls(prepared(exported)):
        assert node.meta["stack_trace"], node
        assert str(node.meta["nn_module_stack"]) in paths, node
        assert node.meta["origin"] in {n.name for n in exported.graph.nodes}, node


def test_graphs_are_functional_and_taken() -> None:
    for name in ("state_versions", "state_chained_views", "masked_writes", "conv2d_circular", "gru_cell"):
        for node in calls(prepared(BY_NAME[name].export())):
            assert KERNELS.supports(node.target), node.format_node()
            assert not getattr(node.target, "_schema", None) or not node.target._schema.is_mutable, node.format_node()


def test_weights_are_shared_not_copied() -> None:
    exported = BY_NAME["conv_bn_relu"].export()
    made = prepared(exported)
    for name, weight in exported.state_dict.items():
        assert made.state_dict[name].data_ptr() == weight.data_ptr(), name


# ------------------------------------------------------------------------------------------------------- errors

LIBRARY = torch.library.Library("edgewright_tests", "DEF")
LIBRARY.define("mystery(Tensor x) -> Tensor")
LIBRARY.impl("mystery", lambda x: x * 2, "CompositeExplicitAutograd")
LIBRARY.impl("mystery", lambda x: torch.empty_like(x), "Meta")


class Inner(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.edgewright_tests.mystery(x + 1)


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.ReLU(), Inner()])

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def test_an_operator_without_kernel_names_itself_its_module_and_line() -> None:
    exported = torch.export.export(Outer(), (torch.randn(2),))
    with pytest.raises(UnsupportedOperatorError) as caught:
        prepared(exported)
    text = str(caught.value)
    assert "edgewright_tests.mystery.default" in text
    assert "'blocks.1'" in text
    assert "test_prepare.py" in text
    assert "torch.ops.edgewright_tests.mystery(x + 1)" in text


def test_a_decomposition_that_fixes_a_dynamic_size_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program would take inputs of one size only, and nothing would say so."""

    def hypot(rw: Any, a: fx.Node, b: fx.Node) -> Any:
        return rw.call(torch.ops.aten.mul.Scalar, a, int(b.meta["val"].shape[0]))

    exported = torch.export.export(
        Hypot(), (torch.ones(3, 2), torch.ones(3, 2)), dynamic_shapes=({0: Dim("n", max=9)},) * 2
    )
    assert prepared(exported) is not None
    monkeypatch.setitem(RULES, torch.ops.aten.hypot.default, hypot)
    with pytest.raises(UnsupportedOperatorError, match=r"hypot.*fixes dimension 0 of 'a', which is dynamic, to 3"):
        prepared(exported)


class Hypot(nn.Module):
    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.hypot(a, b)


@pytest.mark.parametrize("kind", ["avg_pool2d", "max_pool2d"])
@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize(("kernel", "stride"), [(2, 2), (3, 2), (2, 3), (4, None), ((2, 3), (2, 1))])
def test_ceil_mode_is_left_where_it_adds_a_window(kind: str, padding: int, kernel: Any, stride: Any) -> None:
    pool = getattr(nn.functional, kind)

    def pooled(x: Tensor, ceil_mode: bool) -> Any:
        return pool(x, kernel, stride, padding, ceil_mode=ceil_mode)

    for size in range(6, 13):
        x = torch.randn(1, 2, size, 12)
        exported = torch.export.export(Call(lambda x: pooled(x, True)), (x,))
        program = prepared(exported)
        (node,) = [n for n in calls(program) if "pool" in str(n.target)]
        flags = [a for a in node.args if isinstance(a, bool)][:1]
        assert (True in flags) == (pooled(x, True).shape != pooled(x, False).shape)
        assert torch.equal(program.module()(x), pooled(x, True))


@pytest.mark.parametrize(
    "target", ["e9955", *(pytest.param(t, marks=pytest.mark.slow) for t in ("sm8550", "imxrt700", "ethos-u55-128"))]
)
def test_ceil_mode_without_effect_divides_no_model(target: str) -> None:
    model = nn.Sequential(nn.Conv2d(4, 4, 1), nn.AvgPool2d(2, ceil_mode=True), nn.Conv2d(4, 4, 1)).eval()
    data = [(torch.randn(1, 4, 8, 8),) for _ in range(4)]
    simulate = True if target == "sm8550" else None
    options: Any = {"quantize": "int8", "calibration": data, "simulate": simulate, "quiet": True}
    report = ew.compile(model, data[0], target, **options).report
    assert report.methods["forward"].groups == 1 and report.coverage["macs"] == 1.0


OF_ITSELF = {
    "maximum": torch.maximum, "minimum": torch.minimum, "max.other": torch.max, "min.other": torch.min,
    "fmax": torch.fmax, "fmin": torch.fmin, "where": lambda x, y: torch.where(x > 0, x, y),
    "scalar condition": lambda x, y: torch.where((x > 0).any(), x, y),
}  # fmt: skip
OF_ITSELF_INTEGER = {"and": torch.bitwise_and, "or": torch.bitwise_or, "operators": lambda x, y: x & y | y}
OF_ITSELF_BOOL = {"logical_and": torch.logical_and, "logical_or": torch.logical_or}


@pytest.mark.parametrize(
    ("function", "dtype"),
    [
        *((f, torch.float32) for f in OF_ITSELF.values()),
        *((f, torch.int32) for f in (*OF_ITSELF_INTEGER.values(), torch.maximum)),
        *((f, torch.bool) for f in (*OF_ITSELF_INTEGER.values(), *OF_ITSELF_BOOL.values())),
    ],
    ids=[*OF_ITSELF, *OF_ITSELF_INTEGER, "integer maximum", *(f"bool {n}" for n in OF_ITSELF_INTEGER), *OF_ITSELF_BOOL],
)
def test_a_tensor_and_itself_are_that_tensor(function: Any, dtype: torch.dtype) -> None:
    x = torch.tensor([[-2.0, float("nan"), -0.0], [0.0, float("-inf"), 3.0]])
    x = x if dtype.is_floating_point else x.nan_to_num().clamp(-9, 9).to(dtype)
    exported = torch.export.export(Call(lambda x: (function(x, x), x)), (x,))
    program = prepared(exported)
    assert calls(program) == []
    for made, wanted in zip(program.module()(x), exported.module()(x), strict=True):
        assert made.dtype == wanted.dtype and torch.equal(made.nan_to_num(7.0), wanted.nan_to_num(7.0))
        assert not dtype.is_floating_point or torch.equal(made.signbit(), wanted.signbit())


def test_other_operators_of_a_tensor_and_itself_stay() -> None:
    """Results that are larger, of another type, or not the operand's elements."""
    x = torch.tensor([[1.0, 2.0]])
    for function in (
        lambda x: torch.where(torch.ones(3, 1, dtype=torch.bool), x, x),
        lambda x: torch.logical_and(x, x),
        lambda x: torch.logical_xor(x, x),
        lambda x: x - x,
    ):
        exported = torch.export.export(Call(function), (x,))
        program = prepared(exported)
        assert calls(program)
        assert torch.equal(program.module()(x), exported.module()(x))


def test_a_write_to_the_maximum_of_a_tensor_and_itself_leaves_the_tensor() -> None:
    def double(x: Tensor) -> tuple[Tensor, Tensor]:
        y = torch.maximum(x, x)
        y.mul_(2)
        return x + 1, y

    x = torch.randn(2, 3)
    exported = torch.export.export(Call(double), (x,))
    for made, wanted in zip(prepared(exported).module()(x), exported.module()(x), strict=True):
        assert torch.equal(made, wanted)
