"""Operators that only move what is stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from edgewright.ir.graph import Array

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


def _places(indices: Array, size: int) -> Array:
    at = indices.astype(np.int64)
    if at.size and (at.min() < -size or at.max() >= size):
        raise ValueError(f"an index must be within {size}")
    return at % size if size else at


def gather(params: Params, x: Array, indices: Array) -> Array:
    return np.take(x, _places(indices, x.shape[params["axis"]]), params["axis"])


def gather_elements(params: Params, x: Array, indices: Array) -> Array:
    """Of other dimensions, as much as there are indices for."""
    x = x[tuple(slice(None if d == params["axis"] else n) for d, n in enumerate(indices.shape))]
    return np.take_along_axis(x, _places(indices, x.shape[params["axis"]]), params["axis"])


def scatter_elements(params: Params, x: Array, indices: Array, updates: Array) -> Array:
    """In real numbers: 0 replaces, 1 adds, 2 multiplies."""
    axis, made = params["axis"], x.copy()
    places: list[Any] = list(np.indices(indices.shape, sparse=True))
    places[axis] = _places(indices, x.shape[axis])
    _write(made, tuple(places), updates, params["reduction"])
    return made


def scatter_nd(params: Params, x: Array, indices: Array, updates: Array) -> Array:
    made = x.copy()
    places = tuple(_places(indices[..., i], x.shape[i]) for i in range(indices.shape[-1]))
    _write(made, places, updates, params["reduction"])
    return made


def _write(made: Array, places: tuple[Any, ...], updates: Array, reduction: int) -> None:
    if reduction == 0:
        made[places] = updates
    else:
        {1: np.add, 2: np.multiply}[reduction].at(made, places, updates)


def top_k(params: Params, x: Array) -> list[Array]:
    """The largest, or smallest, along the last dimension, in order, and where they are."""
    order = np.argsort(-x.astype(np.float64) if params["largest"] else x, axis=-1, kind="stable")[..., : params["k"]]
    return [np.take_along_axis(x, order, -1), order]
