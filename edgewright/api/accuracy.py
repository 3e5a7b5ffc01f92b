"""Accuracy of a compiled model against the original, per output: a large output would hide errors of a small one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import fx

from edgewright.api.deviation import flips
from edgewright.api.quantized_graph import operator_name
from edgewright.ir.aten.ops import OPS
from edgewright.ir.dtypes import is_floating
from edgewright.quantize.evaluate import Sqnr

# Of exported programs, before decomposition: some have no row in the op table.
_INDEX_OPERATORS = {"argmax", "argmin", "argsort", "topk", "sort", "max", "min", "nonzero", "multinomial"}


@dataclass(frozen=True)
class Accuracy:
    """``sqnr``: of the worst output, in decibels; None if all outputs are discrete. ``outputs``: of each output.
    ``agreement``: the fraction of equal elements of the worst discrete output (indices and bools, whose differences
    are meaningless). ``nonfinite``: how many elements, of how many, are infinite or NaN on one side and differ on the
    other."""

    sqnr: float | None = None
    outputs: tuple[float | None, ...] = ()
    agreement: float | None = None
    nonfinite: tuple[int, int] = (0, 0)


class AccuracyMeter:
    """Accumulates accuracy over calls. ``nodes``: the model's outputs in its graph, for ``add``.

    Meters of chunks of calls are merged in the order of the data, so that the figures do not depend on who measured
    which chunk."""

    def __init__(self, nodes: Sequence[Any] = ()) -> None:
        self.calls = 0
        self._nodes = nodes
        self._meters: dict[int, Sqnr] = {}
        self._equal: dict[int, list[float]] = {}
        self._count = 0

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_nodes": ()}  # nodes belong to a graph; a merged meter does not need them

    def add(self, expected: Sequence[Any], actual: Sequence[Any]) -> None:
        """Add the results of the model and of the compiled program for one call."""
        self.calls += 1
        self._count = len(expected)
        for i, (e, a) in enumerate(zip(expected, actual, strict=True)):
            kind = np.asarray(e).dtype
            if is_choice(self._nodes[i], kind):
                self._equal.setdefault(i, []).append(1.0 - flips(e, a))
            elif kind.kind in "fiu" or is_floating(kind):
                self._meters.setdefault(i, Sqnr()).add(e, a)

    def merge(self, other: AccuracyMeter) -> None:
        """Add the calls of another meter after those of this one."""
        self.calls += other.calls
        self._count = max(self._count, other._count)
        for i, meter in other._meters.items():
            self._meters.setdefault(i, Sqnr()).merge(meter)
        for i, equal in other._equal.items():
            self._equal.setdefault(i, []).extend(equal)

    def result(self) -> Accuracy:
        per_output = tuple(self._meters[i].decibels if i in self._meters else None for i in range(self._count))
        measured = [d for d in per_output if d is not None]
        agreements = [sum(s) / len(s) for s in self._equal.values()]
        meters = self._meters.values()
        nonfinite = (sum(m.mismatched for m in meters), sum(m.elements for m in meters))
        return Accuracy(min(measured, default=None), per_output, min(agreements, default=None), nonfinite)


def accuracy(nodes: Sequence[Any], pairs: Iterable[tuple[Sequence[Any], Sequence[Any]]]) -> Accuracy:
    """The accuracy over several calls: each pair is the results of the model and of the compiled program."""
    meter = AccuracyMeter(nodes)
    for expected, actual in pairs:
        meter.add(expected, actual)
    return meter.result()


def is_choice(node: Any, kind: Any) -> bool:
    """True for outputs that are indices or bools."""
    if kind.kind == "b":
        return True
    while kind.kind in "iu" and isinstance(node, fx.Node) and node.op == "call_function":
        name = operator_name(node) if "." in str(node.target) else getattr(node.target, "__name__", "")
        if name in _INDEX_OPERATORS:
            return True
        node = node.args[0] if (OPS.passes_on(node.target) or name == "getitem") and node.args else None
    return False
