"""How far a compiled model's outputs are from the original's: each output by itself, for a large one hides a small."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import fx

from edgewright.api.deviation import flips
from edgewright.api.quantized_graph import MOVES, operator_name
from edgewright.ir.dtypes import is_floating
from edgewright.quantize.evaluate import Sqnr

_CHOICES = {"argmax", "argmin", "argsort", "topk", "sort", "max", "min", "nonzero", "multinomial"}
_PASSED = {*MOVES, "to", "_to", "getitem"}  # through which an index stays one


@dataclass(frozen=True)
class Accuracy:
    """``sqnr``: of the output that is furthest from the original's, in decibels; None if no output is a quantity.
    ``outputs``: of each. ``agreement``: the share of equal elements among outputs that choose (indices and truth
    values, of which a difference says nothing), the least of them. ``nonfinite``: how many of so many elements are
    infinite or NaN on one side, and not the same on the other."""

    sqnr: float | None = None
    outputs: tuple[float | None, ...] = ()
    agreement: float | None = None
    nonfinite: tuple[int, int] = (0, 0)


def accuracy(nodes: Sequence[Any], pairs: Iterable[tuple[Sequence[Any], Sequence[Any]]]) -> Accuracy:
    """Of the results of several calls: each pair is what the model gives, and what was compiled. ``nodes``: what the
    model's outputs are in its graph."""
    meters: dict[int, Sqnr] = {}
    equal: dict[int, list[float]] = {}
    count = 0
    for expected, actual in pairs:
        count = len(expected)
        for i, (e, a) in enumerate(zip(expected, actual, strict=True)):
            kind = np.asarray(e).dtype
            if is_choice(nodes[i], kind):
                equal.setdefault(i, []).append(1.0 - flips(e, a))
            elif kind.kind in "fiu" or is_floating(kind):
                meters.setdefault(i, Sqnr()).add(e, a)
    each = tuple(meters[i].decibels if i in meters else None for i in range(count))
    known = [d for d in each if d is not None]
    shares = [sum(s) / len(s) for s in equal.values()]
    nonfinite = (sum(m.mismatched for m in meters.values()), sum(m.elements for m in meters.values()))
    return Accuracy(min(known, default=None), each, min(shares, default=None), nonfinite)


def is_choice(node: Any, kind: Any) -> bool:
    """True for outputs that are indices or truth values."""
    if kind.kind == "b":
        return True
    while kind.kind in "iu" and isinstance(node, fx.Node) and node.op == "call_function":
        name = operator_name(node) if "." in str(node.target) else getattr(node.target, "__name__", "")
        if name in _CHOICES:
            return True
        node = node.args[0] if name in _PASSED and node.args else None
    return False
