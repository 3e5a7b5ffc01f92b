"""Runs QNN blobs on this machine: Qualcomm's own emulator of the HTP runs the context that a device would.

The library is native code that trusts what it is given. A context whose hash is not its signature does not reach it,
unless ``EDGEWRIGHT_QNN_TRUST=1`` says that it may: stock's files have the time of day for a signature.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.backends.qualcomm.blob import Blob, read_blob
from edgewright.backends.qualcomm.options import KEY
from edgewright.backends.qualcomm.qnn.info import BinaryReader, End, Graph
from edgewright.backends.qualcomm.qnn.session import Context, Session, execute
from edgewright.backends.qualcomm.target import QcomChipset, QnnTarget
from edgewright.errors import ExecutionError, FormatError, LimitError, VersionError
from edgewright.pte import numbers
from edgewright.runtime.delegates import DelegateBlob

Array = np.ndarray[Any, Any]
TRUST = "EDGEWRIGHT_QNN_TRUST"
_INPUT = re.compile(r"[^_]*_(\d{1,9})")


class QnnDelegate:
    """One context, ready to run. ``how`` says what runs it."""

    storage_order = True  # tensors are bytes as they lie in memory
    raw_outputs = True  # a number alone has a dimension here

    def __init__(self, given: DelegateBlob) -> None:
        blob = read_blob(given.blob)
        _check_intact(blob)
        soc = QnnTarget.read(given.compile_specs[KEY]).soc if KEY in given.compile_specs else QcomChipset.SM8650
        self._session: Session | None = None
        self._context: Context | None = None
        self._reader = BinaryReader(blob.context)
        try:
            graph = self._only_graph()
            self.inputs = sorted(graph.inputs, key=_place)
            self.outputs = list(graph.outputs)
            _check_size([*self.inputs, *self.outputs], given.memory)
            self._session = Session(int(soc))
            check_version(self._reader.info.build, self._session.build)
            self._context = Context(self._session, blob.context)
            self._graph = self._context.retrieve(graph.name)
        except BaseException:
            self.close()
            raise
        self.how = f"{soc.name} emulated by QNN {release(self._session.build)}"

    def _only_graph(self) -> Graph:
        graphs = self._reader.info.graphs
        if len(graphs) != 1:
            raise FormatError("must hold one graph", where="QNN context", value=len(graphs))
        return graphs[0]

    @property
    def input_count(self) -> int:
        return len(self.inputs)

    def execute(self, inputs: Sequence[Array]) -> list[Array]:
        """The outputs for ``inputs``."""
        if len(inputs) != len(self.inputs):
            raise ExecutionError("QNN delegate", f"takes {len(self.inputs)} inputs", value=len(inputs))
        if self._session is None:
            raise ExecutionError("QNN delegate", "must not be closed")
        given = [_fitting(i, x, end) for i, (x, end) in enumerate(zip(inputs, self.inputs, strict=True))]
        made = [np.zeros(end.dims, end.dtype) for end in self.outputs]
        ends = [[e.tensor for e in side] for side in (self.inputs, self.outputs)]
        reads, writes = list(zip(ends[0], given, strict=True)), list(zip(ends[1], made, strict=True))
        execute(self._session, self._graph, reads, writes)
        return made

    def close(self) -> None:
        """Give back context, device and backend."""
        for held in (self._context, self._session, self._reader):
            if held is not None:
                held.close()
        self._context = self._session = None


DELEGATE = QnnDelegate


def _check_intact(blob: Blob) -> None:
    if blob.intact or os.environ.get(TRUST) == "1":
        return
    rule = "must be the hash of its context, which Qualcomm's library would be given unchecked"
    remedy = f"Compile it again, or set {TRUST}=1 if it is stock's own and you trust it."
    raise FormatError(rule, where="QNN blob.signature", value=blob.signature, offset=4, remedy=remedy)


def release(build: str) -> str:
    """The release that a build belongs to.

    >>> release("v2.51.0.260929181845")
    '2.51'
    """
    return ".".join(build.removeprefix("v").split(".")[:2])


def check_version(built: str, here: str) -> None:
    """Refuse what a newer compiler made: the library would, in fewer words."""
    numbers_of = [tuple(int(n) for n in re.findall(r"\d{1,9}", release(b))) for b in (built, here)]
    if numbers_of[0] > numbers_of[1]:
        rule = f"was built with QNN {release(built)}, and this library is {release(here)}"
        remedy = f"Compile with QNN {release(here)} or older, or update the library to {release(built)} or newer."
        raise VersionError(rule, where="QNN context", remedy=remedy)


def _place(end: End) -> int:
    """Inputs come in the order of the number in their name, as stock binds them."""
    found = _INPUT.match(end.name)
    if found is None:
        raise FormatError("inputs must be named input_<number>_<name>", where="QNN context", value=end.name)
    return int(found.group(1))


def _check_size(ends: Sequence[End], memory: int) -> None:
    needed = numbers.add(*(numbers.product((*e.dims, np.dtype(e.dtype).itemsize)) for e in ends))
    if needed > memory:
        remedy = "Raise it with load_program(..., limits=Limits(memory=...)) if you trust the file."
        raise LimitError("QNN delegate", f"inputs and outputs may take {memory} bytes", value=needed, remedy=remedy)


def _fitting(index: int, array: Array, end: End) -> Array:
    """An input as the graph wants it; a scalar has one dimension there."""
    subject = f"input {index} of the QNN delegate"
    if str(array.dtype) != end.dtype:
        raise ExecutionError(subject, f"must be {end.dtype}", value=str(array.dtype))
    if array.shape != end.dims and (array.shape or end.dims != (1,)):
        raise ExecutionError(subject, f"must have the shape {list(end.dims)}", value=list(array.shape))
    return np.ascontiguousarray(array)
