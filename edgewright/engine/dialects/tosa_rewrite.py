"""What TOSA's translation is written with.

TOSA's bytes have no scale of their own: here they get a scale of 1 and the zero point of whoever pads them, so that
borders hold what means nothing. Factors stand in the RESCALE after a convolution, which becomes part of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from edgewright.engine.dialects.rewrite import GraphRewrite, RuleTable
from edgewright.ir.fixed_point_scale import FixedPointScale
from edgewright.ir.graph import Array, Graph, Op, QParams, Value
from edgewright.ir.tosa.table import PREFIX

rule: RuleTable[TosaRewrite] = RuleTable(PREFIX)
INT8_RANGES: dict[Any, tuple[int, int]] = {np.dtype(np.int8): (-128, 127), np.dtype(np.uint8): (0, 255)}
INT_RANGES: dict[Any, tuple[int, int]] = {**INT8_RANGES, np.dtype(np.int16): (-32768, 32767)}
_MOVES = ("max_pool2d", "reshape", "transpose", "slice", "concat", "pad", "clamp", "identity", "reverse", "tile")


class TosaRewrite(GraphRewrite):
    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        zeros = _zeros(graph)
        for value in graph.values():
            q = None
            if value.dtype is not None and value.dtype in INT8_RANGES:
                q = QParams(1.0, zeros.get(value, 0), value.dtype, *INT8_RANGES[value.dtype])
            if q is not None or value.q is not None:
                self.values[value] = replace(value, q=q)

    def zero(self, value: Value) -> int:
        q = self.value(value).q
        return 0 if q is None else int(np.asarray(q.zero_point))

    def like(self, value: Value, shape: Sequence[int], zero: int | None = None) -> Value:
        """A new tensor of another shape, stored as ``value`` is; bytes may have another zero point."""
        held = self.value(value)
        q = held.q if held.q is None or zero is None else replace(held.q, zero_point=zero)
        return Value(value.name, held.dtype, tuple(shape), tuple(range(len(shape))), q=q)

    def pad(self, op: Op, x: Value, out: Value, before: Sequence[int], after: Sequence[int], fill: Any) -> bool:
        """``x`` with ``fill`` around it, if that is a number that single precision has."""
        value = float(fill) - self.zero(x)
        whole = x.dtype is not None and x.dtype.kind != "f"
        if min(*before, *after, 0) < 0 or (whole and (value != float(np.float32(value)) or value != int(value))):
            return False
        self.emit("pad", op, out, self=x, before=list(before), after=list(after), value=value)
        return True

    def bordered(self, op: Op, x: Value, edges: Sequence[int], fill: int) -> Value | None:
        """An image with pixels above, below, left and right."""
        top, bottom, left, right = edges
        batch, high, wide, channels = x.bound
        limits = INT8_RANGES.get(x.dtype)
        zero = fill if limits is not None and limits[0] <= fill <= limits[1] else None
        out = self.like(x, (batch, high + top + bottom, wide + left + right, channels), zero)
        return out if self.pad(op, x, out, [0, top, left, 0], [0, bottom, right, 0], fill) else None

    def scaled(self, op: Op) -> tuple[FixedPointScale, Value] | None:
        """The RESCALE that alone reads an accumulator, with limits that follow; and the value it makes."""
        acc = result_of(op)
        following = self.only_reader(acc)
        if following is None or following.kind != f"{PREFIX}rescale" or following.args["input_zp"]:
            return None
        out = result_of(following)
        multiplier, shift = (following.args[name].data for name in ("multiplier", "shift"))
        if out.dtype not in INT_RANGES or multiplier is None or shift is None or multiplier.size != shift.size:
            return None
        if not following.args["per_channel"]:
            multiplier, shift = multiplier.reshape(-1)[:1], shift.reshape(-1)[:1]
        if multiplier.size not in (1, acc.bound[-1]):
            return None
        self.done.add(following)
        low, high = INT_RANGES[out.dtype]
        clamp = self.only_reader(out)
        if clamp is not None and clamp.kind == f"{PREFIX}clamp" and has_int_limits(clamp):
            self.done.add(clamp)
            low, high, out = (
                max(low, int(clamp.args["min_val"])),
                min(high, int(clamp.args["max_val"])),
                result_of(clamp),
            )
        by, bits = (tuple(int(n) for n in a.reshape(-1)) for a in (multiplier, shift))
        return FixedPointScale(by, bits, following.args["rounding"], int(following.args["output_zp"]), low, high), out


def has_int_limits(clamp: Op) -> bool:
    """Limits are integers, in order."""
    low, high = clamp.args["min_val"], clamp.args["max_val"]
    return bool(low == int(low) and high == int(high) and low <= high)


def _zeros(graph: Graph) -> dict[Value, int]:
    """The zero point that each tensor of bytes is read with by what pads it, as far as anything is moved before."""
    found: dict[Value, int] = {}
    for op in reversed(graph.ops):
        name = op.kind.removeprefix(PREFIX)
        if "input_zp" in op.args and name != "rescale" and isinstance(op.args.get("input"), Value):
            found.setdefault(op.args["input"], int(op.args["input_zp"]))
        elif name in _MOVES and op.outputs[0] in found:
            for value in op.inputs():
                found.setdefault(value, found[op.outputs[0]])
    return {key: zero for key, zero in found.items() if -128 <= zero <= 127}


def result_of(op: Op) -> Value:
    out = op.outputs[0]
    assert out is not None
    return out


def make_constant(data: Array, q: QParams | None = None) -> Value:
    held = np.ascontiguousarray(data)
    return Value("constant", held.dtype, held.shape, tuple(range(held.ndim)), held, q=q)


def int_pairs(op: Op, *names: str) -> dict[str, list[int]]:
    """Arguments that are numbers for rows and for columns."""
    return {name: [int(n) for n in op.args[name]] for name in names}
