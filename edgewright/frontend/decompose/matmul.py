"""Recognizes linear layers: a product with a transposed stored matrix."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from edgewright.frontend.decompose.canonical import rule
from edgewright.frontend.rewriter import Rewriter

aten = torch.ops.aten
_TRANSPOSE_ARGS: dict[str, tuple[Any, ...]] = {
    "aten.t.default": ((),), "aten.transpose.int": ((0, 1), (1, 0), (-1, -2), (-2, -1)),
    "aten.permute.default": (([1, 0],),),
}  # fmt: skip
_WEIGHT_NODES = ("get_attr", "placeholder")


def transposed_weight(matrix: Any, node_kinds: tuple[str, ...] = _WEIGHT_NODES) -> fx.Node | None:
    """The stored matrix of which ``matrix`` is the transpose, or None."""
    if not isinstance(matrix, fx.Node) or matrix.op != "call_function" or matrix.meta["val"].dim() != 2:
        return None
    source, accepted = matrix.args[0], _TRANSPOSE_ARGS.get(str(matrix.target).replace("_copy", ""), ())
    is_stored = isinstance(source, fx.Node) and source.op in node_kinds
    return source if is_stored and matrix.args[1:] in accepted else None  # type: ignore[return-value]


@rule(aten.addmm.default)
def addmm(rw: Rewriter, bias: fx.Node, x: fx.Node, matrix: fx.Node, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """Recover a linear layer from a program that was already decomposed."""
    weight = transposed_weight(matrix)
    fits = bias.meta["val"].shape == matrix.meta["val"].shape[1:]
    if weight is None or not fits or (beta, alpha) != (1, 1) or not rw.is_supported(aten.linear.default):
        return NotImplemented
    return rw.call(aten.linear.default, x, weight, bias)
