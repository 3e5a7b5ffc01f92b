"""Batch norms become part of the products before them, where torchao does not do it: ahead of training for weights that
have neither one scale nor one for each channel, and in programs that were decomposed before they came here."""

from __future__ import annotations

import operator
from collections.abc import Callable, Container
from typing import Any

import torch
from torch import fx, nn
from torch.nn.utils.fusion import fuse_conv_bn_weights, fuse_linear_bn_weights

aten = torch.ops.aten
_CONVOLUTIONS = (aten.conv1d.default, aten.conv2d.default, aten.conv3d.default)
_DECOMPOSED = (aten.convolution.default, aten.linear.default)
_FROZEN = aten._native_batch_norm_legit_no_training.default
_EPSILON: dict[Any, int] = {aten.batch_norm.default: 7, _FROZEN: 6}  # its place among the arguments


def fold_norms(module: fx.GraphModule, convolutions: Container[str]) -> fx.GraphModule:
    """Fold the batch norms that alone read one of these nodes, with their running statistics."""

    def wanted(norm: fx.Node, product: fx.Node) -> bool:
        found = norm.target is aten.batch_norm.default and product.target in _CONVOLUTIONS
        return found and product.name in convolutions

    return _fold_all(module, wanted)


def fold_decomposed_norms(module: fx.GraphModule) -> fx.GraphModule:
    """Fold the batch norms that alone read a convolution or linear layer and are never trained. torchao knows those
    layers by other names, and would give what lies between them a scale of its own."""

    def wanted(norm: fx.Node, product: fx.Node) -> bool:
        flat = product.target is not aten.linear.default or product.meta["val"].dim() == 2  # one number a channel
        return norm.target is _FROZEN and product.target in _DECOMPOSED and flat

    return _fold_all(module, wanted)


def _fold_all(module: fx.GraphModule, wanted: Callable[[fx.Node, fx.Node], bool]) -> fx.GraphModule:
    found = [(norm, norm.args[0]) for norm in module.graph.nodes if norm.target in _EPSILON]
    folded = [_fold(module, a, n) for n, a in found if isinstance(a, fx.Node) and wanted(n, a) and _folds(a, n)]
    if any(folded):
        module.graph.eliminate_dead_code()
        module.graph.lint()
        module.recompile()
    return module


def _folds(product: fx.Node, norm: fx.Node) -> bool:
    """True if nobody else reads the product or its weight, and the weight's channels are those of the batch norm."""
    weight: Any = product.args[1]
    alone = isinstance(weight, fx.Node) and weight.op == "get_attr" and len(weight.users) == 1 == len(product.users)
    grouped = _is_transposed(product) and product.args[8] != 1
    return alone and not grouped and _result(norm) is not None


def _is_transposed(product: fx.Node) -> bool:
    return product.target is aten.convolution.default and bool(product.args[6])


def _result(norm: fx.Node) -> fx.Node | None:
    """What a batch norm gives, if nobody reads the statistics of the batch."""
    if norm.target is not _FROZEN:
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
