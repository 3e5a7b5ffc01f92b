"""Runs the TOSA graph of a host twin in place of a blob, after checking all that could bring this machine down.

The operators' meanings trust their arguments: a stride of zero or a window outside its image would read what is not
theirs. So every operator of a twin, which is a file like any other, is checked against its shapes before it may run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from edgewright.backends.ethos_u.blob import Blob
from edgewright.errors import ExecutionError, FormatError, LimitError
from edgewright.ir.graph import Graph, Op, Value
from edgewright.ir.numerics import TOSA as TOSA_NUMERICS
from edgewright.ir.tosa.table import PREFIX, TOSA
from edgewright.runtime.twins import HostTwin

if TYPE_CHECKING:
    from edgewright.engine.profile import EngineProfile

Array = np.ndarray[Any, Any]
_TYPES = ("bool", "int8", "uint8", "int16", "int32", "int64", "float32")
_ITEM = 8  # bytes of the widest element that an operator computes with
_MAX = 1 << 31


class Twin:
    """A checked graph with the ends of its blob. ``memory``: bytes that an operator may take."""

    def __init__(self, twin: HostTwin, blob: Blob, memory: int, threads: int | None = None) -> None:
        self._runner = twin.runner(check_all, TOSA_NUMERICS, memory, threads)
        self._inputs, outputs = self._runner.ends
        for kind, tensors, of_blob in (("inputs", self._inputs, blob.inputs), ("outputs", outputs, blob.outputs)):
            if [t.nbytes for t in tensors] != [t.nbytes for t in of_blob]:
                raise FormatError("must have the sizes of its blob's", where=f"host twin.{kind}")
        self._outputs = blob.outputs
        self.how = self._runner.how

    def run(self, inputs: Sequence[Array], profile: EngineProfile | None = None) -> list[Array]:
        """Bytes in, integers of the outputs' sizes out."""
        given = [data.view(t.dtype).reshape(t.shape) for data, t in zip(inputs, self._inputs, strict=True)]
        try:
            made = [np.ascontiguousarray(array) for array in self._runner.run(given, None, profile)]
        except (ValueError, LookupError, ArithmeticError, TypeError) as error:
            raise ExecutionError("host twin", f"the graph does not run: {error}"[:200]) from error
        for array, tensor in zip(made, self._outputs, strict=True):
            if array.nbytes != tensor.nbytes:
                raise ExecutionError("host twin", f"must give {tensor.nbytes} bytes", value=array.nbytes)
        ends = zip(made, self._outputs, strict=True)
        return [a.reshape(-1).view(f"i{t.element_size}").reshape(t.shape) for a, t in ends]


def check_all(graph: Graph, memory: int) -> None:
    """Raise unless every operator may run; errors say which one may not."""
    for index, op in enumerate(graph.ops):
        try:
            check(op, memory)
        except FormatError as error:
            raise error.inside(f"host twin.ops[{index}]") from None
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            where = f"host twin.ops[{index}]"
            raise FormatError(f"must have the arguments of {op.kind}: {error!r}"[:200], where=where) from error


def check(op: Op, memory: int) -> None:
    """Raise unless an operator is TOSA's, has arguments that make sense for its shapes, and can be afforded."""
    row = TOSA.get(op.kind.removeprefix(PREFIX))
    if row is None or not op.kind.startswith(PREFIX):
        raise FormatError("must be an operator of TOSA", value=op.kind)
    for value in (*op.inputs(), *op.outputs):
        if value is None or value.dynamic or str(value.dtype) not in _TYPES:
            raise FormatError("must have tensors of fixed shapes and known types", value=op.kind)
    for name, argument in op.args.items():
        if name == "dtype" and argument not in _TYPES:
            raise FormatError(f"must be one of {', '.join(_TYPES)}", where=name, value=argument)
    largest = _SIZES.get(row.name, _elementwise)(op)
    for value in op.outputs:
        largest = max(largest, math.prod(value.bound) if value is not None else 0)
    if largest * _ITEM > memory:
        raise LimitError(f"host twin: {op.kind}", f"may take {memory} bytes", value=largest * _ITEM)


def _numbers(op: Op, name: str, count: int, low: int) -> list[int]:
    """A list of ``count`` integers of at least ``low``."""
    found = op.args[name]
    if not isinstance(found, list | tuple) or len(found) != count:
        raise FormatError(f"must be {count} numbers", where=name, value=found)
    for number in found:
        if type(number) is not int or not low <= number < _MAX:
            raise FormatError(f"must be whole numbers from {low}", where=name, value=number)
    return list(found)


def _shape(op: Op, name: str, rank: int | None = None) -> tuple[int, ...]:
    value = op.args[name]
    if not isinstance(value, Value) or (rank is not None and len(value.bound) != rank):
        raise FormatError(f"must be a tensor of {rank} dimensions" if rank else "must be a tensor", where=name)
    return value.bound


# Elements of the largest array that an operator makes on its way, by the operator's name.


def _elementwise(op: Op) -> int:
    shapes = [v.bound for v in op.inputs()]
    return math.prod(np.broadcast_shapes(*shapes)) if op.kind.removeprefix(PREFIX) in _BROADCAST else _sum(op)


def _sum(op: Op) -> int:
    return sum(math.prod(v.bound) for v in op.inputs())


def _windows(image: Sequence[int], kernel: Sequence[int], stride: Sequence[int], pad: Sequence[int],
             dilation: Sequence[int]) -> int:  # fmt: skip
    """How many windows there are; each must lie within the padded image."""
    count = 1
    for i, size in enumerate(image):
        whole = size + pad[2 * i] + pad[2 * i + 1]
        reach = (kernel[i] - 1) * dilation[i] + 1
        if kernel[i] < 1 or reach > whole:
            raise FormatError("a window must fit its image", value=f"{reach} in {whole}")
        count *= (whole - reach) // stride[i] + 1
    return count


def _convolution(op: Op) -> int:
    rank = 3 if op.kind.endswith("conv3d") else 2
    image, weight = (_shape(op, name, rank + 2) for name in ("input", "weight"))
    _shape(op, "bias", 1)
    depthwise = op.kind.endswith("depthwise_conv2d")
    kernel = weight[:2] if depthwise else weight[1:-1]
    if (weight[2] if depthwise else weight[-1]) != image[-1]:
        raise FormatError("must have the channels of its input", where="weight", value=weight)
    pad = _numbers(op, "pad", 2 * rank, 0)
    stride, dilation = (_numbers(op, name, rank, 1) for name in ("stride", "dilation"))
    count = _windows(image[1:-1], kernel, stride, pad, dilation)
    return image[0] * count * math.prod(kernel) * image[-1] + _padded(image, pad) + math.prod(weight)


def _padded(image: Sequence[int], pad: Sequence[int]) -> int:
    inner = (n + pad[2 * i] + pad[2 * i + 1] for i, n in enumerate(image[1:-1]))
    return image[0] * image[-1] * math.prod(inner)


def _pool(op: Op) -> int:
    image = _shape(op, "input", 4)
    kernel, stride = (_numbers(op, name, 2, 1) for name in ("kernel", "stride"))
    pad = _numbers(op, "pad", 4, 0)
    count = _windows(image[1:-1], kernel, stride, pad, (1, 1))
    return image[0] * count * math.prod(kernel) * image[-1] + _padded(image, pad)


def _transposed(op: Op) -> int:
    image, weight = _shape(op, "input", 4), _shape(op, "weight", 4)
    stride, pad = _numbers(op, "stride", 2, 1), _numbers(op, "out_pad", 4, -_MAX)
    grown = ((n - 1) * s + k + 2 * max(*pad, 0) for n, s, k in zip(image[1:3], stride, weight[1:3], strict=True))
    return image[0] * weight[0] * math.prod(grown) + math.prod(image) + math.prod(weight)


def _resize(op: Op) -> int:
    image = _shape(op, "input", 4)
    scale = _numbers(op, "scale", 4, 1)
    offset, border = (_numbers(op, name, 2, -_MAX) for name in ("offset", "border"))
    sizes = [((n - 1) * scale[2 * i] - offset[i] + border[i]) // scale[2 * i + 1] + 1 for i, n in enumerate(image[1:3])]
    if min(sizes) < 1 or op.args["mode"] not in ("nearest", "bilinear"):
        raise FormatError("must give an image", value=sizes)
    return 8 * image[0] * image[3] * math.prod(sizes)


def _pad(op: Op) -> int:
    shape = _shape(op, "input")
    widths = _numbers(op, "padding", 2 * len(shape), 0)
    return math.prod(n + widths[2 * i] + widths[2 * i + 1] for i, n in enumerate(shape))


def _tile(op: Op) -> int:
    shape = _shape(op, "input")
    return math.prod(n * m for n, m in zip(shape, _numbers(op, "multiples", len(shape), 1), strict=True))


def _matmul(op: Op) -> int:
    a, b = (_shape(op, name, 3) for name in ("a", "b"))
    return math.prod(a) + math.prod(b) + max(a[0], b[0]) * a[1] * b[2]


def _gather(op: Op) -> int:
    values, indices = _shape(op, "values", 3), _shape(op, "indices", 2)
    return math.prod(values) + math.prod(indices) * values[2]


_BROADCAST = {name for name, row in TOSA.items() if row.tensors in (("a", "b"), ("condition", "on_true", "on_false"))}
_SIZES: dict[str, Callable[[Op], int]] = {
    **dict.fromkeys(("conv2d", "conv3d", "depthwise_conv2d"), _convolution),
    **dict.fromkeys(("max_pool2d", "avg_pool2d"), _pool),
    "transpose_conv2d": _transposed,
    "resize": _resize,
    "pad": _pad,
    "tile": _tile,
    "matmul": _matmul,
    "gather": _gather,
}
