"""Weights that a model computes of others: one plus a weight, a weight norm, a layer on a table of coordinates, the
angles of positions.

A quantizer would take each step for an activation, with a scale and an error of its own. Computed ahead, they are
weights like any other. Not for models that are trained afterwards: what is computed would no longer follow.
"""

from __future__ import annotations

import itertools
import operator
from typing import Any

import torch
from torch import fx

from edgewright.frontend.aliases import viewed_argument
from edgewright.frontend.constant_eval import Known, is_pure, written, written_roots
from edgewright.frontend.rewriter import is_dynamic

_LARGEST = 1 << 16  # bytes that a constant may grow to by being computed ahead


def fold_weights(module: fx.GraphModule) -> fx.GraphModule:
    """Store what a module computes of its weights and buffers alone, up to the views at the end, which cost nothing."""
    folder = _Folder(module)
    changed = False
    for node in reversed(list(module.graph.nodes)):
        if node in folder.sources and node.op == "call_function":
            changed |= folder.fold(node)
    if changed:
        module.graph.lint()
        module.recompile()
    return module


class _Folder:
    """``sources``: nodes that depend on weights and constants only, with the bytes of each weight they depend on."""

    def __init__(self, module: fx.GraphModule) -> None:
        self.module = module
        self.graph = module.graph
        self.known = Known(self._held)
        self.sources: dict[fx.Node, dict[str, int]] = {}
        inner = [m for m in module.modules() if isinstance(m, fx.GraphModule) and m is not module]
        if any(written(m.graph.nodes) for m in inner):
            return  # branches have other names for what they write
        self.written = written(self.graph.nodes)
        changing = written_roots(self.graph.nodes)
        for node in self.graph.nodes:
            if node not in changing:
                self._visit(node)

    def _visit(self, node: fx.Node) -> None:
        if node.op == "get_attr":
            held = self._held(node)
            if isinstance(held, torch.Tensor):
                self.sources[node] = {str(node.target): held.nbytes}
        elif node.op == "call_function" and is_pure(node.target):
            inputs = node.all_input_nodes
            if all(n in self.sources for n in inputs):
                self.sources[node] = {name: size for n in inputs for name, size in self.sources[n].items()}

    def _held(self, node: fx.Node) -> Any:
        if node.op != "get_attr" or str(node.target) in self.written:
            return None
        return operator.attrgetter(str(node.target))(self.module)

    def fold(self, node: fx.Node) -> bool:
        """Put a node's result in its place; True if the graph changed."""
        if not node.users:
            self.graph.erase_node(node)
            return True
        value = self._result(node) if self._is_worth_it(node) else None
        if value is None or not torch.isfinite(value).all():
            return False
        names = (f"{node.name}_folded{'_' * count}" for count in itertools.count())
        name = next(n for n in names if not hasattr(self.module, n))
        self.module.register_buffer(name, value.clone(memory_format=torch.contiguous_format))
        with self.graph.inserting_before(node):
            made = self.graph.get_attr(name)
        made.meta["val"] = node.meta["val"].fake_mode.from_tensor(getattr(self.module, name), static_shapes=True)
        node.replace_all_uses_with(made)
        self.graph.erase_node(node)
        return True

    def _is_worth_it(self, node: fx.Node) -> bool:
        """True for real numbers that are computed of others, do not grow, and are not simply returned."""
        val = node.meta.get("val")
        if not isinstance(val, torch.Tensor) or not val.is_floating_point() or is_dynamic(val):
            return False
        if not node.all_input_nodes:  # one number, or steps: as quickly made again
            return False
        if viewed_argument(node.target) is not None or any(user.op == "output" for user in node.users):
            return False
        return val.numel() * val.element_size() <= max(sum(self.sources[node].values()), _LARGEST)

    def _result(self, node: fx.Node) -> Any:
        needed, todo = {node}, [node]
        while todo:
            fresh = set(todo.pop().all_input_nodes) - needed
            needed |= fresh
            todo += fresh
        for step in self.sources:  # producers first, so that none asks for many others
            if step in needed:
                self.known.value(step)
        return self.known.value(node)
