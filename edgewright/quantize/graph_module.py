"""Graph modules that PT2E works on, seen through the one importer, and rewritten as lowering rewrites programs."""

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

from edgewright.errors import UsageError
from edgewright.frontend.aliases import NeedsRetrace
from edgewright.frontend.constant_eval import written
from edgewright.frontend.importer import import_linked
from edgewright.frontend.plain_tensors import require_module_buffers
from edgewright.frontend.prepare import Walk
from edgewright.frontend.rewriter import Rewriter, Takes, fake_mode
from edgewright.ir.graph import Graph, Value
from edgewright.quantize.float32_only import require_single

aten = torch.ops.aten
_DROPOUTS = (aten.dropout.default, aten.feature_dropout.default)


@dataclass
class ModuleProgram:
    """A graph module with the face of an exported program. Weights are attributes of the module, not inputs."""

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
    return TensorArgument(name=getattr(result, "name", ""))


def import_module(module: fx.GraphModule) -> tuple[Graph, dict[Value, fx.Node]]:
    """The graph of a module and the node behind each of its values."""
    for node in module.graph.nodes:
        _remember(node, module)
    program: Any = ModuleProgram(module)
    graph, nodes = import_linked(program)
    changing = written(module.graph.nodes)
    for value, node in nodes.items():
        value.state = node.op == "get_attr" and str(node.target) in changing
    return graph, nodes


def _remember(node: fx.Node, module: fx.GraphModule) -> None:
    """Weights that torchao made while folding batch norms come without a fake value."""
    if node.op != "get_attr" or isinstance(node.meta.get("val"), torch.Tensor):
        return
    held = operator.attrgetter(str(node.target))(module)
    mode = fake_mode(n.meta.get("val") for n in module.graph.nodes)
    if isinstance(held, torch.Tensor) and mode is not None:
        node.meta["val"] = mode.from_tensor(held.detach(), static_shapes=True)


def rewritten(module: fx.GraphModule, takes: Takes, kept: Collection[Any]) -> fx.GraphModule:
    """The module in the operators that lowering will see, in-place ones made functional, of the same meaning.
    It is about to be quantized.

    Operators in ``kept`` stay as they are. Writes to the module's own state stay in place, as effects; those through
    views become new contents, which are copied to the state at the end: an observer in between would take them.
    """
    for node in module.graph.nodes:
        _remember(node, module)
    require_single(module)
    require_module_buffers(module)
    kept = {*kept, *(n.target for n in module.graph.nodes if _drops(n))}
    viewed = next((n for n in module.graph.nodes if writes_through_view(n)), None)
    try:
        made: fx.GraphModule = _ModuleWalk(module, Rewriter(takes, kept, strict=False), viewed is not None).run()
    except NeedsRetrace as reason:
        if viewed is None:
            return module
        remedy = "Write it without a view: buffer.index_copy_(dim, places, new), or buffer.copy_(new)."
        raise UsageError(f"node {viewed.name!r}", f"writes to state in a way that cannot be followed: {reason}",
                         remedy=remedy) from reason  # fmt: skip
    return made


class _ModuleWalk(Walk):
    """``copies``: state is written once, at the end, with what it holds then."""

    def __init__(self, module: fx.GraphModule, rewriter: Rewriter, copies: bool) -> None:
        super().__init__(ModuleProgram(module), rewriter)
        self.copies = copies
        self.states: dict[
            Any, tuple[fx.Node, Any]
        ] = {}  # by name: the first node of an attribute or input, and its new one

    def visit(self, node: fx.Node) -> None:
        if node.op == "call_module" or (_writes_state(node) and not self.copies):
            self.rewriter.origin = None
            new = self.rewriter.graph.node_copy(node, self.aliases.read)
            self.aliases.define(node, new)
        elif self.copies and node.op == "get_attr" and node.target in self.states:
            self.aliases.define_same(node, self.states[node.target][0])
        else:
            super().visit(node)
            self._keep_name(node)
            if node.op in ("get_attr", "placeholder"):
                self.states[node.target] = node, self.aliases.read(node)

    def hold(self, value: torch.Tensor) -> fx.Node:
        new = super().hold(value)
        self.module.register_buffer(str(new.target), value, persistent=False)
        return new

    def _copy_back(self) -> None:
        for old, held in self.states.values():
            written = self.aliases.written(old)
            if written is not None:
                self.rewriter.graph.call_function(aten.copy_.default, (held, written)).meta["val"] = held.meta["val"]

    def _keep_name(self, node: fx.Node) -> None:
        """Users know nodes by their names, in filters and reports."""
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
        made = fx.GraphModule(self.module, graph)
        graph._codegen = self.module.graph._codegen
        made.meta.update(self.module.meta)
        made.train(self.module.training)
        made.recompile()
        return made


def _drops(node: fx.Node) -> bool:
    """True for dropout while training: torchao turns it off when that is over."""
    return node.target in _DROPOUTS and len(node.args) > 2 and node.args[2] is True


def _is_write(node: fx.Node) -> bool:
    target = node.target
    return isinstance(target, torch._ops.OpOverload) and target._schema.is_mutable


def _writes_state(node: fx.Node) -> bool:
    """True for a write to a buffer (a counter of batches), or to what such a write gave: it stays in place, as an
    effect."""
    first = node.args[0] if node.args else None
    if not _is_write(node) or not isinstance(first, fx.Node):
        return False
    return first.op in ("get_attr", "placeholder") or (first.op == "call_function" and _writes_state(first))


def writes_through_view(node: fx.Node) -> bool:
    """True for a write to a view of a buffer, or of what a write to a buffer gave, which is the same memory."""
    if not _is_write(node) or _writes_state(node):
        return False
    seen: Any = node.args[0] if node.args else None
    while isinstance(seen, fx.Node) and seen.op == "call_function" and (_is_view(seen) or _is_write(seen)):
        seen = seen.args[0]
    return isinstance(seen, fx.Node) and seen.op in ("get_attr", "placeholder")


def _is_view(node: fx.Node) -> bool:
    from edgewright.frontend.aliases import viewed_argument

    target: Any = node.target
    return target is operator.getitem or (isinstance(target, torch._ops.OpOverload) and viewed_argument(target) == 0)
