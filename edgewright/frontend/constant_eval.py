"""Constant evaluation: values of nodes that depend only on weights and constants."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.utils import _pytree as pytree

from edgewright.ir.aten.ops import OPS
from edgewright.ir.aten.table import OpClass

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
            result = None if not fits else self._result(node, depth)
            leaves = pytree.tree_leaves(result)
            is_real = all(isinstance(v, torch.Tensor) and not isinstance(v, FakeTensor) for v in leaves)
            self.values[node] = pytree.tree_map(torch.Tensor.detach, result) if is_real and leaves else None
        return self.values[node]

    def _result(self, node: fx.Node, depth: int) -> Any:
        is_call = node.op == "call_function"
        return self.call(node.target, node.args, node.kwargs, depth) if is_call else self.lookup(node)

    def call(self, op: Any, args: Any, kwargs: Any, depth: int = 0) -> Any:
        """The value of a call with nodes among its arguments; None if it is not constant."""
        if not is_pure(op):
            return None
        nodes = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, fx.Node)]
        if _creates(op):
            inputs = {n: _empty_like(n.meta.get("val")) for n in nodes}
        else:
            inputs = {n: self.value(n, depth + 1) for n in nodes}
        if any(v is None for v in inputs.values()):
            return None
        args, kwargs = pytree.tree_map_only(fx.Node, lambda n: inputs[n], (args, dict(kwargs)))
        if "device" in kwargs:
            kwargs["device"] = "cpu"
        with unset_fake_temporarily(), torch.no_grad():
            return op(*args, **kwargs)


def constant_operands(node: fx.Node) -> list[fx.Node]:
    """The nodes that must be constant for a call to be constant."""
    is_shape = _creates(node.target) and all(_is_small(n.meta.get("val")) for n in node.all_input_nodes)
    return [] if is_shape else list(node.all_input_nodes)


def _creates(op: Any) -> bool:
    """True for operators that read the shape and type of their operand, if any, and none of its elements."""
    return OpClass.CREATION in OPS.classes(op)


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


def _empty_like(val: Any) -> torch.Tensor | None:
    if not isinstance(val, torch.Tensor) or not _is_small(val):
        return None
    with unset_fake_temporarily():
        return torch.empty(val.shape, dtype=val.dtype)
