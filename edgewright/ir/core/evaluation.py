"""What references of core operators are called with: the values and the numerics of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgewright.ir.dtypes import compute_type
from edgewright.ir.graph import Array, Op, Value
from edgewright.ir.numerics import Numerics


@dataclass(frozen=True)
class DynamicRows:
    """Dynamically quantized rows: real = (raw - zero) / scale."""

    raw: Array
    scale: Array
    zero: Array
    real: Array


def raw_array(value: Any) -> Array:
    array: Array = value.raw if isinstance(value, DynamicRows) else value
    return array


class EvaluationContext:
    """The live values of a run, with methods to read operands and store results."""

    def __init__(self, numerics: Numerics) -> None:
        self.numerics = numerics
        self.values: dict[Value, Any] = {}

    def raw(self, value: Value) -> Any:
        return self.values.get(value, value.data)

    def real(self, value: Value) -> Array:
        """A value in its compute type, dequantized."""
        array = self.raw(value)
        if isinstance(array, DynamicRows):
            return (array.raw.astype(np.int32) - array.zero).astype(np.float32) / array.scale
        if value.q is not None:
            return self.numerics.dequantize(array, value.q)
        return np.asarray(array.astype(compute_type(array.dtype), copy=False))

    def map_values(self, read: Callable[[Value], Any], argument: Any) -> Any:
        """An argument with ``read`` applied to tensors, also in a list."""
        if isinstance(argument, list | tuple):
            return [self.map_values(read, a) for a in argument]
        return read(argument) if isinstance(argument, Value) else argument

    def store(self, op: Op, real: Array) -> Array:
        """Clamp a float result and quantize it to the output's type."""
        out = op.outputs[0]
        assert out is not None
        limits = op.args.get("limits")
        if out.q is not None:
            lo, hi = self.numerics.limits(out.q, limits)
            return np.clip(self.numerics.quantize(real, out.q), lo, hi).astype(out.q.dtype)
        if limits is not None:
            real = np.clip(real, np.float32(limits[0]), np.float32(limits[1]))
        return np.asarray(real.astype(out.dtype, copy=False))


Implementation = Callable[[EvaluationContext, Op], Any]
