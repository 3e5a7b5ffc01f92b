"""Graphs of TOSA's operators: integers without scales, accumulators that are rescaled, and real numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from edgewright.ir.graph import Array, QParams, Value
from tests.compose.builder import F32, I8
from tests.compose.draw import Draw
from tests.compose.spec import Step, need
from tests.compose.vendor import Geometry, Vendor, macs, step

I16, I32, I64 = (np.dtype(t) for t in (np.int16, np.int32, np.int64))
_BINARY = {"add": "add", "sub": "sub", "mul": "mul", "maximum": "maximum", "minimum": "minimum"}
_TABLES = {"sigmoid": lambda x: 1 / (1 + np.exp(-x)), "tanh": np.tanh, "abs": np.abs, "square": np.square}
_REALS = ("sigmoid", "tanh", "abs", "sin", "cos", "floor", "ceil")
_SINGLE = 20  # bits that operands of a sum are given before they are added


class Tosa(Vendor):
    types: ClassVar[dict[str, Any]] = {"i8": I8, "i16": I16, "f32": F32}
    words: ClassVar[dict[str, float]] = {
        "conv2d": 3, "depthwise": 3, "transposed": 0.6, "linear": 1, "matmul": 0.7, "binary": 3, "function": 2,
        "act": 1, "cat": 2.5, "slice": 2, "permute": 1.5, "reshape": 1.5, "pad": 1, "pool": 1.2, "reduce": 1,
        "resize": 0.7, "convert": 1, "gather": 0.7, "sums": 0.7,
    }  # fmt: skip
    functions: ClassVar[tuple[str, ...]] = (*_TABLES,)
    real_functions: ClassVar[tuple[str, ...]] = _REALS
    binaries: ClassVar[tuple[str, ...]] = tuple(_BINARY)
    acts: ClassVar[tuple[str, ...]] = ("relu", "relu6", "clip")

    def made(self, shape: Sequence[int], dtype: Any, q: QParams | None) -> Value:
        value = self.new(shape, dtype if q is None else q.dtype)
        if q is not None:
            self.scales[value] = q
        return value

    def contents(self, value: Value, rng: np.random.Generator) -> Array:
        if value.dtype == F32:
            return rng.standard_normal(value.bound).astype(np.float32)
        info = np.iinfo(value.dtype)
        return rng.integers(info.min, info.max, value.bound, endpoint=True).astype(value.dtype)

    def _plain(self, shape: Sequence[int], dtype: Any) -> Value:
        return self.new(shape, dtype)

    def tosa(self, kind: str, out: Value, **args: Any) -> Value:
        return self.op(f"tosa.{kind}", args, out)

    def zero(self, value: Value) -> int:
        return int(np.asarray(self.scales[value].zero_point)) if value in self.scales else 0

    def rescale(self, x: Value, out: Value, factor: Any, in_zero: int = 0, out_zero: int = 0) -> Value:
        """By real factors, as multipliers of 31 (of 64-bit sums, 15) bits and shifts."""
        wide = x.dtype == I64
        bits = 15 if wide else 31
        real = np.atleast_1d(np.asarray(factor, np.float64))
        mantissa, exponent = np.frexp(real)
        by = np.minimum(np.rint(mantissa * 2.0**bits), 2.0**bits - 1)
        shift = bits - exponent
        need(shift.min() >= 2 and shift.max() <= 62, "a shift that TOSA has")
        return self.tosa("rescale", out, input=x, multiplier=self.constant(by.astype(np.int16 if wide else np.int32)),
                         shift=self.constant(shift.astype(np.int8)), input_zp=in_zero, output_zp=out_zero,
                         dtype=str(out.dtype), rounding="single", per_channel=real.size > 1)  # fmt: skip

    def _sum(self, x: Value, shape: Sequence[int]) -> Value:
        """What products are summed in."""
        return self._plain(shape, F32 if x.dtype == F32 else I64 if x.dtype == I16 else I32)

    def _scale(self, value: Value) -> float:
        return float(np.asarray(self.scales[value].scale))

    def _product(self, kind: str, x: Value, w: Array, scales: Any, bias: Array, out: Value, **options: Any) -> Value:
        real = scales is None
        held = bias if real else np.rint(bias / (self._scale(x) * scales))
        kinds = np.float32 if real else np.int64 if x.dtype == I16 else np.int32
        acc = out if real else self._sum(x, out.bound)
        self.tosa(kind, acc, input=x, weight=self.constant(w), bias=self.constant(held.astype(kinds)),
                  input_zp=0 if real else self.zero(x), weight_zp=0, **options)  # fmt: skip
        if real:
            return out
        return self.rescale(acc, out, self._scale(x) * scales / self._scale(out), 0, self.zero(out))

    def emit_conv(self, x: Value, w: Array, scales: Any, bias: Array, g: Geometry, out: Value, deep: bool) -> Value:
        filters = np.ascontiguousarray(w.transpose(1, 2, 3, 0)) if deep else w
        options = {"pad": list(g.padding), "stride": list(g.stride), "dilation": list(g.dilation)}
        need(deep or g.groups == 1)
        return self._product("depthwise_conv2d" if deep else "conv2d", x, filters, scales, bias, out, **options)

    def emit_transposed(self, x: Value, w: Array, scales: Any, bias: Array, g: Geometry, out: Value) -> Value:
        return self._product("transpose_conv2d", x, w, scales, bias, out, out_pad=[0] * 4, stride=list(g.stride))

    def emit_linear(self, x: Value, w: Array, scales: Any, bias: Array, out: Value) -> Value:
        """As a convolution of one pixel, which is how it is emitted for the device."""
        rows = math.prod(x.bound[:-1])
        image = self.emit_reshape(x, [rows, 1, 1, x.bound[-1]], self.moved(x, [rows, 1, 1, x.bound[-1]]))
        flat = self.moved(out, [rows, 1, 1, out.bound[-1]])
        made = self.emit_conv(image, w[:, None, None, :], scales, bias, Geometry((1, 1)), flat, deep=False)
        return self.emit_reshape(made, out.bound, out)

    def emit_matmul(self, a: Value, b: Value, out: Value) -> Value:
        need(len(a.bound) == 3, "three dimensions")
        if a.dtype == F32:
            return self.tosa("matmul", out, a=a, b=b, a_zp=0, b_zp=0)
        acc = self._sum(a, out.bound)
        self.tosa("matmul", acc, a=a, b=b, a_zp=self.zero(a), b_zp=self.zero(b))
        return self.rescale(acc, out, self._scale(a) * self._scale(b) / self._scale(out), 0, self.zero(out))

    def emit_binary(self, kind: str, a: Value, b: Value, out: Value) -> Value:
        if a.dtype == F32:
            return self.tosa(_BINARY[kind], out, a=a, b=b, **({"shift": 0} if kind == "mul" else {}))
        if kind in ("maximum", "minimum"):
            return self.tosa(kind, out, a=a, b=b)
        if kind == "mul":
            left, right = (self.rescale(v, self._plain(v.bound, I32), 1.0, self.zero(v)) for v in (a, b))
            both = self.tosa("mul", self._plain(out.bound, I32), a=left, b=right, shift=0)
            return self.rescale(both, out, self._scale(a) * self._scale(b) / self._scale(out), 0, self.zero(out))
        unit = 2 * max(self._scale(a), self._scale(b))
        bits = _SINGLE if a.dtype == I8 else 12
        left, right = (self.rescale(v, self._plain(v.bound, I32), self._scale(v) / unit * 2**bits, self.zero(v))
                       for v in (a, b))  # fmt: skip
        both = self.tosa(kind, self._plain(out.bound, I32), a=left, b=right)
        return self.rescale(both, out, unit / 2**bits / self._scale(out), 0, self.zero(out))

    def emit_function(self, kind: str, x: Value, out: Value) -> Value:
        if x.dtype == F32:
            return self.tosa(kind, out, input=x)
        function = _TABLES[kind]
        if x.dtype == I8:
            every = np.arange(-128, 128) - self.zero(x)
            entries = np.clip(np.rint(function(every * self._scale(x)) / self._scale(out)) + self.zero(out), -128, 127)
            return self.tosa("table", out, input=x, table=self.constant(entries.astype(np.int8)))
        at = (np.arange(513) * 128 - 32768) * self._scale(x)
        entries = np.clip(np.rint(function(at) / self._scale(out)), -32768, 32767).astype(np.int16)
        wide = self.tosa("table", self._plain(x.bound, I32), input=x, table=self.constant(entries))
        return self.rescale(wide, out, 1 / 128)

    def emit_act(self, kind: str, x: Value, out: Value) -> Value:
        if x.dtype == F32:
            low, high = {"relu": (0.0, 3.4e38), "relu6": (0.0, 1.0), "clip": (-0.7, 0.8)}[kind]
            return self.tosa("clamp", out, input=x, min_val=low, max_val=high)
        info, unit = np.iinfo(x.dtype), 1 if x.dtype == I8 else 256
        least = max(int(info.min), self.zero(x) - (30 * unit if kind == "clip" else 0))
        most = int(info.max) if kind == "relu" else min(int(info.max), self.zero(x) + 60 * unit)
        return self.tosa("clamp", out, input=x, min_val=min(least, most), max_val=most)

    def emit_convert(self, x: Value, out: Value) -> Value:
        need(x.dtype != F32 and out.dtype != F32, "between integers")
        return self.rescale(x, out, self._scale(x) / self._scale(out), self.zero(x), self.zero(out))

    def emit_gather(self, x: Value, places: Array, out: Value) -> Value:
        """Rows by number; every other time, written back to where they were."""
        each = self.constant(np.tile(places, (x.bound[0], 1)))
        rows = self.tosa("gather", out, values=x, indices=each)
        if len(set(places.tolist())) < len(places) or places[0] % 2:
            return rows
        back = self.moved(x, x.bound)
        self.tosa("scatter", back, values=x, indices=each, input=rows)
        return self.tosa("gather", self.moved(x, out.bound), values=back, indices=each)

    def emit_cat(self, parts: Sequence[Value], dim: int, out: Value) -> Value:
        return self.tosa("concat", out, inputs=list(parts), axis=dim)

    def emit_slice(self, x: Value, start: Sequence[int], length: Sequence[int], out: Value) -> Value:
        return self.tosa("slice", out, input=x, start=list(start), size=list(length))

    def emit_permute(self, x: Value, dims: Sequence[int], out: Value) -> Value:
        return self.tosa("transpose", out, input=x, perms=list(dims))

    def emit_reshape(self, x: Value, shape: Sequence[int], out: Value) -> Value:
        return self.tosa("reshape", out, input=x, shape=list(shape))

    def emit_pad(self, x: Value, before: Sequence[int], after: Sequence[int], out: Value) -> Value:
        sides = [n for pair in zip(before, after, strict=True) for n in pair]
        fill = self.constant(np.asarray([self.zero(x)], x.dtype))
        return self.tosa("pad", out, input=x, padding=sides, value=fill)

    def emit_pool(self, kind: str, x: Value, g: Geometry, out: Value) -> Value:
        options = {"kernel": list(g.kernel), "stride": list(g.stride), "pad": list(g.padding)}
        if kind == "max":
            return self.tosa("max_pool2d", out, input=x, **options)
        zeros = {"input_zp": self.zero(x), "output_zp": self.zero(out)}
        return self.tosa("avg_pool2d", out, input=x, **zeros, **options)

    def emit_reduce(self, kind: str, x: Value, axes: Sequence[int], keep: bool, out: Value) -> Value:
        need(len(axes) == 1 or kind != "max")
        held = x
        if x.dtype != F32 and kind != "max":
            held = self.rescale(x, self._plain(x.bound, I32), 1.0, self.zero(x))
        for axis in axes:
            shape = [1 if k == axis else n for k, n in enumerate(held.bound)]
            name = "reduce_max" if kind == "max" else "reduce_sum"
            held = self.tosa(name, self._plain(shape, held.dtype), input=held, axis=axis)
        if x.dtype != F32 and kind != "max":
            count = math.prod(x.bound[k] for k in axes) if kind == "mean" else 1
            factor = self._scale(x) / self._scale(out) / count
            held = self.rescale(held, self.moved(out, held.bound), factor, 0, self.zero(out))
        return self.emit_reshape(held, out.bound, out)

    def emit_resize(self, mode: str, x: Value, out: Value) -> Value:
        options = {"scale": [4, 2, 4, 2], "offset": [-1, -1], "border": [1, 1], "mode": mode}
        if mode == "nearest" or x.dtype == F32:
            return self.tosa("resize", out, input=x, **options)
        wide = self.tosa("resize", self._plain(out.bound, I32 if x.dtype == I8 else I64), input=x, **options)
        factor = 1 / 16
        zero = self.zero(x)
        return self.rescale(wide, out, factor, zero * 16 if x.dtype == I8 and not zero else 0, 0)

    def as_input(self, value: Value) -> Step | None:
        return None if value.dtype != F32 and value not in self.scales else super().as_input(value)


def _draw_sums(d: Draw, b: Tosa) -> Step | None:  # type: ignore[override]
    at = d.value(b.values, lambda v: b.image(v) and v.dtype == I8)
    return None if at is None else {"op": "sums", "in": [at], "channels": d.channels(), "kernel": d.one((1, 3)),
                                    "q": [1.0, 0], "seed": d.seed()}  # fmt: skip


@step("sums", _draw_sums)  # type: ignore[arg-type]
def _sums(b: Tosa, s: Step) -> None:
    """An accumulator that two read: it is stored, not only passed on."""
    x, k = b.read(s), s["kernel"]
    need(b.image(x) and x.dtype == I8 and s["channels"] > 0 and min(b.hw(x)) >= k)
    g = Geometry((k, k))
    depth = k * k * b.channels(x)
    macs(math.prod(g.sizes(b.hw(x))) * x.bound[0] * s["channels"] * depth)
    w, scales = b.weights(x, (s["channels"], k, k, b.channels(x)), depth, {**s, "per_channel": False})
    shape = b.picture(x.bound[0], g.sizes(b.hw(x)), s["channels"])
    outs = [b.result(x, scales, shape, depth, {"q": (factor, 0)}) for factor in (1.0, 0.5)]
    acc = b._sum(x, shape)
    bias = b.constant(np.zeros(s["channels"], np.int32))
    b.tosa("conv2d", acc, input=x, weight=b.constant(w), bias=bias, input_zp=b.zero(x), weight_zp=0, pad=[0] * 4,
           stride=[1, 1], dilation=[1, 1])  # fmt: skip
    unit = b._scale(x) * float(scales[0])
    made = [b.rescale(acc, out, unit / b._scale(out), 0, b.zero(out)) for out in outs]
    b.keep(b.tosa("maximum", b.moved(outs[0], shape), a=made[0], b=made[1]))
