"""Keeps torchao's ``prepare_pt2e`` from folding batch norms where folding changes what is computed.

torchao folds every norm behind a layer before a quantizer sees the model, and puts the result in place of the layer's
weight and bias. That is wrong where something else reads them; and of two norms in a row it drops the second. What is
lost there cannot be seen later, so torchao's two functions are wrapped as soon as a quantizer of ours exists: norms
that they must not fold have other targets while they run. Such a norm is folded afterwards by ``norms``, or stays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import torch
from torch import fx
from torchao.quantization.pt2e import quantize_pt2e as torchao

from edgewright.quantize.fold_batch_norm import LAYERS, NORMS, TRANSPOSED, groups_of, has_statistics

aten = torch.ops.aten
_FOLDS = ("_fuse_conv_bn_", "_fuse_linear_bn_")  # of torchao 0.18, the only release that we take


def guard_torchao() -> None:
    """Wrap torchao's folding of batch norms, once."""
    for name in _FOLDS:
        fold = getattr(torchao, name)
        if not hasattr(fold, "__wrapped__"):
            setattr(torchao, name, _guarded(fold))


def _guarded(fold: Callable[[fx.GraphModule], None]) -> Callable[[fx.GraphModule], None]:
    @wraps(fold)
    def fold_where_right(module: fx.GraphModule) -> None:
        readers = Counter(str(node.target) for node in module.graph.nodes if node.op == "get_attr" for _ in node.users)
        hide_norms(norm for norm in norms_of(module.graph) if not _is_foldable(norm, readers))
        try:
            fold(module)
        finally:
            show_norms(module)

    return fold_where_right


def _is_foldable(norm: fx.Node, readers: Counter[str]) -> bool:
    """False if torchao would fold a batch norm and must not: it has no statistics of its own or follows another norm;
    others read its layer, or the layer's weight or bias; these are computed, or have other channels than the result."""
    layer: Any = norm.args[0]
    if layer.target in NORMS or layer.target in _HIDDEN or not has_statistics(norm):
        return False
    if layer.target not in LAYERS:
        return True
    operands = [node for node in layer.args[1:3] if node is not None]
    alone = all(node.op == "get_attr" and readers[str(node.target)] == 1 for node in operands)
    return alone and len(layer.users) == 1 and (layer.target not in TRANSPOSED or groups_of(layer) == 1)


def norms_of(graph: fx.Graph) -> list[fx.Node]:
    """The batch norms of a graph."""
    return [node for node in graph.nodes if node.target in NORMS]


def hide_norms(norms: Iterable[fx.Node]) -> None:
    """Give batch norms targets that torchao does not know."""
    hidden = {norm: name for name, norm in _HIDDEN.items()}
    for node in list(norms):
        node.target = hidden[node.target]


def show_norms(module: fx.GraphModule) -> fx.GraphModule:
    """Give batch norms their targets back."""
    hidden = [node for node in module.graph.nodes if node.target in _HIDDEN]
    for node in hidden:
        node.target = _HIDDEN[node.target]
    if hidden:
        module.recompile()
    return module


def _norm(*args: Any) -> Any:
    return aten.batch_norm.default(*args)


def _decomposed_norm(*args: Any) -> Any:
    return aten._native_batch_norm_legit_no_training.default(*args)


_HIDDEN: dict[Any, Any] = {
    _norm: aten.batch_norm.default,
    _decomposed_norm: aten._native_batch_norm_legit_no_training.default,
}
