"""Mutation and views by operator schema: what a call writes to, and which argument its result aliases."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree


def viewed_argument(op: Any) -> int | None:
    """The position of the argument that an operator's result aliases, or None."""
    if not isinstance(op, torch._ops.OpOverload) or op._schema.is_mutable:
        return None
    returned = {alias for r in op._schema.returns if r.alias_info for alias in r.alias_info.before_set}
    returns_list = any("List" in str(r.type) or "[]" in str(r.type) for r in op._schema.returns)
    for position, argument in enumerate(op._schema.arguments):
        if argument.alias_info and (returns_list or returned & set(argument.alias_info.before_set)):
            return position
    return None


def written_names(nodes: Iterable[fx.Node]) -> set[str]:
    """The names of inputs and attributes that calls write to, directly or through views."""
    return set(first_writes(nodes))


def first_writes(nodes: Iterable[fx.Node]) -> dict[str, fx.Node]:
    """The inputs and attributes that calls write to, directly or through views, each with the first such call."""
    writes: dict[str, fx.Node] = {}
    for node in nodes:
        for root in map(_storage_root, _written_operands(node)):
            if root.op != "call_function":
                writes.setdefault(str(root.target), node)
    return writes


def written_roots(nodes: Iterable[fx.Node]) -> set[fx.Node]:
    """The nodes that own the storage of a mutating call's operands, directly or through views."""
    return {_storage_root(operand) for node in nodes if _is_mutating(node) for operand in node.all_input_nodes}


def _written_operands(node: fx.Node) -> list[fx.Node]:
    """The operands that a call writes to."""
    if not _is_mutating(node):
        return []
    target: Any = node.target
    arguments = target._schema.arguments
    bindings = [*zip(arguments, node.args, strict=False), *((a, node.kwargs.get(a.name)) for a in arguments)]
    values = [value for argument, value in bindings if argument.alias_info is not None and argument.alias_info.is_write]
    return [leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, fx.Node)]


def _is_mutating(node: fx.Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


def _storage_root(node: fx.Node) -> fx.Node:
    """The node that owns the storage a view refers to."""
    while node.op == "call_function":
        position = 0 if _is_mutating(node) else viewed_argument(node.target)
        source = node.args[position] if position is not None and position < len(node.args) else None
        if not isinstance(source, fx.Node):
            return node
        node = source
    return node
