"""Statistics of observers over chunks of the calibration data, and how chunks are merged.

A large calibration set is observed in chunks of ``CHUNK_CALLS`` calls, each by observers that start empty. The chunks
are merged in the order of the data. Scales therefore depend on the data alone: not on how many processes observed it,
nor on which of them finished first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torchao.quantization.pt2e import HistogramObserver, MinMaxObserver, PerChannelMinMaxObserver, PlaceholderObserver

from edgewright.errors import InputError
from edgewright.quantize.attention_masks import MaskedObserver
from edgewright.quantize.block_scales import BlockObserver
from edgewright.quantize.histogram import FiniteHistogramObserver
from edgewright.quantize.known_ranges import KnownRangeObserver
from edgewright.quantize.nonfinite import FiniteMinMaxObserver, FiniteRange
from edgewright.quantize.range_observers import (
    MseChannelWeightObserver,
    MseObserver,
    MseWeightObserver,
    PercentileObserver,
)

CHUNK_CALLS = 128
State = dict[str, Any]
_Item = TypeVar("_Item")

# Exact types: a subclass may have state that is not merged here, such as a moving average.
_RANGES = (
    MinMaxObserver, PerChannelMinMaxObserver, FiniteMinMaxObserver, KnownRangeObserver, MaskedObserver,
    MseWeightObserver, MseChannelWeightObserver,
)  # fmt: skip
_HISTOGRAMS = (HistogramObserver, FiniteHistogramObserver, PercentileObserver, MseObserver)
_FIELDS: dict[type, tuple[str, ...]] = {
    **dict.fromkeys(_RANGES, ("min_val", "max_val")),
    **dict.fromkeys(_HISTOGRAMS, ("min_val", "max_val", "histogram")),
    BlockObserver: ("largest", "original_dtype", "block_size"),
    PlaceholderObserver: (),
}


@dataclass(frozen=True)
class Statistics:
    """The state of every observer of a prepared model after some calls. ``model``: a digest of the prepared model."""

    model: str
    states: dict[str, State]


def chunks_of(calls: Sequence[_Item]) -> list[Sequence[_Item]]:
    """The chunks that calls are observed or evaluated in.

    >>> [len(chunk) for chunk in chunks_of(range(300))]
    [128, 128, 44]
    """
    return [calls[at : at + CHUNK_CALLS] for at in range(0, len(calls), CHUNK_CALLS)]


def can_merge(prepared: Any) -> bool:
    """True if the statistics of all observers of a prepared model can be merged."""
    return all(type(observer) in _FIELDS for observer in _observers(prepared).values())


def collect(prepared: Any, model: str) -> Statistics:
    """A copy of the observers' state."""
    return Statistics(model, {name: _state(observer) for name, observer in _observers(prepared).items()})


def restore(prepared: Any, statistics: Statistics) -> None:
    """Set the observers' state."""
    for name, observer in _observers(prepared).items():
        for field, value in statistics.states[name].items():
            setattr(observer, field, value.clone() if isinstance(value, torch.Tensor) else value)


def observe_chunks(
    prepared: Any, calls: Sequence[_Item], observe: Callable[[_Item], None], model: str
) -> list[Statistics]:
    """The statistics of each chunk of ``calls``. ``observe`` runs the prepared model on one of them."""
    empty, results = collect(prepared, model), []
    for chunk in chunks_of(calls):
        restore(prepared, empty)
        for call in chunk:
            observe(call)
        results.append(collect(prepared, model))
    return results


def merge(prepared: Any, chunks: Sequence[Statistics], model: str) -> None:
    """Set the observers' state to that of all chunks, in their order."""
    observers = _observers(prepared)
    for chunk in chunks:
        if chunk.model != model or chunk.states.keys() != observers.keys():
            raise InputError("calibration statistics", "must be of this model and recipe")
    for name, observer in observers.items():
        state, *others = (chunk.states[name] for chunk in chunks)
        for other in others:
            state = _merge(observer, state, other)
        restore(_Named({name: observer}), Statistics(model, {name: state}))


class _Named:
    """Modules by name, as a model has them."""

    def __init__(self, modules: dict[str, Any]) -> None:
        self._modules = modules

    def named_modules(self) -> list[tuple[str, Any]]:
        return list(self._modules.items())


def _observers(prepared: Any) -> dict[str, Any]:
    return {name: module for name, module in prepared.named_modules() if hasattr(module, "calculate_qparams")}


def _state(observer: Any) -> State:
    fields = _FIELDS[type(observer)]
    if isinstance(observer, FiniteRange):
        fields += ("seen", "left_out")
    if isinstance(observer, MaskedObserver):
        fields += ("masked",)
    values = {field: getattr(observer, field, None) for field in fields}
    return {field: v.detach().clone() if isinstance(v, torch.Tensor) else v for field, v in values.items()}


def _merge(observer: Any, first: State, second: State) -> State:
    merged = dict(first)
    if "min_val" in first:
        merged["min_val"] = _bound(torch.minimum, first["min_val"], second["min_val"])
        merged["max_val"] = _bound(torch.maximum, first["max_val"], second["max_val"])
    if "histogram" in first:
        merged["histogram"] = _merge_histograms(observer, first, second, merged["min_val"], merged["max_val"])
    for count in ("seen", "left_out"):
        if count in first:
            merged[count] = first[count] + second[count]
    if "masked" in first:
        merged["masked"] = first["masked"] or second["masked"]
    if first.get("largest") is None and "largest" in first:  # of weights: the same in every call
        merged = dict(second)
    return merged


def _bound(choose: Callable[..., torch.Tensor], first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """A bound of two chunks; per-channel bounds are empty before the first call."""
    if not first.numel() or not second.numel():
        return first if first.numel() else second
    return choose(first, second)


def _merge_histograms(
    observer: Any, first: State, second: State, low: torch.Tensor, high: torch.Tensor
) -> torch.Tensor:
    """Both histograms over the common range, by torchao's own redistribution of bins."""
    histogram = torch.zeros_like(first["histogram"])
    for state in (first, second):
        if state["min_val"] <= state["max_val"]:  # something was observed
            histogram = observer._combine_histograms(
                state["histogram"], state["min_val"], state["max_val"], histogram, low, high
            )
    return histogram
