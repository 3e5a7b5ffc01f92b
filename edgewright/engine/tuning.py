"""Autotuning: measures the alternatives of each decision (algorithm, tile) in the context of the entire graph.

Each round compiles the graph with the next option of every decision and times its steps on one thread, so that caches
are in the state of a real inference. A decision switches to its fastest option if that also wins an interleaved
comparison. The combined gain is measured on all threads, and stored only if there is one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from edgewright.engine.compiler import MEMORY, make_plan
from edgewright.engine.isa import host_isa
from edgewright.engine.jit.driver import CompiledGraph
from edgewright.engine.jit.thread_count import thread_count
from edgewright.engine.plan import TensorSpec
from edgewright.engine.profile import Profile
from edgewright.engine.tuning_params import Decision, TuningParams, load_tuned, store_tuned
from edgewright.ir.graph import Array, Graph
from edgewright.ir.numerics import FLOAT32, Numerics

_SECONDS = 0.1  # per measurement
_MIN_RATIO = 0.97  # relative time an option must reach; smaller differences are noise
_GAIN = 0.998  # of the time of all steps
_ROUNDS = 6
_RUNS = 5  # at least, per measurement
KINDS = ("algorithm", "tile")  # in this order: tiles depend on the algorithm


@dataclass(frozen=True)
class Change:
    """A decision whose heuristic choice was overruled by measurement."""

    label: str
    kind: str
    rule: str
    chosen: str
    rule_us: float
    chosen_us: float


@dataclass(frozen=True)
class Tuning:
    """The result of tuning a graph: milliseconds per inference with heuristic and with tuned parameters."""

    rule_ms: float
    chosen_ms: float
    decisions: int
    measured: int  # options
    changes: tuple[Change, ...]
    kept: bool

    def data(self) -> dict[str, Any]:
        return asdict(self)


def tune(
    graph: Graph,
    threads: int | None = None,
    numerics: Numerics = FLOAT32,
    cpu: str | None = None,
    memory: int = MEMORY,
    inputs: Sequence[Array] | None = None,
    on_round: Callable[[str], None] | None = None,
) -> Tuning:
    """Tune a graph of static shapes; improvements are stored and used by every later process.

    ``inputs``: arrays to measure with, random by default. ``on_round`` is called before every round.
    """
    count, isa = thread_count(threads), host_isa(cpu)
    before = load_tuned(isa, count)

    def compile_with(tuned: Mapping[str, int]) -> _TunedGraph:
        params = TuningParams(tuned)
        plan = make_plan(graph, count, numerics, cpu, memory, params)
        return _TunedGraph(CompiledGraph(plan, 1), params)

    tuner = _Tuner(compile_with, inputs, on_round or (lambda text: None))
    for kind in KINDS:
        tuner.measure_options(kind)
    default_time, tuned_time = tuner.compare(count)
    improved = bool(tuner.changes) and tuned_time < default_time
    if improved:
        store_tuned(isa, count, {**dict.fromkeys(set(before) & tuner.keys, 0), **tuner.tuned})
    return Tuning(
        default_time / 1e6, tuned_time / 1e6, len(tuner.keys), tuner.measured, tuple(tuner.changes.values()), improved
    )


@dataclass(frozen=True)
class _TunedGraph:
    graph: CompiledGraph
    params: TuningParams

    def label(self, decision: Decision) -> str:
        steps = [self.graph.plan.steps[i] for i in self.params.steps.get(decision.node, ())]
        return next((step.label for step in steps if step.label), decision.kind)


class _Tuner:
    def __init__(
        self,
        compile_with: Callable[[Mapping[str, int]], _TunedGraph],
        inputs: Sequence[Array] | None,
        on_round: Callable[[str], None],
    ) -> None:
        self.compile_with, self.on_round = compile_with, on_round
        self.tuned: dict[str, int] = {}
        self.changes: dict[str, Change] = {}
        self.keys: set[str] = set()
        self.measured = 0
        self._rule = compile_with({})
        self._inputs = random_inputs(self._rule.graph.plan.inputs) if inputs is None else list(inputs)

    def measure_options(self, kind: str) -> None:
        """Measure every option of the decisions of one kind."""
        variant = self._rule if not self.tuned else self.compile_with(self.tuned)
        decisions = {d.key: d for d in variant.params.decisions if d.kind == kind}
        self.keys |= decisions.keys()
        labels = {key: variant.label(decision) for key, decision in decisions.items()}
        rounds = max((len(d.options) for d in decisions.values()), default=0)
        times: dict[str, list[float]] = {key: [] for key in decisions}
        for at in range(rounds):
            self.on_round(f"{kind}: option {at + 1} of {rounds}")
            requested = {key: at for key, d in decisions.items() if at < len(d.options)}
            variant = self.compile_with({**self.tuned, **requested}) if at else variant
            variant.graph.run(self._inputs)
            step_times = self._measure(variant)
            for key in requested:
                times[key].append(_total(variant, step_times, key))
                self.measured += at > 0
        better = {
            key: int(np.argmin(step_times))
            for key, step_times in times.items()
            if min(step_times) < _MIN_RATIO * step_times[0]
        }
        if better:
            self._confirm([decisions[key] for key in better], better, labels)

    def _confirm(self, decisions: list[Decision], better: dict[str, int], labels: dict[str, str]) -> None:
        """Measure the default and the better options in turns, and adopt those that are faster again."""
        variants = [self.compile_with(self.tuned), self.compile_with({**self.tuned, **better})]
        fastest: list[list[float]] = [[], []]
        for _ in range(_ROUNDS):
            for i, variant in enumerate(variants):
                fastest[i] = _elementwise_min(fastest[i], self._measure(variant))
        if sum(fastest[1]) > _GAIN * sum(fastest[0]):
            return  # other nodes lose more than these gain, because caches are shared
        for d in decisions:
            default_time, tuned_time = (
                _total(variant, step_times, d.key) for variant, step_times in zip(variants, fastest, strict=True)
            )
            if tuned_time < _MIN_RATIO * default_time:
                option = d.options[better[d.key]]
                self.tuned[d.key] = better[d.key]
                self.changes[d.key] = Change(
                    labels[d.key], d.kind, d.options[0], option, default_time / 1e3, tuned_time / 1e3
                )

    def _measure(self, variant: _TunedGraph) -> list[float]:
        """The shortest time of each step, in nanoseconds."""
        end, runs = time.perf_counter() + _SECONDS, 0
        fastest: list[float] = []
        while time.perf_counter() < end or runs < _RUNS:
            profile = Profile()
            variant.graph.run(self._inputs, profile=profile)
            fastest = _elementwise_min(fastest, [float(step.end - step.start) for step in profile.parts])
            runs += 1
        return fastest

    def compare(self, threads: int) -> tuple[float, float]:
        """Nanoseconds of an inference with default and with tuned options, measured in turns."""
        variants = [self._rule] + ([self.compile_with(self.tuned)] if self.tuned else [])
        graphs = [CompiledGraph(variant.graph.plan, threads) for variant in variants]
        best = [float("inf")] * len(variants)
        for _ in range(_ROUNDS):
            for i, graph in enumerate(graphs):
                end, runs = time.perf_counter() + _SECONDS, 0
                while time.perf_counter() < end or runs < _RUNS:
                    start = time.perf_counter_ns()
                    graph.run(self._inputs)
                    best[i] = min(best[i], time.perf_counter_ns() - start)
                    runs += 1
        return best[0], best[-1]


def _elementwise_min(first: list[float], second: list[float]) -> list[float]:
    return [min(pair) for pair in zip(first, second, strict=True)] if first else second


def _total(variant: _TunedGraph, step_times: list[float], key: str) -> float:
    """The time of all steps of the nodes that a decision concerns."""
    nodes = dict.fromkeys(d.node for d in variant.params.decisions if d.key == key)
    return sum(step_times[i] for node in nodes for i in variant.params.steps.get(node, ()))


def random_inputs(tensors: Sequence[TensorSpec]) -> list[Array]:
    """Inputs to measure with: random numbers, or zeros for integers that may be indices."""
    rng = np.random.default_rng(0)
    inputs: list[Array] = []
    for tensor in tensors:
        if tensor.dtype.kind == "f":
            inputs.append(rng.standard_normal(tensor.shape).astype(tensor.dtype))
        elif tensor.dtype.itemsize == 1 and tensor.dtype.kind in "iu":
            inputs.append(rng.integers(0, 100, tensor.shape).astype(tensor.dtype))
        else:
            inputs.append(np.zeros(tensor.shape, tensor.dtype))
    return inputs
