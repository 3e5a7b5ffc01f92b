"""What is searched, and the recipe of what was found. Needs no torch, so that ``--show`` does not."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from edgewright.api.recipe import Recipe
from edgewright.backends.targets import Target, find_target
from edgewright.explore.goal import Findings, Goal, Point, unmet
from edgewright.explore.rows import Row
from edgewright.explore.store import Store
from edgewright.explore.units import Assignment
from edgewright.files import write_file
from edgewright.quantize.methods import split_precision
from edgewright.units import duration, size

TRIALS = 16  # programs to compile, the ones in one precision included
AUTOMATIC_METHODS = ""  # headroom of 16-bit activations; learned rounding where no quantized program is accurate
BEST_METHODS = "best"  # the methods that are best for the first preset
NO_METHODS = "none"
BEST_RECIPE, BEST_PROGRAM = "best.toml", "best.pte"


@dataclass(frozen=True)
class Task:
    """What is searched. ``row``: of the model, without a recipe. ``presets``: of the target, floating point included.
    ``fixed``: exceptions that the user decided, with the options of the target's compiler. ``methods``: of better
    rounding, as they follow a preset (``"adaround+bias"``); ``"best"``: those that are best for the first preset;
    ``"none"``; empty: headroom of 16-bit activations, and learned rounding where no quantized program is accurate."""

    row: Row
    presets: Sequence[str]
    fixed: Recipe
    goal: Goal
    seed: int = 0
    trials: int = TRIALS
    methods: str = AUTOMATIC_METHODS

    @property
    def target(self) -> Target:
        return find_target(self.row.target)

    def to_json(self) -> str:
        fixed = {"modules": dict(self.fixed.modules), "operators": dict(self.fixed.operators)}
        plain = {
            "row": json.loads(self.row.to_json()), "presets": list(self.presets), "goal": self.goal.to_dict(),
            "fixed": {**fixed, "options": dict(self.fixed.options)}, "seed": self.seed, "trials": self.trials,
            "methods": self.methods,
        }  # fmt: skip
        return json.dumps(plain, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Task:
        plain = json.loads(text)
        return cls(
            Row.from_json(json.dumps(plain["row"])), plain["presets"], Recipe(**plain["fixed"]), Goal(**plain["goal"]),
            plain["seed"], plain["trials"], plain.get("methods", ""),
        )  # fmt: skip


def named_methods(methods: str) -> tuple[str, ...]:
    """
    >>> named_methods("bias+adaround"), named_methods("best"), named_methods("")
    (('adaround', 'bias'), (), ())
    """
    chosen = (AUTOMATIC_METHODS, BEST_METHODS, NO_METHODS)
    return split_precision(f"int8+{methods}")[1] if methods not in chosen else ()


def describe(assignment: Assignment) -> str:
    """
    >>> describe({"a": "int8", "b": "int8", "c": "a16w8"})
    'int8, 1 of 3 a16w8'
    """
    (most, _), *others = Counter(assignment.values()).most_common()
    return ", ".join([most, *(f"{count} of {len(assignment)} {name}" for name, count in others)])


def write_best(store: Store, task: Task, found: Findings) -> None:
    """Write the recipe and the program of the best row, each at once: they are complete at any moment."""
    best = found.best
    if best is None:
        return
    text, path = recipe_text(task, best, found), store.folder / BEST_RECIPE
    if store.meta("best") == best.key and path.is_file() and path.read_text() == text:
        return
    write_file(store.folder / BEST_PROGRAM, [store.get(best.pte)])
    twin = store.folder / BEST_PROGRAM.replace(".pte", ".twin")
    if best.twin:
        write_file(twin, [store.get(best.twin)])
    elif twin.exists():
        os.unlink(twin)
    write_file(path, [text.encode()])
    store.set_meta("best", best.key)


def recipe_text(task: Task, point: Point, found: Findings) -> str:
    """A recipe file for ``compile --recipe``, with what was found as comments."""
    time = "" if point.milliseconds is None else f", {duration(point.milliseconds / 1e3)} {found.basis}"
    score = f"{task.goal.score_name} {point.score:.6g}"
    limits = "within the limits" if point.within_limits else "NOT within the limits"
    head = [
        f"# {task.row.target}, found by `edgewright search`: {point.name}",
        f"# {score}, {size(point.bytes)}{time}; {limits}",
    ]
    return "\n".join([*head, recipe_of_point(task, point).to_toml()])


def recipe_of_point(task: Task, point: Point) -> Recipe:
    plain = point.recipe
    modules, operators = (dict(sorted(plain[table].items())) for table in ("modules", "operators"))  # as in the store
    recipe = Recipe(plain["quantize"], modules, operators, options=plain.get("options", {}))
    return Recipe(targets={task.row.target: recipe})


def to_dict(task: Task, found: Findings) -> dict[str, Any]:
    """What was found, as plain data."""
    best = found.best
    return {
        "model": task.row.model, "target": task.row.target, "goal": task.goal.to_dict(),
        "score": task.goal.score_name, "score_limit": task.goal.score_limit, "time_basis": found.basis,
        "samples": found.samples, "evaluated_on": found.evaluated_on,
        "best": None if best is None else asdict(best),
        "recipe": "" if best is None else recipe_text(task, best, found),
        "unmet": unmet(task.goal, found),
        "points": [asdict(point) for point in found.points],
        "failures": [asdict(failure) for failure in found.failures],
    }  # fmt: skip
