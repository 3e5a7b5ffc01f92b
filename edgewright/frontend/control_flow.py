"""Control flow in the frontend: ``cond``, ``map``, ``scan`` and ``while_loop``.

Branches and loop bodies are submodules of the exported graph module. They go through the same rewrites as the method
and remain submodules, so that a prepared program still runs in torch. Wrappers that only record the mode in which a
graph was traced (autocast, grad) are inlined.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from edgewright.frontend.decompose.canonical import to_dtype
from edgewright.frontend.prepare import ProgramFunctionalizer
from edgewright.frontend.rewriter import Rewriter, fake_mode
from edgewright.ir.graph import Graph, Op

if TYPE_CHECKING:
    from edgewright.frontend.importer import _Importer

# Positions of the subgraphs among a call's arguments.
_SUBGRAPH_POSITIONS = {"cond": (1, 2), "map_impl": (0,), "scan": (0,), "while_loop": (0, 1)}
_WRAPPERS = {
    "wrap_with_set_grad_enabled": 1, "wrap_with_autocast": 4, "tag_activation_checkpoint": 0,
    "wrap_activation_checkpoint": 0, "wrap": 0, "invoke_subgraph": 0, "strict_mode": 0, "hints_wrapper": 0,
}  # fmt: skip


def lower_higher_order(walk: ProgramFunctionalizer, node: fx.Node) -> None:
    """Rewrite a call of a higher-order operator."""
    kind = str(node.target)
    if kind in _WRAPPERS:
        _inline_wrapper(walk, node, _WRAPPERS[kind])
        return
    args = walk._read(node.args)
    if kind == "out_dtype":  # computes an operator in a wider dtype
        operands = [to_dtype(walk.rewriter, a, args[1]) if isinstance(a, fx.Node) else a for a in args[2:]]
        walk.aliases.define(node, walk.rewriter.call(args[0], *operands))
        return
    if kind not in _SUBGRAPH_POSITIONS:
        raise walk.rewriter.unsupported(node.target, "cannot be represented in .pte files")
    for position in _SUBGRAPH_POSITIONS[kind]:
        name = str(args[position].target)
        walk.attributes[name] = _SubgraphFunctionalizer(walk, walk.attributes[name], node).run()
    val = node.meta["val"]
    walk.rewriter.origin = node
    walk.aliases.define(node, walk.rewriter.unpack(walk.rewriter.emit(node.target, args, val=val), val))


# ---------------------------------------------------------------------------------------------------- branches


class _SubgraphProgram:
    """Stands in for an exported program: only ``graph_module`` is used."""

    def __init__(self, module: fx.GraphModule) -> None:
        self.graph_module = module


class _SubgraphFunctionalizer(ProgramFunctionalizer):
    """Functionalizes a branch or a loop body."""

    def __init__(self, outer: ProgramFunctionalizer, module: fx.GraphModule, call: fx.Node) -> None:
        rewriter = outer.rewriter
        super().__init__(
            _SubgraphProgram(module), Rewriter(rewriter.is_supported, rewriter.no_decompose, rewriter.strict)
        )
        self.call = call

    def visit(self, node: fx.Node) -> None:
        """Nodes without a source line get that of the call."""
        for key in ("stack_trace", "nn_module_stack"):
            if not node.meta.get(key) and self.call.meta.get(key):
                node.meta[key] = self.call.meta[key]
        super().visit(node)

    def _finish(self, output: fx.Node) -> fx.GraphModule:
        if any(self.aliases.final_write(node) is not None for node in self.placeholders.values()):
            self.rewriter.origin = self.call
            raise self.rewriter.unsupported(self.call.target, "must not write to its operands in a branch")
        self.rewriter.graph.output(self._read(output.args[0]))
        self.rewriter.graph.eliminate_dead_code()
        return fx.GraphModule(self.attributes, self.rewriter.graph)


# ---------------------------------------------------------------------------------------------------- wrappers


def _inline_wrapper(walk: ProgramFunctionalizer, call: fx.Node, position: int) -> None:
    """Rewrite a wrapped graph in place of its call; operands and results alias those of the call."""
    graph: Any = call.args[position]
    module = walk.attributes[str(walk.aliases.read(graph).target)]
    operands = [a for a in _flatten(call.args[position + 1 :]) if not isinstance(a, str)]
    if str(call.target) == "wrap_with_autocast":
        module = _apply_autocast(module, call)
    outer, walk.module = walk.module, module
    for node, operand in zip(module.graph.find_nodes(op="placeholder"), operands, strict=False):
        _define_alias(walk, node, operand)
    for node in module.graph.nodes:
        if node.op not in ("placeholder", "output"):
            node.meta.setdefault("nn_module_stack", call.meta.get("nn_module_stack", {}))
            walk.visit(node)
    walk.module = outer
    results = module.graph.output_node().args[0]
    if isinstance(results, fx.Node):
        _define_alias(walk, call, results)
        return
    for user in [u for u in call.users if u.target.__name__ == "getitem"]:  # type: ignore[union-attr]
        _define_alias(walk, user, results[user.args[1]])
        walk.inlined.add(user)
    walk.aliases.define(call, [walk._read(r) for r in results])


def _define_alias(walk: ProgramFunctionalizer, node: fx.Node, source: Any) -> None:
    if isinstance(source, fx.Node):
        walk.aliases.define_same(node, source)
    else:
        walk.aliases.define(node, source)


def _flatten(tree: Any) -> Iterable[Any]:
    for item in tree:
        if isinstance(item, tuple | list):
            yield from _flatten(item)
        elif not isinstance(item, dict):
            yield item


def _apply_autocast(module: fx.GraphModule, call: fx.Node) -> fx.GraphModule:
    """Retrace a graph under autocast to make its casts explicit: torch.export leaves them to the wrapper."""
    device, dtype, enabled, cache = call.args[:4]
    if not enabled:
        return module
    values = [n.meta["val"] for n in module.graph.find_nodes(op="placeholder")]

    def run(*inputs: Any) -> Any:
        with torch.autocast(device, dtype, enabled, cache):  # type: ignore[arg-type]
            return fx.Interpreter(module).run(*inputs)

    with fake_mode(values):
        traced: fx.GraphModule = make_fx(run, tracing_mode="symbolic", _allow_non_fake_inputs=True)(*values)
    for node in traced.graph.nodes:
        node.meta.setdefault("stack_trace", call.meta.get("stack_trace"))
    return traced


# ------------------------------------------------------------------------------------------------------ import


def import_branches(importer: _Importer, op: Op, node: fx.Node) -> None:
    """Import the subgraphs of a control flow operator, and name its arguments.

    Subgraphs capture operands: they read the outer graph's values directly. Loop-carried values are the outputs of the
    loop operator, which its subgraphs read; the outputs of the body are their next values. ``inputs`` of a body are
    slices of ``xs``.
    """
    args = list(op.args.values())
    if op.kind == "cond":
        op.args = {"pred": args[0], "operands": list(args[3])}
        op.graphs = {
            name: _import_subgraph(importer, args[i], name, args[3]) for i, name in ((1, "true"), (2, "false"))
        }
    elif op.kind == "while_loop":
        op.args = {"initial": list(args[2]), "operands": list(args[3])}
        bindings = [*op.outputs, *args[3]]
        op.graphs = {
            name: _import_subgraph(importer, args[i], name, bindings) for i, name in ((0, "condition"), (1, "body"))
        }
    elif op.kind in ("map_impl", "scan"):
        initial, xs, operands = ([], *args[1:]) if op.kind == "map_impl" else args[1:]
        op.args = {"initial": list(initial), "xs": list(xs), "operands": list(operands)}
        bindings = [*op.outputs[: len(initial)], *([_SLICE] * len(xs)), *operands]
        op.graphs = {"body": _import_subgraph(importer, args[0], "body", bindings)}


_SLICE = object()


def _import_subgraph(importer: _Importer, module: fx.GraphModule, name: str, bindings: Iterable[Any]) -> Graph:
    child = type(importer)(importer.exported, name)
    child.module = module
    for node, value in zip(module.graph.find_nodes(op="placeholder"), bindings, strict=True):
        if value is _SLICE:
            value = child._value(node)
            value.dim_order = tuple(range(len(value.shape)))
            child.graph.inputs.append(value)
        child.env[node] = value
    for node in module.graph.nodes:
        if node.op not in ("placeholder", "output"):
            child.visit(node)
    results = child._read(module.graph.output_node().args[0])
    child.graph.outputs = list(results) if isinstance(results, tuple | list) else [results]
    return child.graph
