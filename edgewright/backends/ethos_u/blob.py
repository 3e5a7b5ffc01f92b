"""Ethos-U delegate blob: a sequence of named blocks, byte for byte what ExecuTorch's runtime reads.

::

    name, 16 bytes, zero-padded | u32 size | u8 external | 11 zeros | payload | zeros to a multiple of 16

The blocks are ``vela_bin_stream`` (empty), ``cmd_data``, ``weight_data``, ``scratch_size``, ``inputs``, ``outputs`` and
``vela_end_stream`` (empty). The payload of an external block is the key of named data stored outside the blob.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from edgewright.errors import FormatError, MissingDataError
from edgewright.formats import checked_int
from edgewright.formats.flatbuffer import Buffer

HEADER = struct.Struct("<16sIB11s")
ALIGNMENT = 16
SCRATCH = 1  # region of inputs, outputs and temporaries
RANK = 6
_TENSOR_RECORD = struct.Struct("<9i")
_START, _END = "vela_bin_stream", "vela_end_stream"
_BLOCKS = ("cmd_data", "weight_data", "scratch_size", "inputs", "outputs")
_EXTERNAL = ("cmd_data", "weight_data")
_MAGICS = (b"COP1", b"COP2")
_ELEMENT_SIZES = (1, 2, 4, 8)
_KEY_BYTES = 64


@dataclass(frozen=True)
class Tensor:
    """Location and shape of an input or output in the scratch region."""

    shape: tuple[int, ...]  # six sizes, padded with leading ones
    element_size: int
    offset: int
    region: int = SCRATCH

    @property
    def nbytes(self) -> int:
        return checked_int.product((*self.shape, self.element_size))


@dataclass(frozen=True)
class Blob:
    """Contents of a delegate: commands, constants, scratch size, and the layout of its inputs and outputs."""

    cmd_data: Buffer = field(repr=False)
    weight_data: Buffer = field(repr=False)
    scratch_size: int
    inputs: Sequence[Tensor]
    outputs: Sequence[Tensor]
    external: Mapping[str, str] = field(default_factory=dict)  # keys of external blocks


def write_blob(blob: Blob) -> bytes:
    """Validate and serialize a blob."""
    verify(blob)
    payloads = {
        "cmd_data": blob.cmd_data,
        "weight_data": blob.weight_data,
        "scratch_size": struct.pack("<I", blob.scratch_size),
        "inputs": _pack(blob.inputs),
        "outputs": _pack(blob.outputs),
    }
    parts = [_block(_START, b"", 0)]
    for name in _BLOCKS:
        key = blob.external.get(name)
        parts.append(_block(name, payloads[name], 0) if key is None else _block(name, key.encode(), 1))
    return b"".join([*parts, _block(_END, b"", 0)])


def _block(name: str, payload: Buffer, external: int) -> bytes:
    header = HEADER.pack(name.encode(), len(payload), external, bytes(11))
    return b"".join((header, payload, bytes(-len(payload) % ALIGNMENT)))


def _pack(tensors: Sequence[Tensor]) -> bytes:
    packed = [_TENSOR_RECORD.pack(*t.shape, t.element_size, t.offset, t.region) for t in tensors]
    return b"".join([struct.pack("<i", len(packed)), *packed])


def read_blob(data: Buffer, named_data: Mapping[str, Buffer] | None = None) -> Blob:
    """Read and validate a blob. ``named_data``: the data that external blocks refer to."""
    view = memoryview(data).cast("B")
    try:
        payloads, external = _blocks(view)
        for name, key in external.items():
            if named_data is None or key not in named_data:
                remedy = "Load the program with the .ptd files that were written with it."
                raise MissingDataError(f"Ethos-U {name}", f"is external, under the key {key}", remedy=remedy)
            payloads[name] = memoryview(named_data[key]).cast("B")
        if len(payloads["scratch_size"]) != 4:
            raise FormatError("must be 4 bytes", where="scratch_size", value=len(payloads["scratch_size"]))
        (scratch,) = struct.unpack("<I", payloads["scratch_size"])
        tensors = [_unpack(payloads[name], name) for name in ("inputs", "outputs")]
        blob = Blob(payloads["cmd_data"], payloads["weight_data"], scratch, tensors[0], tensors[1], external)
        verify(blob)
    except FormatError as error:
        raise error.inside("Ethos-U blob") from None
    return blob


def _blocks(view: memoryview) -> tuple[dict[str, memoryview], dict[str, str]]:
    """Payloads of all blocks, and the keys of external ones."""
    payloads: dict[str, memoryview] = {}
    external: dict[str, str] = {}
    at = 0
    while _END not in payloads:
        checked_int.check_range(at, HEADER.size, len(view), "a block's header")
        raw, size, is_external, reserved = HEADER.unpack_from(view, at)
        name = _name(raw, payloads, at)
        checked_int.check_range(at + HEADER.size, checked_int.align(size, ALIGNMENT), len(view), f"block {name!r}")
        start = at + HEADER.size
        payload, at = view[start : start + size], start + checked_int.align(size, ALIGNMENT)
        if any(reserved) or any(view[start + size : at]) or is_external > 1:
            raise FormatError("must have zeros where nothing is stored", where=name, offset=start)
        if size and name in (_START, _END):
            raise FormatError("must be empty", where=name, value=size)
        if is_external:
            external[name] = _key(name, payload)
        payloads[name] = payload
    if at != len(view):
        raise FormatError("must end with its last block", value=f"{len(view) - at} more bytes", offset=at)
    missing = [name for name in _BLOCKS if name not in payloads]
    if missing:
        raise FormatError(f"must have the blocks {', '.join(missing)}")
    return payloads, external


def _name(raw: bytes, seen: Mapping[str, memoryview], at: int) -> str:
    text, _, rest = raw.partition(b"\0")
    name = text.decode("ascii", "replace")
    if any(rest) or name not in (_START, *_BLOCKS, _END):
        raise FormatError("must be the name of a block", where="name", value=raw, offset=at)
    if (name == _START) != (at == 0) or name in seen:
        raise FormatError(f"blocks start with {_START!r} and differ", where="name", value=name, offset=at)
    return name


def _key(name: str, payload: memoryview) -> str:
    key = bytes(payload[: _KEY_BYTES + 1]).decode("ascii", "replace")
    if name not in _EXTERNAL or len(payload) != _KEY_BYTES or not set(key) <= set("0123456789abcdef"):
        raise FormatError(f"must be a key of {_KEY_BYTES} hexadecimal digits", where=name, value=key)
    return key


def _unpack(data: memoryview, where: str) -> list[Tensor]:
    count = struct.unpack_from("<i", data)[0] if len(data) >= 4 else -1
    if count < 0 or checked_int.add(4, checked_int.product((count, _TENSOR_RECORD.size))) != len(data):
        rule = f"must be a count and {_TENSOR_RECORD.size} bytes for each"
        raise FormatError(rule, where=where, value=f"{count} in {len(data)} bytes")
    rows = (_TENSOR_RECORD.unpack_from(data, 4 + _TENSOR_RECORD.size * i) for i in range(count))
    return [Tensor(row[:RANK], *row[RANK:]) for row in rows]


def verify(blob: Blob) -> None:
    """Raise ``FormatError`` unless the parts are consistent."""
    if bytes(blob.cmd_data[:4]) not in _MAGICS:
        raise FormatError("must start with COP1 or COP2", where="cmd_data", value=bytes(blob.cmd_data[:4]))
    if not 0 <= blob.scratch_size < 1 << 32:
        raise FormatError("must fit 32 bits", where="scratch_size", value=blob.scratch_size)
    for kind in ("inputs", "outputs"):
        for index, tensor in enumerate(getattr(blob, kind)):
            try:
                _verify_tensor(tensor, blob.scratch_size)
            except FormatError as error:
                raise error.inside(f"{kind}[{index}]") from None


def _verify_tensor(tensor: Tensor, scratch: int) -> None:
    if len(tensor.shape) != RANK:
        raise FormatError(f"must have {RANK} sizes", where="shape", value=tensor.shape)
    if tensor.element_size not in _ELEMENT_SIZES:
        raise FormatError(f"must be one of {_ELEMENT_SIZES}", where="element_size", value=tensor.element_size)
    if tensor.region != SCRATCH:
        raise FormatError(f"must be {SCRATCH}, the scratch", where="region", value=tensor.region)
    checked_int.check_range(tensor.offset, tensor.nbytes, scratch, "the scratch")
