"""Rows of the Ethos-U on the op table's samples: quantized as their ports say, lowered, compiled by Vela, and run.

What Vela compiled (or, where no simulator is, the host twin) must give the TOSA reference model's integers, and those
must be the operator's own result within a step or two of the last place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import tosa_reference_model

from edgewright.backends.ethos_u.npu import decode, run, supported
from edgewright.backends.ethos_u.ops import BACKEND
from edgewright.backends.ethos_u.partitioner import to_tosa
from edgewright.backends.ethos_u.target import EthosUCompileSpec
from edgewright.backends.ethos_u.tosa_file import write_tosa
from edgewright.backends.ethos_u.vela import Compiled, compile_tosa
from edgewright.ir.graph import Array, Graph, Op, QParams, Value
from edgewright.ir.opset import OPS
from edgewright.ir.ports import Act, Bias, Index, Range, Same, Tied, Weight
from edgewright.ir.tosa.execute import execute
from tests.backends.ethos_u.capture import quiet
from tests.ops.opset_calls import Call, calls_of

_OTHERS = {"float64", "float16", "bfloat16", "complex64", "complex128", "uint8", "uint16", "uint32", "uint64"}
LIMITS = {8: (-128, 127), 16: (-32767, 32767)}


@dataclass
class Case:
    """An operator on integers, its inputs, and what the op table says of them."""

    graph: Graph
    inputs: list[Array]
    wanted: Array  # stored integers (or plain ones)
    name: str
    known: Array  # where the result is a number

    @property
    def op(self) -> Op:
        return self.graph.ops[0]


def parameters(data: Array, bits: int = 8, symmetric: bool = False, fixed: Range | None = None) -> QParams:
    """Per tensor, from the values themselves (or from a range that is known)."""
    finite = np.asarray(data, np.float64)[np.isfinite(data)]
    low = min(0.0, float(finite.min(initial=0))) if fixed is None else fixed.lo
    high = max(0.0, float(finite.max(initial=0))) if fixed is None else fixed.hi
    first, last = LIMITS[bits]
    dtype = np.dtype(f"int{bits}")
    if symmetric or bits == 16:
        return QParams(max(-low, high, 2.0**-10) / last, 0, dtype, -last, last)
    scale = max(high - low, 2.0**-10) / (last - first)
    return QParams(scale, int(np.clip(round(first - low / scale), first, last)), dtype, first, last)


def store(data: Array, q: QParams) -> Array:
    with np.errstate(all="ignore"):
        steps = np.nan_to_num(
            np.round(np.asarray(data, np.float64) / np.asarray(q.scale)), posinf=2**31, neginf=-(2**31)
        )
    return np.asarray(np.clip(steps + np.asarray(q.zero_point), q.qmin, q.qmax), q.dtype)


def load(stored: Array, q: QParams) -> Array:
    return np.asarray((stored.astype(np.float64) - np.asarray(q.zero_point)) * np.asarray(q.scale), np.float32)


def weights(data: Array, axis: int) -> Value:
    """Symmetric, a scale for each output channel."""
    moved = np.moveaxis(data, axis, 0)
    scales = np.maximum(np.abs(moved.reshape(moved.shape[0], -1)).max(axis=1), 2.0**-10) / 127
    shape = [1] * data.ndim
    shape[axis] = -1
    stored = np.clip(np.round(data / scales.reshape(shape)), -127, 127).astype(np.int8)
    q = QParams(tuple(scales.tolist()), (0,) * scales.size, np.dtype(np.int8), -127, 127, axis=axis)
    return Value("weight", np.dtype(np.int8), data.shape, tuple(range(data.ndim)), stored, q=q)


class Maker:
    """Makes a call of the op table into a case."""

    def __init__(self, call: Call, bits: int) -> None:
        self.call, self.bits = call, bits
        self.row = call.row()
        assert self.row is not None
        self.ports = {**self.row.ports, **(BACKEND.rows[self.row.name].ports if self.row.name in BACKEND.rows else {})}
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
        out, wanted = self._result(args, results[0])
        graph = Graph("case", [v for v, _ in self.inputs], [out], [Op(self.row.name, args, [out])])
        known = ~np.isnan(results[0]) if results[0].dtype.kind == "f" else np.ones(results[0].shape, np.bool_)
        return Case(graph, [a for _, a in self.inputs], wanted, str(self.call.sample), known)

    def _argument(self, name: str, given: Any) -> Any:
        if isinstance(self.ports.get(name), Index):
            given = [_narrow(g) for g in given] if isinstance(given, list) else _narrow(given)
            if isinstance(given, list) and any(isinstance(g, np.ndarray) for g in given):
                self.real[name] = given
                return [self._plain(f"{name}_{i}", g) for i, g in enumerate(given)]
        if isinstance(given, list) and given and all(isinstance(g, np.ndarray) for g in given):
            q = parameters(np.concatenate([g.ravel() for g in given]), self.bits)
            pairs = [self._input(g, q) for g in given]
            self.real[name] = [r for _, r in pairs]
            return [v for v, _ in pairs]
        if not isinstance(given, np.ndarray):
            self.real[name] = given
            return given
        port = self.ports.get(name)
        if given.dtype == np.float32 and isinstance(port, Weight):
            value = weights(given, port.axis)
            shape = [1] * given.ndim
            shape[port.axis] = -1
            self.real[name] = (value.data * np.reshape(value.q.scale, shape)).astype(np.float32)
            return value
        if given.dtype != np.float32 or not isinstance(port, Act | Same | Tied | Range):
            self.real[name] = given
            held = Value(name, given.dtype, given.shape, tuple(range(given.ndim)))
            if isinstance(port, Bias) or given.dtype == np.float32:
                held.data = given
            else:
                self.inputs.append((held, given))
            return held
        value, self.real[name] = self._input(given, parameters(given, self.bits))
        return value

    def _plain(self, name: str, data: Any) -> Any:
        """A tensor of places, as it is (or None)."""
        if not isinstance(data, np.ndarray):
            return data
        value = Value(name, data.dtype, data.shape, tuple(range(data.ndim)))
        self.inputs.append((value, data))
        return value

    def _input(self, data: Array, q: QParams) -> tuple[Value, Array]:
        data = np.array(data, order="C")  # memory is read by ``as_strided``
        value = Value(f"x{len(self.inputs)}", q.dtype, data.shape, tuple(range(data.ndim)), q=q)
        stored = store(data, q)
        self.inputs.append((value, stored))
        return value, load(stored, q)

    def _result(self, args: dict[str, Any], made: Array) -> tuple[Value, Array]:
        order = tuple(range(made.ndim))
        if isinstance(self.ports.get("out"), Index):
            made = _narrow(made)  # behind the cast that makes places so
        if made.dtype == np.float64:  # sums are kept wider until they are stored
            made = made.astype(np.float32)
        if made.dtype != np.float32:
            return Value("out", made.dtype, made.shape, order), made
        port = self.ports.get("out")
        if isinstance(port, Same | Tied):
            source = args[port.port]
            q = (source[0] if isinstance(source, list) else source).q
            if q is None:  # of integers that become real numbers
                return Value("out", made.dtype, made.shape, order), made
        else:
            q = parameters(made, self.bits, fixed=port if isinstance(port, Range) else None)
        return Value("out", q.dtype, made.shape, order, q=q), store(made, q)


def _narrow(data: Any) -> Any:
    """Places of 64 bits, which no NPU has, as 32."""
    return data.astype(np.int32) if isinstance(data, np.ndarray) and data.dtype == np.int64 else data


def cases(op: str, bits: int = 8) -> Iterator[Case]:
    """The op table's own calls of an operator that are of single precision and not empty, quantized."""
    for overload in OPS[op].aten:
        for call in calls_of(OPS[op], overload):
            arrays = [
                a for v in call.args.values() for a in (v if isinstance(v, list) else [v]) if isinstance(a, np.ndarray)
            ]
            kinds = {str(a.dtype) for a in arrays}
            if arrays and all(a.size for a in arrays) and not kinds & _OTHERS:
                made = Maker(call, bits).run()
                if made is not None:
                    yield made


@dataclass
class Outcome:
    """What became of a case on a target. ``steps``: how far from the operator's own result, in its last place."""

    refusals: list[str]
    steps: int = 0
    compiled: Compiled | None = None


def check(case: Case, target: str) -> Outcome:
    """Refused by a rule, or compiled and run with the reference model's integers."""
    spec = EthosUCompileSpec(target)
    why = [str(r) for r in BACKEND.refusals(case.op, spec)]
    if why:
        return Outcome(why)
    copy = Graph(case.graph.name, list(case.graph.inputs), list(case.graph.outputs), list(case.graph.ops))
    device = to_tosa(copy, spec)
    tosa = write_tosa(device)
    twin = execute(device, case.inputs)  # first: it checks shapes, where the reference model would crash
    with quiet():
        made, _ = tosa_reference_model.run(
            tosa, [_given(a, v) for a, v in zip(case.inputs, device.inputs, strict=True)]
        )
    for a, b in zip(made, twin, strict=True):
        assert a.dtype == b.dtype and np.array_equal(a, b), f"{case.name}: the twin differs from the reference model"
    compiled = compile_tosa(
        tosa, spec, inputs=[a.nbytes for a in case.inputs], outputs=[o.nbytes for o in device.outputs]
    )
    if supported(target) is None:
        for a, b in zip(made, simulate(compiled, case.inputs, twin), strict=True):
            assert np.array_equal(a, b), f"{case.name}: the commands differ from the reference model on {target}"
    difference = np.abs(made[0].astype(np.int64) - case.wanted.astype(np.int64)) * case.known
    return Outcome([], int(difference.max(initial=0)), compiled)


def _given(array: Array, value: Value) -> Array:
    return np.ascontiguousarray(array).reshape(value.bound)


def simulate(compiled: Compiled, inputs: list[Array], like: list[Array]) -> list[Array]:
    """Run what Vela made on the simulator."""
    scratch = np.zeros(compiled.scratch_size, np.uint8)
    fast = np.zeros(compiled.fast_scratch_size, np.uint8)
    for tensor, array in zip(compiled.inputs, inputs, strict=True):
        raw = np.ascontiguousarray(array).view(np.uint8).ravel()
        scratch[tensor.offset : tensor.offset + raw.size] = raw
    run(decode(compiled.cmd_data), weights=compiled.weight_data, scratch=scratch, fast_scratch=fast)
    return [
        scratch[t.offset : t.offset + a.nbytes].view(a.dtype).reshape(a.shape)
        for t, a in zip(compiled.outputs, like, strict=True)
    ]
