"""``edgewright.search``: the precision of each layer for a target, within limits."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from edgewright.api.compile import CompileSession, Metric, Settings, evaluate_metric
from edgewright.api.compile_report import EVALUATED
from edgewright.api.data import MAX_SAMPLES
from edgewright.api.progress import Stages
from edgewright.api.quantization import quiet_warnings
from edgewright.api.recipe import Recipe, as_recipe
from edgewright.backends import find_quantizer
from edgewright.backends.targets import Target, find_target
from edgewright.errors import AccuracyError, UsageError
from edgewright.explore.cluster import connect
from edgewright.explore.goal import MAX_DROP, MIN_SQNR, Findings, Goal, unmet
from edgewright.explore.model_inputs import (
    compiler_versions,
    program_digest,
    samples_digest,
    save_program,
    save_samples,
    source_digest,
)
from edgewright.explore.rows import Row
from edgewright.explore.search import Progress, Search, make_task
from edgewright.explore.search_task import (
    BEST_PROGRAM,
    BEST_RECIPE,
    TRIALS,
    Task,
    recipe_of_point,
    recipe_text,
    to_dict,
)
from edgewright.explore.store import Store
from edgewright.files import make_folder, write_file
from edgewright.frontend.buffers import preserve_buffers, writes_state
from edgewright.frontend.model_spec import load_object
from edgewright.hints import not_among
from edgewright.quantize.observer_statistics import chunks_of

_NEEDS_DATA = "needs inputs to calibrate with, and others to measure on"


@dataclass(frozen=True)
class Request:
    """What the user asks for, in the user's terms. ``max_drop``: of the metric, as a number or in percent of the
    original's (``"0.5%"``). ``max_latency``: milliseconds. ``max_size``: bytes. ``minimize``: ``"latency"`` or
    ``"size"``. ``precisions``: presets to choose from. ``methods``: of better rounding, ``"best"``,
    ``"adaround+bias"`` or ``"none"``."""

    metric: Metric | str | None = None
    max_drop: float | str | None = None
    min_sqnr: float | None = None
    better: str = "higher"
    minimize: str = "latency"
    max_latency: float | None = None
    max_size: float | None = None
    precisions: tuple[str, ...] = ()
    seed: int = 0
    trials: int = TRIALS
    methods: str = ""

    def check(self) -> None:
        """Reject what contradicts itself, before any work."""
        for name, value, names in (("better", self.better, ("higher", "lower")),
                                   ("minimize", self.minimize, ("latency", "size"))):  # fmt: skip
            if value not in names:
                raise not_among(name, value, names)
        if self.metric is None and self.max_drop is not None:
            remedy = "Pass one, or a limit of the SQNR: min_sqnr=40 (--min-sqnr 40)."
            raise UsageError("max_drop", "is of a metric, and there is none", remedy=remedy)
        if self.metric is not None and self.min_sqnr is not None:
            raise UsageError("min_sqnr", "is the limit without a metric", remedy="Use max_drop (--max-drop).")
        parse_drop(self.max_drop)
        for name, limit in (("max_latency", self.max_latency), ("max_size", self.max_size), ("trials", self.trials)):
            if limit is not None and not limit > 0:
                raise UsageError(name, "must be more than 0", value=limit)

    def goal(self, original: float | None) -> Goal:
        drop, relative = parse_drop(self.max_drop)
        if original is not None and relative:
            drop *= abs(original)
        return Goal(
            self.minimize == "size", self.better == "lower", original, drop,
            MIN_SQNR if self.min_sqnr is None else self.min_sqnr, self.max_latency, self.max_size,
        )  # fmt: skip


def parse_drop(value: float | str | None) -> tuple[float, bool]:
    """A drop, and whether it is a fraction of the original's metric.

    >>> parse_drop("0.5%"), parse_drop(0.01), parse_drop(None)
    ((0.005, True), (0.01, False), (0.01, True))
    """
    if value is None:
        return MAX_DROP, True
    try:
        text = str(value).strip()
        drop = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        drop = -1.0
    if not 0 <= drop < float("inf"):
        remedy = "Write 0.5% (of the original's metric) or 0.005 (as the metric counts)."
        raise UsageError("max_drop", "must be a number that is not negative, or percent", value=value, remedy=remedy)
    return drop, str(value).strip().endswith("%")


@dataclass(frozen=True)
class SearchResult:
    """``best``: the program within the limits, or the one nearest to them. ``unmet``: limits that no program meets.
    ``recipe``: for ``compile(recipe=...)``; ``recipe_text``: the same as a file. ``program``: the best ``.pte``;
    ``twin``: what this machine needs to run it, or empty."""

    task: Task
    findings: Findings
    recipe: Recipe
    recipe_text: str
    program: bytes
    twin: bytes

    @property
    def best(self) -> Any:
        return self.findings.best

    @property
    def points(self) -> list[Any]:
        """Every program that was compiled and measured."""
        return list(self.findings.points)

    @property
    def pareto(self) -> list[Any]:
        """The programs that no other beats in size, time and score at once, fastest first."""
        return sorted((p for p in self.points if p.pareto), key=lambda p: (p.milliseconds or 0.0, p.bytes))

    @property
    def unmet(self) -> list[str]:
        return unmet(self.task.goal, self.findings)

    def to_dict(self) -> dict[str, Any]:
        return to_dict(self.task, self.findings)

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)

    def save(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Write ``best.toml``, ``best.pte`` and what this machine needs to run it; returns the paths."""
        program = make_folder(folder) / BEST_PROGRAM
        files = {program.with_name(BEST_RECIPE): self.recipe_text.encode(), program: self.program}
        if self.twin:
            files[program.with_suffix(".twin")] = self.twin
        for path, contents in files.items():
            write_file(path, [contents])
        return list(files)


def prepare(
    session: CompileSession, target: Target, store: Store, request: Request, *, name: str, spec: str = "",
    fixed: Recipe | None = None,
) -> tuple[Task, bytes]:  # fmt: skip
    """Check everything that can be checked before any program is compiled, evaluate the metric on the original, and
    store model and data. Returns the task, and the metric as bytes if it has no name."""
    request.check()
    samples = session.samples
    if samples.origin not in ("held-out", "given") or not samples.calibration:
        remedy = "Pass a hundred inputs (--calibrate), of which some are held out, or others with --evaluate."
        raise UsageError("search", _NEEDS_DATA, value=f"{len(samples.calibration)} inputs", remedy=remedy)
    versions, own = compiler_versions(target), fixed or Recipe()
    draft = Row(name, target.name, "", "", "", versions=versions)
    modules = sorted(session.quantization.modules())
    choice = (request.precisions, modules, request.seed, request.trials, request.methods)
    make_task(draft, Goal(), own, *choice)
    metric_name, source, pickled, metric = _metric(request.metric)
    original = None
    if metric is not None:
        with session.stages("metric", "the original's metric"):
            original = _original_metric(session, metric)
    counts = tuple(max(1, len(chunks_of(part))) for part in (samples.calibration, samples.evaluation))
    chunks = (1, 1) if writes_state(session.exported) else (counts[0], counts[1])
    digests = program_digest(session.exported), samples_digest(samples)
    row = Row(name, target.name, "", *digests, {}, {}, spec, metric_name, source, versions, chunks)
    with session.stages("store"):
        inputs: dict[str, Callable[[], bytes]] = {
            row.program: lambda: save_program(name, session.exported),
            row.data: lambda: save_samples(samples),
        }
        store.put_inputs(inputs)
    goal = request.goal(original)
    return make_task(row, goal, own, *choice), pickled


def _metric(metric: Metric | str | None) -> tuple[str, str, bytes, Metric | None]:
    """A metric's name, the digest of its source, its bytes if it has no name, and the function."""
    if metric is None:
        return "", "", b"", None
    if isinstance(metric, str):
        function = load_object(metric)
        if not callable(function):
            raise UsageError(metric, "must be a function of a model: def accuracy(model): ... return a number")
        return metric, source_digest(function), b"", function
    if not callable(metric):
        raise UsageError("metric", "must be a function of a model", value=type(metric).__name__)
    import cloudpickle  # type: ignore[import-untyped]  # of distributed

    pickled = cloudpickle.dumps(metric)
    return "", hashlib.sha256(source_digest(metric).encode() + pickled).hexdigest(), pickled, metric


def _original_metric(session: CompileSession, metric: Metric) -> float:
    """The metric of the float original, which takes arrays as a compiled program does."""

    def model(*inputs: Any) -> Any:
        return session.eager(*(torch.from_numpy(x) if isinstance(x, np.ndarray) else x for x in inputs))

    try:
        with preserve_buffers(session.original):  # the model is stored without what the metric's calls leave in it
            return evaluate_metric(metric, model)
    except AccuracyError as error:
        error.rule += ", for the original model"
        if error.__cause__ is not None:
            error.remedy = "".join(traceback.format_exception(error.__cause__)).rstrip()
        raise


def search(
    model: Any, inputs: Any = None, target: str = "xnnpack", *, calibration: Any, metric: Metric | str | None = None,
    max_drop: float | str | None = None, min_sqnr: float | None = None, max_latency: float | None = None,
    max_size: float | None = None, minimize: str = "latency", better: str = "higher", precisions: Any = (),
    recipe: Any = None, methods: str = "", budget: float | None = None, trials: int = TRIALS, seed: int = 0,
    workers: int = 1,
    scheduler: str | None = None, output: str | os.PathLike[str] | None = None, quiet: bool = False, **options: Any,
) -> SearchResult:  # fmt: skip
    """Search the precision of each layer: the fastest program for a target that stays accurate, or the smallest.

    ``model``, ``inputs``, ``calibration``: as for ``compile``, also ``samples``, ``evaluate``, ``images`` and
    ``dynamic_shapes``. ``metric``: a function from a callable model to a number; ``max_drop``: how much worse than the
    float original it may be, in its own units or in percent of the original's (``"0.5%"``; default: 1 %). Without a
    metric, ``min_sqnr`` (30 dB) of the outputs against the original, on inputs that are held out from calibration.
    ``max_latency``: milliseconds; ``max_size``: bytes. ``minimize``: ``"latency"`` or ``"size"``.

    ``recipe``: exceptions that stay as they are. ``methods`` of better rounding: by default ``headroom`` of 16-bit
    activations, and ``adaround`` if no quantized program is accurate without it; ``"best"`` tries all, as
    ``quantize="int8-best"`` does, and ``"equalize+adaround"`` these two, for all programs if they gain on the first
    preset; ``"none"``. ``budget``: seconds; ``trials``: programs to compile at most. ``workers``: processes; 1 is this
    one. ``output``: a folder that keeps everything, so that the next call with the same arguments continues. The result
    is the same for any number of workers.
    """
    request = Request(
        metric, max_drop, min_sqnr, better, minimize, max_latency, max_size, tuple(precisions), seed, trials, methods
    )  # fmt: skip
    request.check()
    device = find_target(target)
    known = ("samples", "evaluate", "images", "dynamic_shapes")
    for name in options:
        if name not in known:
            raise not_among("search", name, known, rule="takes the options")
    own = as_recipe(recipe, None).for_target(device.name)
    with ExitStack() as stack:
        folder = output if output is not None else stack.enter_context(tempfile.TemporaryDirectory())
        stages = stack.enter_context(Stages(quiet))
        stack.enter_context(quiet_warnings())
        preset = next(iter(find_quantizer(device.backend).presets))
        settings = Settings(Recipe(preset), **{"samples": MAX_SAMPLES, "evaluate": EVALUATED, **options})
        session = CompileSession(model, inputs, calibration, settings, stages)
        store = stack.enter_context(Store(folder, create=True, command="search"))
        store.lock()
        name = type(model).__name__.lower()
        task, pickled = prepare(session, device, store, request, name=name, fixed=own)
        cluster = stack.enter_context(connect(scheduler, workers, processes=workers > 1))
        with stages("search", f"{device.name}: search", total=task.trials) as step:
            done = [0]

            def report(progress: Progress) -> None:
                while done[0] < progress.done:
                    done[0] += 1
                    step()

            found = Search(task, store, cluster, report, budget=budget, metric=pickled).run()
        return result_of(task, found, store)


def result_of(task: Task, found: Findings, store: Store) -> SearchResult:
    best = found.best
    if best is None:
        return SearchResult(task, found, Recipe(), "", b"", b"")
    program, twin = store.get(best.pte), store.get(best.twin) if best.twin else b""
    return SearchResult(task, found, recipe_of_point(task, best), recipe_text(task, best, found), program, twin)
