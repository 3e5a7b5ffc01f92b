"""Lowering of data movement: reshapes, permutations, slices, concatenation, padding, copies."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from edgewright.ir.graph import Dim, Op, Value
from edgewright.lowering.aten_to_core.elementwise import Lowering
from edgewright.lowering.aten_to_core.operands import (
    cast_value,
    computed,
    dtype_of,
    emit_result,
    normalize_dim,
    require_one_dtype,
    reshape_sizes,
    result,
    scalar,
    store,
)
from edgewright.lowering.passes.layout import LoweringContext, Order, common_order, identity, permuted_order, require

# ---------------------------------------------------------------------------------------------- reshapes, permutations


def view(low: LoweringContext, op: Op) -> None:
    out = result(op)
    low.emit("core.view", low.make(out), self=low.get(op.args["self"]), size=reshape_sizes(out))


def permute(low: LoweringContext, op: Op) -> None:
    """No node, if the context relabels: the result is an alias with permuted dimension order."""
    x, out = op.args["self"], result(op)
    if low.relabels_permutes:
        for order in [identity(len(x.shape))] if x.constant else low.orders(x):
            low.alias(out, permuted_order(op, order), low.get(x, order))
        return
    order = permuted_order(op, identity(len(x.shape)))
    low.emit("core.permute", low.make(out), self=low.get(x), dims=[order.index(d) for d in range(len(order))])


def forward_input(low: LoweringContext, op: Op) -> None:
    """No node: the result is an alias of the input."""
    x, out = next(op.inputs()), result(op)
    for order in [identity(len(x.shape))] if x.constant else low.orders(x):
        low.alias(out, order, low.get(x, order))


def cast(low: LoweringContext, op: Op) -> None:
    x, out = op.args["self"], result(op)
    if x.dtype == out.dtype:
        forward_input(low, op)
        return
    order = common_order(low, op, len(x.shape))
    low.emit("core.cast", low.make(out, order), self=low.get(x, order))


def expand(low: LoweringContext, op: Op) -> None:
    x, out = op.args["self"], result(op)
    if x.shape == out.shape:
        forward_input(low, op)
    else:
        low.emit("core.expand", low.make(out), self=low.get(x), size=list(out.bound))


def _expanded(low: LoweringContext, value: Value, shape: tuple[int, ...]) -> Value:
    if value.bound == shape:
        return value
    return low.compute("core.expand", shape, value.dtype, self=value, size=list(shape))


def copy(low: LoweringContext, op: Op) -> None:
    """``src`` in the shape and type of ``self``."""
    out = result(op)
    source = cast_value(low, computed(low, op.args["src"]), op.args["self"].dtype)
    emit_result(low, "core.clone", out, source.dtype, self=_expanded(low, source, out.bound))


def fill(low: LoweringContext, op: Op) -> None:
    """A one-element tensor broadcast to the result."""
    out = result(op)
    value = low.view(cast_value(low, computed(low, op.args["value"]), out.dtype), (1,))
    filled = _expanded(low, value, out.bound or (1,))
    low.emit("core.view", low.make(out), self=filled, size=list(out.bound))


# -------------------------------------------------------------------------------------------------------------- slices


def slice_(low: LoweringContext, op: Op) -> None:
    """``slice`` and ``narrow``; one with a step is ``as_strided``."""
    x, out = op.args["self"], result(op)
    dim, step = op.args["dim"] % len(x.shape), op.args.get("step", 1)
    size = int(x.bound[dim])
    start = op.args["start"] or 0
    start = min(max(start + size if start < 0 else start, 0), size)
    if step == 1:
        order = common_order(low, op, len(out.shape))
        _slice_dim(low, x, low.make(out, order), order, dim, start, int(out.bound[dim]))
        return
    stride = [math.prod(x.bound[d + 1 :]) for d in range(len(x.shape))]
    offset = start * stride[dim]
    stride[dim] *= step
    low.emit("core.as_strided", low.make(out), self=computed(low, x), size=list(out.bound), stride=stride,
             storage_offset=offset)  # fmt: skip


def _slice_dim(low: LoweringContext, x: Value, out: Value, order: Order, dim: int, start: int, length: int) -> None:
    """Slice one dimension. A length of 0 means the full extent of a dynamic dimension."""
    starts = [start if d == dim else 0 for d in order]
    lengths = [length if d == dim else 0 if isinstance(x.shape[d], Dim) else int(x.bound[d]) for d in order]
    low.emit("core.slice", out, self=low.get(x, order), start=starts, length=lengths)


def split(low: LoweringContext, op: Op) -> None:
    """One slice per output."""
    x = op.args["self"]
    rank = len(x.shape)
    order, dim = common_order(low, op, rank), op.args["dim"] % rank
    sizes = op.args["split_sizes"] if "split_sizes" in op.args else [op.args["split_size"]] * len(op.outputs)
    start = 0
    for out, size in zip(op.outputs, sizes, strict=False):
        length = min(size, int(x.bound[dim]) - start)
        if out is not None:
            _slice_dim(low, x, low.make(out, order), order, dim, start, length)
        start += length


def select(low: LoweringContext, op: Op) -> None:
    """Slice of length 1, then remove the dimension; ``unbind`` selects every index."""
    x = op.args["self"]
    dim = op.args["dim"] % len(x.shape)
    first = op.args["index"] % int(x.bound[dim]) if "index" in op.args else 0
    for index, out in enumerate(op.outputs):
        if out is not None:
            _select_index(low, op, x, out, dim, first + index)


def _select_index(low: LoweringContext, op: Op, x: Value, out: Value, dim: int, index: int) -> None:
    order = common_order(low, op, len(x.shape))
    sliced = low.temporary([1 if d == dim else x.bound[d] for d in order], out)
    _slice_dim(low, x, sliced, order, dim, index, 1)
    squeezed_order = tuple(d - (d > dim) for d in order if d != dim)
    low.emit("core.view", low.make(out, squeezed_order), self=sliced, size=reshape_sizes(out, squeezed_order))


# ------------------------------------------------------------------------------------------- concatenation and padding


def cat(low: LoweringContext, op: Op) -> None:
    out, operands = result(op), op.args["tensors"]
    rank = len(out.shape)
    require(all(len(v.shape) == rank for v in operands), "must be of one rank")
    order = common_order(low, op, rank)
    parts = [cast_value(low, low.get(v, order), out.dtype) for v in operands]
    _concatenate(low, parts, low.make(out, order), order.index(op.args["dim"] % rank))


def _concatenate(low: LoweringContext, parts: list[Value], out: Value, dim: int) -> None:
    """Concatenate, as a chain if one node has too few inputs."""
    limit = low.max_concatenated
    while len(parts) > limit:
        shape = list(parts[0].bound)
        shape[dim] = sum(int(p.bound[dim]) for p in parts[:limit])
        partial = low.temporary(shape, out)
        low.emit("core.cat", partial, tensors=parts[:limit], dim=dim)
        parts = [partial, *parts[limit:]]
    low.emit("core.cat", out, tensors=parts, dim=dim)


def stack(low: LoweringContext, op: Op) -> None:
    """Unsqueeze every tensor, then concatenate along the new dimension."""
    out = result(op)
    dim = op.args["dim"] % len(out.shape)
    parts = []
    for value in op.args["tensors"]:
        size = reshape_sizes(value)
        parts.append(low.temporary([*value.bound[:dim], 1, *value.bound[dim:]], out))
        stored = cast_value(low, low.get(value), out.dtype)
        low.emit("core.view", parts[-1], self=stored, size=[*size[:dim], 1, *size[dim:]])
    _concatenate(low, parts, low.make(out), dim)


def _fill_value(x: Value, value: Any) -> Any:
    """The value of a padding, within the range of quantized elements: minus infinity is their smallest."""
    if x.q is None:
        exact = np.asarray(value).astype(dtype_of(x))
        require(float(np.float32(exact)) == float(exact) or np.isnan(exact), "must be a float32 value")
        return value
    if np.isfinite(value):
        return value
    require(not np.isnan(value) and not x.q.dynamic and np.ndim(x.q.scale) == 0, "must be a number")
    limit = x.q.qmax if value > 0 else x.q.qmin
    return (limit - float(np.asarray(x.q.zero_point))) * float(np.asarray(x.q.scale))


def pad(low: LoweringContext, op: Op) -> None:
    """Negative padding crops first."""
    x, out, widths = op.args["self"], result(op), op.args["pad"]
    order, rank = common_order(low, op, len(out.shape)), len(x.shape)
    value = _fill_value(x, op.args["value"] or 0)
    before, after = [0] * rank, [0] * rank
    for index in range(len(widths) // 2):
        before[rank - 1 - index], after[rank - 1 - index] = widths[2 * index], widths[2 * index + 1]
    data = low.get(x, order)
    if min(*before, *after) < 0:
        length = [x.bound[d] + min(before[d], 0) + min(after[d], 0) for d in order]
        require(min(length) > 0, "must leave elements")
        start = [max(-before[d], 0) for d in order]
        data = low.compute("core.slice", length, data.dtype, self=data, start=start, length=length)
    low.emit("core.pad", low.make(out, order), self=data, before=[max(before[d], 0) for d in order],
             after=[max(after[d], 0) for d in order], value=float(value))  # fmt: skip


# ------------------------------------------------------------------------------------------ any other positions


def rearrange(low: LoweringContext, op: Op) -> None:
    """Static data movement that core has under the name of the op table."""
    x, out = next(op.inputs()), result(op)
    require(x.shape, "must have a dimension")
    args = {name: computed(low, x) if v is x else _to_python(v) for name, v in op.args.items()}
    low.emit(f"core.{op.kind}", low.make(out), **args)


def _to_python(argument: Any) -> Any:
    if not isinstance(argument, list | tuple):
        return argument
    return [n.item() if isinstance(n, np.generic | np.ndarray) else n for n in argument]


def as_strided(low: LoweringContext, op: Op) -> None:
    x = op.args["self"]
    require(x.dim_order == identity(len(x.shape)), "reads raw memory, which must be in logical order")
    rearrange(low, op)


def roll(low: LoweringContext, op: Op) -> None:
    """Without dimensions, it rolls the flattened tensor."""
    x, out, shifts = op.args["self"], result(op), _to_python(op.args["shifts"])
    dims = [normalize_dim(x, d) for d in op.args["dims"]]
    data = computed(low, x) if dims else low.view(computed(low, x), (math.prod(x.bound),))
    dims = dims or [0]
    shifts = [shift % data.bound[d] for shift, d in zip(shifts, dims, strict=True)]
    store(low, low.compute("core.roll", data.bound, x.dtype, self=data, shifts=shifts, dims=dims), out)


def pixel_shuffle(low: LoweringContext, op: Op) -> None:
    """Reshape to ``[N, C/r², r, r, H, W]``, permute to ``[N, C/r², H, r, W, r]``, reshape to the result."""
    x, out, factor = op.args["self"], result(op), op.args["upscale_factor"]
    batch, channels, height, width = reshape_sizes(x)
    split_size = [batch, channels // factor**2, factor, factor, height, width]
    bound = [x.bound[0], channels // factor**2, factor, factor, *x.bound[2:]]
    dims = [0, 1, 4, 2, 5, 3]
    parts, permuted_parts = low.temporary(bound, out), low.temporary([bound[d] for d in dims], out)
    low.emit("core.view", parts, self=low.get(x), size=split_size)
    low.emit("core.permute", permuted_parts, self=parts, dims=dims)
    low.emit("core.view", low.make(out), self=permuted_parts, size=reshape_sizes(out))


def tril(low: LoweringContext, op: Op) -> None:
    x, out = op.args["self"], result(op)
    mask = np.tril(np.ones(x.bound[-2:], np.bool_), max(-(1 << 31), min(int(op.args["diagonal"]), 1 << 31)))
    low.emit("core.where", low.make(out), condition=low.constant(mask), self=computed(low, x),
             other=scalar(low, 0, dtype_of(x)))  # fmt: skip


def scatter_slice(low: LoweringContext, op: Op) -> None:
    """``slice_scatter`` and ``select_scatter``: rows at indices that the arguments determine."""
    x, values, out = op.args["self"], op.args["src"], result(op)
    require_one_dtype(x, values, out)
    dim = normalize_dim(x, op.args["dim"])
    size = x.bound[dim]
    if "index" in op.args:
        positions = [op.args["index"] % size]
    else:
        positions = list(range(size)[slice(op.args["start"], op.args["end"], max(op.args["step"], 1))])
    shape = (*x.bound[:dim], len(positions), *x.bound[dim + 1 :])
    require(positions and math.prod(values.bound) == math.prod(shape), "must have the shape of the slice")
    indices = [low.constant(np.asarray(positions, np.int64)) if d == dim else None for d in range(dim + 1)]
    low.emit("core.index_put", low.make(out), self=low.get(x), indices=indices,
             values=low.view(low.get(values), shape), accumulate=False)  # fmt: skip


LOWERINGS: dict[str, Lowering] = {
    "view": view, "unsqueeze": view, "squeeze": view, "permute": permute, "transpose": permute, "t": permute,
    "expand": expand, "clone": cast, "cast": cast, "copy": copy, "fill": fill,
    "slice": slice_, "narrow": slice_, "split": split, "split_with_sizes": split, "select": select, "unbind": select,
    "cat": cat, "stack": stack, "pad": pad, "roll": roll, "as_strided": as_strided, "tril": tril,
    "slice_scatter": scatter_slice, "select_scatter": scatter_slice,
    **dict.fromkeys(("flip", "repeat", "unfold", "diagonal", "pixel_shuffle", "pixel_unshuffle", "upsample_nearest2d",
                     "reflection_pad", "replication_pad"), rearrange),
}  # fmt: skip
