"""Rows of the HTP on the op table's samples: as they are or quantized as their ports say, compiled, and run by
Qualcomm's emulator from the blob."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from edgewright.backends.qualcomm.blob import write_blob
from edgewright.backends.qualcomm.delegate import QnnDelegate
from edgewright.backends.qualcomm.emit import compile_graph
from edgewright.backends.qualcomm.ops import BACKEND
from edgewright.backends.qualcomm.options import KEY
from edgewright.backends.qualcomm.partitioner import QnnPartitioner, to_qnn
from edgewright.backends.qualcomm.target import (
    QnnTarget,
    generate_htp_compiler_spec,
    generate_qnn_executorch_compiler_spec,
)
from edgewright.ir.graph import Array, Graph, Op, QParams, Value
from edgewright.ir.opset import OPS
from edgewright.ir.ports import Act, Range, Same, Tied, Weight
from edgewright.runtime.delegates import DelegateBlob
from tests.ops.opset_calls import Call, calls_of
from tests.support.rows import moderate

FP16 = 16.5  # bits of samples that are not quantized
_OTHERS = {"float64", "float16", "bfloat16", "complex64", "complex128", "uint8", "uint16", "uint32", "uint64"}


@dataclass
class Case:
    """An operator, its inputs, and what the op table says of them."""

    graph: Graph
    inputs: list[Array]
    wanted: Array
    name: str
    known: Array  # where the result is a number

    @property
    def op(self) -> Op:
        return self.graph.ops[0]


def parameters(data: Array, bits: float, fixed: Range | None = None) -> QParams | None:
    """From the values themselves, or from a range that is known."""
    if bits == FP16:
        return None
    finite = np.asarray(data, np.float64)[np.isfinite(data)]
    low = min(0.0, float(finite.min(initial=0))) if fixed is None else float(fixed.lo)
    high = max(0.0, float(finite.max(initial=0))) if fixed is None else float(fixed.hi)
    last = (1 << int(bits)) - 1
    scale = max(high - low, 2.0**-10) / last
    return QParams(scale, int(np.clip(round(-low / scale), 0, last)), np.dtype(f"uint{bits}"), 0, last)


def store(data: Array, q: QParams | None) -> Array:
    if q is None:
        return data
    with np.errstate(all="ignore"):
        steps = np.nan_to_num(
            np.round(np.asarray(data, np.float64) / np.asarray(q.scale)), posinf=2**31, neginf=-(2**31)
        )
    return np.asarray(np.clip(steps + np.asarray(q.zero_point), q.qmin, q.qmax), q.dtype)


def load(stored: Array, q: QParams | None) -> Array:
    if q is None:
        return stored
    return np.asarray((stored.astype(np.float64) - np.asarray(q.zero_point)) * np.asarray(q.scale), np.float32)


def _value(name: str, data: Array, q: QParams | None = None, *, held: bool = False) -> Value:
    return Value(name, data.dtype, data.shape, tuple(range(data.ndim)), data if held else None, q=q)


class Maker:
    """Makes a call of the op table into a case."""

    def __init__(self, call: Call, bits: float) -> None:
        row = call.row()
        assert row is not None
        self.call, self.bits, self.row = call, bits, row
        self.ports = {**row.ports, **BACKEND.rows[row.name].ports}
        self.inputs: list[tuple[Value, Array]] = []
        self.real: dict[str, Any] = {}

    def run(self) -> Case | None:
        args = {name: self._argument(name, given) for name, given in self.call.args.items()}
        if self.row.name.startswith("conv"):
            args.setdefault("transposed", self.row.name.startswith("conv_transpose"))
            args.setdefault("output_padding", [0] * int(self.row.name[-2]))
        with np.errstate(all="ignore"):
            results = [np.asarray(r) for r in self.row.call(self.real)]
        if not self.inputs or not results:
            return None
        made = results[0].astype(np.float32) if results[0].dtype == np.float64 else results[0]
        q = self._parameters_of(args, made) if made.dtype == np.float32 else None
        stored = store(made, q)
        known = np.isfinite(made) if made.dtype == np.float32 else np.ones(made.shape, np.bool_)
        out = _value("out", stored, q)
        graph = Graph("case", [v for v, _ in self.inputs], [out], [Op(self.row.name, args, [out])])
        return Case(graph, [a for _, a in self.inputs], stored, str(self.call.sample), known)

    def _argument(self, name: str, given: Any) -> Any:
        if isinstance(given, list) and given and all(isinstance(g, np.ndarray) for g in given):
            real = given[0].dtype == np.float32
            q = parameters(np.concatenate([g.ravel() for g in given]), self.bits) if real else None
            pairs = [self._input(g, q) for g in given]
            self.real[name] = [r for _, r in pairs]
            return [v for v, _ in pairs]
        if not isinstance(given, np.ndarray):
            self.real[name] = given
            return given
        port = self.ports.get(name)
        if given.dtype == np.float32 and isinstance(port, Weight):
            value, self.real[name] = self._weights(given, port.axis)
            return value
        if given.dtype == np.float32 and not isinstance(port, Act | Same | Tied | Range):
            self.real[name] = given
            return _value(name, given, held=True)
        q = parameters(given, self.bits) if given.dtype == np.float32 else None
        value, self.real[name] = self._input(given, q)
        return value

    def _weights(self, data: Array, axis: int) -> tuple[Value, Array]:
        if self.bits == FP16:
            return _value("weight", data, held=True), data
        moved = np.moveaxis(data, axis, 0)
        scales = np.maximum(np.abs(moved.reshape(moved.shape[0], -1)).max(axis=1), 2.0**-10) / 127
        shape = [1] * data.ndim
        shape[axis] = -1
        stored = np.clip(np.round(data / scales.reshape(shape)), -127, 127).astype(np.int8)
        q = QParams(tuple(scales.tolist()), (0,) * scales.size, np.dtype(np.int8), -127, 127, axis=axis)
        if self.call.args.get("groups", 1) > 1 and self.row.name.startswith("conv_transpose"):
            q = QParams(float(scales.max()), 0, np.dtype(np.int8), -127, 127)
            stored = np.clip(np.round(data / scales.max()), -127, 127).astype(np.int8)
            scales = np.full_like(scales, scales.max())
        return _value("weight", stored, q, held=True), (stored * scales.reshape(shape)).astype(np.float32)

    def _input(self, data: Array, q: QParams | None) -> tuple[Value, Array]:
        stored = store(np.array(data, order="C"), q)
        value = _value(f"x{len(self.inputs)}", stored, q)
        self.inputs.append((value, stored))
        return value, load(stored, q)

    def _parameters_of(self, args: dict[str, Any], made: Array) -> QParams | None:
        port = self.ports.get("out")
        if isinstance(port, Same | Tied):
            source = args[port.port]
            found: QParams | None = (source[0] if isinstance(source, list) else source).q
            return found
        return parameters(made, self.bits, port if isinstance(port, Range) else None)


def cases(op: str, bits: float) -> Iterator[Case]:
    """The op table's own calls of an operator that are of single precision and not empty."""
    for overload in OPS[op].aten:
        for call in calls_of(OPS[op], overload):
            call = replace(call, args={n: moderate(v) for n, v in call.args.items()})
            given = [a for v in call.args.values() for a in (v if isinstance(v, list) else [v])]
            arrays = [a for a in given if isinstance(a, np.ndarray)]
            if arrays and all(a.size for a in arrays) and not {str(a.dtype) for a in arrays} & _OTHERS:
                made = Maker(call, bits).run()
                if made is not None:
                    yield made


def target_for(soc: str = "SM8650") -> QnnTarget:
    return QnnTarget.of(generate_qnn_executorch_compiler_spec(soc, generate_htp_compiler_spec(use_fp16=True)))


@dataclass
class Outcome:
    """What became of a case. ``error``: the largest difference, in steps of the last place, or relative to the largest
    result."""

    refusals: list[str]
    error: float = 0.0


def check(case: Case, soc: str = "SM8650") -> Outcome:
    """Refused by a rule or Qualcomm's validator, or compiled and run."""
    partitioner = QnnPartitioner.for_target(soc)
    why = partitioner.refusals(case.op)
    if why:
        return Outcome(why)
    copy = Graph(case.graph.name, list(case.graph.inputs), list(case.graph.outputs), list(case.graph.ops))
    target = partitioner.target()
    context = compile_graph(to_qnn(copy, target), target, "forward")
    delegate = QnnDelegate(DelegateBlob("QnnBackend", write_blob(context), {KEY: target.value}, {}))
    (made,) = delegate.execute(case.inputs)
    delegate.close()
    known, shape = case.known, case.wanted.shape
    return Outcome([], _difference(made.reshape(shape)[known], case.wanted[known], case.graph.outputs[0].q))


def _difference(made: Array, wanted: Array, q: QParams | None) -> float:
    assert made.dtype == wanted.dtype
    if q is not None or made.dtype != np.float32:
        return float(np.abs(made.astype(np.int64) - wanted.astype(np.int64)).max(initial=0))
    largest = max(float(np.abs(wanted).max(initial=0)), 1e-3)
    return float((np.abs(made.astype(np.float64) - wanted) / largest).max(initial=0))
