"""Graphs of TFLite's operators: bytes, padding made real, shapes as constant operands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from edgewright.backends.nxp.dialect import DIALECT
from edgewright.ir.graph import Array, QParams, Value
from tests.compose.builder import I8
from tests.compose.spec import Step
from tests.compose.vendor import Geometry, Vendor

_KINDS = {"add": "ADD", "sub": "SUB", "mul": "MUL", "maximum": "MAXIMUM", "minimum": "MINIMUM"}
_FUNCTIONS = {"sigmoid": "LOGISTIC", "tanh": "TANH", "abs": "ABS", "hardswish": "HARD_SWISH", "leaky": "LEAKY_RELU",
              "exp": "EXP", "log": "LOG"}  # fmt: skip
_ACTS = {"relu": "RELU", "relu6": "RELU6", "clip": "RELU_N1_TO_1"}
_REDUCED = {"mean": "MEAN", "sum": "SUM", "max": "REDUCE_MAX"}


class Tflite(Vendor):
    types: ClassVar[dict[str, Any]] = {"i8": I8}
    words: ClassVar[dict[str, float]] = {
        "conv2d": 3, "depthwise": 3, "transposed": 0.6, "linear": 1.5, "matmul": 0.7, "binary": 3, "function": 2,
        "act": 1, "softmax": 0.5, "cat": 2.5, "slice": 2, "permute": 1.5, "reshape": 1.5, "pad": 1, "pool": 1.2,
        "reduce": 1, "resize": 0.7, "convert": 0.7,
    }  # fmt: skip
    functions: ClassVar[tuple[str, ...]] = tuple(_FUNCTIONS)
    binaries: ClassVar[tuple[str, ...]] = tuple(_KINDS)
    acts: ClassVar[tuple[str, ...]] = tuple(_ACTS)

    def apply(self, step: Step) -> None:
        count = len(self.graph.ops)
        super().apply(step)
        DIALECT.check(self.part(count), 1 << 30)

    def tfl(self, kind: str, inputs: Sequence[Value], out: Value, **options: Any) -> Value:
        return self.op(f"tflite.{kind}", {"inputs": list(inputs), **options}, out)

    def numbers(self, data: Any) -> Value:
        return self.constant(np.asarray(data, np.int32))

    def _weight(self, w: Array, scales: Array, axis: int) -> Value:
        each = scales.size > 1
        held: Any = tuple(scales.tolist()) if each else float(scales[0])
        return self.constant(w, QParams(held, 0, I8, -128, 127, axis if each else None))

    def _bias(self, x: Value, scales: Array, bias: Array) -> Value:
        return self.numbers(np.rint(bias / (self.unit(x) * scales)))

    def emit_conv(self, x: Value, w: Array, scales: Any, bias: Array, g: Geometry, out: Value, deep: bool) -> Value:
        image, inner = self.padded(x, g)
        options = {"padding": 1, "stride_h": inner.stride[0], "stride_w": inner.stride[1],
                   "dilation_h": inner.dilation[0], "dilation_w": inner.dilation[1]}  # fmt: skip
        given = [image, self._weight(w, scales, 3 if deep else 0), self._bias(x, scales, bias)]
        if deep:
            return self.tfl("DEPTHWISE_CONV_2D", given, out, **options, depth_multiplier=1)
        return self.tfl("CONV_2D", given, out, **options)

    def emit_transposed(self, x: Value, w: Array, scales: Any, bias: Array, g: Geometry, out: Value) -> Value:
        given = [self.numbers(out.bound), self._weight(w, scales, 0), x, self._bias(x, scales, bias)]
        return self.tfl("TRANSPOSE_CONV", given, out, padding=1, stride_h=g.stride[0], stride_w=g.stride[1])

    def emit_linear(self, x: Value, w: Array, scales: Any, bias: Array, out: Value) -> Value:
        given = [x, self._weight(w, scales, 0), self._bias(x, scales, bias)]
        return self.tfl("FULLY_CONNECTED", given, out, keep_num_dims=True)

    def emit_matmul(self, a: Value, b: Value, out: Value) -> Value:
        return self.tfl("BATCH_MATMUL", [a, b], out)

    def emit_binary(self, kind: str, a: Value, b: Value, out: Value) -> Value:
        return self.tfl(_KINDS[kind], [a, b], out)

    def emit_function(self, kind: str, x: Value, out: Value) -> Value:
        return self.tfl(_FUNCTIONS[kind], [x], out, **({"alpha": 0.25} if kind == "leaky" else {}))

    def emit_act(self, kind: str, x: Value, out: Value) -> Value:
        return self.tfl(_ACTS[kind], [x], out)

    def emit_convert(self, x: Value, out: Value) -> Value:
        """TFLite's own conversion is not among the operators: a slope of 1 changes nothing but the scale."""
        return self.tfl("LEAKY_RELU", [x], out, alpha=1.0)

    def emit_softmax(self, x: Value, out: Value) -> Value:
        return self.tfl("SOFTMAX", [x], out, beta=1.0)

    def emit_cat(self, parts: Sequence[Value], dim: int, out: Value) -> Value:
        return self.tfl("CONCATENATION", parts, out, axis=dim)

    def emit_slice(self, x: Value, start: Sequence[int], length: Sequence[int], out: Value) -> Value:
        return self.tfl("SLICE", [x, self.numbers(start), self.numbers(length)], out)

    def emit_permute(self, x: Value, dims: Sequence[int], out: Value) -> Value:
        return self.tfl("TRANSPOSE", [x, self.numbers(dims)], out)

    def emit_reshape(self, x: Value, shape: Sequence[int], out: Value) -> Value:
        return self.tfl("RESHAPE", [x, self.numbers(shape)], out, new_shape=list(shape))

    def emit_pad(self, x: Value, before: Sequence[int], after: Sequence[int], out: Value) -> Value:
        q = self.quant(x)
        fill = self.constant(np.asarray([q.zero_point], np.int8), q)
        return self.tfl("PADV2", [x, self.numbers(list(zip(before, after, strict=True))), fill], out)

    def emit_pool(self, kind: str, x: Value, g: Geometry, out: Value) -> Value:
        image, inner = self.padded(x, g)
        options = {"padding": 1, "stride_h": inner.stride[0], "stride_w": inner.stride[1], "filter_h": g.kernel[0],
                   "filter_w": g.kernel[1]}  # fmt: skip
        return self.tfl("MAX_POOL_2D" if kind == "max" else "AVERAGE_POOL_2D", [image], out, **options)

    def emit_reduce(self, kind: str, x: Value, axes: Sequence[int], keep: bool, out: Value) -> Value:
        return self.tfl(_REDUCED[kind], [x, self.numbers(axes)], out, keep_dims=keep)

    def emit_resize(self, mode: str, x: Value, out: Value) -> Value:
        given = [x, self.numbers(out.bound[1:3])]
        if mode == "nearest":
            return self.tfl("RESIZE_NEAREST_NEIGHBOR", given, out, align_corners=False, half_pixel_centers=False)
        return self.tfl("RESIZE_BILINEAR", given, out, align_corners=False, half_pixel_centers=True)
