"""Scales and zero points of TFLite tensors."""

from __future__ import annotations

import numpy as np

from edgewright.ir.graph import Array, Value


def scale(value: Value) -> np.float32:
    """A tensor's scale, in float32 as stored in files."""
    assert value.q is not None
    return np.float32(np.asarray(value.q.scale))


def scales(value: Value) -> Array:
    assert value.q is not None
    return np.asarray(value.q.scale, np.float32)


def zero_point(value: Value) -> int:
    assert value.q is not None
    return int(np.asarray(value.q.zero_point).reshape(-1)[0])


def subtract_zero_point(value: Value, array: Array) -> Array:
    """Stored integers minus the zero point."""
    return np.asarray(array, np.int64) - zero_point(value)


def quantize_output(rescaled: Array, out: Value, low: int = -128, high: int = 127) -> Array:
    """Add the output's zero point and clamp to int8 (or narrower limits)."""
    return np.asarray(np.clip(rescaled + zero_point(out), low, high), np.int8)
