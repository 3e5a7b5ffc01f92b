"""Graphs of QNN's operators: images are NHWC, filters HWIO; bytes, 16 bits, and real numbers held in half precision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from edgewright.backends.qualcomm.dialect import DIALECT
from edgewright.ir.graph import Array, QParams, Value
from tests.compose.builder import F32, I8, U8
from tests.compose.spec import Step, need
from tests.compose.vendor import Geometry, Vendor

U16 = np.dtype(np.uint16)
_BINARY = {"add": "Add", "sub": "Subtract", "mul": "Multiply", "maximum": "Maximum", "minimum": "Minimum"}
_FUNCTIONS = {"sigmoid": "Sigmoid", "tanh": "Tanh", "hardswish": "HardSwish", "gelu": "Gelu", "elu": "Elu",
              "abs": "ElementWiseAbs", "neg": "ElementWiseNeg", "floor": "ElementWiseFloor"}  # fmt: skip
_REDUCED = {"mean": "ReduceMean", "sum": "ReduceSum", "max": "ReduceMax"}


def _pairs(padding: Sequence[int]) -> list[list[int]]:
    top, bottom, left, right = padding
    return [[top, bottom], [left, right]]


class Qnn(Vendor):
    types: ClassVar[dict[str, Any]] = {"u8": U8, "u16": U16, "f32": F32}
    words: ClassVar[dict[str, float]] = {
        "conv2d": 3, "depthwise": 3, "transposed": 0.6, "linear": 1.5, "matmul": 0.7, "binary": 3, "function": 2,
        "act": 1, "softmax": 0.5, "cat": 2.5, "slice": 2, "permute": 1.5, "reshape": 1.5, "pad": 1, "pool": 1.2,
        "reduce": 1, "resize": 0.7, "convert": 1, "norm": 0.7, "gather": 0.5,
    }  # fmt: skip
    functions: ClassVar[tuple[str, ...]] = tuple(_FUNCTIONS)
    real_functions: ClassVar[tuple[str, ...]] = tuple(_FUNCTIONS)
    binaries: ClassVar[tuple[str, ...]] = tuple(_BINARY)
    acts: ClassVar[tuple[str, ...]] = ("relu", "relu6", "clip")

    def apply(self, step: Step) -> None:
        count = len(self.graph.ops)
        super().apply(step)
        DIALECT.check(self.part(count), 1 << 30)

    def qnn(self, kind: str, inputs: Sequence[Value], out: Value, **params: Any) -> Value:
        return self.op(f"qnn.{kind}", {"inputs": list(inputs), **params}, out)

    def _weight(self, w: Array, scales: Any, axis: int) -> Value:
        held = np.ascontiguousarray(w)
        if scales is None:
            return self.constant(held)
        each = scales.size > 1
        given: Any = tuple(scales.tolist()) if each else float(scales[0])
        zeros: Any = (0,) * scales.size if each else 0
        return self.constant(held, QParams(given, zeros, I8, -128, 127, axis if each else None))

    def _bias(self, x: Value, scales: Any, bias: Array) -> Value:
        if scales is None:
            return self.constant(bias.astype(np.float32))
        q = self.quant(x)
        units = np.asarray(float(np.asarray(q.scale)) * scales, np.float32)
        each = scales.size > 1
        info = np.iinfo(np.int32)
        held: Any = tuple(units.tolist()) if each else float(units[0])
        zeros: Any = (0,) * units.size if each else 0
        made = QParams(held, zeros, np.dtype(np.int32), int(info.min), int(info.max), 0 if each else None)
        return self.constant(np.rint(bias / units.astype(np.float64)).astype(np.int32), made)

    def emit_conv(self, x: Value, w: Array, scales: Any, bias: Array, g: Geometry, out: Value, deep: bool) -> Value:
        filters = w[0][:, :, None, :] if deep else w.transpose(1, 2, 3, 0)
        given = [x, self._weight(filters, scales, 3), self._bias(x, scales, bias)]
        params: dict[str, Any] = {"stride": list(g.stride), "pad_amount": _pairs(g.padding)}
        params["dilation"] = list(g.dilation)
        if deep:
            return self.qnn("DepthWiseConv2d", given, out, **params)
        return self.qnn("Conv2d", given, out, **params, group=g.groups)

    def emit_transposed(self, x: Value, w: Array, scales: Any, bias: Array, g: Geometry, out: Value) -> Value:
        given = [x, self._weight(w.transpose(1, 2, 3, 0), scales, 3), self._bias(x, scales, bias)]
        params = {"stride": list(g.stride), "pad_amount": _pairs(g.padding), "output_padding": [0, 0], "group": 1}
        return self.qnn("TransposeConv2d", given, out, **params)

    def emit_linear(self, x: Value, w: Array, scales: Any, bias: Array, out: Value) -> Value:
        need(len(x.bound) == 2, "rows")
        given = [x, self._weight(w, scales, 0), self._bias(x, scales, bias)]
        return self.qnn("FullyConnected", given, out, keep_dims=False)

    def emit_matmul(self, a: Value, b: Value, out: Value) -> Value:
        return self.qnn("MatMul", [a, b], out, transpose_in0=False, transpose_in1=False)

    def emit_binary(self, kind: str, a: Value, b: Value, out: Value) -> Value:
        return self.qnn(f"ElementWise{_BINARY[kind]}", [a, b], out)

    def emit_function(self, kind: str, x: Value, out: Value) -> Value:
        return self.qnn(_FUNCTIONS[kind], [x], out, **({"alpha": 0.75} if kind == "elu" else {}))

    def emit_act(self, kind: str, x: Value, out: Value) -> Value:
        if kind == "clip":
            return self.qnn("ReluMinMax", [x], out, min_value=-0.5, max_value=1.0)
        return self.qnn("Relu" if kind == "relu" else "Relu6", [x], out)

    def emit_convert(self, x: Value, out: Value) -> Value:
        if x.q is not None and out.q is not None:
            return self.qnn("Convert", [x], out)
        return self.qnn("Quantize" if out.q is not None else "Dequantize", [x], out)

    def emit_norm(self, kind: str, x: Value, factors: Sequence[Array], out: Value) -> Value:
        given = [x, *(self.constant(f) for f in (factors if kind == "layer" else factors[:1]))]
        if kind == "group":
            held = [self.constant(f) for f in factors]
            return self.qnn("GroupNorm", [x, *held], out, epsilon=1e-2, group=2 - self.channels(x) % 2)
        params = {"epsilon": 1e-2, "axes": [len(x.bound) - 1]}
        return self.qnn("LayerNorm" if kind == "layer" else "RmsNorm", given, out, **params)

    def emit_gather(self, x: Value, places: Array, out: Value) -> Value:
        return self.qnn("Gather", [x, self.constant(places)], out, axis=1)

    def emit_softmax(self, x: Value, out: Value) -> Value:
        return self.qnn("Softmax", [x], out, axis=len(x.bound) - 1, beta=1.0)

    def emit_cat(self, parts: Sequence[Value], dim: int, out: Value) -> Value:
        return self.qnn("Concat", parts, out, axis=dim)

    def emit_slice(self, x: Value, start: Sequence[int], length: Sequence[int], out: Value) -> Value:
        ranges = [[a, a + n, 1] for a, n in zip(start, length, strict=True)]
        return self.qnn("StridedSlice", [x], out, ranges=ranges, begin_mask=0, end_mask=0, shrink_axes=0)

    def emit_permute(self, x: Value, dims: Sequence[int], out: Value) -> Value:
        return self.qnn("Transpose", [x], out, perm=list(dims))

    def emit_reshape(self, x: Value, shape: Sequence[int], out: Value) -> Value:
        return self.qnn("Reshape", [x], out)

    def emit_pad(self, x: Value, before: Sequence[int], after: Sequence[int], out: Value) -> Value:
        amounts = [list(pair) for pair in zip(before, after, strict=True)]
        return self.qnn("Pad", [x], out, scheme=0, pad_amount=amounts, pad_constant_value=0.0)

    def emit_pool(self, kind: str, x: Value, g: Geometry, out: Value) -> Value:
        params: dict[str, Any] = {"filter_size": list(g.kernel), "stride": list(g.stride), "rounding_mode": 0}
        params["pad_amount"] = _pairs(g.padding)
        if kind == "max":
            return self.qnn("PoolMax2d", [x], out, **params)
        return self.qnn("PoolAvg2d", [x], out, **params, count_pad_for_edges=True)

    def emit_reduce(self, kind: str, x: Value, axes: Sequence[int], keep: bool, out: Value) -> Value:
        return self.qnn(_REDUCED[kind], [x], out, axes=sorted(axes), keep_dims=keep)

    def emit_resize(self, mode: str, x: Value, out: Value) -> Value:
        params = {"align_corners": False, "half_pixel_centers": True}
        return self.qnn("ResizeNearestNeighbor" if mode == "nearest" else "ResizeBilinear", [x], out, **params)
