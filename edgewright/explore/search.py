"""Precision search: which precision each layer needs, so that a model is fast or small and stays accurate.

Every program in one precision is compiled and measured, while the errors of all layers are measured once. From these
the search predicts time, size and error of any mixture, proposes the cheapest for each amount of error, and verifies
proposals by compiling and measuring them: between the most erroneous program that is accurate and the least erroneous
one that is not, two at a time, until none is left that would be better or the budget is spent. Accuracy counts on data
that was not used for calibration; errors are measured on calibration data.

The sequence depends on the model, the data, the goal and the seed alone, not on the number of workers. Every program
is a row of the store, so that a search that was killed runs what is missing and goes on.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from edgewright.api.best import MARGIN
from edgewright.api.recipe import FLOAT, Recipe, apply_recipe, config_of, require_one_sign
from edgewright.backends import find_quantizer
from edgewright.backends.targets import find_target
from edgewright.errors import ExecutionError, UsageError
from edgewright.explore import tasks
from edgewright.explore.cluster import Cluster
from edgewright.explore.cost import time_of
from edgewright.explore.goal import Findings, Goal, Point, findings
from edgewright.explore.proposer import Proposer
from edgewright.explore.rows import DONE, FAILED, Outcome, Row
from edgewright.explore.runner import Runner, error_of, require_scheduler
from edgewright.explore.search_task import AUTOMATIC_METHODS, BEST_METHODS, Task, describe, named_methods, write_best
from edgewright.explore.sensitivity import Sensitivity
from edgewright.explore.space import Uniform, Verified
from edgewright.explore.store import Store
from edgewright.explore.sweep_file import Limits
from edgewright.explore.units import Assignment
from edgewright.quantize.evaluate import BEST as EQUAL
from edgewright.quantize.methods import ADAROUND, BEST, HEADROOM, in_order, join_precision, split_precision

_ATTEMPTS = 3  # to measure something, if workers die


@dataclass(frozen=True)
class Progress:
    """What a search reports: programs that are finished, of how many at most, and what was found so far."""

    done: int
    trials: int
    found: Findings


Report = Callable[[Progress], None]


@dataclass(frozen=True)
class _Measurement:
    """What is measured once. ``name``: in the store; ``future``: None if it is there already."""

    subject: str
    name: str
    submit: Callable[[], Any]
    future: Any


def make_task(
    row: Row,
    goal: Goal,
    fixed: Recipe,
    precisions: Sequence[str],
    modules: Sequence[str],
    seed: int,
    trials: int,
    methods: str = "",
) -> Task:
    """Check the precisions, the methods and the recipe against the target. ``precisions``: to choose from; by default
    all that the target can have in one model."""
    target = find_target(row.target)
    quantizer = find_quantizer(target.backend).for_target(target.argument)
    for name in precisions:
        config_of(quantizer, name, target.name)  # raises for an unknown one, with the presets of the same width
        if name not in (*quantizer.presets, FLOAT):
            rule = f"to choose from must be one of {', '.join((*quantizer.presets, FLOAT))}"
            raise UsageError("precision", rule, value=name, remedy="Methods and `higher` are for recipes.")
    apply_recipe(quantizer, fixed, modules, target.name)
    presets = [name for name in (*quantizer.presets, FLOAT) if name in (precisions or _together(quantizer))]
    require_one_sign(quantizer, [*presets, *fixed.modules.values(), *fixed.operators.values()], target.name)
    named_methods(methods)  # raises for an unknown one
    return Task(row, presets, fixed, goal, seed, trials, methods)


def _together(quantizer: Any) -> list[str]:
    """The presets that one model can have together, and floating point. Of signed and unsigned activations, those of
    the first preset: they differ in nothing else."""
    configs = {name: preset() for name, preset in quantizer.presets.items()}
    sign = next(iter(configs.values())).is_unsigned
    return [*(name for name, c in configs.items() if quantizer.mixes_signs or c.is_unsigned == sign), FLOAT]


class Search:
    """A search in a store; ``run`` continues it where it is."""

    def __init__(
        self, task: Task, store: Store, cluster: Cluster, report: Report, *, budget: float | None = None,
        metric: bytes = b"", imports: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self._task, self._store, self._cluster, self._report = task, store, cluster, report
        self._deadline = None if budget is None else time.monotonic() + budget
        self._rows: list[Row] = []
        self._assignments: dict[str, dict[str, str]] = {}  # of rows that were proposed, by key
        self._imports, self._metric = tuple(imports), metric
        self._runner = Runner(cluster, store, Limits(), self._on_finished, imports, metric)
        self._round_seconds = 0.0

    def run(self) -> Findings:
        """Search until nothing better is expected, or the budget or the number of programs is used up."""
        task = self._task
        self._store.set_meta("search", task.to_json())
        uniform = {preset: self._uniform_row(preset) for preset in task.presets}
        errors = self._measure_errors(uniform)
        first = next((preset for preset in uniform if preset != FLOAT), "")
        choice = self._choose_methods(first) if task.methods == BEST_METHODS and first else None
        self._verify(list(uniform.values()))
        done = {preset: row for preset, row in uniform.items() if self._outcome(row).status == DONE}
        if not done:
            failure = self._outcome(next(iter(uniform.values())))
            raise ExecutionError("search", "no precision can be compiled and measured", value=failure.error,
                                 remedy=failure.traceback)  # fmt: skip
        sensitivity = Sensitivity.from_dict(self._result(errors))
        proposer = Proposer(task, sensitivity, self._uniform_programs(done))
        for preset, row in done.items():
            self._assignments[row.key] = proposer.uniform(preset)
        quantized = [preset for preset in done if preset != FLOAT]
        if task.methods == AUTOMATIC_METHODS:
            proposer.methods = self._headroom(quantized)
            self._try_learned_rounding(proposer, quantized)
        else:
            methods = named_methods(task.methods)
            if choice is not None:
                methods = self._with_headroom(self._result(choice)["methods"])
            self._try_methods(proposer, quantized, methods)
        while proposer.space.choices and (left := self._left(proposer)) > 0 and self._has_time():
            known = [self._verified(row, proposer) for row in self._rows if self._outcome(row).status == DONE]
            rows = []
            for assignment in proposer.next(known, self._findings(), self._known(proposer)):
                recipe = proposer.recipe(assignment)
                row = self._row(self._name(assignment, proposer), recipe)
                self._assignments[row.key] = assignment
                rows.append(row)
            if not rows:
                break
            self._verify(rows[:left])
        improved = self._improved_best(proposer)
        if improved is not None and self._may_compile():
            self._verify([improved])
        return self._findings()

    # ------------------------------------------------------------------------------------------------------ methods

    def _headroom(self, presets: Sequence[str]) -> tuple[str, ...]:
        """Headroom, if one of the presets has 16-bit activations. It changes neither time nor size."""
        known = find_quantizer(self._task.target.backend).presets
        return (HEADROOM,) if any(known[name]().is_16_bit for name in presets if name != FLOAT) else ()

    def _with_headroom(self, methods: Sequence[str]) -> tuple[str, ...]:
        """The methods that are best for the first preset, and headroom, which its 8 bits cannot tell about."""
        return in_order((*methods, *self._headroom(self._task.presets)))

    def _uniform_row(self, preset: str) -> Row:
        """Everything in one preset; unless the user decides about methods, 16-bit activations have headroom."""
        methods = self._headroom([preset]) if self._task.methods == AUTOMATIC_METHODS else ()
        name = join_precision(preset, methods)
        return self._row(name, Recipe(None if preset == FLOAT else name))

    def _try_learned_rounding(self, proposer: Proposer, presets: Sequence[str]) -> None:
        """If no program in one quantized precision is accurate, layers would have to go to where they are slow. So the
        most accurate one is compiled with learned rounding, too; all proposals are if it gains."""
        goal = self._task.goal
        points = {preset: self._point(self._uniform_row(preset)) for preset in presets}
        valid = {preset: p for preset, p in points.items() if p is not None and p.score is not None}
        if not valid or any(map(goal.is_accurate, valid.values())) or not self._may_compile():
            return
        preset = max(valid, key=lambda name: goal.gain(valid[name].score or 0.0))
        methods = (*self._headroom([preset]), ADAROUND)
        name = join_precision(preset, methods)
        row = self._row(name, Recipe(name))
        self._assignments[row.key] = proposer.uniform(preset)
        self._verify([row])
        after, least = self._point(row), goal.gain(valid[preset].score or 0.0) + self._least_gain()
        if after is not None and after.score is not None and goal.gain(after.score) > least:
            proposer.methods = in_order((*proposer.methods, ADAROUND))

    def _least_gain(self) -> float:
        """What is too little to choose anything by."""
        return MARGIN if self._task.goal.original is None else 0.0

    def _try_methods(self, proposer: Proposer, presets: Sequence[str], methods: Sequence[str]) -> None:
        """Round a program in one precision, the first that the methods change, by them; all proposals are unless it
        loses."""
        changed = {preset: proposer.methods_of(proposer.uniform(preset), methods) for preset in presets}
        preset = next((preset for preset in presets if changed[preset]), None)
        if preset is None or not self._may_compile():
            return
        before = self._point(self._row(preset, Recipe(preset)))
        name = join_precision(preset, changed[preset])
        row = self._row(name, Recipe(name))
        self._assignments[row.key] = proposer.uniform(preset)
        self._verify([row])
        after, goal = self._point(row), self._task.goal
        if after is None or after.score is None or before is None or before.score is None:
            return
        # Headroom is for inputs that may not be here: a loss that is too small to choose anything by keeps it.
        slack = self._least_gain() if HEADROOM in changed[preset] else 0.0
        if goal.gain(after.score) + slack >= goal.gain(before.score):
            proposer.methods = tuple(methods)

    def _improved_best(self, proposer: Proposer) -> Row | None:
        """The best program with the methods, if they gain and it is without; it takes as long. Else None."""
        best = self._findings().best
        if best is None or not proposer.methods:
            return None
        assignment = self._assignments[best.key]
        recipe = proposer.recipe(assignment)
        row = self._row(self._name(assignment, proposer), recipe)
        if not recipe.methods or row.key in {known.key for known in self._rows}:
            return None
        self._assignments[row.key] = assignment
        return row

    def _left(self, proposer: Proposer) -> int:
        """How many programs may be proposed, beside the best one with the methods."""
        reserved = self._improved_best(proposer) is not None
        return self._task.trials - len(self._rows) - reserved

    def _may_compile(self) -> bool:
        """True if one more program is within the limits of the search."""
        return len(self._rows) < self._task.trials and self._has_time()

    @staticmethod
    def _name(assignment: Assignment, proposer: Proposer) -> str:
        name, methods = describe(assignment), proposer.recipe(assignment).methods
        return f"{name} +{'+'.join(methods)}" if methods else name

    def _point(self, row: Row) -> Point | None:
        return next((point for point in self._findings().points if point.key == row.key), None)

    # --------------------------------------------------------------------------------------------------------- rows

    def _row(self, name: str, recipe: Recipe) -> Row:
        """A row of a recipe, with the exceptions that the user decided."""
        fixed = self._task.fixed
        plain: dict[str, Any] = {
            "quantize": recipe.quantize, "modules": {**recipe.modules, **fixed.modules},
            "operators": {**recipe.operators, **fixed.operators},
        }  # fmt: skip
        if fixed.options:
            plain["options"] = dict(fixed.options)
        return replace(self._task.row, precision=name, recipe=plain)

    def _verify(self, rows: Sequence[Row]) -> None:
        """Compile and measure rows, unless the store has their outcome."""
        start = time.monotonic()
        keys = {row.key for row in self._rows}
        new = [row for row in rows if row.key not in keys]
        self._rows += new
        self._store.save_plan(self._rows, {"better": "lower" if self._task.goal.lower else "higher"})
        self._runner.run(self._store.missing())
        self._round_seconds = max(self._round_seconds, time.monotonic() - start)
        self._keep_best()

    def _on_finished(self, row: Row, outcome: Outcome) -> None:
        self._keep_best()

    def _keep_best(self) -> None:
        found = self._findings()
        write_best(self._store, self._task, found)
        self._report(Progress(len(found.points) + len(found.failures), self._task.trials, found))

    def _outcome(self, row: Row) -> Outcome:
        return self._store.outcomes().get(row.key) or Outcome(FAILED)

    def _findings(self) -> Findings:
        return findings(self._task.goal, self._rows, self._store.outcomes())

    def _has_time(self) -> bool:
        """True if another round is likely to end before the budget does."""
        return self._deadline is None or time.monotonic() + self._round_seconds <= self._deadline

    def _verified(self, row: Row, proposer: Proposer) -> Verified:
        figures = self._outcome(row).figures
        decibels = figures["sqnr"]
        power = None if decibels is None or decibels >= EQUAL else 10 ** (-decibels / 10)
        assignment, methods = self._assignments[row.key], split_precision(row.recipe["quantize"] or FLOAT)[1]
        same = methods == proposer.methods_of(assignment) or set(assignment.values()) == {FLOAT}
        return Verified(assignment, time_of(figures), figures["bytes"], power, same)

    def _known(self, proposer: Proposer) -> Callable[[Assignment], bool]:
        keys = {row.key for row in self._rows}
        return lambda assignment: self._row("", proposer.recipe(assignment)).key in keys

    # -------------------------------------------------------------------------------------------------- measurements

    def _measure_errors(self, uniform: Mapping[str, Row]) -> _Measurement:
        presets = [preset for preset in uniform if preset != FLOAT]
        row = next(iter(uniform.values()))
        key = replace(self._row("", Recipe()), metric="", metric_source="").key
        name = f"errors:{self._task.seed}:{','.join(self._task.presets)}:{key}"
        return self._start("the errors of layers", name, tasks.measure_errors, row, presets, self._task.seed)

    def _choose_methods(self, preset: str) -> _Measurement:
        row = self._row("", Recipe(preset + BEST))
        name = f"methods:{replace(row, metric='', metric_source='').key}"
        return self._start("the best methods", name, tasks.choose_methods, row)

    def _start(self, subject: str, name: str, function: Callable[..., Any], row: Row, *args: Any) -> _Measurement:
        """Measure something on a worker, while others compile, unless the store has it."""

        def submit() -> Any:
            work = tasks.Work(row, imports=self._imports)
            model, data = self._runner.input(row.program), self._runner.input(row.data)
            label = function.__name__.replace("_", "-")
            key = f"{label}-{row.model}-{row.target}-{row.key[:16]}-{time.monotonic_ns()}"
            return self._cluster.client.submit(function, work, model, data, *args, key=key, pure=False, priority=10)

        return _Measurement(subject, name, submit, None if self._store.meta(name) else submit())

    def _result(self, measurement: _Measurement) -> Any:
        """What was measured, as plain data. It is repeated if its worker dies."""
        future, attempts = measurement.future, 0
        while future is not None:
            attempts += 1
            error = error_of(future)
            require_scheduler(self._cluster.client, self._store, error)
            result = None if error is not None else future.result()
            if isinstance(result, tasks.Failure):
                rule = f"{measurement.subject} cannot be measured: {result.error}"
                raise ExecutionError("search", rule, remedy=result.traceback)
            if result is not None:
                contents = json.dumps(result, sort_keys=True, allow_nan=False).encode()
                self._store.set_meta(measurement.name, self._store.put(contents))
                break
            if attempts == _ATTEMPTS:
                rule = f"gave up to measure {measurement.subject} after {attempts} attempts"
                raise ExecutionError("search", rule, value=str(error))
            future = measurement.submit()
        return json.loads(self._store.get(self._store.meta(measurement.name)))

    def _uniform_programs(self, done: Mapping[str, Row]) -> dict[str, Uniform]:
        result = {}
        for preset, row in done.items():
            outcome = self._outcome(row)
            methods = json.loads(self._store.get(outcome.files["report"]))
            figures = outcome.figures
            measured = figures.get("host_ms") is not None
            result[preset] = Uniform(methods["forward"], time_of(figures), figures["bytes"], measured)
        return result
