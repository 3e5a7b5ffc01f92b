"""From a group of operators to a device graph of TOSA's: what every row's lowering is written with.

Integers everywhere: an operator reads stored integers, works on 32 (or 48) bits without zero points, and rescales to
its result's parameters. A group of real numbers becomes floating-point TOSA, for debugging.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from edgewright.ir.graph import Array, Dim, Graph, Op, Value
from edgewright.ir.tosa.table import PREFIX
from edgewright.lowering.passes.flatten_images import FlatteningLowering
from edgewright.lowering.passes.layout import Order, identity, moves_nothing

INT8, INT16, INT32, INT48 = (np.dtype(t) for t in (np.int8, np.int16, np.int32, np.int64))
FLOAT32, BOOL = np.dtype(np.float32), np.dtype(np.bool_)
Factor = float | Sequence[float] | Array
_PARTS, _JOINED = ("slice", "concat", "tile", "pad"), ("concat", "tile", "pad")
_WINDOWS = ("conv2d", "depthwise_conv2d", "max_pool2d", "avg_pool2d")
_TAKEN_APART = ("rescale", "reduce_max", "reduce_min", "reduce_sum")


class TosaLowering(FlatteningLowering):
    """Builds the device graph of one group for one target."""

    def __init__(self, group: Graph, rows: Any, target: Any = None) -> None:
        super().__init__(group, rows)
        self.target = target
        self._pieces: set[Value] = set()  # values that Vela keeps as parts of others
        self._widened: set[Value] = set()  # 32-bit results of RESCALE, and rescaled products of 32 bits
        self._products: set[Value] = set()  # products of 32-bit integers
        self._loose: set[Value] = set()  # what must not be padded as it is, and accumulators of convolutions
        self._sums: set[Value] = set()
        self._whole: dict[Value, Value] = {}

    def run(self) -> Graph:
        graph = super().run()
        self._part_outputs(graph)
        return graph

    def _part_outputs(self, graph: Graph) -> None:
        """Let transposes read copies of outputs that only name another tensor. Vela has the operator behind such a name
        write the transposed tensor, and the output is gone."""
        makers = {made: op.kind.removeprefix(PREFIX) for op in graph.ops for made in op.outputs}
        named = {v for v in graph.outputs if makers.get(v) in ("reshape", "transpose") and v.dtype in (INT8, INT16)}
        copies: dict[Value, Value] = {}
        for op in [op for op in graph.ops if op.kind == PREFIX + "transpose" and op.args["input"] in named]:
            x = op.args["input"]
            if x not in copies:
                self.origin, limits = op.origin, np.iinfo(x.dtype)
                copies[x] = self.clamped(x, limits.min, limits.max)
                graph.ops.insert(graph.ops.index(op), graph.ops.pop())
            op.args["input"] = copies[x]

    # --------------------------------------------------------------------------------------------------- appending

    def node(self, kind: str, shape: Iterable[int], dtype: Any, /, **args: Any) -> Value:
        """Append an operator, and give its result."""
        made = Value(f"{kind}_{len(self.graph.ops)}", np.dtype(dtype), tuple(shape))
        made.dim_order = identity(len(made.shape))
        self.emit(PREFIX + kind, made, **args)
        return made

    def emit(self, kind: str, out: Value, /, **args: Any) -> None:
        """Append a node. Vela forgets that what it reads is part of another tensor (or that its result is to be) when
        it takes some operators apart: those get a tensor of its own."""
        name = kind.removeprefix(PREFIX)
        given = args.get("inputs") or [args["input"]] if "input" in args or "inputs" in args else []
        if name in _TAKEN_APART and (name != "rescale" or INT32 in (out.dtype, args["input"].dtype)):
            args["input"] = self._apart(args["input"], self._pieces)
        elif name in _WINDOWS and any(args["pad"]) and args["input"].bound[0] > 1:
            args["input"] = self._apart(args["input"], self._pieces)  # padding of images after the first is lost
        elif name in _JOINED:
            held = [self._apart(v, self._loose if name == "pad" else self._widened) for v in given]
            args |= {"inputs": held} if "inputs" in args else {"input": held[0]}
        super().emit(kind, out, **args)
        if name in _PARTS or (name == "reshape" and given[0] in self._pieces):
            self._pieces.add(out)
        if name == "mul" and args["a"].dtype == args["b"].dtype == INT32:
            self._products.add(out)
        # Vela writes a product of 32-bit integers, rescaled, to the beginning of what it is joined into.
        wide = name == "rescale" and (out.dtype == INT32 or args["input"] in self._products)
        if wide or (name == "reshape" and given[0] in self._widened):
            self._widened.add(out)
        if self._is_loose(name, out, args):
            self._loose.add(out)

    def _is_loose(self, name: str, out: Value, args: dict[str, Any]) -> bool:
        """True for results that Vela may put at the beginning of a padded tensor instead of inside."""
        if name in ("reshape", "clamp"):
            return args["input"] in self._loose
        if name == "rescale":
            return INT32 in (out.dtype, args["input"].dtype) and args["input"] not in self._sums
        if "conv" in name:
            self._sums.add(out)
        return name.startswith("reduce")

    def _apart(self, x: Value, which: set[Value]) -> Value:
        if x not in which or x.dtype not in (INT8, INT16, INT32):
            return x
        if x not in self._whole:
            if x.dtype == INT32:
                nothing = self.tensor(np.zeros([1] * len(x.bound)), np.int32)
                self._whole[x] = self.node("add", x.bound, INT32, a=x, b=nothing)
            else:
                limits = np.iinfo(x.dtype)
                self._whole[x] = self.clamped(x, limits.min, limits.max)
            self._loose.discard(self._whole[x])
        return self._whole[x]

    def turn(self, held: Value, made: Value, dims: list[int]) -> None:
        if moves_nothing(held.bound, dims):
            self.emit(PREFIX + "reshape", made, input=held, shape=list(made.bound))
        else:
            self.emit(PREFIX + "transpose", made, input=held, perms=dims)

    def copy(self, held: Value, made: Value) -> None:
        if made.dtype == FLOAT32 or made.dtype == BOOL:
            self.emit(PREFIX + "identity", made, input=held)
        elif made.dtype == INT32:  # which RESCALE does not take from end to end
            nothing = self.tensor(np.zeros([1] * len(held.bound)), np.int32)
            self.emit(PREFIX + "add", made, a=held, b=nothing)
        else:
            self.emit(PREFIX + "rescale", made, **self._rescaling(held, made.dtype, 1.0, 0, 0))

    def tensor(self, data: Any, dtype: Any = None) -> Value:
        """A constant."""
        return self.constant(np.array(data, dtype, order="C"))

    # --------------------------------------------------------------------------------------------------- rescaling

    def rescale(self, x: Value, dtype: Any, factor: Factor, in_zero: int = 0, out_zero: int = 0) -> Value:
        """``x`` times a factor (or one for each channel, the last dimension), in another type."""
        return self.node("rescale", x.bound, dtype, **self._rescaling(x, dtype, factor, in_zero, out_zero))

    def _rescaling(self, x: Value, dtype: Any, factor: Factor, in_zero: int, out_zero: int) -> dict[str, Any]:
        wide = x.dtype != INT48  # 48 bits take 16-bit multipliers
        multiplier, shift = fixed_point(factor, 31 if wide else 15)
        return {
            "input": x, "multiplier": self.tensor(multiplier, np.int32 if wide else np.int16),
            "shift": self.tensor(shift, np.int8), "input_zp": in_zero, "output_zp": out_zero,
            "dtype": str(np.dtype(dtype)), "rounding": "single", "per_channel": multiplier.size > 1,
        }  # fmt: skip

    def wide(self, value: Value, order: Order | None = None, factor: float = 1.0) -> Value:
        """A quantized tensor as 32-bit integers without a zero point, times a factor."""
        return self.rescale(self.get(value, order), INT32, factor, zero_of(value))

    def finish(self, op: Op, order: Order, acc: Value, factor: Factor = 1.0) -> None:
        """Let ``acc``, in units of ``factor`` real ones, be the result of ``op``, within its limits."""
        out = op.outputs[0]
        assert out is not None
        self.alias(out, order, self.narrow(acc, out, factor, op.args.get("limits")))

    def narrow(self, acc: Value, out: Value, factor: Factor = 1.0, limits: tuple[float, float] | None = None) -> Value:
        """``acc`` as ``out`` is stored, in the order ``acc`` has."""
        if out.q is None:
            return self.clamped(acc, *limits) if limits else acc
        scale = scale_of(out)
        made = self.rescale(acc, out.q.dtype, np.asarray(factor, np.float64) / scale, 0, zero_of(out))
        return self.within(made, out, limits)

    def within(self, made: Value, out: Value, limits: tuple[float, float] | None = None) -> Value:
        """Stored integers kept in a result's own limits, and those of an activation."""
        assert out.q is not None
        low, high = stored_limits(out, limits)
        whole = np.iinfo(out.q.dtype)
        return made if (low, high) == (whole.min, whole.max) else self.clamped(made, low, high)

    def clamped(self, x: Value, low: float, high: float) -> Value:
        return self.node("clamp", x.bound, x.dtype, input=x, min_val=low, max_val=high)

    def reshaped(self, x: Value, shape: Sequence[int]) -> Value:
        if x.bound == tuple(shape):
            return x
        return self.node("reshape", shape, x.dtype, input=x, shape=list(shape))

    def transposed(self, x: Value, perms: Sequence[int]) -> Value:
        if moves_nothing(x.bound, perms):
            return self.reshaped(x, [x.bound[p] for p in perms])
        return self.node("transpose", [x.bound[p] for p in perms], x.dtype, input=x, perms=list(perms))

    def sliced(self, x: Value, start: Sequence[int], size: Sequence[int]) -> Value:
        if x.bound == tuple(size):
            return x
        return self.node("slice", size, x.dtype, input=x, start=list(start), size=list(size))


# -------------------------------------------------------------------------------------------------- small questions


def fixed_point(factor: Factor, bits: int = 31) -> tuple[Array, Array]:
    """Multipliers of ``bits`` bits and shifts for real factors, as RESCALE wants them."""
    real = np.atleast_1d(np.asarray(factor, np.float64))
    mantissa, exponent = np.frexp(real)
    multiplier = np.round(mantissa * 2.0**bits).astype(np.int64)
    carried = np.abs(multiplier) == 1 << bits
    multiplier = np.where(carried, multiplier >> 1, multiplier)
    shift = bits - exponent - carried
    far = np.maximum(shift - 62, 0)  # below the smallest step there is
    multiplier, shift = np.where(far > 0, multiplier >> np.minimum(far, 62), multiplier), np.minimum(shift, 62)
    near = np.maximum(2 - shift, 0)  # a factor of 2**29 or more does not occur between scales
    return multiplier, np.where(near > 0, 2, shift)


def scale_of(value: Value) -> float:
    return float(value.q.scale) if value.q is not None else 1.0  # type: ignore[arg-type]


def zero_of(value: Value) -> int:
    return int(value.q.zero_point) if value.q is not None else 0  # type: ignore[arg-type]


def stored_limits(out: Value, limits: tuple[float, float] | None) -> tuple[int, int]:
    """The stored integers that a result's limits, and its parameters' own, leave."""
    assert out.q is not None
    low, high = out.q.qmin, out.q.qmax
    if limits is not None:
        scale, zero = scale_of(out), zero_of(out)
        low = max(low, round(limits[0] / scale) + zero) if np.isfinite(limits[0]) else low
        high = min(high, round(limits[1] / scale) + zero) if np.isfinite(limits[1]) else high
    low, high = min(low, out.q.qmax), max(high, out.q.qmin)
    return low, max(low, high)


def result(op: Op) -> Value:
    out = op.outputs[0]
    assert out is not None
    return out


def sizes(value: Value) -> list[int]:
    """A shape that is known now; rules refuse others."""
    assert not any(isinstance(s, Dim) for s in value.shape)
    return list(value.bound)
