"""Calls of the op table quantized as a backend's ports say: how every backend's rows get integers to compute with.

Operands that ports tie to each other (or to the result) share one range, as calibration would find it; weights are
symmetric; what is no quantity stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from edgewright.ir.aten.ops import OPS
from edgewright.ir.graph import Array, Graph, Op, QParams, Value
from edgewright.ir.ports import Act, Index, Port, Range, Same, Tied, Weight
from tests.ir.aten.overload_calls import Call, calls_of
from tests.support.rows import moderate

INT8 = np.dtype(np.int8)
_OTHERS = {"float64", "float16", "bfloat16", "complex64", "complex128", "uint8", "uint16", "uint32", "uint64"}
_SMALLEST = 2.0**-10  # a range that is wide enough to be one


def _as_declared(op: str, args: Mapping[str, Any], axis: int) -> int | None:
    return axis


def one_for_transposed_groups(op: str, args: Mapping[str, Any], axis: int) -> int | None:
    """Weights of transposed convolutions of groups have one scale."""
    return None if op.startswith("conv_transpose") and args.get("groups", 1) > 1 else axis


def _never(op: str) -> bool:
    return False


@dataclass(frozen=True)
class Scheme:
    """How a backend stores real numbers."""

    dtype: np.dtype[Any] | None = INT8  # None: as they are
    centred: Callable[[str], bool] = _never  # operators whose operands have no zero point
    axis: Callable[[str, Mapping[str, Any], int], int | None] = _as_declared  # of weights' scales; None: one for all
    narrow: bool = False  # places of 64 bits become 32, behind the cast that makes them so
    moderate: bool = False  # no sample of numbers that 16 bits cannot tell apart
    saturates: bool = True  # an infinite result is the last integer


@dataclass
class Case:
    """An operator, its inputs, and what the op table says of them."""

    graph: Graph
    inputs: list[Array]
    wanted: Array  # stored integers (or what is not quantized)
    name: str
    known: Array  # where the result is a number

    @property
    def op(self) -> Op:
        return self.graph.ops[0]

    def off(self, made: Array) -> float:
        """How far a result is from the operator's own, where that is a number."""
        return apart(made.reshape(self.wanted.shape)[self.known], self.wanted[self.known])

    def copy(self) -> Graph:
        """The graph, for a lowering to change."""
        graph = self.graph
        return Graph(graph.name, list(graph.inputs), list(graph.outputs), list(graph.ops))


def apart(made: Array, wanted: Array) -> float:
    """The largest difference: of integers in steps, of real numbers in parts of the largest."""
    assert made.dtype == wanted.dtype
    if wanted.dtype.kind != "f":
        return float(np.abs(made.astype(np.int64) - wanted.astype(np.int64)).max(initial=0))
    largest = max(float(np.abs(wanted).max(initial=0)), 1e-3)
    return float((np.abs(made.astype(np.float64) - wanted) / largest).max(initial=0))


def parameters(arrays: list[Array], dtype: np.dtype[Any], fixed: Range | None = None, centred: bool = False) -> QParams:
    """Per tensor, from the values themselves (or from a range that is known)."""
    finite = np.concatenate([np.asarray(a, np.float64)[np.isfinite(a)].ravel() for a in arrays])
    low = min(0.0, float(finite.min(initial=0))) if fixed is None else float(fixed.lo)
    high = max(0.0, float(finite.max(initial=0))) if fixed is None else float(fixed.hi)
    first, last = np.iinfo(dtype).min, np.iinfo(dtype).max
    if centred or dtype == np.int16:
        return QParams(max(-low, high, _SMALLEST) / last, 0, dtype, -last, last)
    scale = max(high - low, _SMALLEST) / (last - first)
    return QParams(scale, int(np.clip(round(first - low / scale), first, last)), dtype, first, last)


def store(data: Array, q: QParams | None) -> Array:
    if q is None:
        return data
    with np.errstate(all="ignore"):
        steps = np.nan_to_num(np.round(np.asarray(data, np.float64) / q.scale), posinf=2**31, neginf=-(2**31))
    return np.asarray(np.clip(steps + q.zero_point, q.qmin, q.qmax), q.dtype)


def load(stored: Array, q: QParams | None) -> Array:
    if q is None:
        return stored
    return np.asarray((stored.astype(np.float64) - q.zero_point) * q.scale, np.float32)


def value(name: str, data: Array, q: QParams | None = None, *, held: bool = False) -> Value:
    """A value of an array's type and shape; ``held``: a constant."""
    return Value(name, data.dtype, data.shape, tuple(range(data.ndim)), data if held else None, q=q)


def weights(data: Array, axis: int | None) -> tuple[Value, Array]:
    """Symmetric, with a scale for each output channel or one for all; and the real numbers they stand for."""
    moved = data if axis is None else np.moveaxis(data, axis, 0)
    rows = moved.reshape(1 if axis is None else len(moved), -1)
    scales = np.maximum(np.abs(rows).max(axis=1), _SMALLEST) / 127
    shape = [1] * data.ndim
    if axis is not None:
        shape[axis] = -1
    stored = np.clip(np.round(data / scales.reshape(shape)), -127, 127).astype(np.int8)
    scale: Any = float(scales[0]) if axis is None else tuple(scales.tolist())
    q = QParams(scale, 0 if axis is None else (0,) * scales.size, INT8, -127, 127, axis=axis)
    return value("weight", stored, q, held=True), (stored * scales.reshape(shape)).astype(np.float32)


def arrays_of(given: Any) -> list[Array]:
    """The arrays of an argument: itself, or those of a list."""
    return [a for a in (given if isinstance(given, list) else [given]) if isinstance(a, np.ndarray)]


class Maker:
    """Makes a call of the op table into a case. ``ports``: the backend's own, beside the table's."""

    def __init__(self, call: Call, scheme: Scheme, ports: Mapping[str, Port]) -> None:
        row = call.row()
        assert row is not None
        self.call, self.scheme, self.row = call, scheme, row
        self.ports = {**row.ports, **ports}
        self.inputs: list[tuple[Value, Array]] = []
        self.real: dict[str, Any] = {}
        self.shared: dict[str, QParams | None] = {}

    def run(self) -> Case | None:
        """None if nothing of the call is computed at run time."""
        args = {name: self._argument(name, given) for name, given in self.call.args.items()}
        if self.row.name.startswith("conv"):
            args.setdefault("transposed", self.row.name.startswith("conv_transpose"))
            args.setdefault("output_padding", [0] * int(self.row.name[-2]))
        results = self._results(self.real)
        if not self.inputs or not results:
            return None
        made, q = results[0], self._parameters("out", results[0])
        stored = store(made, q)
        out = value("out", stored, q)
        graph = Graph("case", [v for v, _ in self.inputs], [out], [Op(self.row.name, args, [out])])
        return Case(graph, [a for _, a in self.inputs], stored, str(self.call.sample), self._known(made))

    def _known(self, made: Array) -> Array:
        if made.dtype != np.float32:
            return np.ones(made.shape, np.bool_)
        return ~np.isnan(made) if self.scheme.saturates else np.isfinite(made)

    def _results(self, args: dict[str, Any]) -> list[Array]:
        """What the operator gives: real numbers in single precision, places as the backend has them."""
        with np.errstate(all="ignore"):
            made = [np.asarray(r) for r in self.row.call(args)]
        made = [m.astype(np.float32) if m.dtype == np.float64 else m for m in made]
        return [self._narrowed(m) for m in made] if isinstance(self.ports.get("out"), Index) else made

    def _narrowed(self, data: Any) -> Any:
        wide = isinstance(data, np.ndarray) and data.dtype == np.int64
        return data.astype(np.int32) if wide and self.scheme.narrow else data

    def _argument(self, name: str, given: Any) -> Any:
        port = self.ports.get(name)
        if not arrays_of(given):
            self.real[name] = given
            return given
        if isinstance(port, Index):
            given = [self._narrowed(g) for g in given] if isinstance(given, list) else self._narrowed(given)
        if isinstance(given, list):
            pairs = [self._input(g, self._parameters(name, g)) if isinstance(g, np.ndarray) else (g, g) for g in given]
            self.real[name] = [r for _, r in pairs]
            return [v for v, _ in pairs]
        if given.dtype == np.float32 and isinstance(port, Weight) and self.scheme.dtype is not None:
            made, self.real[name] = weights(given, self.scheme.axis(self.row.name, self.call.args, port.axis))
        elif given.dtype == np.float32 and not isinstance(port, Act | Same | Tied | Range):
            made, self.real[name] = value(name, given, held=True), given
        else:
            made, self.real[name] = self._input(given, self._parameters(name, given))
        return made

    def _input(self, data: Array, q: QParams | None) -> tuple[Value, Array]:
        stored = store(np.array(data, order="C"), q)  # memory is read by ``as_strided``
        made = value(f"x{len(self.inputs)}", stored, q)
        self.inputs.append((made, stored))
        return made, load(stored, q)

    def _parameters(self, name: str, data: Array) -> QParams | None:
        """Of a quantity: its own, or those of the arguments (and the result) that its port is tied to."""
        if data.dtype != np.float32 or self.scheme.dtype is None:
            return None
        root, port = self._root(name), self.ports.get("out")
        if root == "out":
            return parameters([data], self.scheme.dtype, port if isinstance(port, Range) else None)
        if root not in self.shared:
            self.shared[root] = self._find(root, self.scheme.dtype)
        return self.shared[root]

    def _root(self, name: str) -> str:
        port = self.ports.get(name)
        return self._root(port.port) if isinstance(port, Same | Tied) else name

    def _find(self, root: str, dtype: np.dtype[Any]) -> QParams | None:
        names = [n for n in self.call.args if self._root(n) == root]
        found = [a for n in names for a in arrays_of(self.call.args[n]) if a.dtype == np.float32]
        if self._root("out") == root and found:
            found += [r for r in self._results(self.call.args)[:1] if r.dtype == np.float32]
        return parameters(found, dtype, centred=self.scheme.centred(self.row.name)) if found else None


def cases(op: str, scheme: Scheme, ports: Mapping[str, Port]) -> Iterator[Case]:
    """The op table's own calls of an operator that are of single precision and not empty, quantized."""
    for overload in OPS[op].aten:
        for call in calls_of(OPS[op], overload):
            if scheme.moderate:
                call = replace(call, args={n: moderate(v) for n, v in call.args.items()})
            found = [a for v in call.args.values() for a in arrays_of(v)]
            if found and all(a.size for a in found) and not {str(a.dtype) for a in found} & _OTHERS:
                made = Maker(call, scheme, ports).run()
                if made is not None:
                    yield made
