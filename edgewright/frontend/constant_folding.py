"""Constant folding before quantization: what a model computes without its inputs, such as a weight norm, a slice of a
bias, a layer applied to a table of coordinates, a causal mask, or rotary position angles.

A quantizer would treat every intermediate as an activation, with its own scale and its own error, and rules that
require constants would reject their readers. In models that are trained afterwards, weights are not folded: a folded
tensor no longer follows those it was computed from.
"""

from __future__ import annotations

import itertools
import operator
from typing import Any

import torch
from torch import fx

from edgewright.frontend.constant_eval import ConstantEvaluator, constant_operands, is_pure
from edgewright.frontend.mutation import viewed_argument, written_names, written_roots
from edgewright.frontend.rewriter import is_dynamic

aten = torch.ops.aten
_RESHAPES = (
    aten.view.default, aten.reshape.default, aten.view_as.default, aten.reshape_as.default, aten.unsqueeze.default,
    aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims, aten.flatten.using_ints, aten.unflatten.int,
)  # fmt: skip
_MAX_GROWTH = 1 << 16  # bytes: the size up to which a folded constant may exceed its sources
_SOFTMAXES = (aten.softmax.int, aten._softmax.default, aten._safe_softmax.default)
_WEIGHTS = ("weight", "bias")  # arguments of layers that quantizers require to be constants


def fold_weights(module: fx.GraphModule, *, trained: bool = False) -> fx.GraphModule:
    """Replace what a module computes from weights, buffers and numbers alone by stored tensors, except for trailing
    views, which cost nothing. A view that is a layer's weight, and a new shape of a computed tensor that nothing else
    reads, are stored: quantizers look for weights that are constants. ``trained``: from numbers only, because weights
    still change."""
    folder = _WeightFolder(module, trained)
    changed = False
    for node in reversed(list(module.graph.nodes)):
        if node in folder.sources and node.op == "call_function":
            changed |= folder.fold(node)
    if changed:
        module.graph.lint()
        module.recompile()
    return module


class _WeightFolder:
    """``sources``: nodes that depend on weights and constants only, with the size in bytes of each of those."""

    def __init__(self, module: fx.GraphModule, trained: bool) -> None:
        self.module = module
        self.trained = trained
        self.graph = module.graph
        self.evaluator = ConstantEvaluator(self._constant)
        self.sources: dict[fx.Node, dict[str, int]] = {}
        inner = [m for m in module.modules() if isinstance(m, fx.GraphModule) and m is not module]
        if any(written_names(m.graph.nodes) for m in inner):
            return  # subgraphs refer to the tensors they write by other names
        self.mutated = written_names(self.graph.nodes)
        mutated = written_roots(self.graph.nodes)
        for node in self.graph.nodes:
            if node not in mutated:
                self._visit(node)

    def _visit(self, node: fx.Node) -> None:
        if node.op == "get_attr":
            tensor = None if self.trained else self._constant(node)
            if isinstance(tensor, torch.Tensor):
                self.sources[node] = {str(node.target): tensor.nbytes}
        elif node.op == "call_function" and is_pure(node.target):
            inputs = constant_operands(node)
            if all(n in self.sources for n in inputs):
                self.sources[node] = {name: size for n in inputs for name, size in self.sources[n].items()}

    def _constant(self, node: fx.Node) -> Any:
        if node.op != "get_attr" or str(node.target) in self.mutated:
            return None
        return operator.attrgetter(str(node.target))(self.module)

    def fold(self, node: fx.Node) -> bool:
        """Replace a node by its value; True if the graph changed."""
        if not node.users:
            self.graph.erase_node(node)
            return True
        value = self._result(node) if self._is_profitable(node) else None
        if value is None or not (torch.isfinite(value).all() or _is_mask(node, value)):
            return False
        names = (f"{node.name}_folded{'_' * count}" for count in itertools.count())
        name = next(n for n in names if not hasattr(self.module, n))
        self.module.register_buffer(name, value.clone(memory_format=torch.contiguous_format))
        with self.graph.inserting_before(node):
            constant = self.graph.get_attr(name)
        constant.meta["val"] = node.meta["val"].fake_mode.from_tensor(getattr(self.module, name), static_shapes=True)
        node.replace_all_uses_with(constant)
        self.graph.erase_node(node)
        return True

    def _is_profitable(self, node: fx.Node) -> bool:
        """True for results no larger than their sources that are neither returned as is nor views for operators other
        than layers."""
        val = node.meta.get("val")
        if not isinstance(val, torch.Tensor) or is_dynamic(val) or any(user.op == "output" for user in node.users):
            return False
        is_weight = any(_is_weight(node, user) for user in node.users)
        if viewed_argument(node.target) is not None and not is_weight and not self._reshapes_computed(node):
            return False
        return val.numel() * val.element_size() <= max(sum(self.sources[node].values()), _MAX_GROWTH)

    def _reshapes_computed(self, node: fx.Node) -> bool:
        """True for a tensor computed for this node alone, in another shape."""
        while node.target in _RESHAPES:
            base: Any = node.args[0]
            if len(base.users) > 1 or base.op != "call_function":
                return False
            node = base
        return viewed_argument(node.target) is None

    def _result(self, node: fx.Node) -> Any:
        needed, todo = {node}, [node]
        while todo:
            fresh = set(constant_operands(todo.pop())) - needed
            needed |= fresh
            todo += fresh
        for producer in self.sources:  # producers first, so that the recursion stays shallow
            if producer in needed:
                self.evaluator.value(producer)
        return self.evaluator.value(node)


def _is_mask(node: fx.Node, value: torch.Tensor) -> bool:
    """True for minus infinities that are only added to scores of a softmax: quantizers make those finite."""
    if bool(torch.isnan(value).any() or (value == torch.inf).any()):
        return False
    sums = list(node.users)
    softmaxes = [reader for total in sums for reader in total.users]
    are_sums = all(total.target is aten.add.Tensor for total in sums)
    return are_sums and bool(softmaxes) and all(reader.target in _SOFTMAXES for reader in softmaxes)


def _is_weight(node: fx.Node, user: fx.Node) -> bool:
    """True if a call reads a node as a layer's weight or bias."""
    arguments = user.target._schema.arguments if isinstance(user.target, torch._ops.OpOverload) else ()
    bound = {**{a.name: v for a, v in zip(arguments, user.args, strict=False)}, **user.kwargs}
    return any(bound.get(name) is node for name in _WEIGHTS)
