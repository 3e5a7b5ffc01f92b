"""Sub-pages of ExecuTorch's pages: their tables of operators, and their flows of quantization.

The names are those of ``docs/five-pages.md``. A name is a row of the backend's table, or what becomes one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F  # noqa: N812

from edgewright import EdgeCompileConfig, ExecutorchBackendConfig, to_edge_transform_and_lower
from edgewright.backends import ethos_u, nxp, samsung, xnnpack
from edgewright.backends.table import Backend
from edgewright.compat.finder import installed
from edgewright.formats.etrecord import IDENTIFIER
from edgewright.lowering.partition.report import CONVERSIONS
from edgewright.quantize.pt2e import convert_pt2e, prepare_pt2e
from edgewright.runtime import Runtime

PAGE = (Path(__file__).parents[2] / "docs" / "five-pages.md").read_text(encoding="utf-8")
TABLES = {  # the rows of the page that begin this way list operators
    "XNNPACK's table": "xnnpack", "Ethos-U55's table": "ethos_u", "Ethos-U85's table": "ethos_u",
    "Samsung's table": "samsung", "NXP's table": "nxp", "NXP's quantizer": "nxp",
}  # fmt: skip
X = torch.linspace(-1, 1, 64).reshape(1, 8, 8)
IMAGE = torch.linspace(-1, 1, 3 * 64).reshape(1, 3, 8, 8)
Function = Callable[[torch.Tensor], torch.Tensor]


def attention(x: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(x[None], x[None], x[None])


SAME = {  # names of the Edge dialect, and the row that they are in
    "convolution": "conv2d", "constant_pad_nd": "pad", "mean_dim": "mean", "max_pool2d_with_indices": "max_pool2d",
}  # fmt: skip
ENDS = ("quantize_per_tensor", "dequantize_per_tensor", "quantize_per_channel", "dequantize_per_channel")
COMPOSED: dict[str, Function] = {
    "_clone_dim_order": lambda x: x.relu().clone(memory_format=torch.contiguous_format),
    "_to_dim_order_copy": lambda x: x.relu().to(memory_format=torch.contiguous_format) + 1,
    "addmm": lambda x: torch.addmm(torch.ones(8), x.relu()[0], torch.eye(8) / 2),
    "alias_copy": lambda x: torch.ops.aten.alias_copy(x.relu()) + 1,
    "arange": lambda x: x + torch.arange(8.0) / 8,
    "copy": lambda x: torch.zeros_like(x).copy_(x.relu()) + 1,
    "copy_": lambda x: torch.zeros_like(x).copy_(x.relu()) + 1,
    "eye": lambda x: x + torch.eye(8),
    "fill": lambda x: x + torch.zeros_like(x).fill_(0.5),
    "fill_": lambda x: x + torch.zeros_like(x).fill_(0.5),
    "full": lambda x: x + torch.full((8,), 0.5),
    "full_like": lambda x: x + torch.full_like(x, 0.5),
    "getitem": lambda x: torch.split(x.relu(), 4, -1)[1],
    "linspace": lambda x: x + torch.linspace(0, 1, 8),
    "moveaxis": lambda x: x.relu().moveaxis(1, 2),
    "multihead_attention": lambda x: attention(x.relu()),
    "ones": lambda x: x + torch.ones(8),
    "repeat_interleave": lambda x: x.relu().repeat_interleave(2, 1),
    "scalar_tensor": lambda x: x + torch.scalar_tensor(0.5),
    "sdpa": lambda x: attention(x.relu()),
    "split": lambda x: torch.split(x.relu(), 4, -1)[1],
    "split_with_sizes": lambda x: torch.split(x.relu(), [2, 6], -1)[1],
    "to_copy": lambda x: x.relu().to(torch.float32, copy=True) + 1,
    "unflatten": lambda x: x.relu().unflatten(1, (2, 4)),
    "vector_norm": lambda x: torch.linalg.vector_norm(x, 2, -1, keepdim=True),
    "zeros": lambda x: x + torch.zeros(8),
}


def listed(start: str) -> list[str]:
    (row,) = re.findall(rf"^\| {re.escape(start)}: (.*?) \|", PAGE, re.MULTILINE)
    return re.findall(r"`([\w.]+)`", row)


def table(backend: str) -> Backend:
    found: Backend = import_module(f"edgewright.backends.{backend}.ops").BACKEND
    return found


def row_names(name: str) -> Iterator[str]:
    base = name.split(".")[0]
    inner = base.strip("_")
    yield from (SAME.get(base, base), base.removesuffix("_copy"), inner, inner.removesuffix("_copy"))


def composed(backend: str) -> list[str]:
    names = {name for start, owner in TABLES.items() if owner == backend for name in listed(start)}
    return sorted(n for n in names if not any(r in table(backend).rows for r in row_names(n)) and n not in ENDS)


@pytest.mark.parametrize("start", TABLES)
def test_every_operator_of_a_table_is_a_row_or_composed_of_rows(start: str) -> None:
    backend, names = TABLES[start], listed(start)
    assert len(names) > 30
    unknown = [n for n in composed(backend) if n.split(".")[0] not in COMPOSED]
    assert unknown in ([], ["batch_norm"])
    if backend != "xnnpack":  # whose table has floats, too
        rows = [table(backend).rows[r] for n in names for r in row_names(n) if r in table(backend).rows]
        floats = {row.op for row in rows if "static_quant" not in row.precisions}
        assert floats == ({"maximum", "minimum"} if backend == "samsung" else set())  # as in its table
    (count,) = re.findall(rf"^\| {re.escape(start)}: .*? \| (\d+) \|", PAGE, re.MULTILINE)
    assert int(count) == len(names)


class Calls(torch.nn.Module):
    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


def _tools(backend: str) -> tuple[Any, Any]:
    """A quantizer and a partitioner that need no vendor's software."""
    if backend == "xnnpack":
        config = xnnpack.get_symmetric_quantization_config(is_per_channel=True)
        return xnnpack.XNNPACKQuantizer().set_global(config), xnnpack.XnnpackPartitioner()
    if backend == "samsung":
        quantizer = samsung.EnnQuantizer()
        quantizer.setup_quant_params(samsung.Precision.A8W8, True, False)
        chip = samsung.gen_samsung_backend_compile_spec("E9955", simulate_only=True)
        return quantizer, samsung.EnnPartitioner([chip])
    if backend == "nxp":
        spec = nxp.NeutronTargetSpec("imxrt700")
        specs = nxp.generate_neutron_compile_spec("imxrt700", simulate_only=True)
        return nxp.NeutronQuantizer(spec), nxp.NeutronPartitioner(specs, spec)
    target = ethos_u.EthosUCompileSpec("ethos-u85-256")
    quantizer = ethos_u.EthosUQuantizer(target).set_global(ethos_u.get_symmetric_quantization_config())
    return quantizer, ethos_u.EthosUPartitioner(target)


def left_over(backend: str, module: torch.nn.Module, x: torch.Tensor) -> list[str]:
    """Operators that stay on the CPU after the flow of the sub-pages: prepare, calibrate, convert, lower."""
    quantizer, partitioner = _tools(backend)
    prepared = prepare_pt2e(torch.export.export(module.eval(), (x,)).module(), quantizer)
    prepared(x)
    exported = torch.export.export(convert_pt2e(prepared), (x,))
    edge = to_edge_transform_and_lower(exported, partitioner=[partitioner])
    report = edge.partition_reports["forward"]
    assert [v for v in report.verdicts if v not in report.rejected]
    return [v.operator for v in report.rejected if v.operator not in CONVERSIONS]


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    ("backend", "name"), [(b, n) for b in sorted({*TABLES.values()}) for n in composed(b) if n in COMPOSED]
)
def test_what_is_composed_is_delegated(backend: str, name: str) -> None:
    assert left_over(backend, Calls(COMPOSED[name]), X) == []


INTEGERS = torch.arange(-32, 32, dtype=torch.int32).reshape(1, 8, 8)


@pytest.mark.parametrize(
    ("module", "x"),
    [
        (Calls(lambda x: x << 2), INTEGERS),
        (Calls(lambda x: x >> 2), INTEGERS),
        (Calls(lambda x: x.relu().argmax(-1)), X),
        (torch.nn.Conv3d(3, 4, 3), torch.linspace(-1, 1, 768).reshape(1, 3, 4, 8, 8)),
    ],
)
def test_what_ethos_u55_computes_in_steps(module: torch.nn.Module, x: torch.Tensor) -> None:
    target = ethos_u.EthosUCompileSpec("ethos-u55-128")
    quantizer = ethos_u.EthosUQuantizer(target).set_global(ethos_u.get_symmetric_quantization_config())
    prepared = prepare_pt2e(torch.export.export(module.eval(), (x,)).module(), quantizer)
    prepared(x)
    converted = convert_pt2e(prepared)
    edge = to_edge_transform_and_lower(
        torch.export.export(converted, (x,)), partitioner=[ethos_u.EthosUPartitioner(target)]
    )
    left = [v.operator for v in edge.partition_reports["forward"].rejected if v.operator not in CONVERSIONS]
    assert left in ([], ["cast"])  # to int64
    (y,) = Runtime.get().load_program(edge.to_executorch().buffer).load_method("forward").execute([x])
    with torch.no_grad():
        step = max((n.args[1] for n in converted.graph.nodes if "quantize_per_tensor" in str(n.target)), default=0)
        torch.testing.assert_close(torch.as_tensor(y), converted(x), rtol=0, atol=1.01 * step)


@pytest.mark.parametrize("backend", sorted({*TABLES.values()}))
def test_batch_norms_are_folded(backend: str) -> None:
    torch.manual_seed(0)
    layers = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU())
    assert left_over(backend, layers, IMAGE) == []


def test_the_sum_of_two_ones(tmp_path: Path) -> None:
    """The tutorial of Ethos-U, in Python."""

    class Add(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return x + y

    with installed():
        from executorch.backends.arm.ethosu import EthosUCompileSpec, EthosUPartitioner
        from executorch.backends.arm.quantizer import EthosUQuantizer, get_symmetric_quantization_config
        from executorch.extension.export_util.utils import save_pte_program
    ones = (torch.ones(1, 1, 1, 1), torch.ones(1, 1, 1, 1))
    spec = EthosUCompileSpec("ethos-u55-128", "Ethos_U55_High_End_Embedded", "Shared_Sram")
    quantizer = EthosUQuantizer(spec)
    quantizer.set_global(get_symmetric_quantization_config())
    prepared = prepare_pt2e(torch.export.export(Add().eval(), ones).module(check_guards=False), quantizer)
    prepared(*ones)
    edge = to_edge_transform_and_lower(
        torch.export.export(convert_pt2e(prepared), ones), partitioner=[EthosUPartitioner(spec)],
        compile_config=EdgeCompileConfig(_check_ir_validity=False),
    )  # fmt: skip
    program = edge.to_executorch(config=ExecutorchBackendConfig(extract_delegate_segments=False))
    save_pte_program(program, str(tmp_path / "sum.pte"))
    method = Runtime.get().load_program(tmp_path / "sum.pte").load_method("forward")
    assert method.execute(list(ones))[0].item() == pytest.approx(2, abs=0.02)


@pytest.mark.parametrize("inputs_too", [False, True])
def test_channels_last_and_records_for_neutron(tmp_path: Path, inputs_too: bool) -> None:
    """The pages about dimension orders and profiles: the conversion is in the model, or inputs have the order."""

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.conv = torch.nn.Conv2d(8, 8, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.conv(x if inputs_too else x.to(memory_format=torch.channels_last)).relu()

    with installed():
        from executorch.backends.nxp.edge_passes.neutron_edge_pass_manager import NeutronEdgePassManager
        from executorch.backends.nxp.nxp_backend import core_aten_ops_exception_list
        from executorch.backends.nxp.quantizer.utils import calibrate_and_quantize
    x = torch.linspace(-1, 1, 512).reshape(1, 8, 8, 8)
    example = (x.to(memory_format=torch.channels_last) if inputs_too else x,)
    model = Net().to(memory_format=torch.channels_last).eval()
    spec = nxp.NeutronTargetSpec(target="imxrt700")
    module = calibrate_and_quantize(
        torch.export.export(model, example, strict=True).module(), [example], nxp.NeutronQuantizer(spec)
    )
    specs = nxp.generate_neutron_compile_spec("imxrt700", simulate_only=True)
    edge = to_edge_transform_and_lower(
        torch.export.export(module, example, strict=True), transform_passes=NeutronEdgePassManager(),
        generate_etrecord=True,
        partitioner=[nxp.NeutronPartitioner(specs, spec, post_quantization_state_dict=module.state_dict())],
        compile_config=EdgeCompileConfig(_core_aten_ops_exception_list=core_aten_ops_exception_list),
    )  # fmt: skip
    report = edge.partition_reports["forward"]
    assert "conv2d" in [v.operator for v in report.verdicts if v not in report.rejected]
    assert not [v for v in report.rejected if v.operator not in (*CONVERSIONS, "clone")]
    program = edge.to_executorch(config=ExecutorchBackendConfig(extract_delegate_segments=False))
    program.get_etrecord().save(str(tmp_path / "etrecord.bin"))
    assert IDENTIFIER.encode() in (tmp_path / "etrecord.bin").read_bytes()
    program.save(tmp_path / "m.pte")
    (y,) = Runtime.get().load_program(tmp_path / "m.pte").load_method("forward").execute(list(example))
    with torch.no_grad():
        torch.testing.assert_close(torch.as_tensor(y), model(*example), rtol=0, atol=0.05)
