"""Small TOSA graphs: built, compiled by Vela, and run by the reference model and by our simulator."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ethosu
import numpy as np
import tosa_reference_model
import tosa_serializer as ts
from ethosu import regor

from edgewright.backends.ethos_u.npu import decode, run

SIMULATED = ("ethos-u55-32", "ethos-u55-64", "ethos-u55-128", "ethos-u55-256", "ethos-u65-256")
_INI = (Path(next(iter(ethosu.__path__))) / "config_files/Arm/vela.ini").read_text()
_MEMORY = {
    "55": "system_config_name=Ethos_U55_High_End_Embedded\nmemory_mode_name=Shared_Sram\n",
    "65": "system_config_name=Ethos_U65_High_End\nmemory_mode_name=Dedicated_Sram_384KB\n",
    "85": "system_config_name=Ethos_U85_SYS_DRAM_Mid\nmemory_mode_name=Sram_Only\n",
}
_DTYPES = {
    "bool": (ts.DType.BOOL, np.bool_),
    "i4": (ts.DType.INT4, np.int8),
    "i8": (ts.DType.INT8, np.int8),
    "i16": (ts.DType.INT16, np.int16),
    "i32": (ts.DType.INT32, np.int32),
    "i48": (ts.DType.INT48, np.int64),
}
ROUNDING = {
    "single": ts.RoundingMode.SINGLE_ROUND,
    "double": ts.RoundingMode.DOUBLE_ROUND,
    "inexact": ts.RoundingMode.INEXACT_ROUND,
}


@dataclass(frozen=True)
class Tensor:
    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(repr=False)
class Graph:
    """A TOSA 1.0 graph under construction; each method adds one operator and returns its result."""

    serializer: Any = field(default_factory=lambda: ts.TosaSerializer("", ts.ConstMode.EMBED, 1, 0, 0, False))
    inputs: list[Tensor] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)
    made: dict[str, Any] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)

    def __repr__(self) -> str:
        return "\n".join(["", *(f"{t.name}: {t.dtype}{t.shape}" for t in self.inputs), *self.lines])

    def input(self, shape: tuple[int, ...], dtype: str = "i8") -> Tensor:
        tensor = Tensor(f"input{len(self.inputs)}", tuple(shape), dtype)
        self.serializer.addInputTensor(ts.TosaSerializerTensor(tensor.name, list(shape), _DTYPES[dtype][0]))
        self.inputs.append(tensor)
        return tensor

    def const(self, values: Any, dtype: str = "i8") -> Tensor:
        array = np.asarray(values, _DTYPES[dtype][1])
        made = self.serializer.addConst(list(array.shape), _DTYPES[dtype][0], array)
        return Tensor(made.name, array.shape, dtype)

    def sizes(self, *values: int) -> Tensor:
        made = self.serializer.addConst([len(values)], ts.DType.SHAPE, np.array(values, np.int64))
        return Tensor(made.name, (len(values),), "shape")

    def op(self, kind: str, inputs: list[Tensor], shape: Any, dtype: str, *attributes: Any) -> Tensor:
        attribute = ts.TosaSerializerAttribute()
        getattr(attribute, _ATTRIBUTE.get(kind, _camel(kind)) + "Attribute")(*attributes)
        made = self.serializer.addIntermediate([int(n) for n in shape], _DTYPES[dtype][0])
        self.serializer.addOperator(getattr(ts.Op, kind), [t.name for t in inputs], [made.name], attribute)
        self.made[made.name] = made
        names = ", ".join(t.name for t in inputs)
        self.lines.append(f"{made.name}: {dtype}{tuple(shape)} = {kind}({names}) {attributes}")
        return Tensor(made.name, tuple(int(n) for n in shape), dtype)

    def output(self, *tensors: Tensor) -> Graph:
        for tensor in tensors:
            self.serializer.addOutputTensor(self.made[tensor.name])
            self.outputs.append(tensor)
        return self

    # Operators with operands that are tedious to write out -----------------------------------------------------------

    def rescale(self, x: Tensor, scale: Any, *, zero: tuple[int, int] = (0, 0), to: str = "i8",
                rounding: str = "single", unsigned: tuple[bool, bool] = (False, False),
                scale32: bool = True) -> Tensor:  # fmt: skip
        multipliers, shifts = quantized_scale(scale, 31 if scale32 else 15)
        operands = [self.const(multipliers, "i32" if scale32 else "i16"), self.const(shifts, "i8"),
                    self.const([zero[0]], x.dtype), self.const([zero[1]], to)]  # fmt: skip
        per_channel = np.ndim(scale) > 0
        return self.op("RESCALE", [x, *operands], x.shape, to, scale32, ROUNDING[rounding], per_channel, *unsigned)

    def conv(self, x: Tensor, weights: Any, bias: Any, *, kind: str = "CONV2D", stride: Any = (1, 1),
             pad: Any = (0, 0, 0, 0), dilation: Any = (1, 1), zero: int = 0,
             weight_type: str = "i8") -> Tensor:  # fmt: skip
        wide = x.dtype == "i16"
        accumulator = "i48" if wide else "i32"
        w, b = self.const(weights, weight_type), self.const(bias, accumulator)
        zeros = [self.const([zero], x.dtype), self.const([0], weight_type)]
        kernel, channels = kernel_and_channels(kind, w.shape)
        attributes = [list(pad), list(stride)] + ([] if kind == "TRANSPOSE_CONV2D" else [list(dilation)])
        shape = (x.shape[0], *conv_size(kind, x.shape[1:3], kernel, stride, pad, dilation), channels)
        acc = ts.DType.INT48 if wide else ts.DType.INT32
        return self.op(kind, [x, w, b, *zeros], shape, accumulator, *attributes, False, acc)

    def pool(self, x: Tensor, kind: str, kernel: Any, stride: Any = (1, 1), pad: Any = (0, 0, 0, 0),
             zero: tuple[int, int] = (0, 0)) -> Tensor:  # fmt: skip
        size = [(n + a + b - k) // s + 1 for n, a, b, k, s in
                zip(x.shape[1:3], pad[::2], pad[1::2], kernel, stride, strict=True)]  # fmt: skip
        operands, last = [x], ts.NanPropagationMode.PROPAGATE
        if kind == "AVG_POOL2D":
            operands, last = [x, self.const([zero[0]], x.dtype), self.const([zero[1]], x.dtype)], ts.DType.INT32
        return self.op(
            kind, operands, (x.shape[0], *size, x.shape[3]), x.dtype, list(kernel), list(stride), list(pad), last
        )

    def binary(self, kind: str, a: Tensor, b: Tensor, *attributes: Any) -> Tensor:
        shape = np.broadcast_shapes(a.shape, b.shape)
        operands = [a, b]
        if kind == "MUL":
            operands.append(self.const([attributes[0] if attributes else 0], "i8"))
            attributes = ()
        if kind in ("MAXIMUM", "MINIMUM"):
            attributes = (ts.NanPropagationMode.PROPAGATE,)
        return self.op(kind, operands, shape, "i32", *attributes)

    def clamp(self, x: Tensor, low: int, high: int) -> Tensor:
        raw = [list(np.array([v], _DTYPES[x.dtype][1]).tobytes()) for v in (low, high)]
        return self.op("CLAMP", [x], x.shape, x.dtype, *raw, ts.NanPropagationMode.PROPAGATE)

    def reduce(self, kind: str, x: Tensor, axis: int) -> Tensor:
        shape = [1 if i == axis else n for i, n in enumerate(x.shape)]
        extra = (ts.NanPropagationMode.PROPAGATE,) if kind in ("REDUCE_MAX", "REDUCE_MIN") else ()
        return self.op(kind, [x], shape, x.dtype, axis, *extra)

    def table(self, x: Tensor, values: Any) -> Tensor:
        return self.op("TABLE", [x, self.const(values, x.dtype)], x.shape, "i8" if x.dtype == "i8" else "i32")

    def reshape(self, x: Tensor, *shape: int) -> Tensor:
        return self.op("RESHAPE", [x, self.sizes(*shape)], shape, x.dtype)

    def transpose(self, x: Tensor, perms: Any) -> Tensor:
        return self.op("TRANSPOSE", [x], [x.shape[p] for p in perms], x.dtype, list(perms))

    def matmul(self, a: Tensor, b: Tensor, zero: tuple[int, int] = (0, 0)) -> Tensor:
        zeros = [self.const([zero[0]], a.dtype), self.const([zero[1]], b.dtype)]
        kind = "i48" if a.dtype == "i16" else "i32"
        return self.op("MATMUL", [a, b, *zeros], (a.shape[0], a.shape[1], b.shape[2]), kind)


_ATTRIBUTE = {"ARGMAX": "ArgMax", "MATMUL": "MatMul"}


def _camel(kind: str) -> str:
    return "".join(part.capitalize() for part in kind.split("_"))


def kernel_and_channels(kind: str, shape: tuple[int, ...]) -> tuple[tuple[int, int], int]:
    if kind == "DEPTHWISE_CONV2D":
        return shape[:2], shape[2] * shape[3]
    return shape[1:3], shape[0]


def conv_size(kind: str, size: Any, kernel: Any, stride: Any, pad: Any, dilation: Any) -> list[int]:
    edges = list(zip(size, pad[::2], pad[1::2], kernel, stride, dilation, strict=True))
    if kind == "TRANSPOSE_CONV2D":
        return [(n - 1) * s + a + b + k for n, a, b, k, s, _ in edges]
    return [(n - 1 + a + b - (k - 1) * d) // s + 1 for n, a, b, k, s, d in edges]


def quantized_scale(scale: Any, bits: int) -> tuple[list[int], list[int]]:
    """Each scale as an integer of ``bits`` bits and the shift to the right that follows it."""
    multipliers, shifts = [], []
    for value in np.atleast_1d(np.asarray(scale, np.float64)):
        mantissa, exponent = np.frexp(value)
        multiplier, shift = round(mantissa * (1 << bits)), bits - int(exponent)
        while multiplier > (1 << bits) - 1 or shift > 62:
            multiplier, shift = multiplier // 2, shift - 1
        multipliers.append(multiplier)
        shifts.append(shift)
    return multipliers, shifts


# Without a limit Vela cuts layers into stripes even where there is room: these two see to that schedule
STRIPED = ("ethos-u55-64", "ethos-u55-256")


def settings_of(accelerator: str, options: str = "") -> tuple[str, str, str]:
    """What Vela's compiler wants to know: architecture, machine, options."""
    if not options and accelerator not in STRIPED:
        options = "arena_size_limit=16777216\n"
    family, macs = accelerator[7:].split("-")
    cores = 2 if accelerator == "ethos-u65-512" else 1
    machine = f"[architecture]\nmacs={int(macs) // cores}\ncores={cores}\n[vela]\n{_MEMORY[family]}{_INI}"
    return f"EthosU{family}", machine, f"[compiler]\noutput_format=Raw\n[scheduler]\noptimize=Performance\n{options}"


def compile_graph(graph: Graph, accelerator: str, options: str = "") -> Any:
    """Vela's answer for a graph, in process."""
    architecture, machine, text = settings_of(accelerator, options)
    return regor.compile(architecture, graph.serializer.serialize(), "TOSA", machine, options=text)


def random_inputs(graph: Graph, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    arrays = []
    for tensor in graph.inputs:
        dtype = _DTYPES[tensor.dtype][1]
        limits = (0, 1) if dtype is np.bool_ else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        arrays.append(rng.integers(*limits, tensor.shape, endpoint=True).astype(dtype))
    return arrays


def reference(graph: Graph, inputs: list[np.ndarray]) -> list[np.ndarray]:
    with _Quiet():
        outputs, status = tosa_reference_model.run(graph.serializer.serialize(), inputs)
    assert str(status).endswith("TOSA_VALID"), status
    return outputs


def simulate(model: Any, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """The outputs' bytes after the command stream ran, each in its own integer type."""
    scratch = np.zeros(model.scratch.size, np.uint8)
    fast = np.zeros(max(model.scratch_fast.size, 0), np.uint8)
    for tensor, array in zip(model.inputs, inputs, strict=True):
        scratch[tensor.address : tensor.address + array.nbytes] = np.frombuffer(array.tobytes(), np.uint8)
    program = decode(bytes(model.command_stream))
    run(program, weights=bytes(model.read_only.data), scratch=scratch, fast_scratch=fast)
    kinds = {1: np.int8, 2: np.int16, 4: np.int32}
    return [scratch[t.address : t.address + t.size].view(kinds[t.element_size]).reshape(t.shape) for t in model.outputs]


def assert_equal(
    graph: Graph, accelerator: str, *, seed: int = 0, options: str = "", inputs: Any = None, varied: bool = True
) -> Any:
    """The simulator's and the reference model's outputs are the same numbers. Returns Vela's answer."""
    inputs = inputs if inputs is not None else random_inputs(graph, seed)
    model = compile_graph(graph, accelerator, options)
    expected = reference(graph, inputs)
    assert len(model.outputs) == len(expected)
    for ours, theirs in zip(simulate(model, inputs), expected, strict=True):
        np.testing.assert_array_equal(ours.reshape(theirs.shape), theirs.astype(ours.dtype), strict=True)
        assert not varied or theirs.size < 8 or len(np.unique(theirs)) > 1, "a constant answer shows nothing"
    return model


class _Quiet:
    """The reference model warns on stdout of every file that is not its newest version."""

    def __enter__(self) -> None:
        self._saved, null = os.dup(1), os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.close(null)

    def __exit__(self, *_: object) -> None:
        os.dup2(self._saved, 1)
        os.close(self._saved)
