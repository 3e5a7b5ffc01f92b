"""What is known before a program runs: tensors that depend on nothing but its weights and constants."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.utils import _pytree as pytree

_MOST = 1 << 26  # elements
_DEEP = 64  # calls one after another

Held = Callable[[fx.Node], Any]


class Known:
    """Computes the values of nodes. ``held`` gives the tensor of a weight or constant, or None for any other input."""

    def __init__(self, held: Held) -> None:
        self.held = held
        self.values: dict[fx.Node, Any] = {}

    def value(self, node: fx.Node, deep: int = 0) -> Any:
        """What a node always gives, a tensor or several; None if it depends on inputs, on chance, or is too much."""
        if node not in self.values:
            fits = deep < _DEEP and _is_small(node.meta.get("val"))
            found = None if not fits else self._call(node, deep) if node.op == "call_function" else self.held(node)
            leaves = pytree.tree_leaves(found)
            plain = all(isinstance(v, torch.Tensor) and not isinstance(v, FakeTensor) for v in leaves)
            self.values[node] = pytree.tree_map(torch.Tensor.detach, found) if plain and leaves else None
        return self.values[node]

    def _call(self, node: fx.Node, deep: int) -> Any:
        op: Any = node.target
        if not is_pure(op):
            return None
        given = {n: self.value(n, deep + 1) for n in node.all_input_nodes}
        if any(v is None for v in given.values()):
            return None
        args, kwargs = pytree.tree_map_only(fx.Node, lambda n: given[n], (node.args, dict(node.kwargs)))
        if "device" in kwargs:
            kwargs["device"] = "cpu"
        with unset_fake_temporarily(), torch.no_grad():
            return op(*args, **kwargs)


def is_pure(op: Any) -> bool:
    """True for operators whose results depend on their arguments only."""
    if op is operator.getitem:
        return True
    if not isinstance(op, torch._ops.OpOverload) or op.namespace != "aten" or op._schema.is_mutable:
        return False
    return torch.Tag.nondeterministic_seeded not in op.tags


def _is_small(val: Any) -> bool:
    if isinstance(val, list | tuple):
        return all(map(_is_small, val))
    if not isinstance(val, torch.Tensor) or not all(isinstance(size, int) for size in val.shape):
        return False
    return val.numel() <= _MOST


def written(nodes: Iterable[fx.Node]) -> set[str]:
    """The names of inputs and attributes that calls write to, themselves or through views."""
    return set(first_writes(nodes))


def first_writes(nodes: Iterable[fx.Node]) -> dict[str, fx.Node]:
    """The inputs and attributes that calls write to, themselves or through views, each with the first that does."""
    found: dict[str, fx.Node] = {}
    for node in nodes:
        for root in map(_root, _written_operands(node)):
            if root.op != "call_function":
                found.setdefault(str(root.target), node)
    return found


def written_roots(nodes: Iterable[fx.Node]) -> set[fx.Node]:
    """The nodes that gave the memory of operands of calls that write, themselves or through views."""
    return {_root(operand) for node in nodes if _writes(node) for operand in node.all_input_nodes}


def _written_operands(node: fx.Node) -> list[fx.Node]:
    """The operands that a call writes to."""
    if not _writes(node):
        return []
    target: Any = node.target
    arguments = target._schema.arguments
    given = [*zip(arguments, node.args, strict=False), *((a, node.kwargs.get(a.name)) for a in arguments)]
    values = [value for argument, value in given if argument.alias_info is not None and argument.alias_info.is_write]
    return [leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, fx.Node)]


def _writes(node: fx.Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


def _root(node: fx.Node) -> fx.Node:
    """What a view is a view of."""
    from edgewright.frontend.aliases import viewed_argument  # it imports what imports this

    while node.op == "call_function":
        place = 0 if _writes(node) else viewed_argument(node.target)
        source = node.args[place] if place is not None and place < len(node.args) else None
        if not isinstance(source, fx.Node):
            return node
        node = source
    return node
