"""Lowers a partition to a graph of TOSA operators: the class that the lowerings of all operators build on.

Arithmetic is integer: an operator reads quantized tensors, computes in 32 (or 48) bits without zero points, and
rescales to the quantization of its result. A float partition becomes floating-point TOSA, for debugging.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from edgewright.backends.ethos_u.dialect.table import PREFIX
from edgewright.backends.ethos_u.rules import on_family
from edgewright.ir.graph import Array, Dim, Graph, Op, Value
from edgewright.lowering.passes.layout import FlatteningLowering, Order, identity, is_trivial_permutation

INT8, INT16, INT32, INT48 = (np.dtype(t) for t in (np.int8, np.int16, np.int32, np.int64))
FLOAT32, BOOL = np.dtype(np.float32), np.dtype(np.bool_)
Factor = float | Sequence[float] | Array
_SUBTENSOR_OPS, _CONCAT_OPS = ("slice", "concat", "tile", "pad"), ("concat", "tile", "pad")
_WINDOW_OPS = ("conv2d", "depthwise_conv2d", "max_pool2d", "avg_pool2d")
_RESCALED_ALONE = ("mul", "maximum", "minimum")
_SPLIT_BY_VELA = ("rescale", "reduce_max", "reduce_min", "reduce_sum")


class TosaLowering(FlatteningLowering):
    """Builds the TOSA graph of one partition for one target."""

    def __init__(self, group: Graph, rows: Any, target: Any = None) -> None:
        super().__init__(group, rows)
        self.target = target
        self._subtensors: set[Value] = set()  # values that Vela stores as slices of others
        self._wide_results: set[Value] = (
            set()
        )  # int32 results of RESCALE, and what is rescaled from ``_rescaled_alone``
        self._rescaled_alone: set[Value] = set()  # int32 results whose RESCALE Vela does not fuse with their operation
        self._unpaddable: set[Value] = set()  # values that PAD must not read directly
        self._accumulators: set[Value] = set()
        self._copies: dict[Value, Value] = {}

    def run(self) -> Graph:
        graph = super().run()
        self._copy_aliased_outputs(graph)
        return graph

    def _copy_aliased_outputs(self, graph: Graph) -> None:
        """Make transposes read copies of outputs that are only reshapes or transposes of another tensor.

        Vela lets the producer of such an alias write the transposed tensor directly, and the output is lost.
        """
        producers = {output: op.kind.removeprefix(PREFIX) for op in graph.ops for output in op.outputs}
        aliased = {
            v for v in graph.outputs if producers.get(v) in ("reshape", "transpose") and v.dtype in (INT8, INT16)
        }
        copies: dict[Value, Value] = {}
        for op in [op for op in graph.ops if op.kind == PREFIX + "transpose" and op.args["input"] in aliased]:
            x = op.args["input"]
            if x not in copies:
                self.origin, limits = op.origin, np.iinfo(x.dtype)
                copies[x] = self.clamp(x, limits.min, limits.max)
                graph.ops.insert(graph.ops.index(op), graph.ops.pop())
            op.args["input"] = copies[x]

    # --------------------------------------------------------------------------------------------------- appending

    def node(self, kind: str, shape: Iterable[int], dtype: Any, /, **args: Any) -> Value:
        """Append an operator and return its result."""
        out = Value(f"{kind}_{len(self.graph.ops)}", np.dtype(dtype), tuple(shape))
        out.dim_order = identity(len(out.shape))
        self.emit(PREFIX + kind, out, **args)
        return out

    def emit(self, kind: str, out: Value, /, **args: Any) -> None:
        """Append an operator, copying operands where Vela would miscompile it.

        When Vela splits some operators it forgets that an operand is a slice of another tensor, or that the result is
        to become one: those operands get a tensor of their own.
        """
        name = kind.removeprefix(PREFIX)
        inputs = args.get("inputs") or [args["input"]] if "input" in args or "inputs" in args else []
        if name in _SPLIT_BY_VELA and (name != "rescale" or INT32 in (out.dtype, args["input"].dtype)):
            args["input"] = self._detach(args["input"], self._subtensors)
        elif name == "matmul" and not on_family(self.target, "u85"):
            args["a"] = self._detach(args["a"], self._subtensors)  # U55 and U65 have no MATMUL; Vela splits it
        elif name in _WINDOW_OPS and any(args["pad"]) and args["input"].bound[0] > 1:
            args["input"] = self._detach(
                args["input"], self._subtensors
            )  # Vela loses the padding of all images but the first
        elif name in _CONCAT_OPS:
            detached = [self._detach(v, self._unpaddable if name == "pad" else self._wide_results) for v in inputs]
            args |= {"inputs": detached} if "inputs" in args else {"input": detached[0]}
        super().emit(kind, out, **args)
        if name in _SUBTENSOR_OPS or (name == "reshape" and inputs[0] in self._subtensors):
            self._subtensors.add(out)
        if name in _RESCALED_ALONE and args["a"].dtype == args["b"].dtype == INT32:
            self._rescaled_alone.add(out)
        # Vela writes the result of such a RESCALE to the start of the tensor it is concatenated into.
        wide = name == "rescale" and (out.dtype == INT32 or args["input"] in self._rescaled_alone)
        if wide or (name == "reshape" and inputs[0] in self._wide_results):
            self._wide_results.add(out)
        if self._is_unpaddable(name, out, args):
            self._unpaddable.add(out)

    def _is_unpaddable(self, name: str, out: Value, args: dict[str, Any]) -> bool:
        """True for results that Vela may write to the start of a padded tensor instead of its interior."""
        if name in ("reshape", "clamp"):
            return args["input"] in self._unpaddable
        if name == "rescale":
            return INT32 in (out.dtype, args["input"].dtype) and args["input"] not in self._accumulators
        if "conv" in name:
            self._accumulators.add(out)
        return name.startswith("reduce")

    def _detach(self, x: Value, affected: set[Value]) -> Value:
        if x not in affected or x.dtype not in (INT8, INT16, INT32):
            return x
        if x not in self._copies:
            if x.dtype == INT32:
                zero = self.const(np.zeros([1] * len(x.bound)), np.int32)
                self._copies[x] = self.node("add", x.bound, INT32, a=x, b=zero)
            else:
                limits = np.iinfo(x.dtype)
                self._copies[x] = self.clamp(x, limits.min, limits.max)
            self._unpaddable.discard(self._copies[x])
        return self._copies[x]

    def permute(self, source: Value, out: Value, dims: list[int]) -> None:
        if is_trivial_permutation(source.bound, dims):
            self.emit(PREFIX + "reshape", out, input=source, shape=list(out.bound))
        else:
            self.emit(PREFIX + "transpose", out, input=source, perms=dims)

    def copy(self, source: Value, out: Value) -> None:
        if out.dtype == FLOAT32 or out.dtype == BOOL:
            self.emit(PREFIX + "identity", out, input=source)
        elif out.dtype == INT32:  # RESCALE does not map int32 to int32
            zero = self.const(np.zeros([1] * len(source.bound)), np.int32)
            self.emit(PREFIX + "add", out, a=source, b=zero)
        else:
            self.emit(PREFIX + "rescale", out, **self._rescale_args(source, out.dtype, 1.0, 0, 0))

    def const(self, data: Any, dtype: Any = None) -> Value:
        """A constant."""
        return self.constant(np.array(data, dtype, order="C"))

    # --------------------------------------------------------------------------------------------------- rescaling

    def rescale(self, x: Value, dtype: Any, factor: Factor, in_zero: int = 0, out_zero: int = 0) -> Value:
        """``x`` times a factor (one per channel, the last dimension, if it is a sequence), in another type."""
        return self.node("rescale", x.bound, dtype, **self._rescale_args(x, dtype, factor, in_zero, out_zero))

    def _rescale_args(self, x: Value, dtype: Any, factor: Factor, in_zero: int, out_zero: int) -> dict[str, Any]:
        wide = x.dtype != INT48  # int48 inputs take 16-bit multipliers
        multiplier, shift = quantize_multiplier(factor, 31 if wide else 15)
        return {
            "input": x, "multiplier": self.const(multiplier, np.int32 if wide else np.int16),
            "shift": self.const(shift, np.int8), "input_zp": in_zero, "output_zp": out_zero,
            "dtype": str(np.dtype(dtype)), "rounding": "single", "per_channel": multiplier.size > 1,
        }  # fmt: skip

    def finish(self, op: Op, order: Order, acc: Value, factor: Factor = 1.0) -> None:
        """Requantize ``acc``, whose unit is ``factor``, and bind it as the result of ``op``."""
        out = op.outputs[0]
        assert out is not None
        self.alias(out, order, self.requantize(acc, out, factor, op.args.get("limits")))

    def requantize(
        self, acc: Value, out: Value, factor: Factor = 1.0, limits: tuple[float, float] | None = None
    ) -> Value:
        """``acc`` in the quantization of ``out``, in the dimension order of ``acc``."""
        if out.q is None:
            return self.clamp(acc, *limits) if limits else acc
        scale = scale_of(out)
        stored = self.rescale(acc, out.q.dtype, np.asarray(factor, np.float64) / scale, 0, zero_of(out))
        return self.clamp_to(stored, out, limits)

    def clamp_to(self, tensor: Value, out: Value, limits: tuple[float, float] | None = None) -> Value:
        """Clamp integers to the range of ``out`` and of a fused activation."""
        assert out.q is not None
        low, high = quantized_limits(out, limits)
        info = np.iinfo(out.q.dtype)
        return tensor if (low, high) == (info.min, info.max) else self.clamp(tensor, low, high)

    def clamp(self, x: Value, low: float, high: float) -> Value:
        return self.node("clamp", x.bound, x.dtype, input=x, min_val=low, max_val=high)

    def reshape(self, x: Value, shape: Sequence[int]) -> Value:
        if x.bound == tuple(shape):
            return x
        return self.node("reshape", shape, x.dtype, input=x, shape=list(shape))

    def transpose(self, x: Value, perms: Sequence[int]) -> Value:
        if is_trivial_permutation(x.bound, perms):
            return self.reshape(x, [x.bound[p] for p in perms])
        return self.node("transpose", [x.bound[p] for p in perms], x.dtype, input=x, perms=list(perms))

    def slice(self, x: Value, start: Sequence[int], size: Sequence[int]) -> Value:
        if x.bound == tuple(size):
            return x
        return self.node("slice", size, x.dtype, input=x, start=list(start), size=list(size))


# -------------------------------------------------------------------------------------------------- helpers


def quantize_multiplier(factor: Factor, bits: int = 31) -> tuple[Array, Array]:
    """Multipliers of ``bits`` bits and shifts of real factors, as RESCALE takes them."""
    real = np.atleast_1d(np.asarray(factor, np.float64))
    mantissa, exponent = np.frexp(real)
    multiplier = np.round(mantissa * 2.0**bits).astype(np.int64)
    carried = np.abs(multiplier) == 1 << bits
    multiplier = np.where(carried, multiplier >> 1, multiplier)
    shift = bits - exponent - carried
    excess = np.maximum(shift - 62, 0)  # shifts are at most 62
    multiplier, shift = np.where(excess > 0, multiplier >> np.minimum(excess, 62), multiplier), np.minimum(shift, 62)
    deficit = np.maximum(2 - shift, 0)  # scale ratios stay below 2**29
    return multiplier, np.where(deficit > 0, 2, shift)


def scale_of(value: Value) -> float:
    return float(value.q.scale) if value.q is not None else 1.0  # type: ignore[arg-type]


def zero_of(value: Value) -> int:
    return int(value.q.zero_point) if value.q is not None else 0  # type: ignore[arg-type]


def quantized_limits(out: Value, limits: tuple[float, float] | None) -> tuple[int, int]:
    """Stored integers of a fused activation's limits, within the quantized range of ``out``."""
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


def static_sizes(value: Value) -> list[int]:
    """A static shape; rules reject dynamic ones."""
    assert not any(isinstance(s, Dim) for s in value.shape)
    return list(value.bound)
