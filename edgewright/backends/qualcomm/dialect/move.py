"""References of data movement, on stored values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from edgewright.backends.qualcomm.dialect.dtypes import convert_elements, from_float, round_to_fp16, to_float
from edgewright.ir.core.index_bounds import OutOfRangePolicy
from edgewright.ir.graph import Array, Op

Params = Mapping[str, Any]


def reshape(params: Params, x: Array) -> Array:
    return np.ascontiguousarray(x).reshape(params["shape"])


def transpose(params: Params, x: Array) -> Array:
    return x.transpose(params["perm"])


def concat(params: Params, *arrays: Array) -> Array:
    return np.concatenate(arrays, params["axis"])


def pack(params: Params, *arrays: Array) -> Array:
    return np.stack(arrays, params["axis"])


def unpack(params: Params, x: Array) -> list[Array]:
    return list(np.moveaxis(x, params["axis"], 0))


def split(params: Params, x: Array) -> list[Array]:
    return np.split(x, params["split_index"], params["axis"])


def strided_slice(params: Params, x: Array) -> Array:
    """Begin, end and step of each dimension; an end of -1 with a negative step includes the first element."""
    bits = {name: params[name] for name in ("begin_mask", "end_mask", "shrink_axes")}
    index: list[Any] = []
    for axis, (begin, end, step) in enumerate(params["ranges"]):
        if bits["shrink_axes"] >> axis & 1:
            index.append(begin)
            continue
        first = None if bits["begin_mask"] >> axis & 1 else begin
        last = None if bits["end_mask"] >> axis & 1 or (step < 0 and end < 0) else end
        index.append(slice(first, last, step))
    return x[tuple(index)]


def tile(params: Params, x: Array) -> Array:
    return np.tile(x, params["multiples"])


_MODES = {1: "symmetric", 2: "reflect", 3: "edge"}


def pad(params: Params, x: Array) -> Array:
    """``fill`` is the padding value in the storage of the output."""
    if params["scheme"] == 0:
        return np.pad(x, params["pad_amount"], constant_values=params["fill"])
    mode: Any = _MODES[params["scheme"]]
    return np.pad(x, params["pad_amount"], mode=mode)


def channel_shuffle(params: Params, x: Array) -> Array:
    axis, groups = params["axis"], params["num_groups"]
    shape = x.shape
    blocks = x.reshape(*shape[:axis], groups, shape[axis] // groups, *shape[axis + 1 :])
    return np.ascontiguousarray(np.swapaxes(blocks, axis, axis + 1)).reshape(shape)


def depth_to_space(params: Params, x: Array) -> Array:
    """``mode`` 0 is DCR (the block is the outer part of the channel index), 1 is CRD (the inner part), as in torch."""
    batch, height, width, channels = x.shape
    block_h, block_w = params["block_size"]
    if params["mode"]:
        blocks = x.reshape(batch, height, width, channels // (block_h * block_w), block_h, block_w)
        permuted = blocks.transpose(0, 1, 4, 2, 5, 3)
    else:
        blocks = x.reshape(batch, height, width, block_h, block_w, channels // (block_h * block_w))
        permuted = blocks.transpose(0, 1, 3, 2, 4, 5)
    return np.ascontiguousarray(permuted).reshape(params["shape"])


def space_to_depth(params: Params, x: Array) -> Array:
    batch, height, width, channels = x.shape
    block_h, block_w = params["block_size"]
    blocks = x.reshape(batch, height // block_h, block_h, width // block_w, block_w, channels)
    permuted = blocks.transpose(0, 1, 3, 5, 2, 4) if params["mode"] else blocks.transpose(0, 1, 3, 2, 4, 5)
    return np.ascontiguousarray(permuted).reshape(params["shape"])


# On the HTP, negative indices do not count from the end. Out of range, GatherElements returns 0 and scatter writes
# nothing, for all types. For Gather of rows the emulator raises, returns 0 or returns some other row, depending on what
# it reads: here this is an error.


def _in_range(indices: Array, size: int) -> tuple[Array, Array]:
    """Indices with those out of range replaced by 0, and the mask of those in range."""
    at = indices.astype(np.int64)
    inside = (at >= 0) & (at < size)
    return np.where(inside, at, 0), inside


def gather(params: Params, x: Array, indices: Array) -> Array:
    axis = params["axis"]
    return np.take(x, OutOfRangePolicy(params["subject"]).check(indices.astype(np.int64), x.shape[axis]), axis)


def gather_elements(params: Params, x: Array, indices: Array) -> Array:
    """Other dimensions are truncated to those of ``indices``."""
    x = x[tuple(slice(None if d == params["axis"] else n) for d, n in enumerate(indices.shape))]
    at, inside = _in_range(indices, x.shape[params["axis"]])
    return np.where(inside, np.take_along_axis(x, at, params["axis"]), np.asarray(params["zero"], x.dtype))


def _scatter(targets: Callable[[Op, Array, Array], tuple[tuple[Any, ...], Array]]) -> Any:
    """Scatter stored values in the output's scale; with a reduction, dequantized values. ``targets``: the indices that
    updates are written to, and the mask of updates in range."""

    def reference(op: Op, arrays: Sequence[Array]) -> Array:
        (x, _, updates), out = op.args["inputs"], op.outputs[0]
        assert out is not None
        convert = convert_elements if op.args["reduction"] == 0 else lambda value, array, _: to_float(value, array)
        result = convert(x, arrays[0], out).copy()
        at, inside = targets(op, result, arrays[1])
        values = convert(updates, arrays[2], out)[inside]
        if op.args["reduction"] == 0:
            result[at] = values
            return result
        {1: np.add, 2: np.multiply}[op.args["reduction"]].at(result, at, values)
        return from_float(out, result)

    return reference


def _element_targets(op: Op, x: Array, indices: Array) -> tuple[tuple[Any, ...], Array]:
    targets, axis = list(np.indices(indices.shape)), op.args["axis"]
    targets[axis], inside = _in_range(indices, x.shape[axis])
    return tuple(p[inside] for p in targets), inside


def _row_targets(op: Op, x: Array, indices: Array) -> tuple[tuple[Any, ...], Array]:
    axes = [_in_range(indices[..., i], x.shape[i]) for i in range(indices.shape[-1])]
    inside = np.logical_and.reduce([inside for _, inside in axes])
    return tuple(at[inside] for at, _ in axes), inside


scatter_elements, scatter_nd = _scatter(_element_targets), _scatter(_row_targets)


def top_k(params: Params, x: Array) -> list[Array]:
    """The largest, or smallest, along the last dimension, in order, and their indices. Floating point is compared
    in fp16, in which the HTP computes."""
    x = round_to_fp16(x).astype(x.dtype) if x.dtype.kind == "f" else x
    order = np.argsort(-x.astype(np.float64) if params["largest"] else x, axis=-1, kind="stable")[..., : params["k"]]
    return [np.take_along_axis(x, order, -1), order]
