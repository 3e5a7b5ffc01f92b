"""Folds batch norms into the preceding layers where torchao does not: before training with block-wise weights, in
decomposed programs, behind another folded norm, and behind layers that are not trained in a model that is."""

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
LAYERS = (*CONVOLUTIONS, *TRANSPOSED, aten.linear.default)  # layers into which torchao folds norms
_NORM, _DECOMPOSED_NORM = aten.batch_norm.default, aten._native_batch_norm_legit_no_training.default
NORMS = (_NORM, _DECOMPOSED_NORM)
_EPSILON: dict[Any, int] = {_NORM: 7, _DECOMPOSED_NORM: 6}  # its index among the arguments
_TRAINING = 5  # index of the argument of _NORM


def has_statistics(norm: fx.Node) -> bool:
    """False for a batch norm without running statistics."""
    return all(node is not None for node in norm.args[3:5])


def is_training(norm: fx.Node) -> bool:
    """True for a batch norm that normalizes with batch statistics, as in training."""
    return norm.target is _NORM and bool(norm.args[_TRAINING])


def fold_norms(module: fx.GraphModule, convolutions: Container[str]) -> fx.GraphModule:
    """Fold the batch norms that are the only readers of these nodes, with their running statistics."""

    def is_selected(norm: fx.Node, layer: fx.Node) -> bool:
        return norm.target is _NORM and layer.target in CONVOLUTIONS and layer.name in convolutions

    return _fold_all(module, is_selected)


def foldable_norms(module: fx.GraphModule) -> list[fx.Node]:
    """The frozen batch norms that are the only readers of a layer whose weights are not shared."""
    candidates = [(norm, norm.args[0]) for norm in module.graph.nodes if norm.target in NORMS]
    return [
        n
        for n, layer in candidates
        if isinstance(layer, fx.Node) and _follows_layer(n, layer) and _is_foldable(layer, n)
    ]


def fold_frozen_norms(module: fx.GraphModule, trained: Collection[fx.Node] = ()) -> fx.GraphModule:
    """Fold frozen batch norms, any number in a row, into the layers of which they are the only readers.
    ``trained``: norms that torchao fuses for training, and folds afterwards."""
    return _fold_all(module, lambda norm, layer: norm not in trained and _follows_layer(norm, layer))


def _follows_layer(norm: fx.Node, layer: fx.Node) -> bool:
    """True if a frozen norm follows a layer whose output channels are the norm's."""
    matches = layer.target is not aten.linear.default or layer.meta["val"].dim() == 2
    frozen = has_statistics(norm) and not is_training(norm)
    return frozen and layer.target in (*LAYERS, aten.convolution.default) and matches


def _fold_all(module: fx.GraphModule, is_selected: Callable[[fx.Node, fx.Node], bool]) -> fx.GraphModule:
    folded = False
    for norm in [node for node in module.graph.nodes if node.target in NORMS]:
        layer = norm.args[0]  # read in the loop: folding the first of two norms makes the second follow the layer
        if isinstance(layer, fx.Node) and is_selected(norm, layer) and _is_foldable(layer, norm):
            folded |= _fold(module, layer, norm)
    if folded:
        module.graph.eliminate_dead_code()
        module.graph.lint()
        module.recompile()
    return module


def _is_foldable(layer: fx.Node, norm: fx.Node) -> bool:
    """True if the layer and its weight have no other readers, and the weight's channels are those of the batch norm."""
    weight: Any = layer.args[1]
    is_only_reader = (
        isinstance(weight, fx.Node) and weight.op == "get_attr" and len(weight.users) == 1 == len(layer.users)
    )
    grouped = _is_transposed(layer) and groups_of(layer) != 1
    return is_only_reader and not grouped and _result(norm) is not None


def _is_transposed(layer: fx.Node) -> bool:
    return layer.target in TRANSPOSED or (layer.target is aten.convolution.default and bool(layer.args[6]))


def groups_of(layer: fx.Node) -> Any:
    """The number of groups of a transposed convolution."""
    index = 8 if layer.target is aten.convolution.default else 6
    return [*layer.args[index:], layer.kwargs.get("groups", 1)][0]


def _result(norm: fx.Node) -> fx.Node | None:
    """The node of a batch norm's result; None if its statistics are used as well."""
    if norm.target is not _DECOMPOSED_NORM:
        return norm
    items = [user for user in norm.users if user.target is operator.getitem and user.args[1] == 0]
    return items[0] if len(items) == 1 == len(norm.users) else None


def _fold(module: fx.GraphModule, layer: fx.Node, norm: fx.Node) -> bool:
    """False if the batch norm has no running statistics, or a parameter of either is computed."""
    args: list[Any] = [*layer.args, None][: max(3, len(layer.args))]
    gain, shift, mean, variance = norm.args[1:5]
    nodes = (args[1], args[2], mean, variance, gain, shift)
    weight, bias, *tensors = (_get_tensor(module, n) for n in nodes)
    computed = any(n is not None and t is None for n, t in zip(nodes, (weight, bias, *tensors), strict=True))
    if computed or mean is None or variance is None:
        return False
    arguments = (weight, bias, *tensors[:2], norm.args[_EPSILON[norm.target]], *tensors[2:])
    with module.graph.inserting_before(layer):
        for position, (part, tensor) in enumerate(
            zip(("weight", "bias"), _folded_weights(layer, arguments), strict=True), 1
        ):
            name = f"{layer.name}_folded_{part}"
            module.register_parameter(name, nn.Parameter(tensor.detach().clone()))
            args[position] = module.graph.get_attr(name)
            args[position].meta = {"val": _fake_tensor(layer, tensor)}
    layer.args = tuple(args)
    result: Any = _result(norm)
    result.replace_all_uses_with(layer)
    for node in dict.fromkeys((result, norm)):
        module.graph.erase_node(node)
    return True


def _folded_weights(layer: fx.Node, arguments: tuple[Any, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    if layer.target is aten.linear.default:
        return fuse_linear_bn_weights(*arguments)
    return fuse_conv_bn_weights(*(*arguments, _is_transposed(layer)))


def _get_tensor(module: fx.GraphModule, node: Any) -> torch.Tensor | None:
    if not isinstance(node, fx.Node) or node.op != "get_attr":
        return None
    attribute: Any = module
    for part in str(node.target).split("."):
        attribute = getattr(attribute, part)
    return attribute if isinstance(attribute, torch.Tensor) else None


def _fake_tensor(layer: fx.Node, tensor: torch.Tensor) -> Any:
    """The fake tensor of a real one, as other nodes have it."""
    return layer.meta["val"].fake_mode.from_tensor(tensor.detach(), static_shapes=True)
