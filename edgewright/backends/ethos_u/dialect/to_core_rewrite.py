"""Infrastructure of the TOSA translation.

TOSA tensors carry no scale. Int8 tensors get scale 1 and the zero point of the operator that pads them, so that borders
hold the neutral value. The factors of a convolution are in the RESCALE that follows it, which is fused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from edgewright.backends.ethos_u.dialect.table import PREFIX
from edgewright.ir.graph import Array, Graph, Op, QParams, Value
from edgewright.ir.requant_scale import FixedPointScale
from edgewright.ir.rewrite import GraphRewrite, RuleTable

rule: RuleTable[TosaRewrite] = RuleTable(PREFIX)
INT8_RANGES: dict[Any, tuple[int, int]] = {np.dtype(np.int8): (-128, 127), np.dtype(np.uint8): (0, 255)}
INT_RANGES: dict[Any, tuple[int, int]] = {**INT8_RANGES, np.dtype(np.int16): (-32768, 32767)}
_ZERO_POINT_PRESERVING = (
    "max_pool2d",
    "reshape",
    "transpose",
    "slice",
    "concat",
    "pad",
    "clamp",
    "identity",
    "reverse",
    "tile",
)


class TosaRewrite(GraphRewrite):
    """A TOSA graph being translated."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        zero_points = _zero_points(graph)
        for value in graph.values():
            q = None
            if value.dtype is not None and value.dtype in INT8_RANGES:
                q = QParams(1.0, zero_points.get(value, 0), value.dtype, *INT8_RANGES[value.dtype])
            if q is not None or value.q is not None:
                self.values[value] = replace(value, q=q)

    def zero_point(self, value: Value) -> int:
        """The zero point of a tensor; 0 if it has none."""
        q = self.value(value).q
        return 0 if q is None else int(np.asarray(q.zero_point))

    def new_value(self, value: Value, shape: Sequence[int], zero: int | None = None) -> Value:
        """A new tensor of another shape, stored like ``value``, optionally with another zero point."""
        current = self.value(value)
        q = current.q if current.q is None or zero is None else replace(current.q, zero_point=zero)
        return Value(value.name, current.dtype, tuple(shape), tuple(range(len(shape))), q=q)

    def pad(self, op: Op, x: Value, out: Value, before: Sequence[int], after: Sequence[int], fill: Any) -> bool:
        """Pad ``x`` with ``fill``; False if float32 cannot represent the fill value exactly."""
        value = float(fill) - self.zero_point(x)
        is_int = x.dtype is not None and x.dtype.kind != "f"
        if min(*before, *after, 0) < 0 or (is_int and (value != float(np.float32(value)) or value != int(value))):
            return False
        self.emit("core.pad", op, out, self=x, before=list(before), after=list(after), value=value)
        return True

    def pad_image(self, op: Op, x: Value, padding: Sequence[int], fill: int) -> Value | None:
        """An image with padding at top, bottom, left and right; None if the fill value is not representable."""
        top, bottom, left, right = padding
        batch, high, wide, channels = x.bound
        int8_range = INT8_RANGES.get(x.dtype)
        zero = fill if int8_range is not None and int8_range[0] <= fill <= int8_range[1] else None
        out = self.new_value(x, (batch, high + top + bottom, wide + left + right, channels), zero)
        return out if self.pad(op, x, out, [0, top, left, 0], [0, bottom, right, 0], fill) else None

    def fuse_rescale(self, op: Op) -> tuple[FixedPointScale, Value] | None:
        """Fuse the RESCALE that is an accumulator's only reader, and a clamp after it; returns scaling and result."""
        acc = result_of(op)
        rescale = self.only_reader(acc)
        if rescale is None or rescale.kind != f"{PREFIX}rescale" or rescale.args["input_zp"]:
            return None
        out = result_of(rescale)
        multiplier, shift = (rescale.args[name].data for name in ("multiplier", "shift"))
        if out.dtype not in INT_RANGES or multiplier is None or shift is None or multiplier.size != shift.size:
            return None
        if not rescale.args["per_channel"]:
            multiplier, shift = multiplier.reshape(-1)[:1], shift.reshape(-1)[:1]
        if multiplier.size not in (1, acc.bound[-1]):
            return None
        self.done.add(rescale)
        low, high = INT_RANGES[out.dtype]
        clamp = self.only_reader(out)
        if clamp is not None and clamp.kind == f"{PREFIX}clamp" and has_int_limits(clamp):
            self.done.add(clamp)
            low, high, out = (
                max(low, int(clamp.args["min_val"])),
                min(high, int(clamp.args["max_val"])),
                result_of(clamp),
            )
        multipliers, shifts = (tuple(int(n) for n in a.reshape(-1)) for a in (multiplier, shift))
        return FixedPointScale(
            multipliers, shifts, rescale.args["rounding"], int(rescale.args["output_zp"]), low, high
        ), out


def has_int_limits(clamp: Op) -> bool:
    """Whether the limits of a clamp are ordered integers."""
    low, high = clamp.args["min_val"], clamp.args["max_val"]
    return bool(low == int(low) and high == int(high) and low <= high)


def _zero_points(graph: Graph) -> dict[Value, int]:
    """The zero point that each int8 tensor is read with, propagated backwards through data movement."""
    zero_points: dict[Value, int] = {}
    for op in reversed(graph.ops):
        name = op.kind.removeprefix(PREFIX)
        if "input_zp" in op.args and name != "rescale" and isinstance(op.args.get("input"), Value):
            zero_points.setdefault(op.args["input"], int(op.args["input_zp"]))
        elif name in _ZERO_POINT_PRESERVING and op.outputs[0] in zero_points:
            for value in op.inputs():
                zero_points.setdefault(value, zero_points[op.outputs[0]])
    return {key: zero for key, zero in zero_points.items() if -128 <= zero <= 127}


def result_of(op: Op) -> Value:
    out = op.outputs[0]
    assert out is not None
    return out


def make_constant(data: Array, q: QParams | None = None) -> Value:
    array = np.ascontiguousarray(data)
    return Value("constant", array.dtype, array.shape, tuple(range(array.ndim)), array, q=q)


def int_pairs(op: Op, *names: str) -> dict[str, list[int]]:
    """Arguments that are numbers for rows and for columns."""
    return {name: [int(n) for n in op.args[name]] for name in names}
