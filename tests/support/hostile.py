"""What a file does to us: read, loaded and run under small limits. Anything but a result or our error escapes."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgewright.errors import EdgewrightError, FormatError
from edgewright.files import Source
from edgewright.formats.bpte import read_bundled
from edgewright.formats.etdump import read_etdump
from edgewright.formats.ptd import read_data
from edgewright.formats.pte_reader import read_program
from edgewright.runtime import Runtime
from edgewright.runtime.metadata import TensorInfo
from edgewright.runtime.method import Method
from edgewright.runtime.program import LoadedProgram
from edgewright.runtime.values import Limits
from edgewright.runtime.verify_bundle import verify_bundle

LIMITS = Limits(memory=64 << 20, instructions=20_000)
READERS = {"pte": read_program, "ptd": read_data, "bpte": read_bundled, "etdp": read_etdump}


def zero_inputs(method: Method) -> list[Any] | None:
    """Inputs of the shapes the file says, or None if they alone would be too large to try."""
    inputs: list[Any] = []
    for info in method.metadata.inputs:
        if not isinstance(info, TensorInfo):
            inputs.append(info.value)
        elif info.nbytes > LIMITS.memory:
            return None
        else:
            dtype = _dtype_of(method, len(inputs))
            inputs.append(np.zeros(info.shape, dtype))
    return inputs


def _dtype_of(method: Method, position: int) -> Any:
    return method._table.values[method._plan.inputs[position]].dtype  # complex halves have no name


def run(source: Source, data: Source | None = None) -> list[str]:
    """Load and execute every method; what became of each: ``ok`` or the name of our error."""
    try:
        program = Runtime.get().load_program(source, data, limits=LIMITS)
    except EdgewrightError as error:
        return [_describe(error)]
    return [run_method(program, name) for name in program.method_names]


def run_method(program: LoadedProgram, name: str) -> str:
    try:
        method = program.load_method(name)
        inputs = zero_inputs(method)
        if inputs is not None:
            method.execute(inputs)
            method.execute(inputs)  # state of the first run must not break the second
        return "ok"
    except EdgewrightError as error:
        return _describe(error)


def read(kind: str, source: Source) -> str:
    """Read only; ``ok`` or the name of our error."""
    try:
        READERS[kind](source)
        return "ok"
    except EdgewrightError as error:
        return _describe(error)


def verify(source: Source) -> str:
    """Read a bundle and run its test cases; ``ok`` or the name of our error."""
    try:
        verify_bundle(source, limits=LIMITS)
        return "ok"
    except EdgewrightError as error:
        return _describe(error)


def verdict(kind: str, source: Source) -> tuple[str, str]:
    """The error's type and text without the file's name, or ``("ok", "")``."""
    try:
        READERS[kind](source)
        return "ok", ""
    except FormatError as error:
        error.file = ""
        return type(error).__name__, str(error)


def _describe(error: EdgewrightError) -> str:
    str(error)  # the text itself must not fail
    return type(error).__name__
