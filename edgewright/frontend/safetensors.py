"""Loads weights from a ``.safetensors`` file into a model: memory-mapped, validated, without copies."""

from __future__ import annotations

import json
import logging
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Union

import torch
from torch.export import ExportedProgram

from edgewright.errors import FormatError, UsageError
from edgewright.files import Source, open_source
from edgewright.formats import checked_int

log = logging.getLogger("edgewright.frontend")

DTYPES = {
    "BOOL": torch.bool, "U8": torch.uint8, "I8": torch.int8, "U16": torch.uint16, "I16": torch.int16,
    "U32": torch.uint32, "I32": torch.int32, "U64": torch.uint64, "I64": torch.int64, "F16": torch.float16,
    "BF16": torch.bfloat16, "F32": torch.float32, "F64": torch.float64, "F8_E5M2": torch.float8_e5m2,
    "F8_E4M3": torch.float8_e4m3fn, "C64": torch.complex64,
}  # fmt: skip
MAX_HEADER = 100_000_000  # the limit of the format
_MAX_RANK = 64  # the limit of torch
_MAX_LISTED = 5

Model = Union[torch.nn.Module, ExportedProgram]


@dataclass(frozen=True)
class _Entry:
    """A tensor's extent in the file."""

    dtype: torch.dtype
    shape: list[int]
    begin: int
    end: int


def read_weights(source: Source) -> dict[str, torch.Tensor]:
    """The tensors of a ``.safetensors`` file by name: views of the file, mapped copy-on-write."""
    view, name = open_source(source, "weights", private=True)
    try:
        start, header = _header(view)
        entries = {key: _entry(key, item) for key, item in header.items() if key != "__metadata__"}
        _check_extents(entries, len(view) - start)
        return {key: _tensor(view, start, entry) for key, entry in entries.items()}
    except FormatError as error:
        error.file = name
        raise


def _header(view: memoryview) -> tuple[int, dict[str, Any]]:
    """The offset of the data, and the parsed header."""
    if len(view) < 8:
        raise FormatError("a .safetensors file starts with 8 bytes of length", value=len(view), offset=0)
    (length,) = struct.unpack_from("<Q", view)
    if length > MAX_HEADER:
        raise FormatError(f"the header has at most {MAX_HEADER} bytes", value=length, where="header", offset=0)
    checked_int.check_range(8, length, len(view), "the header")
    try:
        header = json.loads(bytes(view[8 : 8 + length]).decode("utf-8"), object_pairs_hook=_reject_duplicates)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"must be JSON: {error}", where="header", offset=8) from error
    if not isinstance(header, dict):
        raise FormatError("must be a JSON object", value=type(header).__name__, where="header", offset=8)
    return 8 + length, header


def _reject_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name, value in pairs:
        if name in result:
            raise FormatError("names must differ", value=name, where="header", offset=8)
        result[name] = value
    return result


def _entry(name: str, item: Any) -> _Entry:
    def fail(rule: str, value: object, field: str = "") -> FormatError:
        return FormatError(rule, value=value, where=f"{name}.{field}" if field else name, offset=8)

    if not isinstance(item, dict) or set(item) != {"dtype", "shape", "data_offsets"}:
        raise fail("must be an object of dtype, shape and data_offsets", item)
    dtype, shape, offsets = item["dtype"], item["shape"], item["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise fail(f"must be one of {', '.join(DTYPES)}", dtype, "dtype")
    if not _is_size_list(shape) or len(shape) > _MAX_RANK:
        raise fail(f"must be a list of at most {_MAX_RANK} sizes", shape, "shape")
    if not _is_size_list(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise fail("must be where the data begins and ends", offsets, "data_offsets")
    try:
        size = checked_int.product((*shape, DTYPES[dtype].itemsize))
    except FormatError as error:
        raise error.inside(f"{name}.shape") from None
    if size != offsets[1] - offsets[0]:
        raise fail(f"must span the tensor's {size} bytes", offsets[1] - offsets[0], "data_offsets")
    return _Entry(DTYPES[dtype], shape, *offsets)


def _is_size_list(value: Any) -> bool:
    return isinstance(value, list) and all(type(n) is int and 0 <= n <= checked_int.MAX_BYTES for n in value)


def _check_extents(entries: Mapping[str, _Entry], size: int) -> None:
    """Raise unless the tensors cover the data without gaps or overlaps."""
    at = 0
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].begin, item[1].end)):
        if entry.begin != at:
            rule = f"must begin at byte {at} of the data, where the one before ends"
            raise FormatError(rule, value=entry.begin, where=f"{name}.data_offsets", offset=8)
        at = entry.end
    if at != size:
        raise FormatError(f"the tensors must fill the {size} bytes of data", value=at, where="header", offset=8)


def _tensor(view: memoryview, start: int, entry: _Entry) -> torch.Tensor:
    size = entry.end - entry.begin
    if not size:
        return torch.empty(entry.shape, dtype=entry.dtype)
    at = start + entry.begin
    data = view[at : at + size]
    if view.readonly or at % entry.dtype.itemsize:  # not writable, or misaligned
        data = memoryview(bytearray(data))
    return torch.frombuffer(data, dtype=entry.dtype).reshape(entry.shape)


def load_weights(model: Model, source: Source) -> None:
    """Load the weights of a ``.safetensors`` file into a model, by name, as views of the mapped file.

    A model created on ``torch.device("meta")`` never allocates memory for its weights.
    """
    weights = read_weights(source)
    expected = model.state_dict if isinstance(model, ExportedProgram) else model.state_dict()
    _tie_weights(model, weights)
    _check_names(expected, weights)
    for name, tensor in weights.items():
        if tensor.dtype != expected[name].dtype:
            log.info("%s: converted from %s to the model's %s", name, tensor.dtype, expected[name].dtype)
            weights[name] = tensor.to(expected[name].dtype)
    if isinstance(model, ExportedProgram):
        expected.update({n: _as_parameter(weights[n], expected[n]) for n in expected})
    else:
        model.load_state_dict(weights, assign=True)


def _as_parameter(tensor: torch.Tensor, old: torch.Tensor) -> torch.Tensor:
    return torch.nn.Parameter(tensor, old.requires_grad) if isinstance(old, torch.nn.Parameter) else tensor


def _tie_weights(model: Model, weights: dict[str, torch.Tensor]) -> None:
    """Bind every name of a tied parameter: the file stores it under one of them."""
    if isinstance(model, ExportedProgram):
        return
    by_tensor: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        by_tensor.setdefault(id(parameter), []).append(name)
    for names in by_tensor.values():
        stored = [name for name in names if name in weights]
        for name in names if stored else ():
            weights.setdefault(name, weights[stored[0]])


def _check_names(expected: Mapping[str, torch.Tensor], weights: Mapping[str, torch.Tensor]) -> None:
    missing, unknown = sorted(set(expected) - set(weights)), sorted(set(weights) - set(expected))
    for names, rule in ((missing, "must contain every weight of the model; these are missing"),
                        (unknown, "must contain weights of the model only; these are not the model's")):  # fmt: skip
        if names:
            more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
            raise UsageError("weights", rule, value=", ".join(names[:_MAX_LISTED]) + more)
    for name, tensor in expected.items():
        if tensor.shape != weights[name].shape:
            rule = f"must have the model's shape {list(tensor.shape)}"
            raise UsageError(f"weight {name!r}", rule, value=list(weights[name].shape))
