"""Reader of host twins (format: ``edgewright.formats.twin_writer``), for untrusted files.

Checks run before the data is used: sizes with overflow-checked arithmetic, JSON without duplicate keys or NaN, bounded
nesting and text, indices against tables, SHA-256 of every constant, and finally SSA form. Constants must be disjoint
and in order, so that hashing them reads the file at most once.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from edgewright.errors import FormatError, LimitError, VersionError
from edgewright.files import Source, open_source
from edgewright.formats.checked_int import add, align, check_range, product
from edgewright.formats.twin_writer import ALIGNMENT, DTYPES, HEAD, MAGIC, VERSION
from edgewright.ir.graph import Array, Dim, Graph, GraphError, Op, Origin, QParams, Size, Value
from edgewright.ir.verify import verify

_MAX_HEADER = 1 << 26
_MAX_RANK = 16
_MAX_SIZE = (1 << 31) - 1
_MAX_TEXT = 4096
_MAX_DEPTH = 8
_DYNAMIC = ("per_token", "per_tensor")


def read_twin(source: Source, limit: int = 1 << 34) -> dict[str, Graph]:
    """The graphs of a file, by key; constants are views of it. ``limit``: bytes that a graph's values may take."""
    view, name = open_source(source, "twin")
    try:
        header, start = _header(view)
        constants = _constants(_list(header, "constants"), view, start)
        graphs = _dict(header.get("graphs"), "graphs")
        return {_text(key, "key"): _read_at(f"graphs.{key}", _graph, graphs[key], constants, limit) for key in graphs}
    except FormatError as error:
        error.file = name
        raise


def _read_at(where: str, read: Callable[..., Any], *args: Any) -> Any:
    """Call a reader and add ``where`` to its errors."""
    try:
        return read(*args)
    except FormatError as error:
        raise error.inside(where) from None


def _header(view: memoryview) -> tuple[dict[str, Any], int]:
    if len(view) < HEAD.size:
        raise FormatError(f"must be at least {HEAD.size} bytes", value=len(view))
    magic, version, length = HEAD.unpack_from(view)
    if magic != MAGIC:
        raise FormatError(f"must start with {MAGIC!r}", value=bytes(magic), offset=0)
    if version != VERSION:
        remedy = "Compile the model again with this release."
        raise VersionError(f"must be version {VERSION}", value=version, offset=len(MAGIC), remedy=remedy)
    if length > _MAX_HEADER:
        raise FormatError(f"the header must be at most {_MAX_HEADER} bytes", value=length, offset=len(MAGIC) + 2)
    check_range(HEAD.size, length, len(view), "the header")
    try:
        text = str(view[HEAD.size : HEAD.size + length], "utf-8")
        header = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"the header must be JSON: {error}"[:200], offset=HEAD.size) from error
    return _dict(header, "header"), align(HEAD.size + length, ALIGNMENT)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise FormatError("must not repeat a key", where="header")
    return table


def _no_constant(name: str) -> Any:
    raise FormatError("must be a finite number", where="header", value=name)


# ------------------------------------------------------------------------------------------------ plain fields


def _dict(item: Any, where: str) -> dict[str, Any]:
    if not isinstance(item, dict):
        raise FormatError("must be an object", where=where, value=type(item).__name__)
    return item


def _list(table: dict[str, Any], name: str) -> list[Any]:
    item = table.get(name)
    if not isinstance(item, list):
        raise FormatError("must be a list", where=name, value=type(item).__name__)
    return item


def _text(item: Any, where: str) -> str:
    if not isinstance(item, str) or len(item) > _MAX_TEXT:
        raise FormatError(f"must be text of at most {_MAX_TEXT} characters", where=where, value=item)
    return item


def _int(item: Any, where: str, low: int, high: int) -> int:
    if type(item) is not int or not low <= item <= high:
        raise FormatError(f"must be an integer from {low} to {high}", where=where, value=item)
    return item


def _dtype(item: Any, where: str) -> Any:
    if not isinstance(item, str) or item not in DTYPES:
        raise FormatError("must be a known element type", where=where, value=item)
    return DTYPES[item]


# ------------------------------------------------------------------------------------------------------ values


def _constants(entries: list[Any], view: memoryview, start: int) -> list[memoryview]:
    """The constants' bytes, which are disjoint and in order."""
    blobs, end = [], start
    for i, entry in enumerate(entries):
        blobs.append(_read_at(f"constants[{i}]", _constant, entry, view, start, end))
        end = add(start, entry["offset"], entry["size"])
    if len({entry["sha256"] for entry in entries}) != len(entries):
        raise FormatError("must not be stored twice", where="constants")
    return blobs


def _constant(entry: Any, view: memoryview, start: int, end: int) -> memoryview:
    entry = _dict(entry, "")
    offset = _int(entry.get("offset"), "offset", 0, len(view))
    size = _int(entry.get("size"), "size", 0, len(view))
    begin = add(start, offset)
    check_range(begin, size, len(view), "a constant")
    if offset % ALIGNMENT or begin < end:
        rule = f"must be a multiple of {ALIGNMENT} after the constant before"
        raise FormatError(rule, where="offset", value=offset)
    data = view[begin : begin + size]
    if hashlib.sha256(data).hexdigest() != entry.get("sha256"):
        raise FormatError("must match its SHA-256", where="sha256", value=entry.get("sha256"))
    return data


def _value(item: Any, constants: Sequence[memoryview]) -> Value:
    item = _dict(item, "")
    dtype = _dtype(item.get("dtype"), "dtype")
    sizes = _list(item, "shape")
    if len(sizes) > _MAX_RANK:
        raise FormatError(f"must have at most {_MAX_RANK} dimensions", where="shape", value=len(sizes))
    value = Value(_text(item.get("name"), "name"), dtype, tuple(_size(s) for s in sizes))
    order = _list(item, "order")
    if sorted(map(repr, order)) != sorted(map(repr, range(len(sizes)))):
        raise FormatError("must name every dimension once", where="order", value=order)
    value.dim_order = tuple(order)
    product((*value.bound, dtype.itemsize))
    if "q" in item:
        value.q = _read_at("q", _parameters, item["q"], value)
    if "constant" in item:
        index = _int(item["constant"], "constant", 0, len(constants) - 1)
        value.data = _array(value, constants[index])
    return value


def _array(value: Value, data: memoryview) -> Array:
    if value.dynamic or value.dtype is None or len(data) != product((*value.bound, value.dtype.itemsize)):
        raise FormatError("must have the size of its shape", where="constant", value=f"{len(data)} bytes")
    return np.frombuffer(data, value.dtype).reshape(value.bound)


def _size(item: Any) -> Size:
    if not isinstance(item, dict):
        return _int(item, "shape", 0, _MAX_SIZE)
    low = _int(item.get("min"), "shape.min", 0, _MAX_SIZE)
    return Dim(_text(item.get("expr"), "shape.expr"), low, _int(item.get("max"), "shape.max", low, _MAX_SIZE))


def _parameters(item: Any, value: Value) -> QParams:
    item = _dict(item, "")
    dtype = _dtype(item.get("dtype"), "dtype")
    if dtype != value.dtype or dtype.kind not in "iu":
        raise FormatError("must be the integers that are stored", where="dtype", value=str(dtype))
    info = np.iinfo(dtype)
    qmin = _int(item.get("qmin"), "qmin", int(info.min), int(info.max))
    qmax = _int(item.get("qmax"), "qmax", qmin, int(info.max))
    rank = len(value.shape)
    axis = None if item.get("axis") is None else _int(item["axis"], "axis", -rank, rank - 1)
    block = None if item.get("block") is None else _int(item["block"], "block", 1, _MAX_SIZE)
    dynamic = item.get("dynamic")
    if dynamic is not None and dynamic not in _DYNAMIC:
        raise FormatError(f"must be {' or '.join(_DYNAMIC)}", where="dynamic", value=dynamic)
    scale, zero = _map_scalar_or_list(item.get("scale"), _scale), _map_scalar_or_list(item.get("zero_point"), _zero)
    _check_counts(scale, zero, value, axis, block)
    return QParams(scale, zero, dtype, qmin, qmax, axis, block, dynamic)


def _map_scalar_or_list(item: Any, read: Callable[[Any], Any]) -> Any:
    return tuple(read(i) for i in item) if isinstance(item, list) else read(item)


def _scale(item: Any) -> float:
    if type(item) not in (int, float) or not 0 < item < math.inf:
        raise FormatError("must be a positive number", where="scale", value=item)
    return float(item)


def _zero(item: Any) -> int:
    return _int(item, "zero_point", -(1 << 31), _MAX_SIZE)


def _check_counts(scale: Any, zero: Any, value: Value, axis: int | None, block: int | None) -> None:
    counts = [len(p) for p in (scale, zero) if isinstance(p, tuple)]
    if not counts:
        return
    expected = value.bound[axis] if axis is not None else -1
    if block is not None and axis is not None:
        slice_size = product(s for i, s in enumerate(value.bound) if i != axis % len(value.bound))
        expected = product((expected, -(-slice_size // block)))
    if any(count != expected for count in counts):
        raise FormatError("must have one scale and zero point per slice", where="scale", value=counts)


# ------------------------------------------------------------------------------------------------------- graphs


def _graph(item: Any, constants: Sequence[memoryview], limit: int) -> Graph:
    item = _dict(item, "")
    values = [_read_at(f"values[{i}]", _value, v, constants) for i, v in enumerate(_list(item, "values"))]
    total = sum(v.nbytes for v in values)
    if total > limit:
        raise LimitError("twin", f"values must take at most {limit} bytes", value=total)
    graph = Graph(_text(item.get("name"), "name"))
    graph.inputs = [_value_at(i, "inputs", values) for i in _list(item, "inputs")]
    if len({v for v in graph.inputs if v.data is None}) != len(graph.inputs):
        raise FormatError("must be different values that are not constant", where="inputs")
    graph.outputs = [_value_at(i, "outputs", values) for i in _list(item, "outputs")]
    graph.ops = [_read_at(f"ops[{i}]", _op, op, values) for i, op in enumerate(_list(item, "ops"))]
    try:
        verify(graph)
    except GraphError as error:
        raise FormatError(f"{error.subject}: {error.rule}", value=error.value) from error
    return graph


def _value_at(item: Any, where: str, values: Sequence[Value]) -> Value:
    return values[_int(item, where, 0, len(values) - 1)]


def _op(item: Any, values: Sequence[Value]) -> Op:
    item = _dict(item, "")
    outputs = [None if o is None else _value_at(o, "outputs", values) for o in _list(item, "outputs")]
    if any(o is not None and o.data is not None for o in outputs):
        raise FormatError("must not be constant", where="outputs")
    args = {
        _text(k, "args"): _read_at(f"args.{k}", _argument, a, values)
        for k, a in _dict(item.get("args"), "args").items()
    }
    origin = Origin(_text(item.get("node"), "node"), _text(item.get("module"), "module"))
    return Op(_text(item.get("kind"), "kind"), args, outputs, origin)


def _argument(item: Any, values: Sequence[Value], depth: int = 0) -> Any:
    if depth > _MAX_DEPTH:
        raise FormatError(f"must be nested at most {_MAX_DEPTH} deep")
    if isinstance(item, list):
        return [_argument(i, values, depth + 1) for i in item]
    if isinstance(item, dict):
        return _special(item, values, depth)
    if type(item) is int:
        return _int(item, "", -(1 << 63), (1 << 63) - 1)
    return _text(item, "") if isinstance(item, str) else item


def _special(item: dict[str, Any], values: Sequence[Value], depth: int) -> Any:
    """Decode values, tuples, non-finite floats and dynamic sizes, which JSON cannot represent."""
    kind = next(iter(item)) if len(item) == 1 else ""
    content = item.get(kind)
    if kind == "value":
        return _value_at(content, "value", values)
    if kind == "tuple":
        return tuple(_argument(i, values, depth + 1) for i in _list(item, "tuple"))
    if kind == "float" and content in ("inf", "-inf", "nan"):
        return float(content)
    if kind == "dim" and isinstance(content, dict):
        return _size(content)
    raise FormatError("must be a value, a tuple, a number or a size", value=sorted(item)[:4])
