"""How TFLite's quantized operators round: as the reference kernels, or as LiteRT's XNNPACK delegate."""

from __future__ import annotations

import numpy as np

from edgewright.ir.graph import Array, Value
from edgewright.ir.numerics import Float32Numerics, Numerics


class TfliteNumerics(Float32Numerics):
    """TFLite's reference kernels, which round by themselves: their convolutions carry a ``scaling``."""

    name = "tflite"


class LitertXnnpackNumerics(TfliteNumerics):
    """LiteRT with its XNNPACK delegate, whose requantization is one multiplication in float32."""

    name = "xnnpack"


TFLITE, LITERT_XNNPACK = TfliteNumerics(), LitertXnnpackNumerics()
NUMERICS: dict[str, Numerics] = {each.name: each for each in (TFLITE, LITERT_XNNPACK)}  # by name in compile specs


def rounds_like_xnnpack(numerics: Numerics) -> bool:
    """Whether operators round as LiteRT's XNNPACK delegate instead of the reference kernels."""
    return isinstance(numerics, LitertXnnpackNumerics)


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
