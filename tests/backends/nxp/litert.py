"""LiteRT's interpreter, and device graphs of single operators to give it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from edgewright.backends.nxp.dialect import DIALECT
from edgewright.backends.nxp.dialect.numerics import LITERT_XNNPACK, TFLITE
from edgewright.backends.nxp.tflite_file import write_tflite
from edgewright.ir.graph import Array, Graph, Op, QParams, Value

INT8 = np.dtype(np.int8)


# The reference kernel for sums of bytes leaves some of them out (LiteRT 2.3): they are compared with the other kernel.
KERNELS = {
    "tflite": OpResolverType.BUILTIN_REF,
    "sum": OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
    "xnnpack": OpResolverType.BUILTIN,
}


def interpreter(tflite: bytes, kernels: str = "tflite") -> Any:
    made = Interpreter(model_content=tflite, experimental_op_resolver_type=KERNELS[kernels], num_threads=1)
    made.allocate_tensors()
    return made


def invoke(ready: Any, inputs: Sequence[Array]) -> list[Array]:
    for detail, data in zip(ready.get_input_details(), inputs, strict=True):
        ready.set_tensor(detail["index"], np.ascontiguousarray(data))
    ready.invoke()
    return [ready.get_tensor(detail["index"]) for detail in ready.get_output_details()]


def run(tflite: bytes, inputs: Sequence[Array], kernels: str = "tflite") -> list[Array]:
    """Outputs by the reference kernels, or by others."""
    return invoke(interpreter(tflite, kernels), inputs)


def value(name: str, shape: Sequence[int], scale: Any, zero: int = 0, data: Array | None = None) -> Value:
    q = QParams(scale, zero, INT8, -128, 127)
    return Value(name, INT8, tuple(shape), tuple(range(len(shape))), data, q=q)


def numbers(*items: Any) -> Value:
    """Shapes, axes and the like: a constant of 32-bit integers."""
    data = np.asarray(items[0] if len(items) == 1 and isinstance(items[0], list) else items, np.int32)
    return Value("numbers", data.dtype, data.shape, tuple(range(data.ndim)), data)


def graph(kind: str, inputs: list[Value], out: Value, **options: Any) -> Graph:
    op = Op(f"tflite.{kind}", {"inputs": inputs, **options}, [out])
    return Graph("case", [v for v in inputs if v.data is None], [out], [op])


def differences(made: Graph, inputs: Sequence[Array], kernels: str = "tflite") -> int:
    """How many elements the meaning of a graph and LiteRT's results differ in."""
    wanted = run(write_tflite(made), inputs, kernels)
    found = DIALECT.execute(made, inputs, LITERT_XNNPACK if kernels == "xnnpack" else TFLITE)
    return sum(int((a != b).sum()) for a, b in zip(wanted, found, strict=True))
