"""What workers run: the compilation of a row, and chunks of its calibration and evaluation.

A task returns a ``Failure`` where its row has an error, so that Dask sees results only; what Dask sees as an exception
is a worker that died. Every task runs torch on one thread: the order of summation must not depend on the worker.
"""

from __future__ import annotations

import errno
import importlib
import json
import os
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from edgewright.errors import AccuracyError, EdgewrightError, FileAccessError, MissingError
from edgewright.explore.rows import Row

_Result = TypeVar("_Result")
_PASSING = (errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EIO, errno.EAGAIN)
_MAX_TRACEBACK = 8_000  # characters


@dataclass(frozen=True)
class Failure:
    """The error of a row. ``passing``: another attempt may succeed."""

    error: str
    traceback: str = ""
    passing: bool = False


@dataclass(frozen=True)
class Compiled:
    """A compiled row: the JSON of its report, the contents of its files, and the accuracy of the first chunk."""

    report: Mapping[str, Any]
    files: Mapping[str, bytes]
    meter: Any = None
    io: Any = None  # conversions of a program that takes integers
    seconds: float = 0.0


@dataclass(frozen=True)
class Work:
    """What a task needs besides models and data: the row, its number of evaluation chunks, modules to import, where
    to report the start. ``metric``: pickled, if it is a function without a name."""

    row: Row
    topic: str = ""
    imports: tuple[str, ...] = field(default=())
    metric: bytes = b""


def compile_row(work: Work, model: bytes, data: bytes, statistics: Sequence[Any] = ()) -> Compiled | Failure:
    """Compile a row, check and run it. ``statistics``: of each chunk of the calibration data."""

    start = time.perf_counter()

    def run() -> Compiled:
        from edgewright.api.compile import build_all
        from edgewright.backends.targets import find_target

        session = _session(work, model, data, first_chunk=True)
        if statistics and all(statistics):
            session.quantization.statistics = list(statistics)
        result = build_all(session, [find_target(work.row.target)], raises=True)[work.row.target]
        seconds = time.perf_counter() - start
        return Compiled(result.report.to_dict(), _files(result), result.report.meter, result.io, seconds)

    return _guarded(work, "compile", run, statistics)


def observe_chunk(work: Work, model: bytes, data: bytes, number: int) -> Any:
    """The observers' statistics of a chunk of the calibration data; None if they cannot be merged."""

    def run() -> Any:
        from edgewright.backends.targets import find_target
        from edgewright.quantize.observer_statistics import chunks_of

        session = _session(work, model, data)
        target, recipe = find_target(work.row.target), session.settings.recipe
        prepared = session.quantization.prepare(target, recipe)
        if not session.quantization.can_split(prepared):
            return None
        return session.quantization.observe(target, prepared, chunks_of(session.calls)[number])[0]

    return _guarded(work, f"observe {number}", run)


def evaluate_chunk(work: Work, compiled: Compiled | Failure, model: bytes, data: bytes, number: int) -> Any:
    """The accuracy of a compiled row on a chunk of the evaluation data."""

    def run() -> Any:
        assert isinstance(compiled, Compiled)
        from edgewright.quantize.observer_statistics import chunks_of
        from edgewright.runtime.program import Runtime

        session = _session(work, model, data)
        program = Runtime.get().load_program(compiled.files["pte"], twin=compiled.files.get("twin"))
        return session.measure_calls(compiled.io, program.load_method("forward"), chunks_of(session.evaluated)[number])

    return _guarded(work, f"evaluate {number}", run, [compiled])


def finish_row(work: Work, compiled: Compiled | Failure, meters: Sequence[Any]) -> Compiled | Failure:
    """Merge the accuracy of all chunks, in the order of the data."""

    def run() -> Compiled:
        assert isinstance(compiled, Compiled)
        meter = compiled.meter
        for other in meters:
            meter.merge(other)
        figures = meter.result()
        accuracy = {name: getattr(figures, name) for name in ("sqnr", "outputs", "agreement", "nonfinite")}
        return replace(compiled, report={**compiled.report, **accuracy, "samples": meter.calls}, meter=None, io=None)

    return _guarded(work, "finish", run, [compiled, *meters])


def measure_errors(
    work: Work, model: bytes, data: bytes, presets: Sequence[str], seed: int
) -> Mapping[str, Any] | Failure:
    """The errors of all layers in every preset, as plain data."""

    def run() -> Mapping[str, Any]:
        from edgewright.backends.targets import find_target
        from edgewright.explore.sensitivity import measure

        session = _session(work, model, data)
        return measure(session, find_target(work.row.target), presets, seed).to_dict()

    return _guarded(work, "errors", run)


def choose_methods(work: Work, model: bytes, data: bytes) -> Mapping[str, Any] | Failure:
    """The methods that are best for the row's recipe, chosen on a part of the calibration data."""

    def run() -> Mapping[str, Any]:
        from edgewright.api.best import choose
        from edgewright.backends.targets import find_target

        session = _session(work, model, data)
        choice = choose(session, find_target(work.row.target), session.settings.recipe.for_target(work.row.target))
        return {"methods": choice.recipe.methods}

    return _guarded(work, "methods", run)


# ----------------------------------------------------------------------------------------------------------- parts


class _Loaded(threading.local):
    """The session of a thread's last task: most tasks have the same model and data."""

    key: tuple[str, str, bool] | None = None
    session: Any = None


_loaded = _Loaded()


def _session(work: Work, model: bytes, data: bytes, first_chunk: bool = False) -> Any:
    """A session of a row. ``first_chunk``: evaluates the first chunk, as others evaluate the rest."""
    import pickle

    from edgewright.api.compile import Settings
    from edgewright.api.recipe import Recipe
    from edgewright.frontend.model_spec import load_object

    row = work.row
    metric = load_object(row.metric) if row.metric else pickle.loads(work.metric) if work.metric else None
    recipe = Recipe(**row.recipe)
    if recipe.options:
        recipe = Recipe(targets={row.target: recipe})
    settings = Settings(recipe, metric=metric, **row.options)
    first_chunk = first_chunk and row.chunks[1] > 1
    if recipe.compress:  # replaces the model
        return _load_session(model, data, first_chunk, settings)
    key = row.program, row.data, first_chunk
    if _loaded.key != key:
        _loaded.key = _loaded.session = None  # frees the last one before the next is loaded
        _loaded.session = _load_session(model, data, first_chunk, Settings(Recipe()))
        _loaded.key = key
    return _loaded.session.with_settings(settings)


def _load_session(model: bytes, data: bytes, first_chunk: bool, settings: Any) -> Any:
    from edgewright.api.compile import CompileSession
    from edgewright.api.progress import Stages
    from edgewright.explore.model_inputs import load_program, load_samples
    from edgewright.quantize.observer_statistics import CHUNK_CALLS

    samples = load_samples(data)
    if first_chunk:
        samples = replace(samples, evaluation=samples.evaluation[:CHUNK_CALLS])
    return CompileSession(load_program(model), None, samples, settings, Stages(quiet=True))


def _files(result: Any) -> dict[str, bytes]:
    files = {"pte": result.buffer, **result.program.data_files}
    if result.program.twin is not None:
        files["twin"] = result.program.twin
    methods = {name: report.to_dict() for name, report in result.report.methods.items()}
    files["report"] = json.dumps(methods, sort_keys=True, allow_nan=False).encode()
    return files


def _guarded(work: Work, name: str, run: Callable[[], _Result], earlier: Sequence[Any] = ()) -> _Result | Failure:
    """Run a task. A failure of an earlier one is passed on."""
    failure = next((item for item in earlier if isinstance(item, Failure)), None)
    if failure is not None:
        return failure
    _report_start(work, name)
    try:
        with _environment(work):
            return run()
    except Exception as error:
        return failure_of(error)


def failure_of(error: Exception) -> Failure:
    """What went wrong, and whether another attempt may succeed."""
    chain = list(_chain(error))
    system = any(isinstance(e, OSError) and e.errno in _PASSING for e in chain)
    passing = system or any(isinstance(e, MemoryError | FileAccessError) for e in chain)
    typed = isinstance(error, EdgewrightError)
    text = str(error) if typed else f"bug: {type(error).__name__}: {error}"
    of_metric = isinstance(error, AccuracyError) and error.subject == "metric" and error.__cause__ is not None
    shows = not typed or of_metric  # the user's code, or ours
    lines = "".join(traceback.format_exception(error.__cause__ if typed and error.__cause__ else error))
    return Failure(text, lines[-_MAX_TRACEBACK:] if shows else "", passing)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


@contextmanager
def _environment(work: Work) -> Iterator[None]:
    """One thread of torch, the versions of the sweep, and the user's modules."""
    import torch

    from edgewright.api.quantization import quiet_warnings
    from edgewright.backends.targets import find_target
    from edgewright.explore.model_inputs import compiler_versions
    from edgewright.quantize.batching import one_thread

    for name in work.imports:
        importlib.import_module(name)
    here = compiler_versions(find_target(work.row.target))
    for package, version in work.row.versions.items():
        if here.get(package) != version:
            rule = f"must be {version}, as where the sweep was started"
            raise MissingError(f"{package} of the worker {os.uname().nodename}", rule, value=here.get(package))
    torch.manual_seed(0)
    with one_thread(), quiet_warnings():
        yield


def _report_start(work: Work, name: str) -> None:
    """Tell the client that a task runs, and where."""
    if not work.topic:
        return
    from distributed import get_worker

    worker = get_worker()
    worker.log_event(work.topic, {"row": work.row.key, "task": name, "worker": worker.address, "pid": os.getpid()})
