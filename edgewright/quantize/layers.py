"""The layers of a prepared model: convolutions and linear layers with constant weights, behind their observers."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import fx, nn

from edgewright.ir.aten.ops import OPS
from edgewright.quantize.fold_batch_norm import CONVOLUTIONS, TRANSPOSED

aten = torch.ops.aten
Activation = Callable[[torch.Tensor], torch.Tensor]
_LINEAR, _CONVOLUTION = aten.linear.default, aten.convolution.default


@dataclass(frozen=True, eq=False)
class Layer:
    """A layer. ``observer`` is of its weight; None if the layer stays in floating point."""

    module: fx.GraphModule
    node: fx.Node
    weight: fx.Node
    observer: Any
    groups: int

    @property
    def source(self) -> fx.Node:
        """The node whose result the layer reads, behind an observer or not."""
        node = self.node.args[0]
        assert isinstance(node, fx.Node)
        return node

    @property
    def bias(self) -> fx.Node | None:
        node = argument(self.node, 2)
        return skip_observer(self.module, node) if isinstance(node, fx.Node) else None

    @property
    def is_linear(self) -> bool:
        return self.node.target is _LINEAR

    @property
    def is_transposed(self) -> bool:
        return self.node.target in TRANSPOSED or (self.node.target is _CONVOLUTION and bool(self.node.args[6]))

    def axis(self, rank: int) -> int:
        """The axis of channels in activations of this rank; without a batch, convolutions have it first."""
        if self.is_linear:
            return rank - 1
        return 1 if rank == tensor_of(self.module, self.weight).dim() else 0

    def run(self, x: Any, weight: Any, bias: Any) -> Any:
        """The layer's result."""
        call: Any = self.node.target
        return call(x, weight, bias, *self.node.args[3:], **{k: v for k, v in self.node.kwargs.items() if k != "bias"})


def find_layers(module: fx.GraphModule) -> Iterator[Layer]:
    """The layers whose weights are constants that nothing else reads, and whose biases are constants or missing."""
    readers = Counter(str(n.target) for n in module.graph.nodes if n.op == "get_attr" for _ in n.users)
    for node in module.graph.nodes:
        if node.target not in (_LINEAR, _CONVOLUTION, *CONVOLUTIONS, *TRANSPOSED):
            continue
        operand, bias = argument(node, 1), argument(node, 2)
        weight = skip_observer(module, operand)
        nodes = [weight] if bias is None else [weight, skip_observer(module, bias)]
        if any(not isinstance(n, fx.Node) or n.op != "get_attr" or readers[str(n.target)] != 1 for n in nodes):
            continue
        if not all(tensor_of(module, n).dtype == torch.float32 for n in nodes) or "weight" in node.kwargs:
            continue
        observer = module.get_submodule(str(operand.target)) if operand is not weight else None
        yield Layer(module, node, weight, observer, _groups(node))


def activation_of(layer: Layer) -> Activation | None:
    """The function of single elements that alone reads a layer's result, behind an observer or not."""
    node: fx.Node = layer.node
    while len(node.users) == 1:
        (user,) = node.users
        if is_observer(layer.module, user):
            node = user
        elif _is_function(user) and user.all_input_nodes == [node] and user.args[0] is node:
            call: Any = user.target
            return partial(_call, call, user.args[1:], dict(user.kwargs))
        else:
            break
    return None


def _is_function(node: fx.Node) -> bool:
    value = node.meta.get("val")
    is_float = isinstance(value, torch.Tensor) and value.is_floating_point()
    name = operator_name(node)  # a function in place computes the same
    matching = OPS.matching(str(node.target).replace(f".{name}.", f".{name.removesuffix('_')}."))
    return is_float and any(entry.is_function for entry in matching)


def _call(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], x: torch.Tensor) -> torch.Tensor:
    result: torch.Tensor = function(x, *args, **kwargs)
    return result


def operator_name(node: fx.Node) -> str:
    """The name of an ATen operator, without overload and ``_copy`` suffix."""
    target = node.target
    is_aten = isinstance(target, torch._ops.OpOverload) and target.namespace == "aten"
    return str(target).split(".")[1].removesuffix("_copy") if is_aten else ""


def _groups(node: fx.Node) -> int:
    if node.target is _LINEAR:
        return 1
    index = 8 if node.target is _CONVOLUTION else 6
    groups: Any = node.args[index] if len(node.args) > index else node.kwargs.get("groups", 1)
    return int(groups)


def argument(node: fx.Node, index: int) -> Any:
    """An argument by its position; a bias may be passed by name."""
    if len(node.args) > index:
        return node.args[index]
    return node.kwargs.get("bias") if index == 2 else None


def skip_observer(module: fx.GraphModule, node: Any) -> Any:
    """The node that an observer observes, for an observer; else the node."""
    while isinstance(node, fx.Node) and is_observer(module, node):
        node = node.args[0]
    return node


def is_observer(module: fx.GraphModule, node: fx.Node) -> bool:
    """True for the call of an observer."""
    if node.op != "call_module" or len(node.args) != 1 or node.kwargs:
        return False
    return hasattr(module.get_submodule(str(node.target)), "calculate_qparams")


def tensor_of(module: fx.GraphModule, node: fx.Node) -> torch.Tensor:
    """The tensor of a constant."""
    value = operator.attrgetter(str(node.target))(module)
    assert isinstance(value, torch.Tensor)
    return value


def replace_tensor(module: fx.GraphModule, node: fx.Node, value: torch.Tensor) -> None:
    """Set a constant to a new tensor. The old one, which the user's model may share, is unchanged."""
    path, _, name = str(node.target).rpartition(".")
    owner = module.get_submodule(path)
    if name in owner._parameters:
        owner._parameters[name] = nn.Parameter(value.detach().contiguous(), requires_grad=False)
    else:
        owner._buffers[name] = value.detach().contiguous()


def set_bias(layer: Layer, value: torch.Tensor) -> None:
    """Set the bias of a layer, also of one without."""
    if layer.bias is not None:
        replace_tensor(layer.module, layer.bias, value)
        return
    module, node, name = layer.module, layer.node, f"{layer.node.name}_new_bias"
    module.register_parameter(name, nn.Parameter(value.detach(), requires_grad=False))
    with module.graph.inserting_before(node):
        bias = module.graph.get_attr(name)
    bias.meta["val"] = node.meta["val"].fake_mode.from_tensor(value.detach(), static_shapes=True)
    node.args = (*node.args[:2], bias, *node.args[3:])
    node.kwargs = {k: v for k, v in node.kwargs.items() if k != "bias"}
    module.recompile()
