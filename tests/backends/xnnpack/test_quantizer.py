"""What ``XNNPACKQuantizer`` annotates: where observers stand, who shares them, and what settings change."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F  # noqa: N812
from torchao.quantization.pt2e.quantize_pt2e import prepare_pt2e

from edgewright.backends.xnnpack.partitioner import XnnpackPartitioner
from edgewright.backends.xnnpack.quantizer import XNNPACKQuantizer, get_symmetric_quantization_config
from edgewright.errors import UsageError
from edgewright.frontend.importer import import_linked
from edgewright.frontend.prepare import prepare
from edgewright.ir.aten.ops import OPS
from edgewright.ir.ports import ACT, Act, Range, Same, Tied
from edgewright.lowering.kernel_resolution import kernel_set
from edgewright.quantize.graph_module import import_module
from edgewright.quantize.shared_scales import SharingConstraint, solve_sharing
from tests.backends.quantized import Run, converted, made, quantizer

aten = torch.ops.aten
CONFIG = get_symmetric_quantization_config()


class Everyday(nn.Module):
    """What decompositions change: attention, in-place operators, reshapes, padding that is told by name."""

    def __init__(self) -> None:
        super().__init__()
        self.same = nn.Conv2d(3, 4, 4, padding="same")
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        self.head = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = F.hardswish(self.same(x))
        y = y.add_(1.0).relu_().flatten(2)
        z = self.attention(y, y, y, need_weights=False)[0]
        return self.head(F.dropout(z, 0.5, training=False)).unflatten(1, (2, 2)).squeeze()


def graph_of(model: nn.Module, *inputs: Tensor) -> fx.GraphModule:
    return torch.export.export(model.eval(), inputs).module()  # type: ignore[return-value]


def names(graph: Any) -> Counter[str]:
    """The operators of a graph by their names in the table, whichever overload they are."""
    rows = [OPS.of(op) for op in graph.ops]
    return Counter(row.name if row else op.kind for row, op in zip(rows, graph.ops, strict=True))


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", ["everyday", "residual", "concatenated", "upward", "head", "products", "mlp"])
def test_annotation_and_lowering_see_the_same_operators(name: str) -> None:
    model, inputs = (Everyday().eval(), (torch.randn(1, 3, 4, 4),)) if name == "everyday" else made(name)
    seen, _ = import_module(XNNPACKQuantizer().transform_for_annotation(graph_of(model, *inputs)))
    exported = torch.export.export(model, inputs)
    lowered, _ = import_linked(prepare(exported, kernel_set("wheel").supports, XnnpackPartitioner().no_decompose))
    expected = names(lowered)
    del expected["batch_norm"]  # folded before anything is observed
    assert names(seen) == expected


def test_rewriting_keeps_the_meaning_and_the_guards() -> None:
    x = torch.randn(1, 3, 4, 4)
    graph = graph_of(Everyday(), x)
    guards = [n.target for n in graph.graph.nodes if n.op == "call_module"]
    wanted = graph(x)
    made_ = XNNPACKQuantizer().transform_for_annotation(graph)
    torch.testing.assert_close(made_(x), wanted)
    assert [n.target for n in made_.graph.nodes if n.op == "call_module"] == guards == ["_guards_fn"]
    assert not any("_.default" in str(n.target) for n in made_.graph.nodes if n.op == "call_function")


def test_modules_that_write_to_their_state_keep_doing_so() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(2, 3))
            self.linear = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            self.seen[0].add_(x.sum(0))
            self.seen.mul_(2)
            return self.linear(x) + self.seen.sum()

    x = torch.ones(2, 3)
    graph = XNNPACKQuantizer().transform_for_annotation(graph_of(Counting(), x))
    graph(x)
    graph(x)
    torch.testing.assert_close(graph.seen, torch.tensor([[12.0] * 3, [0.0] * 3]))


# ------------------------------------------------------------------------------------------------------ observers


def observers(model: nn.Module, inputs: Any, chosen: XNNPACKQuantizer) -> dict[str, str]:
    """For every node with an observer behind it, which one. Observers that are shared have one name."""
    prepared = prepare_pt2e(graph_of(model, *inputs), chosen)
    known: dict[int, str] = {}
    found = {}
    for node in prepared.graph.nodes:
        if node.op == "call_module" and str(node.target).startswith("activation_post_process"):
            found[node.args[0].name] = known.setdefault(id(getattr(prepared, node.target)), str(node.target))
    return found


def test_no_observer_stands_between_fused_operators() -> None:
    model, inputs = made("residual")
    found = observers(model, inputs, quantizer())
    assert set(found) >= {"hardtanh_", "relu", "conv2d_2", "relu_1"}
    assert not {"conv2d", "conv2d_1", "add"} & set(found)


def test_value_preserving_operators_share_with_their_input() -> None:
    model, inputs = made("concatenated")
    found = observers(model, inputs, quantizer())
    assert found["conv2d"] == found["conv2d_1"] == found["cat"] == found["relu"]
    assert found["conv2d_2"] != found["cat"]


def test_movement_alone_is_not_quantized() -> None:
    class Moves(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.sigmoid(x.reshape(4, 4).transpose(0, 1))

    assert observers(Moves(), (torch.randn(2, 8),), quantizer()) == {}


def test_operators_that_the_backend_would_refuse_are_left_alone() -> None:
    class Refused(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return torch.add(x, y, alpha=2).mean(1) + 1.0

    assert observers(Refused(), (torch.randn(2, 8), torch.randn(2, 8)), quantizer()) == {}


def test_biases_have_no_observer() -> None:
    prepared = prepare_pt2e(graph_of(nn.Linear(4, 4), torch.randn(2, 4)), quantizer())
    observed = [n.args[0].target for n in prepared.graph.nodes if n.op == "call_module" and n.args]
    assert "weight" in observed
    assert "bias" not in observed


# ------------------------------------------------------------------------------------------------------- settings


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
        self.second = nn.Linear(8, 8)
        self.conv = nn.Conv1d(4, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(self.second(self.first(x)))


def quantized(chosen: XNNPACKQuantizer) -> set[str]:
    """The weights of ``Two`` that a quantizer quantizes."""
    prepared = prepare_pt2e(graph_of(Two(), torch.randn(2, 4, 8)), chosen)
    observed = [n.args[0] for n in prepared.graph.nodes if n.op == "call_module" and n.args]
    return {str(n.target).rpartition(".")[0] for n in observed if n.op == "get_attr"}


ALL = {"first.0", "second", "conv"}


@pytest.mark.parametrize(
    ("chosen", "wanted"),
    [
        (XNNPACKQuantizer(), set()),
        (quantizer(), ALL),
        (quantizer().set_module_name("first", None), ALL - {"first.0"}),
        (XNNPACKQuantizer().set_module_name("first", CONFIG), {"first.0"}),
        (quantizer().set_module_type(nn.Linear, None), {"conv"}),
        (quantizer().set_module_type(nn.Linear, None).set_module_name("second", CONFIG), {"second", "conv"}),
        (quantizer().set_operator_type(aten.conv1d.default, None), ALL - {"conv"}),
        (quantizer().set_operator_type(aten.linear, None), {"conv"}),
        (XNNPACKQuantizer().set_operator_type("linear", CONFIG), {"first.0", "second"}),
        (quantizer().set_object_type(nn.Linear, None), {"conv"}),
        (quantizer().set_object_type(torch.nn.functional.linear, None), {"conv"}),
        (quantizer().set_object_type(aten.conv1d.default, None), ALL - {"conv"}),
        (quantizer().set_module_name("fir", None), ALL),
        (quantizer().set_filter_function(lambda n: "conv" not in n.name), ALL - {"conv"}),
        (quantizer(is_dynamic=True), {"first.0", "second"}),
    ],
)
def test_the_most_specific_setting_holds(chosen: XNNPACKQuantizer, wanted: set[str]) -> None:
    assert quantized(chosen) == wanted


def test_models_in_several_precisions_run() -> None:
    chosen = quantizer().set_module_name(
        "second", get_symmetric_quantization_config(is_per_channel=True, is_dynamic=True)
    )
    inputs = (torch.randn(2, 4, 8),)
    run = Run(converted(Two(), inputs, chosen), inputs)
    assert run.whole, str(run.report)
    assert abs(run.ours - run.stock).max() < 1e-3 * abs(run.stock).max()
    kinds = [v.operator for v in run.report.verdicts]
    assert {"convert", "quantize", "dequantize"} <= set(kinds)


def test_settings_are_checked() -> None:
    with pytest.raises(UsageError, match="QuantizationConfig or None"):
        XNNPACKQuantizer().set_global({"is_qat": True})  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="not in the op table"):
        XNNPACKQuantizer().set_operator_type("convolve", None)
    with pytest.raises(UsageError, match="a class of modules, a function or an operator"):
        XNNPACKQuantizer().set_object_type(7, None)
    with pytest.raises(UsageError, match="-128 <= low < high <= 127"):
        get_symmetric_quantization_config(weight_qmin=8, weight_qmax=-8)


def test_annotations_of_others_stand() -> None:
    graph = graph_of(nn.Linear(4, 4), torch.randn(2, 4))
    XNNPACKQuantizer().set_global(CONFIG).annotate(graph)
    linear = next(n for n in graph.graph.nodes if n.target is aten.linear.default)
    held = linear.meta["quantization_annotation"]
    quantizer(is_dynamic=True).annotate(graph)
    assert linear.meta["quantization_annotation"] is held


# --------------------------------------------------------------------------------------------------------- sharing


def test_groups_do_not_depend_on_the_order_of_operators() -> None:
    units = [
        SharingConstraint({"self": ACT, "out": Same("self")}, {"self": ["ab"]}, "b", {"ab": "a"}),
        SharingConstraint({"tensors": ACT, "out": Same("tensors")}, {"tensors": ["bc", "xc"]}, "c", {"bc": "b"}),
        SharingConstraint({"self": ACT, "out": ACT}, {"self": ["cd"]}, "d", {"cd": "c"}),
        SharingConstraint({"self": ACT, "out": ACT}, {"self": ["_a"]}, "a"),
    ]
    groups = set()
    for order in itertools.permutations(units):
        leaders = solve_sharing(order).leaders
        sets: dict[Any, set[Any]] = {}
        for point, leader in leaders.items():
            sets.setdefault(leader, set()).add(point)
        groups.add(frozenset(frozenset(members) for members in sets.values()))
    assert groups == {
        frozenset({frozenset({"a", "ab", "b", "bc", "xc", "c", "cd"}), frozenset({"d"}), frozenset({"_a"})})
    }


def test_a_known_range_leads_and_is_never_pushed_onto_tied_ports() -> None:
    sigmoid = SharingConstraint({"self": ACT, "out": Range(0, 1)}, {"self": ["_s"]}, "s")
    view = SharingConstraint({"self": ACT, "out": Same("self")}, {"self": ["sv"]}, "v", {"sv": "s"})
    assert solve_sharing([view, sigmoid]).leaders["v"] == "s"
    add = SharingConstraint(
        {"self": ACT, "other": Tied("self"), "out": ACT}, {"self": ["sa"], "other": ["xa"]}, "r", {"sa": "s"}
    )
    leaders = solve_sharing([sigmoid, add]).leaders
    assert leaders["sa"] == leaders["xa"] != "s"


@pytest.mark.parametrize("other", [ACT, Range(-1, 1)], ids=["found", "of-another-range"])
def test_a_known_range_is_not_pushed_onto_wider_values_beside_it(other: Act | Range) -> None:
    units = [
        SharingConstraint({"self": ACT, "out": Range(0, 1)}, {"self": ["_s"]}, "s"),
        SharingConstraint({"self": ACT, "out": Same("self")}, {"self": ["sv"]}, "v", {"sv": "s"}),
        SharingConstraint({"self": ACT, "out": other}, {"self": ["_w"]}, "w"),
        SharingConstraint(
            {"tensors": ACT, "out": Same("tensors")}, {"tensors": ["vc", "wc"]}, "c", {"vc": "v", "wc": "w"}
        ),
        SharingConstraint({"self": ACT, "out": ACT}, {"self": ["sr"]}, "r", {"sr": "s"}),
    ]
    for order in itertools.permutations(units):
        leaders = solve_sharing(order).leaders
        assert leaders["s"] == leaders["sr"] == "s", "a reader of its own takes the range as it is"
        assert leaders["sv"] == leaders["v"] == "s", "it is requantized where it meets them"
        assert leaders["vc"] == leaders["wc"] == leaders["c"] != "s", order
        assert (leaders["w"] == leaders["c"]) == (other is ACT)


def test_what_brings_one_known_range_together_keeps_it() -> None:
    first = SharingConstraint({"self": ACT, "out": Range(0, 1)}, {"self": ["_s"]}, "s")
    second = SharingConstraint({"self": ACT, "out": Range(0, 1)}, {"self": ["_t"]}, "t")
    cat = SharingConstraint(
        {"tensors": ACT, "out": Same("tensors")}, {"tensors": ["sc", "tc"]}, "c", {"sc": "s", "tc": "t"}
    )
    assert {leader for point, leader in solve_sharing([first, second, cat]).leaders.items() if point[0] != "_"} == {"s"}
