"""Padding. ``padding`` has two numbers per padded dim, last dim first; negative ones crop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.ir.aten.reference.dims import Array, Shape, numel


def _sides(self: Array, padding: Sequence[int]) -> list[tuple[int, int]]:
    """(before, after) of every dim, first dim first."""
    if len(padding) % 2 or len(padding) > 2 * self.ndim:
        raise ValueError(f"padding must be pairs for at most {self.ndim} dims, got {list(padding)}")
    pairs = [(padding[i], padding[i + 1]) for i in range(0, len(padding), 2)]
    return [(0, 0)] * (self.ndim - len(pairs)) + pairs[::-1]


def _padded_shape(self: Array, sides: Sequence[tuple[int, int]]) -> Shape:
    return tuple(size + before + after for size, (before, after) in zip(self.shape, sides, strict=True))


def constant_pad(self: Array, pad: Sequence[int], value: Any = 0) -> Array:
    """Pads with ``value``, in the tensor's dtype."""
    sides = _sides(self, pad)
    result = np.empty(_padded_shape(self, sides), self.dtype)
    result[...] = np.asarray(value).astype(self.dtype)
    inner = tuple(slice(max(a, 0), n - max(b, 0)) for n, (a, b) in zip(result.shape, sides, strict=True))
    source = tuple(slice(max(-a, 0), n - max(-b, 0)) for n, (a, b) in zip(self.shape, sides, strict=True))
    result[inner] = self[source]
    return result


def constant_pad_shape(self: Array, pad: Sequence[int], value: Any = 0) -> Shape:
    sides = _sides(self, pad)
    for size, (before, after) in zip(self.shape, sides, strict=True):
        if size + min(before, 0) + min(after, 0) < 0:
            raise ValueError(f"padding {list(pad)} crops more than the size of shape {list(self.shape)}")
    return _padded_shape(self, sides)


def _repeat_sides(self: Array, padding: Sequence[int]) -> list[tuple[int, int]]:
    """Validated sides of a padding that repeats elements: a channel dim, an optional batch, and nonempty data."""
    spatial = len(padding) // 2
    sides = _sides(self, padding)
    if self.ndim not in (spatial + 1, spatial + 2) or 0 in self.shape[-spatial - 1 :]:
        raise ValueError(f"shape {list(self.shape)} must be channels and {spatial} sizes, none of them 0")
    if min(_padded_shape(self, sides)[-spatial:]) < 1:
        raise ValueError(f"padding {list(padding)} leaves nothing of shape {list(self.shape)}")
    return sides


def reflection_pad_shape(self: Array, padding: Sequence[int]) -> Shape:
    sides = _repeat_sides(self, padding)
    if any(max(side) >= size and max(side) > 0 for side, size in zip(sides, self.shape, strict=True)):
        raise ValueError(f"padding {list(padding)} must be smaller than the sizes of shape {list(self.shape)}")
    return _padded_shape(self, sides)


def reflection_pad(self: Array, padding: Sequence[int]) -> Array:
    """With the elements mirrored at the borders, which are not repeated."""
    shape = reflection_pad_shape(self, padding)
    return _gather_positions(self, padding, shape, lambda at, last: last - np.abs(last - np.abs(at)))


def replication_pad_shape(self: Array, padding: Sequence[int]) -> Shape:
    return _padded_shape(self, _repeat_sides(self, padding))


def replication_pad(self: Array, padding: Sequence[int]) -> Array:
    """Repeats the border elements."""
    shape = replication_pad_shape(self, padding)
    return _gather_positions(self, padding, shape, lambda at, last: np.clip(at, 0, last))


def _gather_positions(self: Array, padding: Sequence[int], shape: Shape, source: Any) -> Array:
    """The element at ``source(position)``, where 0 is the first and ``last`` the last that exists."""
    if not numel(shape):  # then nothing bounds the positions
        return np.empty(shape, self.dtype)
    spatial = len(padding) // 2
    positions = []
    for dim in range(-spatial, 0):
        before = padding[2 * (-dim - 1)]
        at = source(np.arange(-before, shape[dim] - before), self.shape[dim] - 1)
        positions.append(at.reshape(-1, *(1,) * (-dim - 1)))
    where = (..., *positions)
    return np.asarray(self[where])


_MODES = {"reflect": (reflection_pad, reflection_pad_shape), "replicate": (replication_pad, replication_pad_shape)}


def pad_by_mode(self: Array, pad: Sequence[int], mode: str = "constant", value: Any = None) -> Array:
    """``constant_pad``, ``reflection_pad`` or ``replication_pad``."""
    if mode == "constant":
        return constant_pad(self, pad, 0 if value is None else value)
    if mode not in _MODES:
        raise ValueError(f"mode must be 'constant', 'reflect' or 'replicate', got {mode!r}")
    return _MODES[mode][0](self, pad)


def pad_by_mode_shape(self: Array, pad: Sequence[int], mode: str = "constant", value: Any = None) -> Shape:
    if mode != "constant" and mode not in _MODES:
        raise ValueError(f"mode must be 'constant', 'reflect' or 'replicate', got {mode!r}")
    return constant_pad_shape(self, pad) if mode == "constant" else _MODES[mode][1](self, pad)
