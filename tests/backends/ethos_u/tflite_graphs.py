"""TFLite files of one operator, compiled by Vela: they use NPU modes that no TOSA graph leads to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import flatbuffers
import numpy as np

from tests.backends.ethos_u.tosa_graphs import regor, settings_of

_TYPES = {"i8": ("INT8", np.int8), "u8": ("UINT8", np.uint8), "i16": ("INT16", np.int16)}


@dataclass(frozen=True)
class Quantized:
    """A tensor: real numbers are ``(stored - zero) * scale``."""

    shape: tuple[int, ...]
    dtype: str
    scale: float
    zero: int = 0

    @property
    def kind(self) -> Any:
        return _TYPES[self.dtype][1]

    @property
    def limits(self) -> tuple[int, int]:
        return int(np.iinfo(self.kind).min), int(np.iinfo(self.kind).max)


class _Writer:
    """Tables of the TFLite schema, from the classes that Vela carries."""

    def __init__(self) -> None:
        self.builder = flatbuffers.Builder(1024)

    def table(self, name: str, **fields: Any) -> int:
        module = import_module(f"ethosu.vela.tflite.{name}")
        getattr(module, f"{name}Start")(self.builder)
        for field, value in fields.items():
            getattr(module, f"{name}Add{field}")(self.builder, value)
        return int(getattr(module, f"{name}End")(self.builder))

    def tables(self, offsets: list[int]) -> int:
        self.builder.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            self.builder.PrependUOffsetTRelative(offset)
        return int(self.builder.EndVector())

    def numbers(self, values: Any, dtype: Any) -> int:
        return int(self.builder.CreateNumpyVector(np.atleast_1d(np.asarray(values, dtype))))

    def tensor(self, index: int, tensor: Quantized) -> int:
        quantization = self.table("QuantizationParameters", Scale=self.numbers(tensor.scale, np.float32),
                                  ZeroPoint=self.numbers(tensor.zero, np.int64))  # fmt: skip
        types = import_module("ethosu.vela.tflite.TensorType").TensorType
        return self.table("Tensor", Shape=self.numbers(tensor.shape, np.int32), Buffer=0,
                          Type=getattr(types, _TYPES[tensor.dtype][0]), Name=self.builder.CreateString(f"t{index}"),
                          Quantization=quantization)  # fmt: skip


def tflite(operator: str, inputs: list[Quantized], output: Quantized, options: str = "", **fields: Any) -> bytes:
    """A file with one operator."""
    writer = _Writer()
    codes = import_module("ethosu.vela.tflite.BuiltinOperator").BuiltinOperator
    code = getattr(codes, operator)
    buffers = writer.tables([writer.table("Buffer")])
    tensors = writer.tables([writer.tensor(i, t) for i, t in enumerate((*inputs, output))])
    ends = {"Inputs": writer.numbers(range(len(inputs)), np.int32), "Outputs": writer.numbers([len(inputs)], np.int32)}
    chosen = {}
    if options:
        kinds = import_module("ethosu.vela.tflite.BuiltinOptions").BuiltinOptions
        chosen = {"BuiltinOptions": writer.table(options, **fields), "BuiltinOptionsType": getattr(kinds, options)}
    operators = writer.tables([writer.table("Operator", OpcodeIndex=0, **ends, **chosen)])
    graphs = writer.tables([writer.table("SubGraph", Tensors=tensors, Operators=operators, **ends)])
    name = writer.table("OperatorCode", DeprecatedBuiltinCode=min(code, 127), BuiltinCode=code, Version=2)
    names = writer.tables([name])
    model = writer.table("Model", Version=3, OperatorCodes=names, Subgraphs=graphs, Buffers=buffers)
    writer.builder.Finish(model, b"TFL3")
    return bytes(writer.builder.Output())


def compile_tflite(data: bytes, accelerator: str) -> Any:
    architecture, machine, options = settings_of(accelerator)
    return regor.compile(architecture, data, "TFLITE", machine, options=options)


def real_answer(function: Callable[..., Any], inputs: list[Quantized], output: Quantized, stored: list[Any]) -> Any:
    """What the operator means in real numbers, in steps of the output."""
    reals = [(x.astype(np.float64) - t.zero) * t.scale for x, t in zip(stored, inputs, strict=True)]
    return np.clip(function(*reals) / output.scale + output.zero, *output.limits)
