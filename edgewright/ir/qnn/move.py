"""References of data movement, on stored values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from edgewright.ir.core.index_bounds import OutOfRangePolicy
from edgewright.ir.graph import Array, Op
from edgewright.ir.qnn.dtypes import converted, half, real, stored

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
    """From, to and step of each dimension; an end of -1 with a negative step goes to the first element."""
    bits = {name: params[name] for name in ("begin_mask", "end_mask", "shrink_axes")}
    taken: list[Any] = []
    for axis, (begin, end, step) in enumerate(params["ranges"]):
        if bits["shrink_axes"] >> axis & 1:
            taken.append(begin)
            continue
        first = None if bits["begin_mask"] >> axis & 1 else begin
        last = None if bits["end_mask"] >> axis & 1 or (step < 0 and end < 0) else end
        taken.append(slice(first, last, step))
    return x[tuple(taken)]


def tile(params: Params, x: Array) -> Array:
    return np.tile(x, params["multiples"])


_MODES = {1: "symmetric", 2: "reflect", 3: "edge"}


def pad(params: Params, x: Array) -> Array:
    """``fill`` is what is stored for the number that was asked for."""
    if params["scheme"] == 0:
        return np.pad(x, params["pad_amount"], constant_values=params["fill"])
    mode: Any = _MODES[params["scheme"]]
    return np.pad(x, params["pad_amount"], mode=mode)


def channel_shuffle(params: Params, x: Array) -> Array:
    axis, groups = params["axis"], params["num_groups"]
    shape = x.shape
    apart = x.reshape(*shape[:axis], groups, shape[axis] // groups, *shape[axis + 1 :])
    return np.ascontiguousarray(np.swapaxes(apart, axis, axis + 1)).reshape(shape)


def depth_to_space(params: Params, x: Array) -> Array:
    """Channels as pixels. ``mode`` 1: a pixel's block is the faster part of a channel's number, as in torch."""
    batch, height, width, channels = x.shape
    down, along = params["block_size"]
    if params["mode"]:
        apart = x.reshape(batch, height, width, channels // (down * along), down, along)
        turned = apart.transpose(0, 1, 4, 2, 5, 3)
    else:
        apart = x.reshape(batch, height, width, down, along, channels // (down * along))
        turned = apart.transpose(0, 1, 3, 2, 4, 5)
    return np.ascontiguousarray(turned).reshape(params["shape"])


def space_to_depth(params: Params, x: Array) -> Array:
    batch, height, width, channels = x.shape
    down, along = params["block_size"]
    apart = x.reshape(batch, height // down, down, width // along, along, channels)
    turned = apart.transpose(0, 1, 3, 5, 2, 4) if params["mode"] else apart.transpose(0, 1, 3, 2, 4, 5)
    return np.ascontiguousarray(turned).reshape(params["shape"])


# On the HTP no place counts from the end. Where there is none, single elements are 0 and nothing is written, whatever
# type they have. Of rows the emulator gives an error, 0 or some other row, as it happens to read them: here it is an
# error.


def _there(indices: Array, size: int) -> tuple[Array, Array]:
    """Places that exist, and whether they are the ones that were meant."""
    at = indices.astype(np.int64)
    inside = (at >= 0) & (at < size)
    return np.where(inside, at, 0), inside


def gather(params: Params, x: Array, indices: Array) -> Array:
    axis = params["axis"]
    return np.take(x, OutOfRangePolicy(params["subject"]).check(indices.astype(np.int64), x.shape[axis]), axis)


def gather_elements(params: Params, x: Array, indices: Array) -> Array:
    """Of other dimensions, as much as there are indices for."""
    x = x[tuple(slice(None if d == params["axis"] else n) for d, n in enumerate(indices.shape))]
    at, inside = _there(indices, x.shape[params["axis"]])
    return np.where(inside, np.take_along_axis(x, at, params["axis"]), np.asarray(params["zero"], x.dtype))


def _scattered(places: Callable[[Op, Array, Array], tuple[tuple[Any, ...], Array]]) -> Any:
    """Of what is stored, in the result's scale; sums and products of real numbers. ``places``: where updates go, and
    which of them."""

    def meaning(op: Op, arrays: Sequence[Array]) -> Array:
        (x, _, updates), out = op.args["inputs"], op.outputs[0]
        assert out is not None
        held = converted if op.args["reduction"] == 0 else lambda value, array, _: real(value, array)
        made = held(x, arrays[0], out).copy()
        at, inside = places(op, made, arrays[1])
        written = held(updates, arrays[2], out)[inside]
        if op.args["reduction"] == 0:
            made[at] = written
            return made
        {1: np.add, 2: np.multiply}[op.args["reduction"]].at(made, at, written)
        return stored(out, made)

    return meaning


def _elements(op: Op, x: Array, indices: Array) -> tuple[tuple[Any, ...], Array]:
    places, axis = list(np.indices(indices.shape)), op.args["axis"]
    places[axis], inside = _there(indices, x.shape[axis])
    return tuple(p[inside] for p in places), inside


def _rows(op: Op, x: Array, indices: Array) -> tuple[tuple[Any, ...], Array]:
    found = [_there(indices[..., i], x.shape[i]) for i in range(indices.shape[-1])]
    inside = np.logical_and.reduce([there for _, there in found])
    return tuple(at[inside] for at, _ in found), inside


scatter_elements, scatter_nd = _scattered(_elements), _scattered(_rows)


def top_k(params: Params, x: Array) -> list[Array]:
    """The largest, or smallest, along the last dimension, in order, and their indices. Real numbers are compared in
    half precision, as everything that computes with them does."""
    x = half(x).astype(x.dtype) if x.dtype.kind == "f" else x
    order = np.argsort(-x.astype(np.float64) if params["largest"] else x, axis=-1, kind="stable")[..., : params["k"]]
    return [np.take_along_axis(x, order, -1), order]
