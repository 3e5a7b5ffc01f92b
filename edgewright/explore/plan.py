"""From the description of a sweep to its rows: every name is looked up and every recipe is checked before any work."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram

from edgewright.api.compile import CompileSession, Settings
from edgewright.api.compile_report import EVALUATED
from edgewright.api.data import MAX_SAMPLES, Samples, hold_out, load_calls
from edgewright.api.image_data import ImageOptions
from edgewright.api.progress import Stages
from edgewright.api.quantization import quiet_warnings
from edgewright.api.recipe import FLOAT, Recipe, apply_recipe, as_recipe, config_of
from edgewright.backends import find_quantizer
from edgewright.backends.targets import Target, find_target
from edgewright.errors import FileAccessError, UsageError
from edgewright.explore.model_inputs import (
    compiler_versions,
    program_digest,
    samples_digest,
    save_program,
    save_samples,
    source_digest,
)
from edgewright.explore.rows import Row
from edgewright.explore.store import Store
from edgewright.explore.sweep_file import ModelEntry, SweepFile
from edgewright.explore.toml_lines import Key
from edgewright.frontend.buffers import writes_state
from edgewright.frontend.model_spec import ModelSpec, load_object, load_spec
from edgewright.hints import did_you_mean
from edgewright.quantize.observer_statistics import chunks_of

_SEED = 0  # of torch, when a factory is called: weights that it draws are the same every time


@dataclass(frozen=True)
class Precision:
    """A preset or a recipe of a sweep, with the key and the value that name it."""

    name: str
    recipe: Recipe
    key: Key
    field: str  # the field that [[exclude]] names it by


@dataclass(frozen=True)
class LoadedModel:
    """A model and its data. ``session``: knows the modules of the model."""

    entry: ModelEntry
    exported: ExportedProgram
    samples: Samples
    session: CompileSession
    program: str
    data: str
    metric_source: str = ""


def make_plan(file: SweepFile, store: Store, quiet: bool = False, imports: Sequence[str] = ()) -> list[Row]:
    """Check a sweep, store its models and data, and save its rows, which are returned."""
    targets = [_target(file, name) for name in file.targets]
    precisions = list(_precisions(file))
    _check_presets(file, targets, precisions)
    rows: dict[str, Row] = {}
    with Stages(quiet) as stages, quiet_warnings():
        specs = [_load_model(file, entry, stages) for entry in file.models]
        for entry, spec in zip(file.models, specs, strict=True):
            model = _prepare(file, entry, spec, stages)
            _check_modules(file, model, targets, precisions)
            for row in _rows(file, model, targets, precisions):
                known = rows.get(row.key)  # one result of two names, such as a recipe that changes nothing for a target
                rows[row.key] = row if known is None else _with_both_names(known, row)
            with stages("store"):
                _store_inputs(store, model)
    store.save_plan(list(rows.values()), {"sweep": file.text, "better": file.better, "imports": "\n".join(imports)})
    return list(rows.values())


# ------------------------------------------------------------------------------------------------- names and recipes


def _target(file: SweepFile, name: str) -> Target:
    with file.at(("targets",), name):
        return find_target(name)


def _precisions(file: SweepFile) -> Iterator[Precision]:
    for name in file.quantize:
        yield Precision(name, Recipe(None if name == FLOAT else name), ("quantize",), "quantize")
    for path in file.recipes:
        with file.at(("recipes",), path):
            recipe = as_recipe(path, None)
            if recipe.compress:
                remedy = "Name a factory that returns edgewright.compress(model, ...) among the models instead."
                raise UsageError("recipe: compress", "is not for sweeps", remedy=remedy)
            yield Precision(Path(path).stem, recipe, ("recipes",), "recipe")


def _check_presets(file: SweepFile, targets: Sequence[Target], precisions: Sequence[Precision]) -> None:
    """Refuse a precision that a target does not have, for every combination that some row needs."""
    for target, precision in itertools.product(targets, precisions):
        needed = any(
            not file.excludes({"model": entry.name, "target": target.name, precision.field: _value(precision, file)})
            for entry in file.models
        )
        recipe = precision.recipe.for_target(target.name)
        names = [recipe.quantize or FLOAT, *recipe.modules.values(), *recipe.operators.values()]
        for name in dict.fromkeys(names) if needed else ():
            with file.at(precision.key, _value(precision, file)), _exclude_hint(target, precision):
                config_of(find_quantizer(target.backend).for_target(target.argument), name, target.name)


def _value(precision: Precision, file: SweepFile) -> str:
    """What the file calls a precision: the path of a recipe, not its name."""
    if precision.field == "quantize":
        return precision.name
    return next(path for path in file.recipes if Path(path).stem == precision.name)


class _exclude_hint:  # noqa: N801  (reads as a function)
    """Add to an error how to leave a combination out."""

    def __init__(self, target: Target, precision: Precision) -> None:
        self._text = f'Or leave it out: [[exclude]] with target = "{target.name}" and {precision.field} = ...'

    def __enter__(self) -> None:
        return None

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, UsageError):
            error.remedy = f"{error.remedy} {self._text}".strip()


def _check_modules(
    file: SweepFile, model: LoadedModel, targets: Sequence[Target], precisions: Sequence[Precision]
) -> None:
    """Refuse a recipe that names a module or an operator that there is not."""
    modules = model.session.quantization.modules()
    for target, precision in itertools.product(targets, precisions):
        recipe = precision.recipe.for_target(target.name)
        values = {"model": model.entry.name, "target": target.name, precision.field: _value(precision, file)}
        if recipe.quantizes and not file.excludes(values):
            with file.at(precision.key, _value(precision, file)), _exclude_hint(target, precision):
                apply_recipe(find_quantizer(target.backend).for_target(target.argument), recipe, modules, target.name)


# -------------------------------------------------------------------------------------------------- models and data


def _load_model(file: SweepFile, entry: ModelEntry, stages: Stages) -> ModelSpec:
    with file.at(entry.key, entry.spec), stages("load", f"{entry.name}: load"), torch.random.fork_rng(devices=[]):
        torch.manual_seed(_SEED)
        try:
            return load_spec(entry.spec)
        except FileAccessError as error:
            path = Path(entry.spec)
            near = [str(other) for other in path.parent.glob("*.pt2")] if path.parent.is_dir() else []
            error.remedy = did_you_mean(entry.spec, near) or error.remedy
            raise


def _prepare(file: SweepFile, entry: ModelEntry, spec: ModelSpec, stages: Stages) -> LoadedModel:
    data = entry.data
    with file.at(entry.key):
        settings = Settings(Recipe(), dynamic_shapes=spec.dynamic_shapes)
        session = CompileSession(spec.model, spec.kwargs or spec.args or None, None, settings, stages)
    samples = _samples(file, entry, session)
    metric = data.get("metric", "")
    source = ""
    if metric:
        with file.at(_key_of(file, entry, "metric"), metric):
            source = source_digest(_metric(metric))
    digests = program_digest(session.exported), samples_digest(samples)
    return LoadedModel(entry, session.exported, samples, session, *digests, source)


def _key_of(file: SweepFile, entry: ModelEntry, name: str) -> Key:
    """Where a setting of a model is: in its own table, or at the top."""
    own = file.content["models"][entry.name]
    return (*entry.key, name) if isinstance(own, dict) and name in own else (name,)


def _metric(name: str) -> Callable[..., float]:
    metric = load_object(name)
    if not callable(metric):
        raise UsageError(name, "must be a function of a model: def accuracy(model): ... return a number")
    typed: Callable[..., float] = metric
    return typed


def _samples(file: SweepFile, entry: ModelEntry, session: CompileSession) -> Samples:
    """The inputs of a model's rows: the same for all, also for those in floating point."""
    data = entry.data
    images = None
    if "mean" in data or "std" in data:
        with file.at(_key_of(file, entry, "mean" if "mean" in data else "std")):
            images = ImageOptions(tuple(data.get("mean", ())), tuple(data.get("std", ())))
    limit, evaluate = data.get("samples", MAX_SAMPLES), data.get("evaluate", EVALUATED)

    def load(name: str, count: int) -> Any:
        with file.at(_key_of(file, entry, name), data[name]):
            return load_calls(data[name], session.example, count, images, session.exported.graph)

    if isinstance(evaluate, str):
        calls = load("calibrate", limit) if "calibrate" in data else []
        return Samples(calls, load("evaluate", limit), "given")
    if "calibrate" not in data:
        return Samples([], [session.example][:evaluate], "example")
    return hold_out(load("calibrate", limit + max(0, evaluate)), limit, evaluate, writes_state(session.exported))


def _store_inputs(store: Store, model: LoadedModel) -> None:
    inputs: dict[str, Callable[[], bytes]] = {
        model.program: lambda: save_program(model.entry.name, model.exported),
        model.data: lambda: save_samples(model.samples),
    }
    store.put_inputs(inputs)


# ------------------------------------------------------------------------------------------------------------- rows


def _rows(
    file: SweepFile, model: LoadedModel, targets: Sequence[Target], precisions: Sequence[Precision]
) -> Iterator[Row]:
    counts = tuple(max(1, len(chunks_of(part))) for part in (model.samples.calibration, model.samples.evaluation))
    split = not writes_state(model.exported)
    for target, precision, options in itertools.product(targets, precisions, _combinations(file)):
        named = {"model": model.entry.name, "target": target.name, precision.field: _value(precision, file), **options}
        if file.excludes(named):
            continue
        recipe = precision.recipe.for_target(target.name)
        if options.get("integer_io") and not recipe.quantizes:
            remedy = f'Leave it out: [[exclude]] with integer_io = true and {precision.field} = "{precision.name}".'
            raise file.error(("options", "integer_io"), f"is for quantized models, not {precision.name}", remedy=remedy)
        yield Row(
            model.entry.name, target.name, precision.name, model.program, model.data,
            _plain(recipe), options, model.entry.spec, model.entry.data.get("metric", ""), model.metric_source,
            compiler_versions(target), (counts[0], counts[1]) if split else (1, 1),
        )  # fmt: skip


def _plain(recipe: Recipe) -> dict[str, Any]:
    """A target's recipe as a row has it; without options, the row is that of a preset with the same settings."""
    plain: dict[str, Any] = {
        "quantize": recipe.quantize, "modules": dict(recipe.modules), "operators": dict(recipe.operators),
    }  # fmt: skip
    return {**plain, "options": dict(recipe.options)} if recipe.options else plain


def _with_both_names(one: Row, other: Row) -> Row:
    """
    >>> rows = [Row("m", "xnnpack", precision, "program", "data") for precision in ("int8", "raised")]
    >>> _with_both_names(*rows).precision
    'int8 = raised'
    """
    names = [
        " = ".join(dict.fromkeys((first, second)))
        for first, second in ((one.model, other.model), (one.precision, other.precision))
    ]
    return replace(one, model=names[0], precision=names[1])


def _combinations(file: SweepFile) -> Iterator[dict[str, Any]]:
    for values in itertools.product(*file.options.values()):
        yield dict(zip(file.options, values, strict=True))


def import_modules(names: Sequence[str]) -> None:
    """Import the user's modules, which register operators, kernels or delegates."""
    for name in names:
        importlib.import_module(name)
