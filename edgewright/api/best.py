"""``quantize="int8-best"``: tries the methods of better rounding, and keeps those that help.

Three parts of the data do not overlap: methods learn from three quarters of the calibration inputs; every fourth (of
models with state the last quarter, as calls depend on those before them) decides which methods are kept; the report
measures on inputs that are neither. So the figures that a user sees are of data that nothing was chosen by. Methods are
tried one after the other, each on top of those kept before it: as many quantizations as there are methods, and one
more. The winner then learns from all calibration inputs, so that the file is the one that its name gives without a
search.

A few dozen inputs say little about a small gain, above all where it is one input's. So a method must gain more than the
standard error of its gain, which a jackknife over the inputs estimates. Headroom of 16-bit ranges is the exception: it
is for elements beyond the ranges, which so few inputs may not have, and is kept unless it loses.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch.export import ExportedProgram

from edgewright.api.accuracy import Accuracy, AccuracyMeter
from edgewright.api.compile_report import Trial
from edgewright.api.data import Call, Samples, hold_out
from edgewright.api.graph_interpreter import GraphInterpreter
from edgewright.api.recipe import config_of
from edgewright.backends import find_quantizer
from edgewright.errors import UsageError
from edgewright.frontend.buffers import preserve_buffers, writes_state
from edgewright.quantize.batching import one_thread
from edgewright.quantize.methods import BEST, HEADROOM, METHODS, MSE, PERCENTILE, join_precision

if TYPE_CHECKING:
    from edgewright.api.progress import Stages
    from edgewright.api.quantization import QuantizationPipeline
    from edgewright.api.recipe import Recipe
    from edgewright.backends.targets import Target

log = logging.getLogger("edgewright.api")

_FEWEST = 4  # calibration inputs
MARGIN = 0.05  # decibels that a method must gain
_EXCLUSIVE = {PERCENTILE: MSE, MSE: PERCENTILE}


class Session(Protocol):
    """What the search needs of a compilation."""

    calls: list[Call]
    exported: ExportedProgram
    original: ExportedProgram
    quantization: QuantizationPipeline
    stages: Stages

    def results_of(self, calls: Sequence[Call], model: Callable[..., Any] | None = None) -> list[list[Any]]:
        """The results of the original, or of another model with its interface."""

    def select_metric(self, model: Callable[..., Any]) -> float | None:
        """The metric to choose by; None without one."""


@dataclass(frozen=True)
class Choice:
    """What was chosen, and what was tried."""

    recipe: Recipe
    trials: tuple[Trial, ...]


@dataclass(frozen=True)
class _Tried:
    """A trial, and its decibels without each of the inputs."""

    trial: Trial
    without: tuple[float, ...]

    def gains_over(self, other: _Tried) -> bool:
        return self.trial.better_than(other.trial, max(MARGIN, standard_error(self.without, other.without)))


def standard_error(one: Sequence[float], other: Sequence[float]) -> float:
    """The standard error of a difference that was measured without each of n inputs, by the jackknife.

    >>> standard_error([30.0, 30.0], [29.0, 29.0]), standard_error([30.0, 34.0], [30.0, 30.0])
    (0.0, 2.0)
    """
    differences = [a - b for a, b in zip(one, other, strict=True)]
    count = len(differences)
    if count < 2:
        return 0.0
    mean = sum(differences) / count
    return math.sqrt((count - 1) / count * sum((d - mean) ** 2 for d in differences))


def is_best(recipe: Recipe) -> bool:
    """True if the methods of a recipe are to be chosen."""
    return (recipe.quantize or "").endswith(BEST)


def choose(session: Session, target: Target, recipe: Recipe) -> Choice:
    """Choose the methods that are best on a part of the calibration data."""
    return _Search(session, target, recipe).run()


def split(calls: Sequence[Call], in_sequence: bool = False) -> Samples:
    """The calibration inputs to learn from, and those to choose by.

    >>> samples = split([Call((n,)) for n in range(8)])
    >>> [c.args[0] for c in samples.calibration], [c.args[0] for c in samples.evaluation]
    ([0, 1, 2, 4, 5, 6], [3, 7])
    """
    if len(calls) < _FEWEST:
        rule = f"needs at least {_FEWEST} calibration inputs: a quarter chooses the methods that the others teach"
        remedy = "Pass more: calibration=[inputs, ...], or --calibrate calib.npz; a hundred inputs are enough."
        raise UsageError("quantize: -best", rule, value=len(calls), remedy=remedy)
    return hold_out(calls, len(calls), max(1, len(calls) // _FEWEST), in_sequence)


class _Search:
    def __init__(self, session: Session, target: Target, recipe: Recipe) -> None:
        samples = split(session.calls, writes_state(session.exported))
        self._session, self._target, self._recipe = session, target, recipe
        self._preset = (recipe.quantize or "").removesuffix(BEST)
        self._pipeline = session.quantization.with_calls(samples.calibration)
        self._calls = samples.evaluation
        self._expected = session.results_of(self._calls)
        self._nodes = GraphInterpreter(session.original).outputs

    def run(self) -> Choice:
        kept: tuple[str, ...] = ()
        best = self._try(kept)
        trials = [replace(best.trial, kept=True)]
        for method in self._candidates():
            methods = tuple(name for name in METHODS if name in (*kept, method) and name != _EXCLUSIVE.get(method))
            tried = self._try(methods)
            # Headroom is for inputs that are not here: it is kept unless it loses.
            gains = tried.gains_over(best) if method != HEADROOM else not best.gains_over(tried)
            trials.append(replace(tried.trial, kept=gains))
            if gains:
                best, kept = tried, methods
        chosen = join_precision(self._preset, kept)
        log.info("%s: %s%s chose %s", self._target.name, self._preset, BEST, chosen)
        return Choice(replace(self._recipe, quantize=chosen), tuple(trials))

    def _candidates(self) -> Sequence[str]:
        """All methods; headroom only where activations have 16 bits."""
        quantizer = find_quantizer(self._target.backend).for_target(self._target.argument)
        precisions = {self._preset, *self._recipe.modules.values(), *self._recipe.operators.values()}
        configs = [config_of(quantizer, precision, self._target.name) for precision in precisions]
        has_16_bit = any(config is not None and config.is_16_bit for config in configs)
        return [name for name in METHODS if has_16_bit or name != HEADROOM]

    def _try(self, methods: tuple[str, ...]) -> _Tried:
        """Quantize with some methods, and measure."""
        precision = join_precision(self._preset, methods)
        exported = self._pipeline.run(self._target, replace(self._recipe, quantize=precision))
        with self._session.stages("choose", f"{self._target.name}: measure {precision}"), one_thread():
            model = _callable(exported)
            with preserve_buffers(exported):  # calls depend on the state that those before them left
                results = self._session.results_of(self._calls, model)
            meters = []
            for expected, actual in zip(self._expected, results, strict=True):
                meters.append(AccuracyMeter(self._nodes))
                meters[-1].add(expected, actual)
            with preserve_buffers(exported):
                metric = self._session.select_metric(model)
        without = tuple(_score(meters[:n] + meters[n + 1 :]) for n in range(len(meters))) if len(meters) > 1 else ()
        return _Tried(Trial(precision, _score(meters), metric), without)


def _score(meters: Sequence[AccuracyMeter]) -> float:
    """The decibels of some inputs; of discrete outputs, the percentage that is equal."""
    total = AccuracyMeter()
    for meter in meters:
        total.merge(meter)
    figures: Accuracy = total.result()
    return figures.sqnr if figures.sqnr is not None else 100 * (figures.agreement or 0.0)


def _callable(exported: ExportedProgram) -> Callable[..., Any]:
    module = exported.module()

    def run(*args: Any, **kwargs: Any) -> Any:
        with torch.no_grad():
            return module(*args, **kwargs)

    return run
