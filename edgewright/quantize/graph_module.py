"""PT2E graph modules: import into the IR, and the rewrites that lowering applies to exported programs."""

from __future__ import annotations

import operator
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from edgewright.errors import UsageError
from edgewright.frontend.aliases import NeedsRetrace
from edgewright.frontend.buffers import require_module_buffers
from edgewright.frontend.decompose.driver import DecomposingRewriter
from edgewright.frontend.importer import import_linked
from edgewright.frontend.mutation import viewed_argument, written_names
from edgewright.frontend.prepare import ProgramFunctionalizer
from edgewright.frontend.rewriter import IsSupported, Rewriter, fake_mode
from edgewright.ir.graph import Graph, Value
from edgewright.quantize.model_checks import require_float32

aten = torch.ops.aten
_DROPOUTS = (aten.dropout.default, aten.feature_dropout.default)


@dataclass
class ModuleProgram:
    """Adapts a graph module to the interface of an exported program. Weights are attributes, not inputs."""

    graph_module: fx.GraphModule
    state_dict: dict[str, Any] = field(default_factory=dict)
    constants: dict[str, Any] = field(default_factory=dict)
    range_constraints: dict[Any, Any] = field(default_factory=dict)

    @property
    def graph(self) -> fx.Graph:
        return self.graph_module.graph

    @property
    def graph_signature(self) -> ExportGraphSignature:
        inputs = [n for n in self.graph.nodes if n.op == "placeholder"]
        results: Any = self.graph.output_node().args[0]
        outputs = [OutputSpec(OutputKind.USER_OUTPUT, _argument(r), None) for r in results]
        return ExportGraphSignature([InputSpec(InputKind.USER_INPUT, _argument(n), None) for n in inputs], outputs)


def _argument(result: Any) -> TensorArgument:
    return TensorArgument(name=result.name if isinstance(result, fx.Node) else "")


def import_module(module: fx.GraphModule) -> tuple[Graph, dict[Value, fx.Node]]:
    """The graph of a module and the node behind each of its values."""
    for node in module.graph.nodes:
        _ensure_fake_value(node, module)
    program: Any = ModuleProgram(module)
    graph, nodes = import_linked(program)
    mutated = written_names(module.graph.nodes)
    for value, node in nodes.items():
        value.state = node.op == "get_attr" and str(node.target) in mutated
    return graph, nodes


def _ensure_fake_value(node: fx.Node, module: fx.GraphModule) -> None:
    """Set the missing fake value of a weight that torchao created while folding a batch norm."""
    if node.op != "get_attr" or isinstance(node.meta.get("val"), torch.Tensor):
        return
    tensor = operator.attrgetter(str(node.target))(module)
    mode = fake_mode(n.meta.get("val") for n in module.graph.nodes)
    if isinstance(tensor, torch.Tensor) and mode is not None:
        node.meta["val"] = mode.from_tensor(tensor.detach(), static_shapes=True)


def rewrite_module(module: fx.GraphModule, is_supported: IsSupported, no_decompose: Collection[Any]) -> fx.GraphModule:
    """Rewrite a module, before quantization, into the functional operators that lowering produces.

    Operators in ``no_decompose`` stay as they are. Direct writes to the module's state stay in place, as effects.
    Writes through views become new values that are copied to the state at the end, so that no observer is inserted
    between the view and its write.
    """
    for node in module.graph.nodes:
        _ensure_fake_value(node, module)
    require_float32(module)
    require_module_buffers(module)
    no_decompose = {*no_decompose, *(n.target for n in module.graph.nodes if _is_training_dropout(n))}
    viewed = next((n for n in module.graph.nodes if writes_through_view(n)), None)
    try:
        rewriter = DecomposingRewriter(is_supported, no_decompose, strict=False)
        result: fx.GraphModule = _ModuleFunctionalizer(module, rewriter, viewed is not None).run()
    except NeedsRetrace as reason:
        if viewed is None:
            return module
        remedy = "Write it without a view: buffer.index_copy_(dim, index, source), or buffer.copy_(source)."
        raise UsageError(f"node {viewed.name!r}", f"writes to state, and the write cannot be functionalized: {reason}",
                         remedy=remedy) from reason  # fmt: skip
    return result


class _ModuleFunctionalizer(ProgramFunctionalizer):
    """``copies``: write each state once, at the end, with its final value."""

    def __init__(self, module: fx.GraphModule, rewriter: Rewriter, copies: bool) -> None:
        super().__init__(ModuleProgram(module), rewriter)
        self.copies = copies
        # By kind and name: the first node of an attribute or input, and its node in the new graph.
        self.states: dict[Any, tuple[fx.Node, Any]] = {}

    def visit(self, node: fx.Node) -> None:
        if node.op == "call_module" or (_writes_state(node) and not self.copies):
            self.rewriter.origin = None
            new = self.rewriter.graph.node_copy(node, self.aliases.read)
            self.aliases.define(node, new)
        elif self.copies and node.op == "get_attr" and (node.op, node.target) in self.states:
            self.aliases.define_same(node, self.states[node.op, node.target][0])
        else:
            super().visit(node)
            self._keep_name(node)
            if node.op in ("get_attr", "placeholder"):
                self.states[node.op, node.target] = node, self.aliases.read(node)

    def add_constant(self, value: torch.Tensor) -> fx.Node:
        new = super().add_constant(value)
        self.module.register_buffer(str(new.target), value, persistent=False)
        return new

    def _inner_tensor(self, node: fx.Node) -> None:
        super()._inner_tensor(node)
        name = str(self.aliases.read(node).target)
        self.module.register_buffer(name, self.attributes[name], persistent=False)

    def _copy_back(self) -> None:
        for old, state in self.states.values():
            new = self.aliases.final_write(old)
            if new is not None:
                self.rewriter.graph.call_function(aten.copy_.default, (state, new)).meta["val"] = state.meta["val"]

    def _keep_name(self, node: fx.Node) -> None:
        """Preserve node names: filters and reports refer to nodes by name."""
        new = self.aliases.read(node) if node.op in ("call_function", "get_attr") else None
        if isinstance(new, fx.Node) and new.meta.get("origin") == node.name != new.name:
            new._rename(node.name)

    def _finish(self, output: fx.Node) -> fx.GraphModule:
        results = self._read(output.args[0])
        if self.copies:
            self._copy_back()
        self.rewriter.graph.output(results).meta.update(output.meta)
        graph = self.rewriter.graph
        graph.eliminate_dead_code(lambda n: n.op != "call_function" or _is_write(n))
        for node in graph.find_nodes(op="get_attr"):  # weights of which only the inner tensors are read
            if not node.users and is_traceable_wrapper_subclass(self.attributes[str(node.target)]):
                graph.erase_node(node)
        module = fx.GraphModule(self.module, graph)
        graph._codegen = self.module.graph._codegen
        module.meta.update(self.module.meta)
        module.train(self.module.training)
        module.recompile()
        return module


def _is_training_dropout(node: fx.Node) -> bool:
    """True for dropout in training mode: torchao replaces it when the model is converted."""
    return node.target in _DROPOUTS and len(node.args) > 2 and node.args[2] is True


def _is_write(node: fx.Node) -> bool:
    target = node.target
    return isinstance(target, torch._ops.OpOverload) and target._schema.is_mutable


def _writes_state(node: fx.Node) -> bool:
    """True for a direct write to a buffer (a batch counter), or to the result of one: it stays, as an effect."""
    first = node.args[0] if node.args else None
    if not _is_write(node) or not isinstance(first, fx.Node):
        return False
    return first.op in ("get_attr", "placeholder") or (first.op == "call_function" and _writes_state(first))


def writes_through_view(node: fx.Node) -> bool:
    """True for a write to a view of a buffer, or of the result of a write to one, which is the same storage."""
    if not _is_write(node) or _writes_state(node):
        return False
    target: Any = node.args[0] if node.args else None
    while isinstance(target, fx.Node) and target.op == "call_function" and (_is_view(target) or _is_write(target)):
        target = target.args[0]
    return isinstance(target, fx.Node) and target.op in ("get_attr", "placeholder")


def _is_view(node: fx.Node) -> bool:
    target: Any = node.target
    return target is operator.getitem or (isinstance(target, torch._ops.OpOverload) and viewed_argument(target) == 0)
