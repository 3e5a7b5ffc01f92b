"""What a context binary says of itself: through Qualcomm's System library, and in its own readable text."""

from __future__ import annotations

import ctypes as c
import re
from dataclasses import dataclass
from typing import Any

from edgewright.backends.capture import capture_streams
from edgewright.backends.qualcomm.qnn import structs as s
from edgewright.backends.qualcomm.qnn.library import Library, system_library
from edgewright.errors import FormatError
from edgewright.formats import checked_int

_RANK, _ENDS, _GRAPHS = 8, 4096, 256  # more would be no model's
_NAME = 1 << 12
_NAMES = rb"soc_type|arch|min_arch|vtcm_size|O|hvx_threads|enable_dlbc|slc_allocate"
_SETTING = re.compile(rb"(?:(?<![A-Za-z_])|(?<=\tOp))(" + _NAMES + rb")=([^;\0]{1,64})")


@dataclass(frozen=True)
class End:
    """An input or output of a graph. ``tensor`` is what the library knows it by."""

    name: str
    dims: tuple[int, ...]
    dtype: str  # numpy's
    tensor: s.Tensor


@dataclass(frozen=True)
class Graph:
    """``spill``: bytes of memory that it needs for what the HTP's own does not hold."""

    name: str
    inputs: tuple[End, ...]
    outputs: tuple[End, ...]
    spill: int = 0


@dataclass(frozen=True)
class Info:
    """``build`` of the compiler, and the graphs."""

    build: str
    graphs: tuple[Graph, ...]


class BinaryReader:
    """A context binary, read. What ``info`` tells lives as long as the reader."""

    def __init__(self, binary: bytes) -> None:
        self._library: Library = system_library()
        self._handle = c.c_void_p()
        self._binary = binary
        if self._library.call("create", c.byref(self._handle)):
            raise FormatError("Qualcomm's System library must start", where="QNN context")
        found, size = c.POINTER(s.BinaryInfo)(), c.c_uint64()
        with capture_streams():
            code = self._library.call("getBinaryInfo", self._handle, binary, len(binary), c.byref(found), c.byref(size))
        if code or not found:
            self.close()
            raise FormatError("must be a QNN context", where="QNN context", value=f"code {code & 0xFFFF}")
        self.info = _read(found[0])

    def close(self) -> None:
        if self._handle:
            self._library.call("free", self._handle)
            self._handle.value = None


def _read(found: s.BinaryInfo) -> Info:
    if found.version not in (1, 2, 3):
        raise FormatError("must be described in version 1, 2 or 3", where="QNN context", value=found.version)
    body = found.body
    if found.version != 3:  # older libraries order their fields otherwise
        raise FormatError("must be from QNN 2.47 or newer", where="QNN context", value=_text(body.build))
    _limited(body.graph_count, _GRAPHS, "graphs")
    return Info(_text(body.build), tuple(_graph(body.graphs[i]) for i in range(body.graph_count)))


def _graph(info: s.GraphInfo) -> Graph:
    for count in (info.input_count, info.output_count):
        _limited(count, _ENDS, "inputs and outputs")
    ends = [
        tuple(_end(side[i]) for i in range(count))
        for side, count in ((info.inputs, info.input_count), (info.outputs, info.output_count))
    ]
    return Graph(_text(info.name), ends[0], ends[1], _spill(info))


def _spill(info: s.GraphInfo) -> int:
    if info.version != 3 or not info.blob or info.blob_size < c.sizeof(s.GraphBlob):
        return 0
    blob = s.GraphBlob.from_address(info.blob)
    return int(blob.spill) if blob.version == 1 else 0


def _end(tensor: s.Tensor) -> End:
    body = tensor.body.v1
    _limited(body.rank, _RANK, "dimensions")
    if body.dtype not in s.DTYPE_NAMES or tensor.version not in (1, 2):
        raise FormatError("must be of a known type", where=_text(body.name), value=hex(body.dtype))
    dims = tuple(int(body.dims[i]) for i in range(body.rank))
    checked_int.product(dims)
    return End(_text(body.name), dims, s.numpy_name(body.dtype), s.Tensor.from_buffer_copy(tensor))


def _limited(count: int, most: int, what: str) -> None:
    if count > most:
        raise FormatError(f"must have at most {most} {what}", where="QNN context", value=count)


def _text(given: Any) -> str:
    return (given or b"")[:_NAME].decode(errors="replace")


def spill_of(binary: bytes) -> int:
    """Bytes of memory that the graphs of a context need, one at a time, for what the HTP's own does not hold."""
    reader = BinaryReader(binary)
    try:
        return max((graph.spill for graph in reader.info.graphs), default=0)
    finally:
        reader.close()


def settings(binary: bytes) -> dict[str, set[str]]:
    """What the compiler was set to, as it wrote it into the context: ``soc_type``, ``arch``, ``vtcm_size``, … Some are
    said more than once, of different parts."""
    found: dict[str, set[str]] = {}
    for name, value in _SETTING.findall(binary):
        found.setdefault(name.decode(), set()).add(value.decode(errors="replace"))
    return found
