"""Metadata of a context binary, from Qualcomm's System library and from the settings stored in it as text."""

from __future__ import annotations

import ctypes as c
import re
from dataclasses import dataclass
from typing import Any

from edgewright.backends.capture import capture_streams
from edgewright.backends.qualcomm.qnn import structs as s
from edgewright.backends.qualcomm.qnn.library import QnnLibrary, system_library
from edgewright.errors import FormatError
from edgewright.formats import checked_int

_MAX_RANK, _MAX_TENSORS, _MAX_GRAPHS = 8, 4096, 256  # limits for untrusted files
_MAX_NAME = 1 << 12
_NAMES = rb"soc_type|arch|min_arch|vtcm_size|O|hvx_threads|enable_dlbc|slc_allocate"
# Text of the form ``name=value;name=value``. More text must follow a setting: weights contain any two or three bytes.
_SETTING = re.compile(rb"(?:(?<![A-Za-z_])|(?<=Op))(" + _NAMES + rb")=(\w{1,64});(?=[\w=]{6})")


@dataclass(frozen=True)
class BinaryTensor:
    """An input or output of a graph. ``tensor``: its handle in the library."""

    name: str
    dims: tuple[int, ...]
    dtype: str  # numpy's
    tensor: s.Tensor


@dataclass(frozen=True)
class BinaryGraph:
    """A graph of a context. ``spill``: size of its spill buffer in bytes."""

    name: str
    inputs: tuple[BinaryTensor, ...]
    outputs: tuple[BinaryTensor, ...]
    spill: int = 0


@dataclass(frozen=True)
class ContextInfo:
    """The compiler's build and the graphs of a context."""

    build: str
    graphs: tuple[BinaryGraph, ...]


class BinaryReader:
    """Reads a context binary. ``info`` is valid until the reader is closed."""

    def __init__(self, binary: bytes) -> None:
        self._library: QnnLibrary = system_library()
        self._handle = c.c_void_p()
        self._binary = binary
        if self._library.call("create", c.byref(self._handle)):
            raise FormatError("Qualcomm's System library must start", where="QNN context")
        info, size = c.POINTER(s.BinaryInfo)(), c.c_uint64()
        with capture_streams():
            code = self._library.call("getBinaryInfo", self._handle, binary, len(binary), c.byref(info), c.byref(size))
        if code or not info:
            self.close()
            raise FormatError("must be a QNN context", where="QNN context", value=f"code {code & 0xFFFF}")
        self.info = _read(info[0])

    def close(self) -> None:
        if self._handle:
            self._library.call("free", self._handle)
            self._handle.value = None


def _read(info: s.BinaryInfo) -> ContextInfo:
    if info.version not in (1, 2, 3):
        raise FormatError("must be described in version 1, 2 or 3", where="QNN context", value=info.version)
    body = info.body
    if info.version != 3:  # older libraries have another field order
        raise FormatError("must be from QNN 2.47 or newer", where="QNN context", value=_text(body.build))
    _check_count(body.graph_count, _MAX_GRAPHS, "graphs")
    return ContextInfo(_text(body.build), tuple(_graph(body.graphs[i]) for i in range(body.graph_count)))


def _graph(info: s.GraphInfo) -> BinaryGraph:
    for count in (info.input_count, info.output_count):
        _check_count(count, _MAX_TENSORS, "inputs and outputs")
    tensors = [
        tuple(_tensor(side[i]) for i in range(count))
        for side, count in ((info.inputs, info.input_count), (info.outputs, info.output_count))
    ]
    return BinaryGraph(_text(info.name), tensors[0], tensors[1], _spill(info))


def _spill(info: s.GraphInfo) -> int:
    if info.version != 3 or not info.blob or info.blob_size < c.sizeof(s.GraphBlob):
        return 0
    blob = s.GraphBlob.from_address(info.blob)
    return int(blob.spill) if blob.version == 1 else 0


def _tensor(tensor: s.Tensor) -> BinaryTensor:
    body = tensor.body.v1
    _check_count(body.rank, _MAX_RANK, "dimensions")
    if body.dtype not in s.DTYPE_NAMES or tensor.version not in (1, 2):
        raise FormatError("must be of a known type", where=_text(body.name), value=hex(body.dtype))
    dims = tuple(int(body.dims[i]) for i in range(body.rank))
    checked_int.product(dims)
    return BinaryTensor(_text(body.name), dims, s.numpy_name(body.dtype), s.Tensor.from_buffer_copy(tensor))


def _check_count(count: int, limit: int, plural: str) -> None:
    if count > limit:
        raise FormatError(f"must have at most {limit} {plural}", where="QNN context", value=count)


def _text(text: Any) -> str:
    return (text or b"")[:_MAX_NAME].decode(errors="replace")


def spill_bytes(binary: bytes) -> int:
    """Size of the largest spill buffer among the graphs of a context, in bytes."""
    reader = BinaryReader(binary)
    try:
        return max((graph.spill for graph in reader.info.graphs), default=0)
    finally:
        reader.close()


def compiler_settings(binary: bytes) -> dict[str, set[str]]:
    """Compiler settings stored in a context: ``soc_type``, ``arch``, ``vtcm_size``, … A setting may occur several
    times, for different parts."""
    info: dict[str, set[str]] = {}
    for name, value in _SETTING.findall(binary):
        info.setdefault(name.decode(), set()).add(value.decode(errors="replace"))
    return info
