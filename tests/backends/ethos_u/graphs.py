"""TOSA graphs written by hand, for tests of the compiler's driver and of what runs its output."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tosa_serializer as ts

I8, I32 = ts.DType.INT8, ts.DType.INT32


class GraphBuilder:
    """NHWC int8 graphs, in TOSA 1.0."""

    def __init__(self, seed: int = 0) -> None:
        self.out = ts.TosaSerializer("", ts.ConstMode.EMBED, 1, 0, 0, False)
        self.random = np.random.default_rng(seed)
        self._constants = 0

    def input(self, shape: Sequence[int], dtype: Any = I8) -> Any:
        tensor = ts.TosaSerializerTensor(f"in{len(shape)}_{self._next()}", list(shape), dtype)
        self.out.addInputTensor(tensor)
        return tensor

    def _next(self) -> int:
        self._constants += 1
        return self._constants

    def constant(self, values: Any, dtype: Any) -> str:
        array = np.asarray(values)
        return str(self.out.addConst(list(array.shape), dtype, array, f"c{self._next()}").name)

    def op(self, kind: str, inputs: Sequence[str], shape: Sequence[int], dtype: Any, *given: Any) -> Any:
        made = self.out.addIntermediate(list(shape), dtype)
        attribute = ts.TosaSerializerAttribute()
        getattr(attribute, f"{kind}Attribute")(*given)
        name = {"Conv2d": "CONV2D", "DepthwiseConv2d": "DEPTHWISE_CONV2D", "MaxPool2d": "MAX_POOL2D"}.get(kind, kind)
        self.out.addOperator(getattr(ts.Op, name.upper()), list(inputs), [made.name], attribute)
        return made

    def rescale(self, x: Any, factors: Any, dtype: Any = I8, shift: int = 38) -> Any:
        many = np.asarray(factors, np.int32)
        names = [
            self.constant(many, I32),
            self.constant(np.full(many.shape, shift, np.int8), I8),
            self.constant(np.zeros(1, _NUMPY[x.dtype]), x.dtype),
            self.constant(np.zeros(1, _NUMPY[dtype]), dtype),
        ]
        attributes = (True, ts.RoundingMode.SINGLE_ROUND, many.size > 1, False, False)
        return self.op("Rescale", [x.name, *names], x.shape, dtype, *attributes)

    def conv(self, x: Any, channels: int, kernel: int = 3, stride: int = 1) -> Any:
        batch, height, width, depth = x.shape
        pad = kernel // 2
        sizes = [(n + 2 * pad - kernel) // stride + 1 for n in (height, width)]
        after = [(m - 1) * stride + kernel - n - pad for m, n in zip(sizes, (height, width), strict=True)]
        weight = self.constant(self.random.integers(-127, 128, (channels, kernel, kernel, depth), np.int8), I8)
        bias = self.constant(self.random.integers(-999, 999, channels, np.int32), I32)
        zeros = [self.constant(np.zeros(1, np.int8), I8) for _ in range(2)]
        pads = [pad, after[0], pad, after[1]]
        given = (pads, [stride] * 2, [1, 1], False, I32)
        total = self.op("Conv2d", [x.name, weight, bias, *zeros], [batch, *sizes, channels], I32, *given)
        return self.rescale(total, self.random.integers(1 << 30, (1 << 31) - 1, channels, np.int32), shift=40)

    def depthwise(self, x: Any) -> Any:
        channels = x.shape[3]
        weight = self.constant(self.random.integers(-127, 128, (3, 3, channels, 1), np.int8), I8)
        bias = self.constant(self.random.integers(-999, 999, channels, np.int32), I32)
        zeros = [self.constant(np.zeros(1, np.int8), I8) for _ in range(2)]
        given = ([1, 1, 1, 1], [1, 1], [1, 1], False, I32)
        total = self.op("DepthwiseConv2d", [x.name, weight, bias, *zeros], x.shape, I32, *given)
        return self.rescale(total, self.random.integers(1 << 30, (1 << 31) - 1, channels, np.int32), shift=39)

    def add(self, x: Any, y: Any) -> Any:
        wide = [self.rescale(v, [1 << 30], I32, shift) for v, shift in ((x, 11), (y, 12))]
        total = self.op("Add", [v.name for v in wide], x.shape, I32)
        return self.rescale(total, [1 << 30], shift=49)

    def max_pool(self, x: Any) -> Any:
        shape = [x.shape[0], x.shape[1] // 2, x.shape[2] // 2, x.shape[3]]
        return self.op("MaxPool2d", [x.name], shape, I8, [2, 2], [2, 2], [0] * 4, ts.NanPropagationMode.PROPAGATE)

    def transpose(self, x: Any, order: Sequence[int]) -> Any:
        return self.op("Transpose", [x.name], [x.shape[i] for i in order], x.dtype, list(order))

    def finish(self, *outputs: Any) -> bytes:
        for tensor in outputs:
            self.out.addOutputTensor(tensor)
        return bytes(self.out.serialize())


_NUMPY = {I8: np.int8, I32: np.int32}


def one_conv() -> bytes:
    build = GraphBuilder(1)
    return build.finish(build.conv(build.input((1, 8, 8, 4)), 16))


def residual() -> bytes:
    """Strided, depthwise and pointwise convolutions, an addition, a pool."""
    build = GraphBuilder(2)
    x = build.conv(build.input((1, 16, 16, 8)), 16, stride=2)
    y = build.conv(build.depthwise(x), 16, kernel=1)
    return build.finish(build.max_pool(build.add(x, y)))


def two_inputs() -> bytes:
    build = GraphBuilder(3)
    x, y = build.input((1, 8, 8, 16)), build.input((1, 8, 8, 16))
    return build.finish(build.add(x, y), build.max_pool(x))


def lost_output() -> bytes:
    """Vela drops the second output: it is read by the transposition that undoes its own."""
    build = GraphBuilder(4)
    x = build.conv(build.input((1, 8, 8, 4)), 16)
    turned = build.transpose(x, (0, 3, 1, 2))
    back = build.conv(build.transpose(turned, (0, 2, 3, 1)), 8)
    return build.finish(back, turned)


GRAPHS: dict[str, tuple[Callable[[], bytes], list[int], list[int]]] = {  # with bytes of inputs and outputs
    "one_conv": (one_conv, [256], [1024]),
    "residual": (residual, [2048], [256]),
    "two_inputs": (two_inputs, [1024, 1024], [1024, 256]),
}
