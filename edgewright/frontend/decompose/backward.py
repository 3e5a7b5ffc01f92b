"""Rules for gradients that torch leaves to kernels of its own: no device has them."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import fx

from edgewright.frontend.decompose.canonical import dtype_of, rule
from edgewright.frontend.rewriter import Rewriter

aten = torch.ops.aten


@rule(aten._scaled_dot_product_flash_attention_for_cpu_backward.default)
def attention_backward(
    rw: Rewriter, grad: fx.Node, query: fx.Node, key: fx.Node, value: fx.Node, out: fx.Node, logsumexp: fx.Node,
    dropout_p: float, is_causal: bool, *, attn_mask: Any = None, scale: float | None = None,
) -> Any:  # fmt: skip
    """The gradients of softmax(q k' * scale + mask) v, with the softmax computed again."""
    features = query.meta["val"].shape[-1]
    if dropout_p or not isinstance(features, int):
        return NotImplemented
    by = 1 / math.sqrt(features) if scale is None else scale
    scores = _product(rw, rw.call(aten.mul.Scalar, query, by), _turned(rw, key))
    if is_causal:
        scores = _causal(rw, scores)
    elif attn_mask is not None:
        scores = rw.call(aten.add.Tensor, scores, attn_mask)
    share = rw.call(aten._softmax.default, scores, -1, False)
    to_share = _product(rw, grad, _turned(rw, value))
    mean = rw.call(aten.sum.dim_IntList, rw.call(aten.mul.Tensor, to_share, share), [-1], True)
    to_scores = rw.call(aten.mul.Tensor, share, rw.call(aten.sub.Tensor, to_share, mean))
    scaled = rw.call(aten.mul.Scalar, to_scores, by)
    return [
        _product(rw, scaled, key),
        _product(rw, _turned(rw, scaled), query),
        _product(rw, _turned(rw, share), grad),
    ]


def _product(rw: Rewriter, a: fx.Node, b: fx.Node) -> fx.Node:
    made: fx.Node = rw.call(aten.matmul.default, a, b)
    return made


def _turned(rw: Rewriter, x: fx.Node) -> fx.Node:
    made: fx.Node = rw.call(aten.transpose.int, x, -2, -1)
    return made


def _causal(rw: Rewriter, scores: fx.Node) -> fx.Node:
    """Scores with what comes later masked out."""
    rows, columns = rw.size(scores, -2), rw.size(scores, -1)
    ones = rw.call(aten.full.default, [rows, columns], True, dtype=torch.bool)
    seen = rw.call(aten.tril.default, ones)
    never = rw.scalar(-math.inf, dtype_of(scores), scores)
    made: fx.Node = rw.call(aten.where.self, seen, scores, never)
    return made
