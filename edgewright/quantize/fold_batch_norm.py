"""Folds batch norms into the layers before them, where torchao does not: ahead of training for weights that have
neither one scale nor one per channel, in programs that were decomposed before, behind a layer that has a norm already,
and where a model is prepared for training and its layer is not."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Container
from typing import Any

import torch
from torch import fx, nn
from torch.nn.utils.fusion import fuse_conv_bn_weights, fuse_linear_bn_weights

aten = torch.ops.aten
TRANSPOSED = (aten.conv_transpose1d.default, aten.conv_transpose2d.input, aten.conv_transpose3d.input)
CONVOLUTIONS = tuple(
    getattr(getattr(aten, f"conv{rank}d"), name) for rank in (1, 2, 3) for name in ("default", "padding")
)
LAYERS = (*CONVOLUTIONS, *TRANSPOSED, aten.linear.default)  # that torchao folds norms into
_NORM, _DECOMPOSED_NORM = aten.batch_norm.default, aten._native_batch_norm_legit_no_training.default
NORMS = (_NORM, _DECOMPOSED_NORM)
_EPSILON: dict[Any, int] = {_NORM: 7, _DECOMPOSED_NORM: 6}  # its index among the arguments
_TRAINING = 5  # index of the argument of _NORM


def has_statistics(norm: fx.Node) -> bool:
    """False for a batch norm that only ever normalizes with the statistics of the batch."""
    return all(node is not None for node in norm.args[3:5])


def is_training(norm: fx.Node) -> bool:
    """True for a batch norm that normalizes with the statistics of the batch, as in training."""
    return norm.target is _NORM and bool(norm.args[_TRAINING])


def fold_norms(module: fx.GraphModule, convolutions: Container[str]) -> fx.GraphModule:
    """Fold the batch norms that alone read one of these nodes, with their running statistics."""

    def wanted(norm: fx.Node, product: fx.Node) -> bool:
        return norm.target is _NORM and product.target in CONVOLUTIONS and product.name in convolutions

    return _fold_all(module, wanted)


def foldable_norms(module: fx.GraphModule) -> list[fx.Node]:
    """The batch norms that are never trained and alone read a layer, with its weights to themselves."""
    found = [(norm, norm.args[0]) for norm in module.graph.nodes if norm.target in NORMS]
    return [n for n, layer in found if isinstance(layer, fx.Node) and _is_layer(n, layer) and _folds(layer, n)]


def fold_frozen_norms(module: fx.GraphModule, trained: Collection[fx.Node] = ()) -> fx.GraphModule:
    """Fold the batch norms that are never trained into the layers that they alone read: however many are behind one.
    ``trained``: norms that torchao takes in, and folds when training is over."""
    return _fold_all(module, lambda norm, layer: norm not in trained and _is_layer(norm, layer))


def _is_layer(norm: fx.Node, layer: fx.Node) -> bool:
    """True if a frozen norm follows a layer whose result has the norm's channels."""
    channels = layer.target is not aten.linear.default or layer.meta["val"].dim() == 2
    frozen = has_statistics(norm) and not is_training(norm)
    return frozen and layer.target in (*LAYERS, aten.convolution.default) and channels


def _fold_all(module: fx.GraphModule, wanted: Callable[[fx.Node, fx.Node], bool]) -> fx.GraphModule:
    folded = False
    for norm in [node for node in module.graph.nodes if node.target in NORMS]:
        layer = norm.args[0]  # read now: of two norms in a row, the second follows the layer once the first is folded
        if isinstance(layer, fx.Node) and wanted(norm, layer) and _folds(layer, norm):
            folded |= _fold(module, layer, norm)
    if folded:
        module.graph.eliminate_dead_code()
        module.graph.lint()
        module.recompile()
    return module


def _folds(product: fx.Node, norm: fx.Node) -> bool:
    """True if nobody else reads the product or its weight, and the weight's channels are those of the batch norm."""
    weight: Any = product.args[1]
    alone = isinstance(weight, fx.Node) and weight.op == "get_attr" and len(weight.users) == 1 == len(product.users)
    grouped = _is_transposed(product) and groups_of(product) != 1
    return alone and not grouped and _result(norm) is not None


def _is_transposed(product: fx.Node) -> bool:
    return product.target in TRANSPOSED or (product.target is aten.convolution.default and bool(product.args[6]))


def groups_of(product: fx.Node) -> Any:
    """The number of groups of a transposed convolution."""
    index = 8 if product.target is aten.convolution.default else 6
    return [*product.args[index:], product.kwargs.get("groups", 1)][0]


def _result(norm: fx.Node) -> fx.Node | None:
    """What a batch norm gives, if nobody reads the statistics of the batch."""
    if norm.target is not _DECOMPOSED_NORM:
        return norm
    items = [user for user in norm.users if user.target is operator.getitem and user.args[1] == 0]
    return items[0] if len(items) == 1 == len(norm.users) else None


def _fold(module: fx.GraphModule, product: fx.Node, norm: fx.Node) -> bool:
    """False if the batch norm has no statistics of its own, or a number of the two is computed."""
    args: list[Any] = [*product.args, None][: max(3, len(product.args))]
    gain, shift, mean, variance = norm.args[1:5]
    nodes = (args[1], args[2], mean, variance, gain, shift)
    weight, bias, *tensors = (_tensor(module, n) for n in nodes)
    computed = any(n is not None and t is None for n, t in zip(nodes, (weight, bias, *tensors), strict=True))
    if computed or mean is None or variance is None:
        return False
    given = (weight, bias, *tensors[:2], norm.args[_EPSILON[norm.target]], *tensors[2:])
    with module.graph.inserting_before(product):
        for place, (part, tensor) in enumerate(zip(("weight", "bias"), _folded(product, given), strict=True), 1):
            name = f"{product.name}_folded_{part}"
            module.register_parameter(name, nn.Parameter(tensor.detach().clone()))
            args[place] = module.graph.get_attr(name)
            args[place].meta = {"val": _like(product, tensor)}
    product.args = tuple(args)
    result: Any = _result(norm)
    result.replace_all_uses_with(product)
    for node in dict.fromkeys((result, norm)):
        module.graph.erase_node(node)
    return True


def _folded(product: fx.Node, given: tuple[Any, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    if product.target is aten.linear.default:
        return fuse_linear_bn_weights(*given)
    return fuse_conv_bn_weights(*(*given, _is_transposed(product)))


def _tensor(module: fx.GraphModule, node: Any) -> torch.Tensor | None:
    if not isinstance(node, fx.Node) or node.op != "get_attr":
        return None
    found: Any = module
    for part in str(node.target).split("."):
        found = getattr(found, part)
    return found if isinstance(found, torch.Tensor) else None


def _like(product: fx.Node, tensor: torch.Tensor) -> Any:
    """As the other nodes' values are held: without data."""
    return product.meta["val"].fake_mode.from_tensor(tensor.detach(), static_shapes=True)
