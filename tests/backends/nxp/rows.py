"""Rows of Neutron on the op table's samples: quantized as their ports say, lowered, and run here and by LiteRT."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgewright.backends.nxp.graphs import to_tflite
from edgewright.backends.nxp.rows import ROWS
from edgewright.backends.nxp.rules import EVERYWHERE
from edgewright.backends.nxp.tflite_file import write_tflite
from edgewright.backends.table import Backend
from edgewright.ir.graph import Array, Graph, Op, QParams, Value
from edgewright.ir.opset import OPS
from edgewright.ir.ports import Act, Bias, Range, Same, Tied, Weight
from edgewright.ir.tflite.execute import execute
from tests.backends.nxp.litert import run
from tests.ops.opset_calls import Call, calls_of

BACKEND = Backend("nxp", ROWS, EVERYWHERE)
INT8 = np.dtype(np.int8)
_CENTRED = ("bmm",)  # operators whose operands have no zero point
_PER_TENSOR = ("linear", "mm", "addmm")


@dataclass
class Case:
    """An operator on integers, its inputs, and what the op table says of them."""

    graph: Graph
    inputs: list[Array]
    wanted: Array
    name: str
    known: Array  # where the result is a number

    @property
    def op(self) -> Op:
        return self.graph.ops[0]


def parameters(arrays: list[Array], fixed: Range | None = None, centred: bool = False) -> QParams:
    """Per tensor, from the values themselves (or from a range that is known)."""
    finite = np.concatenate([np.asarray(a, np.float64)[np.isfinite(a)].ravel() for a in arrays])
    low, high = min(0.0, finite.min(initial=0)), max(0.0, finite.max(initial=0))
    if fixed is not None:
        low, high = fixed.lo, fixed.hi
    if centred:
        return QParams(max(-low, high, 2.0**-10) / 127, 0, INT8, -127, 127)
    scale = max(high - low, 2.0**-10) / 255
    return QParams(float(scale), int(np.clip(round(-128 - low / scale), -128, 127)), INT8, -128, 127)


def store(data: Array, q: QParams) -> Array:
    with np.errstate(all="ignore"):
        steps = np.nan_to_num(np.round(np.asarray(data, np.float64) / q.scale), posinf=2**31, neginf=-(2**31))
    return np.asarray(np.clip(steps + q.zero_point, q.qmin, q.qmax), INT8)


def load(stored: Array, q: QParams) -> Array:
    return np.asarray((stored.astype(np.float64) - q.zero_point) * q.scale, np.float32)


def weights(data: Array, axis: int | None) -> tuple[Value, Array]:
    """Symmetric, with a scale for each output channel or one for all; and the real numbers it stands for."""
    moved = data if axis is None else np.moveaxis(data, axis, 0)
    rows = moved.reshape(1 if axis is None else len(moved), -1)
    scales = np.maximum(np.abs(rows).max(axis=1), 2.0**-10) / 127
    shape = [1] * data.ndim
    if axis is not None:
        shape[axis] = -1
    stored = np.clip(np.round(data / scales.reshape(shape)), -127, 127).astype(np.int8)
    scale: Any = float(scales[0]) if axis is None else tuple(scales.tolist())
    q = QParams(scale, 0 if axis is None else (0,) * scales.size, INT8, -127, 127, axis=axis)
    made = Value("weight", INT8, data.shape, tuple(range(data.ndim)), stored, q=q)
    return made, (stored * scales.reshape(shape)).astype(np.float32)


class Maker:
    """Makes a call of the op table into a case."""

    def __init__(self, call: Call) -> None:
        row = call.row()
        assert row is not None
        self.call, self.row = call, row
        self.ports = {**row.ports, **BACKEND.rows[row.name].ports}
        self.inputs: list[tuple[Value, Array]] = []
        self.real: dict[str, Any] = {}
        self.tied: QParams | None = None

    def run(self) -> Case | None:
        if isinstance(self.ports.get("out"), Same | Tied):  # one range for operands and result, as calibration finds it
            given = [a for v in self.call.args.values() for a in (v if isinstance(v, list) else [v])]
            made = [np.asarray(r, np.float32) for r in self.row.call(self.call.args)[:1]]
            self.tied = parameters([*made, *(a for a in given if isinstance(a, np.ndarray))])
        args = {name: self._argument(name, given) for name, given in self.call.args.items()}
        if self.row.name.startswith("conv"):
            args.setdefault("transposed", self.row.name.startswith("conv_transpose"))
            args.setdefault("output_padding", [0] * int(self.row.name[-2]))
        with np.errstate(all="ignore"):
            results = [np.asarray(r) for r in self.row.call(self.real)]
        made = results[0].astype(np.float32)
        if not self.inputs:
            return None
        out = Value("out", INT8, made.shape, tuple(range(made.ndim)), q=self._result(args, made))
        assert out.q is not None
        graph = Graph("case", [v for v, _ in self.inputs], [out], [Op(self.row.name, args, [out])])
        return Case(graph, [a for _, a in self.inputs], store(made, out.q), str(self.call.sample), ~np.isnan(made))

    def _argument(self, name: str, given: Any) -> Any:
        port = self.ports.get(name)
        if isinstance(given, list) and given and all(isinstance(g, np.ndarray) for g in given):
            q = self.tied or parameters(given)
            pairs = [self._input(g, q) for g in given]
            self.real[name] = [r for _, r in pairs]
            return [v for v, _ in pairs]
        if isinstance(given, np.ndarray) and isinstance(port, Weight):
            value, self.real[name] = weights(given, None if self.row.name in _PER_TENSOR else port.axis)
            return value
        if isinstance(given, np.ndarray) and isinstance(port, Act | Same | Tied | Range):
            q = self.tied or parameters([given], centred=self.row.name in _CENTRED)
            value, self.real[name] = self._input(given, q)
            return value
        self.real[name] = given
        if isinstance(given, np.ndarray):
            data = given if isinstance(port, Bias) or name == "weight" else None
            return Value(name, given.dtype, given.shape, tuple(range(given.ndim)), data)
        return given

    def _input(self, data: Array, q: QParams) -> tuple[Value, Array]:
        value = Value(f"x{len(self.inputs)}", INT8, data.shape, tuple(range(data.ndim)), q=q)
        stored = store(np.array(data, order="C"), q)
        self.inputs.append((value, stored))
        return value, load(stored, q)

    def _result(self, args: dict[str, Any], made: Array) -> QParams | None:
        port = self.ports.get("out")
        if isinstance(port, Same | Tied):
            source = args[port.port]
            held: QParams | None = (source[0] if isinstance(source, list) else source).q
            return held
        return parameters([made], port if isinstance(port, Range) else None)


def cases(op: str) -> Iterator[Case]:
    """The op table's own calls of an operator that are of single precision and not empty, quantized."""
    for overload in OPS[op].aten:
        for call in calls_of(OPS[op], overload):
            arrays = [
                a for v in call.args.values() for a in (v if isinstance(v, list) else [v]) if isinstance(a, np.ndarray)
            ]
            if arrays and all(a.size and a.dtype == np.float32 for a in arrays):
                made = Maker(call).run()
                if made is not None:
                    yield made


@dataclass
class Outcome:
    """What became of a case. ``steps``: how far from the operator's own result, in its last place."""

    refusals: list[str]
    steps: int = 0
    differences: int = 0


def check(case: Case) -> Outcome:
    """Refused by a rule, or run here and by LiteRT."""
    why = [str(r) for r in BACKEND.refusals(case.op)]
    if why:
        return Outcome(why)
    device = to_tflite(
        Graph("copy", list(case.graph.inputs), list(case.graph.outputs), list(case.graph.ops)), BACKEND.rows
    )
    twin = execute(device, case.inputs)[0]
    # The reference kernel of LiteRT 2.3 gives -1 for sums of bytes, whatever they are.
    wanted = run(write_tflite(device), case.inputs, reference=case.op.kind != "sum")[0]
    steps = np.abs(twin.astype(np.int64) - case.wanted.astype(np.int64)) * case.known
    return Outcome([], int(steps.max(initial=0)), int((twin != wanted).sum()))
