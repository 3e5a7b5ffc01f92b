"""Statistics of chunks of calibration data: merged, they are those of all data, whoever observed which chunk."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from torchao.quantization.pt2e import MinMaxObserver, MovingAverageMinMaxObserver, PerChannelMinMaxObserver

import edgewright as ew
from edgewright.api.data import Call
from edgewright.api.progress import Stages
from edgewright.api.quantization import QuantizationPipeline
from edgewright.api.recipe import Recipe
from edgewright.backends.targets import find_target
from edgewright.errors import InputError
from edgewright.quantize import observer_statistics
from edgewright.quantize.attention_masks import MaskedObserver
from edgewright.quantize.histogram import FiniteHistogramObserver
from edgewright.quantize.nonfinite import FiniteMinMaxObserver
from edgewright.quantize.observer_statistics import Statistics, can_merge, chunks_of, collect, merge

OBSERVERS = [
    lambda: MinMaxObserver(dtype=torch.int8),
    lambda: PerChannelMinMaxObserver(dtype=torch.int8, qscheme=torch.per_channel_symmetric),
    lambda: FiniteMinMaxObserver(dtype=torch.int8),
    lambda: MaskedObserver(dtype=torch.int8, quant_min=-128, quant_max=127),
    lambda: FiniteHistogramObserver(dtype=torch.int8),
]


class Holder(torch.nn.Module):
    """A prepared model of one observer."""

    def __init__(self, observer: Any) -> None:
        super().__init__()
        self.observer = observer


def batches(count: int, scale: float = 1.0) -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(7)
    values = [scale * torch.randn(4, 50, generator=draw) for _ in range(count)]
    values[-1][0, 0] = torch.inf
    values[0][1, 1] = -300.0
    return values


def observed(make: Any, values: list[torch.Tensor]) -> tuple[Any, Statistics]:
    holder = Holder(make())
    for value in values:
        holder.observer(value)
    return holder.observer, collect(holder, "m")


@pytest.mark.parametrize("make", OBSERVERS[2:])
def test_merged_ranges_and_counts_are_those_of_all_data(make: Any) -> None:
    values = batches(9)
    whole, _ = observed(make, values)
    merged = Holder(make())
    merge(merged, [observed(make, values[at : at + 2])[1] for at in range(0, 9, 2)], "m")
    for field in ("min_val", "max_val", "seen", "left_out"):
        assert getattr(merged.observer, field) == getattr(whole, field)
    assert getattr(merged.observer, "masked", False) == getattr(whole, "masked", False)
    if hasattr(whole, "histogram"):
        assert float(merged.observer.histogram.sum()) == pytest.approx(float(whole.histogram.sum()), rel=1e-5)


@pytest.mark.parametrize("make", OBSERVERS[:2])
def test_ranges_of_weights_are_exact(make: Any) -> None:
    values = [v.nan_to_num(posinf=9.0) for v in batches(5)]
    whole, _ = observed(make, values)
    merged = Holder(make())
    merge(merged, [observed(make, [v])[1] for v in values], "m")
    assert torch.equal(merged.observer.min_val, whole.min_val)
    assert torch.equal(merged.observer.max_val, whole.max_val)


def test_histograms_of_one_range_are_added() -> None:
    values = [torch.cat([torch.tensor([-1.0, 1.0]), torch.rand(500) * 2 - 1]) for _ in range(6)]
    whole, _ = observed(OBSERVERS[4], values)
    merged = Holder(OBSERVERS[4]())
    merge(merged, [observed(OBSERVERS[4], values[:1])[1], observed(OBSERVERS[4], values[1:])[1]], "m")
    assert torch.equal(merged.observer.histogram, whole.histogram)


def test_a_chunk_that_saw_nothing_changes_nothing() -> None:
    whole, seen = observed(OBSERVERS[4], batches(3))
    nothing = collect(Holder(OBSERVERS[4]()), "m")
    for order in ([seen, nothing], [nothing, seen]):
        merged = Holder(OBSERVERS[4]())
        merge(merged, order, "m")
        assert torch.equal(merged.observer.histogram, whole.histogram) and merged.observer.min_val == whole.min_val


def test_merging_does_not_change_the_chunks() -> None:
    chunks = [observed(OBSERVERS[4], [v])[1] for v in batches(3)]
    before = pickle.dumps([chunk.states for chunk in chunks])
    merged = Holder(OBSERVERS[4]())
    merge(merged, chunks, "m")
    merged.observer(torch.randn(100))
    assert pickle.dumps([chunk.states for chunk in chunks]) == before


def test_moving_averages_are_not_merged() -> None:
    assert can_merge(Holder(FiniteHistogramObserver(dtype=torch.int8)))
    assert not can_merge(Holder(MovingAverageMinMaxObserver(dtype=torch.int8)))


def test_statistics_of_another_model_are_refused() -> None:
    with pytest.raises(InputError, match="of this model and recipe"):
        merge(Holder(OBSERVERS[0]()), [Statistics("other", {"observer": {}})], "m")


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = torch.nn.Linear(8, 8), torch.nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x).relu())


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_scales_are_the_same_for_any_number_of_workers(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks are observed in pipelines of their own, dealt to workers in turn, and travel as bytes."""
    monkeypatch.setattr(observer_statistics, "CHUNK_CALLS", 8)
    monkeypatch.setattr("edgewright.api.quantization.CHUNK_CALLS", 8)
    draw = np.random.default_rng(0)
    calls = [Call((torch.from_numpy((k + 1) * draw.standard_normal((1, 8)).astype(np.float32)),)) for k in range(30)]
    exported = torch.export.export(Net().eval(), calls[0].args)
    target, recipe = find_target("xnnpack"), Recipe("int8")

    def pipeline(part: Any) -> QuantizationPipeline:
        return QuantizationPipeline(exported, part, Stages(True), None, "wheel")

    chunks = chunks_of(calls)
    assert len(chunks) == 4
    results: dict[int, bytes] = {}
    for worker in reversed(range(workers)):
        for number in range(worker, len(chunks), workers):
            one = pipeline(chunks[number])
            results[number] = pickle.dumps(one.observe(target, one.prepare(target, recipe), chunks[number])[0])
    split, alone = pipeline(calls), pipeline(calls)
    split.statistics = [pickle.loads(results[n]) for n in range(len(chunks))]
    codes = [p.run(target, recipe).graph_module.code for p in (split, alone)]
    assert codes[0] == codes[1] and "quantize_per_tensor" in codes[0]
    partial = pipeline(calls)
    partial.statistics = split.statistics[:-1]
    assert partial.run(target, recipe).graph_module.code != codes[0]  # the last chunk has the largest values


def test_a_large_set_is_evaluated_by_chunks() -> None:
    data = [torch.randn(1, 8) for _ in range(300)]
    result = ew.compile(Net(), torch.zeros(1, 8), quantize="int8", calibration=data, evaluate=data, samples=300)
    assert result.report.samples == 300 and 20 < (result.report.sqnr or 0) < 80
