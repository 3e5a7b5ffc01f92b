"""What quantizing does itself so that it need not be slow: the same numbers as torchao's own way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torchao.quantization.pt2e import HistogramObserver
from torchao.quantization.pt2e import quantize_pt2e as torchao

import edgewright as ew
from edgewright.quantize.histogram import FiniteHistogramObserver

SCHEMES = (
    (torch.int8, -128, 127, torch.per_tensor_affine),
    (torch.uint8, 0, 255, torch.per_tensor_affine),
    (torch.int16, -32768, 32767, torch.per_tensor_symmetric),
)


def batches() -> Iterator[list[torch.Tensor]]:
    draw = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=draw)

    yield from ([normal(1, 32) for _ in range(4)] for _ in range(4))
    yield [normal(64, 64).relu() for _ in range(2)]
    yield [normal(64, 64) * 10**i for i in range(3)]  # the range grows
    yield [normal(1000) ** 5]  # outliers
    yield [torch.sigmoid(normal(100) * 9)]
    yield [normal(1)]
    yield [torch.zeros(4), torch.ones(3)]
    yield [torch.cat([torch.zeros(100_000), torch.ones(1)])]
    yield [torch.tensor([1e30, -1e-30, 0.0])]


@pytest.mark.sample(1)
@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda s: str(s[0]).removeprefix("torch."))
def test_ranges_are_those_of_torchao_to_the_bit(scheme: tuple[Any, ...]) -> None:
    dtype, low, high, kind = scheme
    for number, seen in enumerate(batches()):
        found = []
        for cls in (HistogramObserver, FiniteHistogramObserver):
            observer = cls(dtype=dtype, quant_min=low, quant_max=high, qscheme=kind, eps=2**-12)
            for x in seen:
                observer(x)
            found.append([float(v) for v in observer.calculate_qparams()])
        assert found[0] == found[1], number


class Norms(nn.Module):
    """Behind every kind of layer, and where it can be part of none."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.wide = nn.Sequential(nn.Conv2d(8, 8, 3, groups=8), nn.BatchNorm2d(8, affine=False))
        self.larger = nn.Sequential(nn.ConvTranspose2d(8, 6, 2, 2), nn.BatchNorm2d(6), nn.ReLU())
        self.last = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5))
        self.alone = nn.BatchNorm2d(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.alone(self.first(x)))
        return self.last(self.larger(self.wide(x)).mean((2, 3)))


@pytest.fixture(scope="module")
def norms() -> tuple[nn.Module, list[tuple[torch.Tensor]]]:
    torch.manual_seed(0)
    model = Norms()
    data = [(torch.randn(4, 3, 12, 12) * 2 + 1,) for _ in range(4)]
    with torch.no_grad():
        for given in data:
            model(*given)  # statistics that are not those of nothing
    return model.eval(), data


def _norms(program: Any) -> int:
    return sum(
        str(node.target).startswith(("aten.batch_norm", "aten._native_batch_norm")) for node in program.graph.nodes
    )


@pytest.fixture
def patterns(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many batch norms torchao looked for patterns of training at."""
    seen: list[int] = []
    searched = torchao._fold_conv_bn_qat

    def spied(module: Any) -> Any:
        seen.append(_norms(module))
        return searched(module)

    monkeypatch.setattr(torchao, "_fold_conv_bn_qat", spied)
    return seen


@pytest.mark.sample(1)
@pytest.mark.parametrize("target", ["xnnpack", "ethos-u85-256", "imxrt700", "e9955", "sm8650"])
def test_programs_decomposed_before_are_quantized_as_others_are(
    target: str, norms: tuple[nn.Module, Any], patterns: list[int]
) -> None:
    model, data = norms
    whole = torch.export.export(model, data[0])
    results = [
        ew.compile(program, target=target, quantize="int8", calibration=data, quiet=True)
        for program in (whole, whole.run_decompositions())
    ]
    assert [_norms(result.exported) for result in results] == [1, 1]  # the one that is alone
    assert patterns == [0, 0]
    first, second = (result.report.sqnr for result in results)
    assert first is not None and second is not None
    assert first > 25 and second > first - 0.5
    counts = [sum("quantize_per" in str(n.target) for n in r.exported.graph.nodes) for r in results]
    assert counts[0] == counts[1] > 10  # nothing has a scale between a layer and its norm


class Shared(nn.Module):
    """What torchao would make part of a layer although others read the layer, or its weights, or more groups."""

    def __init__(self) -> None:
        super().__init__()
        self.head, self.read = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 1)
        self.apart = nn.ConvTranspose2d(8, 8, 2, 2, groups=8)
        self.norms = nn.ModuleList(nn.BatchNorm2d(8) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        large, small, read, apart = self.norms
        levels = torch.relu(large(self.head(x)))[..., ::2, ::2] + torch.relu(small(self.head(x[..., ::2, ::2])))
        seen = self.read(levels)
        return apart(self.apart(torch.relu(read(seen)) + seen))


@pytest.mark.sample(1)
@pytest.mark.parametrize("decomposed", [False, True])
def test_norms_of_layers_that_are_read_or_used_twice_keep_their_meaning(decomposed: bool, patterns: list[int]) -> None:
    torch.manual_seed(0)
    model = Shared()
    data = [(torch.randn(2, 3, 8, 8) * 2 + 1,) for _ in range(4)]
    with torch.no_grad():
        for norm in model.norms:  # levels differ
            norm.weight.uniform_(0.5, 2)
            norm.bias.normal_()
        for given in data:
            model(*given)
    program = torch.export.export(model.eval(), data[0])
    program = program.run_decompositions() if decomposed else program
    result = ew.compile(program, target="xnnpack", quantize="int8", calibration=data, evaluate=data, quiet=True)
    assert result.report.sqnr is not None and result.report.sqnr > 25  # of few inputs, ranges of others differ
    assert patterns == [0]
