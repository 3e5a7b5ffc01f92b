"""``quantize="int8-best"``: tries the methods of better rounding, and keeps those that help.

Three parts of the data do not overlap: methods learn from three quarters of the calibration inputs; every fourth
decides which methods are kept; the report measures on inputs that are neither. So the figures that a user sees are of
data that nothing was chosen by. Methods are tried one after the other, each on top of those kept before it: as many
quantizations as there are methods, and one more. The winner then learns from all calibration inputs, so that the file
is the one that its name gives without a search.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch.export import ExportedProgram

from edgewright.api.accuracy import accuracy
from edgewright.api.compile_report import Trial
from edgewright.api.data import Call, Samples, hold_out
from edgewright.api.graph_interpreter import GraphInterpreter
from edgewright.errors import UsageError
from edgewright.frontend.buffers import preserve_buffers, writes_state
from edgewright.quantize.batching import one_thread
from edgewright.quantize.methods import BEST, METHODS, MSE, MSE_WEIGHTS, PERCENTILE, join_precision

if TYPE_CHECKING:
    from edgewright.api.progress import Stages
    from edgewright.api.quantization import QuantizationPipeline
    from edgewright.api.recipe import Recipe
    from edgewright.backends.targets import Target

log = logging.getLogger("edgewright.api")

_FEWEST = 4  # calibration inputs
_MARGIN = 0.05  # decibels that a method must gain
_STATELESS = (PERCENTILE, MSE, MSE_WEIGHTS)  # methods for models that write state, too
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


def is_best(recipe: Recipe) -> bool:
    """True if the methods of a recipe are to be chosen."""
    return (recipe.quantize or "").endswith(BEST)


def choose(session: Session, target: Target, recipe: Recipe) -> Choice:
    """Choose the methods that are best on a part of the calibration data."""
    return _Search(session, target, recipe).run()


def split(calls: Sequence[Call]) -> Samples:
    """The calibration inputs to learn from, and those to choose by.

    >>> samples = split([Call((n,)) for n in range(8)])
    >>> [c.args[0] for c in samples.calibration], [c.args[0] for c in samples.evaluation]
    ([0, 1, 2, 4, 5, 6], [3, 7])
    """
    if len(calls) < _FEWEST:
        rule = f"needs at least {_FEWEST} calibration inputs: a quarter chooses the methods that the others teach"
        remedy = "Pass more: calibration=[inputs, ...], or --calibrate calib.npz; a hundred inputs are enough."
        raise UsageError("quantize: -best", rule, value=len(calls), remedy=remedy)
    return hold_out(calls, len(calls), max(1, len(calls) // _FEWEST))


class _Search:
    def __init__(self, session: Session, target: Target, recipe: Recipe) -> None:
        samples = split(session.calls)
        self._session, self._target, self._recipe = session, target, recipe
        self._preset = (recipe.quantize or "").removesuffix(BEST)
        self._pipeline = session.quantization.with_calls(samples.calibration)
        self._calls = samples.evaluation
        self._expected = session.results_of(self._calls)
        self._nodes = GraphInterpreter(session.original).outputs

    def run(self) -> Choice:
        kept: tuple[str, ...] = ()
        best = self._try(kept)
        trials = [replace(best, kept=True)]
        for method in self._candidates():
            methods = tuple(name for name in METHODS if name in (*kept, method) and name != _EXCLUSIVE.get(method))
            trial = self._try(methods)
            trials.append(replace(trial, kept=trial.better_than(best, _MARGIN)))
            if trials[-1].kept:
                best, kept = trial, methods
        chosen = join_precision(self._preset, kept)
        log.info("%s: %s%s chose %s", self._target.name, self._preset, BEST, chosen)
        return Choice(replace(self._recipe, quantize=chosen), tuple(trials))

    def _candidates(self) -> Sequence[str]:
        return _STATELESS if writes_state(self._session.exported) else tuple(METHODS)

    def _try(self, methods: tuple[str, ...]) -> Trial:
        """Quantize with some methods, and measure."""
        precision = join_precision(self._preset, methods)
        exported = self._pipeline.run(self._target, replace(self._recipe, quantize=precision))
        with self._session.stages("choose", f"{self._target.name}: measure {precision}"), one_thread():
            model = _callable(exported)
            pairs = list(zip(self._expected, self._session.results_of(self._calls, model), strict=True))
            figures = accuracy(self._nodes, pairs)
            decibels = figures.sqnr if figures.sqnr is not None else 100 * (figures.agreement or 0.0)
            metric = self._session.select_metric(model)
        return Trial(precision, decibels, metric)


def _callable(exported: ExportedProgram) -> Callable[..., Any]:
    module = exported.module()

    def run(*args: Any, **kwargs: Any) -> Any:
        with torch.no_grad(), preserve_buffers(exported):
            return module(*args, **kwargs)

    return run
