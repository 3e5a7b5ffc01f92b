"""Method execution shared by ``edgewright run`` and the device runners."""

from __future__ import annotations

import argparse
import logging
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from edgewright.api.image_data import ImageOptions
from edgewright.cli.inputs import (
    Inputs,
    from_files,
    from_list,
    image_options,
    load_inputs,
    read_list,
    with_shapes,
)
from edgewright.cli.inputs import add_arguments as add_input_arguments
from edgewright.cli.outputs import save_raw
from edgewright.console import note, progress
from edgewright.engine.profile import Profile
from edgewright.errors import LimitError, MissingDataError, MissingTwinError, UsageError
from edgewright.files import make_folder
from edgewright.ir.dtypes import dtype_name
from edgewright.runtime.example_inputs import ones
from edgewright.runtime.metadata import MethodMetadata, ScalarInfo
from edgewright.runtime.method import Method
from edgewright.runtime.program import LoadedProgram, Runtime
from edgewright.runtime.values import Limits
from edgewright.units import duration

log = logging.getLogger("edgewright.cli")

OnStage = Callable[[str], None]


def add_measurement_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of commands that measure a program."""
    add = parser.add_argument
    add("model", metavar="m.pte", help="the program")
    add_input_arguments(parser, "arrays in0, in1, ..., or an image (default: ones)")
    add("--method", default="forward", help="the method to run (default: forward)")
    add("--data", action="append", default=[], metavar="w.ptd", help="external weights; repeatable")
    add("--twin", metavar="m.twin", help="the host twin (default: the one next to the program)")


def measured_inputs(args: argparse.Namespace, metadata: MethodMetadata) -> Inputs:
    """The inputs that the options name, or ones."""
    return load_inputs(args.inputs, metadata, image_options(args)) if args.inputs else ones(metadata)


@dataclass(frozen=True)
class Job:
    """A request to run a method: program, inputs, repetitions."""

    model: str
    data: Sequence[str] = ()
    method: str | int = "forward"
    inputs: str | None = None
    images: ImageOptions | None = None
    input_list: str | None = None
    output_folder: str | None = None
    repeat: int = 1
    memory: int | None = None
    profile: bool = False
    keep_all: bool = True  # store the outputs of every inference, not only of the last
    quiet: bool = False
    twin: str | None = None
    files: Sequence[str] = ()  # raw files, one for each input
    shapes: str = ""  # of inputs, where the program leaves them open: 1x98,,1x50x256
    warm_up: int = 0  # runs before the first that counts
    threads: int | None = None


@dataclass
class MethodResult:
    """The result of a job: outputs of the stored inferences, and the seconds of every run."""

    metadata: MethodMetadata
    profile: Profile | None
    outputs: list[list[Any]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    inferences: int = 0

    @property
    def median_ms(self) -> float:
        return statistics.median(self.times) * 1e3


def execute(job: Job, on_stage: OnStage = lambda _: None) -> MethodResult:
    """Load the method, run it and collect outputs; ``on_stage`` receives a message after each stage."""
    if job.inputs and job.input_list:
        raise UsageError("--inputs", "cannot be used together with --input_list_path")
    if job.repeat < 1:
        raise UsageError("--repeat", "must be 1 or more", value=job.repeat)
    method = load(job)
    on_stage("Method loaded.")
    result = MethodResult(method.metadata, Profile() if job.profile else None)
    try:
        _rounds(job, method, result, on_stage)
    finally:
        method.close()
    on_stage("Model executed successfully.")
    return result


def load(job: Job) -> Method:
    """Load the job's method and log how long reading and verifying took."""
    start = time.perf_counter()
    limits = Limits() if job.memory is None else Limits(memory=job.memory)
    runtime = Runtime.get() if job.threads is None else Runtime(threads=job.threads)
    program = runtime.load_program(job.model, list(job.data), limits=limits, twin=job.twin)
    log.info("read and verified %s in %s", job.model, duration(time.perf_counter() - start))
    try:
        return program.load_method(_method_name(program, job.method))
    except LimitError as error:  # replace the library's remedy by the option
        error.remedy = "Raise it with --max-memory if you trust the file."
        raise
    except MissingTwinError as error:
        error.remedy = _twin_remedy(job) + error.alternative
        raise
    except MissingDataError as error:
        error.remedy = "Pass the .ptd written with this program: --data weights.ptd."
        raise


def _twin_remedy(job: Job) -> str:
    """What became of a program's twin, and where to get it."""
    name = Path(job.model).with_suffix(".twin").name
    if job.twin or Path(job.model).with_suffix(".twin").exists():
        return f"Pass the one that was written with {Path(job.model).name}: --twin PATH."
    return (
        f"{name} is not beside it. save() and write_to_file() write both; program.buffer, written by hand, is the"
        " program alone: save it that way, or include the twin with ExecutorchBackendConfig(host_twin='embed'). If the"
        " twin is elsewhere: --twin PATH."
    )


def _method_name(program: LoadedProgram, method: str | int) -> str:
    names = program.method_names
    if isinstance(method, str):
        return method
    if not 0 <= method < len(names):
        raise UsageError("--method_index", f"must be 0..{len(names) - 1} ({', '.join(names)})", value=method)
    return names[method]


def _rounds(job: Job, method: Method, result: MethodResult, on_stage: OnStage) -> None:
    """Run the inputs once for their outputs, then again from the initial state for timing only."""
    folder = make_folder(job.output_folder) if job.output_folder else None
    total = len(read_list(job.input_list)) if job.input_list else 1
    for _ in range(job.warm_up):
        method.execute(next(iter(_inputs(job, method.metadata, None))))
        method.reset()
    with progress(f"running {method.name}", total * job.repeat, quiet=job.quiet or total * job.repeat < 2) as step:
        for round_ in range(job.repeat):
            if round_:
                method.reset()
            for number, inputs in enumerate(_inputs(job, method.metadata, on_stage if not round_ else None)):
                outputs = _time(method, inputs, result)
                if not round_:
                    _collect(job, result, outputs)
                    if folder is not None:
                        save_raw(folder, number, outputs)
                step()


def _inputs(job: Job, metadata: MethodMetadata, on_stage: OnStage | None) -> Iterable[Inputs]:
    metadata = with_shapes(metadata, job.shapes)
    if job.input_list:
        ready: Iterable[Inputs] = from_list(job.input_list, metadata)
    elif job.files:
        ready = [from_files(job.files, metadata)]
    elif job.inputs:
        ready = [load_inputs(job.inputs, metadata, job.images)]
    else:
        ready = [ones(metadata)]
        if on_stage is not None and not job.quiet and not all(isinstance(i, ScalarInfo) for i in metadata.inputs):
            note(f"No inputs: every input of {metadata.name!r} is filled with ones.")
    if on_stage is not None:
        on_stage("Inputs prepared.")
    return ready


def _time(method: Method, inputs: Inputs, result: MethodResult) -> list[Any]:
    start = time.perf_counter()
    outputs = method.execute(inputs, profile=result.profile)
    result.times.append(time.perf_counter() - start)
    return outputs


def _collect(job: Job, result: MethodResult, outputs: list[Any]) -> None:
    result.inferences += 1
    if not job.keep_all:
        result.outputs.clear()
    result.outputs.append(outputs)


def output_rows(outputs: Sequence[Any]) -> list[tuple[str, str, str, str, str]]:
    """Name, type, shape, smallest and largest element of each output."""
    return [(f"out{index}", *_describe(value)) for index, value in enumerate(outputs)]


def _describe(value: Any) -> tuple[str, str, str, str]:
    if not isinstance(value, np.ndarray):
        return type(value).__name__, "", repr(value), repr(value)
    shape = str(list(value.shape))
    if not value.size or value.dtype.kind == "c" or value.dtype.names:
        return dtype_name(value.dtype), shape, "", ""
    wide = value if value.dtype.kind in "biu" else value.astype(np.float64)
    return (
        str(value.dtype),
        shape,
        f"{wide.min():.6g}" if wide.dtype.kind == "f" else str(wide.min()),
        (f"{wide.max():.6g}" if wide.dtype.kind == "f" else str(wide.max())),
    )
