"""Quantized embedding tables: as small as their bits say, read by row, and equal to eager torchao, in both runtimes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim
from torchao.quantization import Int8WeightOnlyConfig, IntxWeightOnlyConfig, quantize_
from torchao.quantization.granularity import PerAxis, PerGroup
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
from torchao.quantization.pt2e.quantizer.embedding_quantizer import EmbeddingQuantizer
from torchao.quantization.quant_primitives import MappingType

import edgewright as ew
from edgewright.frontend.decompose.quantized_embedding import Table, pack, unpack
from tests.support.stock import stock

ROWS, WIDTH = 512, 64
IDS = torch.tensor([[1, 5, 200, 511], [0, 7, 7, 300]])
ASYMMETRIC = {"mapping_type": MappingType.ASYMMETRIC}
# By name: the configuration, and the kernel that reads the table.
CONFIGS: dict[str, tuple[Any, str]] = {
    "int8": (IntxWeightOnlyConfig(torch.int8, PerAxis(0)), "embedding_byte"),
    "int8 groups": (IntxWeightOnlyConfig(torch.int8, PerGroup(32)), "embedding_byte"),
    "int8 asymmetric": (IntxWeightOnlyConfig(torch.int8, PerAxis(0), **ASYMMETRIC), "embedding_byte"),
    "Int8Tensor": (Int8WeightOnlyConfig(), "embedding_byte"),
    "int5": (IntxWeightOnlyConfig(torch.int5, PerGroup(32)), "embedding_byte"),
    "int4": (IntxWeightOnlyConfig(torch.int4, PerAxis(0)), "embedding_4bit"),
    "int4 groups": (IntxWeightOnlyConfig(torch.int4, PerGroup(32)), "embedding_4bit"),
    "int4 asymmetric": (IntxWeightOnlyConfig(torch.int4, PerGroup(32), **ASYMMETRIC), "embedding_4bit"),
    "int3": (IntxWeightOnlyConfig(torch.int3, PerGroup(32)), "embedding_4bit"),
    "int2": (IntxWeightOnlyConfig(torch.int2, PerGroup(32)), "embedding_2bit"),
}


class Lookup(nn.Module):
    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table, self.last = nn.Embedding(ROWS, width), nn.Linear(width, 8)

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        rows = self.table(ids)
        return rows, self.last(rows)


def quantized(config: Any, dtype: torch.dtype = torch.float32, width: int = WIDTH) -> nn.Module:
    model = Lookup(width).to(dtype).eval()
    quantize_(model, config, lambda module, name: isinstance(module, nn.Embedding))
    return model


def kernels(result: Any) -> list[str]:
    return [op.name.partition("::")[2] for op in result.program.executorch_program.execution_plan[0].operators]


def require_rows(result: Any, model: nn.Module, ids: Tensor = IDS) -> None:
    """The rows are those of eager, bit for bit, in both runtimes."""
    wanted = model(ids)[0]
    for rows in (result.run(ids)[0], stock().run(result.buffer, "forward", [ids.numpy()])[0]):
        assert torch.equal(torch.as_tensor(rows).to(wanted.dtype), wanted)


@pytest.mark.parametrize("name", CONFIGS)
def test_tables_of_torchao_are_packed_and_read_by_row(name: str) -> None:
    config, kernel = CONFIGS[name]
    model = quantized(config)
    result = ew.compile(model, (IDS,), "xnnpack", quiet=True)
    assert kernels(result) == [kernel]
    require_rows(result, model)


@pytest.mark.parametrize("name", ["int8", "int4 groups", "int8 asymmetric", "int2"])
def test_a_runtime_without_the_kernels_gathers_integers(name: str) -> None:
    model = quantized(CONFIGS[name][0])
    result = ew.compile(model, (IDS,), "xnnpack", runtime="portable-only", quiet=True)
    assert not [kernel for kernel in kernels(result) if kernel.startswith(("embedding_", "dequantize"))]
    assert len(result.buffer) < ROWS * WIDTH * 2
    plan = result.program.executorch_program.execution_plan[0]
    assert sum(plan.non_const_buffer_sizes) < ROWS * WIDTH  # no table in memory
    require_rows(result, model)


def test_files_are_as_small_as_the_bits_say() -> None:
    sizes = {bits: len(ew.compile(quantized(CONFIGS[f"int{bits}"][0]), (IDS,), "xnnpack", quiet=True).buffer)
             for bits in (8, 4, 2)}  # fmt: skip
    assert abs(sizes[8] - sizes[4] - ROWS * WIDTH // 2) < 256
    assert abs(sizes[4] - sizes[2] + ROWS * 4 - ROWS * WIDTH // 4) < 256  # two scales in a row instead of one


def test_tables_of_half_precision() -> None:
    model = quantized(CONFIGS["int4 groups"][0], torch.float16)
    result = ew.compile(model, (IDS,), "xnnpack", quiet=True)
    assert "embedding_4bit" in kernels(result)
    wanted = model(IDS)[0]
    for rows in (result.run(IDS)[0], stock().run(result.buffer, "forward", [IDS.numpy()])[0]):
        torch.testing.assert_close(torch.as_tensor(rows), wanted, rtol=1e-3, atol=1e-3)


def test_rows_that_do_not_fill_their_bytes_are_not_packed() -> None:
    model = quantized(IntxWeightOnlyConfig(torch.int4, PerAxis(0)), width=63)
    result = ew.compile(model, (IDS,), "xnnpack", quiet=True)
    assert kernels(result) == ["embedding_byte"]
    require_rows(result, model)


@pytest.mark.parametrize("runtime", ["wheel", "portable-only"])
def test_dynamic_numbers_of_indices(runtime: str) -> None:
    model = quantized(CONFIGS["int4 groups"][0])
    shapes = {"ids": {1: Dim("length", min=1, max=16)}}
    result = ew.compile(model, (IDS,), "xnnpack", dynamic_shapes=shapes, runtime=runtime, quiet=True)
    for length in (1, 9, 16):
        require_rows(result, model, torch.arange(2 * length).reshape(2, length) * 13)


def test_tables_of_pt2e() -> None:
    prepared = prepare_pt2e(torch.export.export(Lookup().eval(), (IDS,)).module(), EmbeddingQuantizer())
    prepared(IDS)
    model = convert_pt2e(prepared)
    result = ew.compile(torch.export.export(model, (IDS,)), target="xnnpack", quiet=True)
    assert kernels(result) == ["embedding_byte"]
    wanted = model(IDS)[0]
    for rows in (result.run(IDS)[0], stock().run(result.buffer, "forward", [IDS.numpy()])[0]):
        torch.testing.assert_close(torch.as_tensor(rows), wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["int8", "int4 groups", "Int8Tensor"])
@pytest.mark.parametrize("target", ["xnnpack", "sm8650"])
def test_what_is_quantized_around_them(target: str, name: str) -> None:
    """Layers of a model whose tables torchao has quantized already."""
    model = quantized(CONFIGS[name][0])
    simulate = True if target == "sm8650" else None
    result = ew.compile(model, (IDS,), target, quantize="int8", calibration=[(IDS,)], simulate=simulate, quiet=True)
    report = result.program.partition_reports["forward"]
    assert report.coverage()["macs"] == 1
    assert (CONFIGS[name][1] in kernels(result)) == (target == "xnnpack")
    assert ("embedding" in {v.operator for v in report.delegated}) == (target == "sm8650")
    for actual, wanted in zip(result.run(IDS), model(IDS), strict=True):
        assert (torch.as_tensor(actual) - wanted).abs().max() < 0.05 * wanted.abs().max()


@pytest.mark.parametrize(("low", "high", "bits"), [
    (-2, 1, 2), (0, 3, 2), (-1, 2, 2), (-8, 7, 4), (0, 15, 4), (-4, 3, 4), (-7, 7, 4), (-8, -5, 4), (-128, 127, 8),
    (0, 255, 8), (-16, 15, 8),
])  # fmt: skip
def test_elements_take_as_few_bits_as_hold_their_range(low: int, high: int, bits: int) -> None:
    data = torch.arange(low, high + 1).repeat(8)[: 2 * 8].reshape(2, 8) if high - low < 16 else torch.zeros(2, 8)
    table = Table(data.to(torch.int16), torch.ones(2, 1), None, low, high, torch.float32)
    narrowed, width = table.narrow()
    assert width == bits
    packed = pack(narrowed.data, width)
    assert packed.shape == (2, 8 * bits // 8)
    shift = 0 if narrowed.zeros is None else narrowed.zeros
    assert torch.equal(unpack(packed, width) - shift, data.to(torch.float32))
