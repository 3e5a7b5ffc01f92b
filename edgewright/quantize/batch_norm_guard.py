"""Prevents torchao's ``prepare_pt2e`` from folding batch norms where that changes the model's results."""

# torchao folds every batch norm that follows a layer before a quantizer sees the model, and overwrites the layer's
# weight and bias. This is wrong if another node reads these tensors (tied weights), or if their channels differ from
# the norm's (grouped transposed convolution); of two consecutive norms it drops the second. Nothing after prepare_pt2e
# can detect the damage, so creating a quantizer wraps torchao's two folding functions: while they run, a norm that must
# not be folded has another call target, which torchao's pattern does not match. ``fold_batch_norm`` folds such a norm
# later, or it stays in the graph. The arithmetic is that of torch.nn.utils.fusion:
#   w' = w * gamma / sqrt(var + eps),  b' = (b - mean) * gamma / sqrt(var + eps) + beta.

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import torch
from torch import fx
from torch.nn import functional
from torchao.quantization.pt2e import qat_utils
from torchao.quantization.pt2e import quantize_pt2e as torchao

from edgewright.quantize.fold_batch_norm import LAYERS, NORMS, TRANSPOSED, groups_of, has_statistics

aten = torch.ops.aten
_TRAINED: dict[Any, Any] = {  # the kinds of convolutions that torchao trains with their norms, by what patterns call
    functional.conv1d: aten.conv1d.default,
    functional.conv2d: aten.conv2d.default,
    functional.conv_transpose1d: aten.conv_transpose1d.default,
    functional.conv_transpose2d: aten.conv_transpose2d.input,
}
_TORCHAO_FOLDS = ("_fuse_conv_bn_", "_fuse_linear_bn_")  # of torchao 0.18, the only supported release


def guard_torchao() -> None:
    """Wrap torchao's folding of batch norms, once."""
    for name in _TORCHAO_FOLDS:
        fold = getattr(torchao, name)
        if not hasattr(fold, "__wrapped__"):
            setattr(torchao, name, _guard(fold))
    _skip_absent_layers()


def _skip_absent_layers() -> None:
    """Wrap torchao's folding of trained batch norms, once: it exports 24 patterns for each of four kinds of
    convolutions, for seconds, whether the model has that kind or not."""
    search = qat_utils._fold_conv_bn_qat_helper
    if hasattr(search, "__wrapped__"):
        return

    @wraps(search)
    def search_present(module: fx.GraphModule, layer: Any, *args: Any, **kwargs: Any) -> fx.GraphModule:
        targets = {node.target for node in module.graph.nodes}
        is_present = _TRAINED.get(layer) in targets
        if layer in _TRAINED and not is_present and not targets.isdisjoint(_TRAINED.values()):
            return module  # the search for a kind that is there does the rest
        found: fx.GraphModule = search(module, layer, *args, **kwargs)
        return found

    qat_utils._fold_conv_bn_qat_helper = search_present


def _guard(fold: Callable[[fx.GraphModule], None]) -> Callable[[fx.GraphModule], None]:
    @wraps(fold)
    def fold_safely(module: fx.GraphModule) -> None:
        readers = Counter(str(node.target) for node in module.graph.nodes if node.op == "get_attr" for _ in node.users)
        hide_norms(norm for norm in norms_of(module.graph) if not _is_foldable(norm, readers))
        try:
            fold(module)
        finally:
            show_norms(module)

    return fold_safely


def _is_foldable(norm: fx.Node, readers: Counter[str]) -> bool:
    """False if torchao must not fold a batch norm: it has no running statistics or follows another norm; its layer, or
    the layer's weight or bias, has other readers; or these are computed, or have other channels than the result."""
    layer: Any = norm.args[0]
    if layer.target in NORMS or layer.target in _HIDDEN_TARGETS or not has_statistics(norm):
        return False
    if layer.target not in LAYERS:
        return True
    operands = [node for node in layer.args[1:3] if node is not None]
    is_only_reader = all(node.op == "get_attr" and readers[str(node.target)] == 1 for node in operands)
    return is_only_reader and len(layer.users) == 1 and (layer.target not in TRANSPOSED or groups_of(layer) == 1)


def norms_of(graph: fx.Graph) -> list[fx.Node]:
    """The batch norms of a graph."""
    return [node for node in graph.nodes if node.target in NORMS]


def hide_norms(norms: Iterable[fx.Node]) -> None:
    """Replace the targets of batch norms by ones that torchao does not match."""
    hidden = {norm: name for name, norm in _HIDDEN_TARGETS.items()}
    for node in list(norms):
        node.target = hidden[node.target]


def show_norms(module: fx.GraphModule) -> fx.GraphModule:
    """Restore the targets of hidden batch norms."""
    hidden = [node for node in module.graph.nodes if node.target in _HIDDEN_TARGETS]
    for node in hidden:
        node.target = _HIDDEN_TARGETS[node.target]
    if hidden:
        module.recompile()
    return module


def _norm(*args: Any) -> Any:
    return aten.batch_norm.default(*args)


def _decomposed_norm(*args: Any) -> Any:
    return aten._native_batch_norm_legit_no_training.default(*args)


_HIDDEN_TARGETS: dict[Any, Any] = {
    _norm: aten.batch_norm.default,
    _decomposed_norm: aten._native_batch_norm_legit_no_training.default,
}
