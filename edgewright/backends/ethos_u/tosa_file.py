"""Writes a TOSA graph as the flatbuffer that Vela and the reference model read, with Arm's serializer."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.backends.ethos_u.dialect.table import PREFIX, TOSA, TosaOp
from edgewright.errors import MissingError
from edgewright.ir.graph import Array, Graph, Op, Value

VERSION = (1, 0, 0)
_TYPES = {
    "int8": "INT8",
    "int16": "INT16",
    "int32": "INT32",
    "int64": "INT48",
    "bool": "BOOL",
    "float32": "FP32",
    "uint8": "INT8",
}  # RESCALE has a flag for unsigned inputs and outputs
_ACCUMULATORS = {"INT8": "INT32", "INT16": "INT48", "FP32": "FP32"}
_ATTRIBUTES = {"argmax": "ArgMax", "matmul": "MatMul", "intdiv": "IntDiv"}  # irregular attribute class names


def serializer() -> Any:
    """Import Arm's ``tosa_serializer``."""
    try:
        import tosa_serializer
    except ImportError as error:
        remedy = 'Install it: pip install "edgewright[ethos-u]"'
        raise MissingError("tosa-tools", "is needed to compile for Ethos-U", remedy=remedy) from error
    return tosa_serializer


def write_tosa(graph: Graph, locations: Sequence[str] | None = None) -> bytes:
    """Serialize the graph as TOSA 1.0. ``locations``: the location of every operator, for debugging."""
    return _Writer(graph, locations).run()


def result_names(graph: Graph) -> list[str]:
    """The name of every operator's result in the file."""
    outputs = {o: f"output_{i}" for i, o in enumerate(graph.outputs)}
    return [outputs.get(op.outputs[0], f"value_{number}") for number, op in enumerate(graph.ops)]


def is_result(name: str) -> bool:
    """Whether a tensor's name is one of ``result_names``."""
    return re.fullmatch(r"(output|value)_\d+", name) is not None


class _Writer:
    def __init__(self, graph: Graph, locations: Sequence[str] | None = None) -> None:
        self.ts = serializer()
        self.graph, self.locations = graph, locations or [""] * len(graph.ops)
        self.file = self.ts.TosaSerializer("", self.ts.ConstMode.EMBED, *VERSION, False)
        self.block = self.file.currRegion.currBasicBlock
        self.names: dict[Value, str] = {}
        self.constants: dict[Any, str] = {}

    def run(self) -> bytes:
        for i, value in enumerate(self.graph.inputs):
            self.names[value] = f"input_{i}"
            self.file.addInputTensor(self._tensor(f"input_{i}", value))
        for op, name, location in zip(self.graph.ops, result_names(self.graph), self.locations, strict=True):
            self._op(op, name, location)
        for value in self.graph.outputs:
            self.file.addOutputTensor(self._tensor(self.names[value], value))
        return bytes(self.file.serialize())

    def _op(self, op: Op, name: str, location: str) -> None:
        row = TOSA[op.kind.removeprefix(PREFIX)]
        operands = [name for operand in row.operands for name in self._operand(row, op, operand)]
        out = op.outputs[0]
        assert out is not None
        self.names[out] = name
        self.block.addTensor(name, list(out.bound), self._type(out))
        where = (self.ts.TosaOpLocation(location),) if location else ()
        self.file.addOperator(getattr(self.ts.Op, row.name.upper()), operands, [name], self._attribute(row, op), *where)

    # ------------------------------------------------------------------------------------------------- operands

    def _operand(self, row: TosaOp, op: Op, name: str) -> list[str]:
        argument = op.args[name]
        if name in row.shapes:
            return [self._const(np.asarray(argument, np.int64), "SHAPE")]
        if row.name == "mul" and name == "shift":
            return [self._const(np.asarray([argument], np.int8), "INT8")]
        for zero, of in row.zeros:
            if name == zero:
                like: Any = op.outputs[0] if of == "output" else op.args[of]
                return [self._const(np.asarray([argument]).astype(like.dtype), self._type_name(like))]
        return [self._value(v) for v in (argument if isinstance(argument, list) else [argument])]

    def _value(self, value: Value) -> str:
        if value not in self.names:
            assert value.data is not None, value.name
            self.names[value] = self._const(value.data, self._type_name(value))
        return self.names[value]

    def _const(self, data: Array, kind: str) -> str:
        key = (kind, data.shape, data.tobytes())
        if key not in self.constants:
            name = self.constants[key] = f"constant_{len(self.constants)}"
            signed = data.view(np.int8) if data.dtype == np.uint8 else data
            # As an array, not a list: the serializer copies its bytes, which is a hundred times faster.
            self.file.addConst(list(data.shape), getattr(self.ts.DType, kind), signed.ravel(), name)
        return self.constants[key]

    def _tensor(self, name: str, value: Value) -> Any:
        return self.ts.TosaSerializerTensor(name, list(value.bound), self._type(value))

    def _type_name(self, value: Value) -> str:
        return _TYPES[str(value.dtype)]

    def _type(self, value: Value) -> Any:
        return getattr(self.ts.DType, self._type_name(value))

    # ----------------------------------------------------------------------------------------------- attributes

    def _attribute(self, row: TosaOp, op: Op) -> Any:
        attribute = self.ts.TosaSerializerAttribute()
        class_name = _ATTRIBUTES.get(row.name) or "".join(part.capitalize() for part in row.name.split("_"))
        arguments = {name: op.args[name] for name in row.attributes}
        getattr(attribute, f"{class_name}Attribute")(**self._arguments(row, op, arguments))
        return attribute

    def _arguments(self, row: TosaOp, op: Op, arguments: dict[str, Any]) -> dict[str, Any]:
        ts, name = self.ts, row.name
        first = op.args[row.tensors[0]]
        if name == "rescale":
            rounding = (
                ts.RoundingMode.DOUBLE_ROUND if arguments["rounding"] == "double" else ts.RoundingMode.SINGLE_ROUND
            )
            wide = op.args["multiplier"].dtype.itemsize == 4
            signs = {"input_unsigned": _unsigned(first), "output_unsigned": _unsigned(op.outputs[0])}
            return {"per_channel": arguments["per_channel"], "scale32": wide, "rounding_mode": rounding, **signs}
        if name == "clamp":
            limits = {k: self._bytes(first, arguments[k]) for k in ("min_val", "max_val")}
            return {**limits, "nan_mode": ts.NanPropagationMode.PROPAGATE}
        if name == "resize":
            return {"mode": getattr(ts.ResizeMode, arguments["mode"].upper())}
        if name in ("maximum", "minimum", "max_pool2d", "argmax", "reduce_max", "reduce_min"):
            arguments["nan_mode"] = ts.NanPropagationMode.PROPAGATE
        if "conv" in name:
            arguments["local_bound"] = False
        if "conv" in name or name == "avg_pool2d":
            kind = self._type_name(first)
            wide = "INT32" if name == "avg_pool2d" and kind != "FP32" else _ACCUMULATORS[kind]
            arguments["acc_type"] = getattr(ts.DType, wide)
        return arguments

    def _bytes(self, value: Value, number: float) -> list[int]:
        """A clamp bound as the bytes of one element, as the specification requires."""
        if value.dtype is not None and value.dtype.kind == "f":
            return list(struct.pack("<f", number))
        return list(np.asarray(number, value.dtype).tobytes())


def _unsigned(value: Value | None) -> bool:
    return value is not None and value.dtype is not None and value.dtype.kind == "u"
