"""Decompositions of gradient operators that torch implements by kernels only; no device runtime has them."""

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
    """The gradients of softmax(q k' * scale + mask) v, with the softmax recomputed."""
    features = query.meta["val"].shape[-1]
    if dropout_p or not isinstance(features, int):
        return NotImplemented
    factor = 1 / math.sqrt(features) if scale is None else scale
    scores = _matmul(rw, rw.call(aten.mul.Scalar, query, factor), _transpose(rw, key))
    if is_causal:
        scores = _apply_causal_mask(rw, scores)
    elif attn_mask is not None:
        scores = rw.call(aten.add.Tensor, scores, attn_mask)
    weights = rw.call(aten._softmax.default, scores, -1, False)
    grad_weights = _matmul(rw, grad, _transpose(rw, value))
    mean = rw.call(aten.sum.dim_IntList, rw.call(aten.mul.Tensor, grad_weights, weights), [-1], True)
    grad_scores = rw.call(aten.mul.Tensor, weights, rw.call(aten.sub.Tensor, grad_weights, mean))
    grad_products = rw.call(aten.mul.Scalar, grad_scores, factor)
    return [
        _matmul(rw, grad_products, key),
        _matmul(rw, _transpose(rw, grad_products), query),
        _matmul(rw, _transpose(rw, weights), grad),
    ]


def _matmul(rw: Rewriter, a: fx.Node, b: fx.Node) -> fx.Node:
    result: fx.Node = rw.call(aten.matmul.default, a, b)
    return result


def _transpose(rw: Rewriter, x: fx.Node) -> fx.Node:
    result: fx.Node = rw.call(aten.transpose.int, x, -2, -1)
    return result


def _apply_causal_mask(rw: Rewriter, scores: fx.Node) -> fx.Node:
    """Scores with the upper triangle masked by minus infinity."""
    rows, columns = rw.size(scores, -2), rw.size(scores, -1)
    ones = rw.call(aten.full.default, [rows, columns], True, dtype=torch.bool)
    visible = rw.call(aten.tril.default, ones)
    minus_infinity = rw.scalar(-math.inf, dtype_of(scores), scores)
    result: fx.Node = rw.call(aten.where.self, visible, scores, minus_infinity)
    return result
