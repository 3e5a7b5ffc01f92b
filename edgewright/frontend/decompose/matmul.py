"""Rules for products: a matrix that is turned before it is multiplied with is the weight of a linear layer."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from edgewright.frontend.decompose.canonical import rule
from edgewright.frontend.rewriter import Rewriter

aten = torch.ops.aten
_SWAPS: dict[str, tuple[Any, ...]] = {
    "aten.t.default": ((),), "aten.transpose.int": ((0, 1), (1, 0), (-1, -2), (-2, -1)),
    "aten.permute.default": (([1, 0],),),
}  # fmt: skip
_STORED = ("get_attr", "placeholder")


def turned(matrix: Any, stored: tuple[str, ...] = _STORED) -> fx.Node | None:
    """The stored matrix that another is, with its dimensions exchanged."""
    if not isinstance(matrix, fx.Node) or matrix.op != "call_function" or matrix.meta["val"].dim() != 2:
        return None
    source, swaps = matrix.args[0], _SWAPS.get(str(matrix.target).replace("_copy", ""), ())
    found = isinstance(source, fx.Node) and source.op in stored
    return source if found and matrix.args[1:] in swaps else None  # type: ignore[return-value]


@rule(aten.addmm.default)
def addmm(rw: Rewriter, bias: fx.Node, x: fx.Node, matrix: fx.Node, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """What programs that were decomposed before have for a linear layer."""
    weight = turned(matrix)
    fits = bias.meta["val"].shape == matrix.meta["val"].shape[1:]
    if weight is None or not fits or (beta, alpha) != (1, 1) or not rw.takes(aten.linear.default):
        return NotImplemented
    return rw.call(aten.linear.default, x, weight, bias)
