"""Graphs of ENN's operators: images are NCHW; bytes, 16 bits, and real numbers that are held in half precision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from edgewright.backends.samsung.dialect import DIALECT
from edgewright.ir.graph import Array, QParams, Value
from tests.compose.builder import F32, I8, U8
from tests.compose.spec import Step, need
from tests.compose.vendor import Geometry, Vendor

I16 = np.dtype(np.int16)
_BINARY = {"add": "ELTSUM", "sub": "SUB", "mul": "ELTMUL", "maximum": "MAXIMUM", "minimum": "MIN"}
_FUNCTIONS = {"sigmoid": "SIGMOID", "tanh": "TANH", "hardswish": "HARDSWISH", "gelu": "GELU", "sin": "Sin",
              "hardsigmoid": "HardSigmoid"}  # fmt: skip


class Enn(Vendor):
    caxis: ClassVar[int] = 1
    types: ClassVar[dict[str, Any]] = {"i8": I8, "u8": U8, "i16": I16, "f32": F32}
    words: ClassVar[dict[str, float]] = {
        "conv2d": 3, "depthwise": 3, "transposed": 0.6, "linear": 1.5, "matmul": 0.7, "binary": 3, "function": 2,
        "act": 1, "softmax": 0.5, "cat": 2.5, "slice": 2, "permute": 1.5, "reshape": 1.5, "pad": 1, "pool": 1.2,
        "reduce": 1, "resize": 0.7, "convert": 0.7, "norm": 0.7, "gather": 0.5,
    }  # fmt: skip
    functions: ClassVar[tuple[str, ...]] = tuple(_FUNCTIONS)
    real_functions: ClassVar[tuple[str, ...]] = tuple(_FUNCTIONS)
    binaries: ClassVar[tuple[str, ...]] = tuple(_BINARY)
    acts: ClassVar[tuple[str, ...]] = ("relu", "clip")

    def apply(self, step: Step) -> None:
        count = len(self.graph.ops)
        super().apply(step)
        DIALECT.check(self.part(count), 1 << 30)

    def enn(self, kind: str, inputs: Sequence[Value], out: Value, **params: Any) -> Value:
        return self.op(f"enn.{kind}", {"inputs": list(inputs), **params}, out)

    def _weight(self, w: Array, scales: Any) -> Value:
        if scales is None:
            return self.constant(w)
        each = scales.size > 1
        held: Any = tuple(scales.tolist()) if each else float(scales[0])
        zeros: Any = (0,) * scales.size if each else 0
        return self.constant(w, QParams(held, zeros, I8, -128, 127, 0 if each else None))

    def _window(self, g: Geometry, inputs: int, outputs: int) -> dict[str, Any]:
        top, bottom, left, right = g.padding
        return {"kernel_h": g.kernel[0], "kernel_w": g.kernel[1], "stride_h": g.stride[0], "stride_w": g.stride[1],
                "dilation_h": g.dilation[0], "dilation_w": g.dilation[1], "groups": g.groups, "padding": "EXPLICIT",
                "padding_type": "CONSTANT", "explicit_padding": [top, left, bottom, right], "in_channels": inputs,
                "out_channels": outputs}  # fmt: skip

    def emit_conv(self, x: Value, w: Array, scales: Any, bias: Array, g: Geometry, out: Value, deep: bool) -> Value:
        filters = w[0].transpose(2, 0, 1)[:, None] if deep else w.transpose(0, 3, 1, 2)
        given = [x, self._weight(np.ascontiguousarray(filters), scales), self.constant(bias.astype(np.float32))]
        params = self._window(g, self.channels(x), self.channels(out))
        return self.enn("DWCONV2D" if deep else "CONV2D", given, out, **params)

    def emit_transposed(self, x: Value, w: Array, scales: Any, bias: Array, g: Geometry, out: Value) -> Value:
        filters = np.ascontiguousarray(w.transpose(0, 3, 1, 2))
        given = [x, self._weight(filters, scales), self.constant(bias.astype(np.float32))]
        return self.enn("DECONV2D", given, out, **self._window(g, self.channels(x), self.channels(out)))

    def emit_linear(self, x: Value, w: Array, scales: Any, bias: Array, out: Value) -> Value:
        given = [x, self._weight(w, scales), self.constant(bias.astype(np.float32))]
        return self.enn("FC", given, out, in_channels=w.shape[1], out_channels=w.shape[0])

    def emit_matmul(self, a: Value, b: Value, out: Value) -> Value:
        return self.enn("BATCH_MATMUL", [a, b], out)

    def emit_binary(self, kind: str, a: Value, b: Value, out: Value) -> Value:
        return self.enn(_BINARY[kind], [a, b], out)

    def emit_function(self, kind: str, x: Value, out: Value) -> Value:
        return self.enn(_FUNCTIONS[kind], [x], out)

    def emit_act(self, kind: str, x: Value, out: Value) -> Value:
        if kind == "relu":
            return self.enn("RELU", [x], out)
        return self.enn("CLIP", [x], out, minimum=-0.5, maximum=1.0)

    def emit_convert(self, x: Value, out: Value) -> Value:
        """Between real numbers and integers; integers of another scale go by way of real numbers."""
        if x.q is not None and out.q is not None:
            real = self.emit_convert(x, self.made(x.bound, F32, None))
            return self.emit_convert(real, out)
        q = x.q if out.q is None else out.q
        need(q is not None)
        assert q is not None
        kind = "DEQUANTIZE" if out.q is None else "QUANTIZE"
        scale, zero = float(np.asarray(q.scale)), int(np.asarray(q.zero_point))
        return self.enn(kind, [x], out, scales=[scale], zero_points=[zero])

    def emit_norm(self, kind: str, x: Value, factors: Sequence[Array], out: Value) -> Value:
        held = [self.constant(f) for f in factors]
        if kind == "group":
            return self.enn("GROUPNORM", [x, *held], out, num_groups=2 - self.channels(x) % 2, epsilon=1e-2)
        if kind == "layer":
            return self.enn("LAYERNORM", [x, *held], out, epsilon=1e-2)
        shape = [x.bound[-1]]
        return self.enn("RMSNORM", [x, held[0]], out, normalize_shape=shape, param_num=1, epsilon=1e-2)

    def emit_gather(self, x: Value, places: Array, out: Value) -> Value:
        return self.enn("GATHER", [x, self.constant(places)], out, axis=1)

    def emit_softmax(self, x: Value, out: Value) -> Value:
        return self.enn("SOFTMAX", [x], out, axis=len(x.bound) - 1)

    def emit_cat(self, parts: Sequence[Value], dim: int, out: Value) -> Value:
        return self.enn("CONCAT", parts, out, axis=dim)

    def emit_slice(self, x: Value, start: Sequence[int], length: Sequence[int], out: Value) -> Value:
        ends = [a + n for a, n in zip(start, length, strict=True)]
        return self.enn("STRIDEDSLICE", [x], out, begin=list(start), end=ends, strides=[1] * len(ends))

    def emit_permute(self, x: Value, dims: Sequence[int], out: Value) -> Value:
        return self.enn("TRANSPOSE", [x], out, perm=list(dims))

    def emit_reshape(self, x: Value, shape: Sequence[int], out: Value) -> Value:
        return self.enn("RESHAPE", [x], out, new_shape=list(shape))

    def emit_pad(self, x: Value, before: Sequence[int], after: Sequence[int], out: Value) -> Value:
        sides = [*before, *after]
        return self.enn("PAD", [x], out, explicit_padding=sides, padding="EXPLICIT", padding_type="CONSTANT")

    def emit_pool(self, kind: str, x: Value, g: Geometry, out: Value) -> Value:
        params = self._window(g, 0, 0)
        names = ("kernel_h", "kernel_w", "stride_h", "stride_w", "padding", "explicit_padding")
        common = {name: params[name] for name in names}
        if kind == "max":
            return self.enn("MAXPOOL2D", [x], out, **common, dilation_h=1, dilation_w=1)
        return self.enn("AVGPOOL2D", [x], out, **common, count_include_pad=True)

    def emit_reduce(self, kind: str, x: Value, axes: Sequence[int], keep: bool, out: Value) -> Value:
        need(kind != "max", "means and sums")
        return self.enn("REDUCEMEAN" if kind == "mean" else "REDUCESUM", [x], out, keep_dims=keep, axis=sorted(axes))

    def emit_resize(self, mode: str, x: Value, out: Value) -> Value:
        params = {"align_corners": False, "upsampling_factor": [2.0, 2.0], "half_pixel_centers": mode == "bilinear"}
        return self.enn("RESIZE_BILINEAR" if mode == "bilinear" else "RESIZE_NEAREST_NEIGHBOR", [x], out, **params)
