"""Constant evaluation: values of nodes that depend only on weights and constants, and the analysis of writes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.utils import _pytree as pytree

_MAX_ELEMENTS = 1 << 26
_MAX_DEPTH = 64

ConstantLookup = Callable[[fx.Node], Any]


class ConstantEvaluator:
    """Computes the values of nodes ahead of time, on demand and memoized.

    ``lookup`` returns the tensor of a weight or constant, or None for any other input.
    """

    # A node is constant if its operator is pure (functional, in ATen, no random numbers) and all of its inputs are
    # constant; the evaluation recurses to weights and attributes that the program never writes. Real tensors are
    # computed under ``unset_fake_temporarily`` because callers run inside the exported program's fake mode. Depth and
    # size are bounded: the recursion uses the Python stack, and results live as long as the evaluator.

    def __init__(self, lookup: ConstantLookup) -> None:
        self.lookup = lookup
        self.values: dict[fx.Node, Any] = {}

    def value(self, node: fx.Node, depth: int = 0) -> Any:
        """A node's constant value, a tensor or a tuple of them; None if it depends on inputs or random numbers, or is
        too large or too deep."""
        if node not in self.values:
            fits = depth < _MAX_DEPTH and _is_small(node.meta.get("val"))
            result = None if not fits else self._call(node, depth) if node.op == "call_function" else self.lookup(node)
            leaves = pytree.tree_leaves(result)
            is_real = all(isinstance(v, torch.Tensor) and not isinstance(v, FakeTensor) for v in leaves)
            self.values[node] = pytree.tree_map(torch.Tensor.detach, result) if is_real and leaves else None
        return self.values[node]

    def _call(self, node: fx.Node, depth: int) -> Any:
        op: Any = node.target
        if not is_pure(op):
            return None
        inputs = {n: self.value(n, depth + 1) for n in node.all_input_nodes}
        if any(v is None for v in inputs.values()):
            return None
        args, kwargs = pytree.tree_map_only(fx.Node, lambda n: inputs[n], (node.args, dict(node.kwargs)))
        if "device" in kwargs:
            kwargs["device"] = "cpu"
        with unset_fake_temporarily(), torch.no_grad():
            return op(*args, **kwargs)


def is_pure(op: Any) -> bool:
    """True if an operator's results depend on its arguments only."""
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
    return val.numel() <= _MAX_ELEMENTS


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
    from edgewright.frontend.aliases import viewed_argument  # a cyclic import at module level

    while node.op == "call_function":
        position = 0 if _is_mutating(node) else viewed_argument(node.target)
        source = node.args[position] if position is not None and position < len(node.args) else None
        if not isinstance(source, fx.Node):
            return node
        node = source
    return node
