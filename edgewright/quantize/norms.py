"""Batch norms become part of the convolutions before them, ahead of training: torchao does it afterwards, for weights
with one scale or one for each channel only."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import torch
from torch import fx, nn
from torch.nn.utils.fusion import fuse_conv_bn_weights

aten = torch.ops.aten
_CONVOLUTIONS = (aten.conv1d.default, aten.conv2d.default, aten.conv3d.default)


def fold_norms(module: fx.GraphModule, convolutions: Container[str]) -> fx.GraphModule:
    """Fold the batch norms that alone read one of these nodes, with their running statistics."""
    for norm in list(module.graph.nodes):
        conv = norm.args[0] if norm.target is aten.batch_norm.default else None
        if not isinstance(conv, fx.Node) or conv.target not in _CONVOLUTIONS or conv.name not in convolutions:
            continue
        if len(conv.users) == 1 and _is_alone(conv.args[1]):
            _fold(module, conv, norm)
    module.graph.eliminate_dead_code()
    module.graph.lint()
    module.recompile()
    return module


def _is_alone(weight: Any) -> bool:
    return isinstance(weight, fx.Node) and weight.op == "get_attr" and len(weight.users) == 1


def _fold(module: fx.GraphModule, conv: fx.Node, norm: fx.Node) -> None:
    args: list[Any] = [*conv.args, None][: max(3, len(conv.args))]
    weight, bias, (gain, shift, mean, variance) = args[1], args[2], norm.args[1:5]
    tensors = [_tensor(module, n) for n in (weight, bias, mean, variance)]
    if any(t is None for t in (tensors[0], *tensors[2:])):
        return  # without statistics of its own
    given = (*tensors, norm.args[7], _tensor(module, gain), _tensor(module, shift))
    made = fuse_conv_bn_weights(*given)  # type: ignore[arg-type]
    with module.graph.inserting_before(conv):
        for place, (part, tensor) in enumerate(zip(("weight", "bias"), made, strict=True), 1):
            name = f"{conv.name}_folded_{part}"
            module.register_parameter(name, nn.Parameter(tensor.detach().clone()))
            args[place] = module.graph.get_attr(name)
            args[place].meta = {"val": _like(conv, tensor)}
    conv.args = tuple(args)
    norm.replace_all_uses_with(conv)
    module.graph.erase_node(norm)


def _tensor(module: fx.GraphModule, node: Any) -> torch.Tensor | None:
    if not isinstance(node, fx.Node) or node.op != "get_attr":
        return None
    found: Any = module
    for part in str(node.target).split("."):
        found = getattr(found, part)
    return found if isinstance(found, torch.Tensor) else None


def _like(conv: fx.Node, tensor: torch.Tensor) -> Any:
    """As the other nodes' values are held: without data."""
    return conv.meta["val"].fake_mode.from_tensor(tensor.detach(), static_shapes=True)
