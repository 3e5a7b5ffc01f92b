"""Control flow: ``cond``, ``map``, ``scan`` and ``while_loop`` through the front end.

Branches and bodies are graph modules that the exported graph holds. They go through the same rewrites as the method
itself, and stay graph modules of their own, so that a prepared program still runs in torch. Wrappers that say no more
than under which mode a graph was traced are inlined.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from edgewright.frontend.decompose.canonical import to_dtype
from edgewright.frontend.prepare import Walk
from edgewright.frontend.rewriter import Rewriter, fake_mode
from edgewright.ir.graph import Graph, Op

if TYPE_CHECKING:
    from edgewright.frontend.importer import _Importer

# Where a call has its graphs.
_GRAPHS = {"cond": (1, 2), "map_impl": (0,), "scan": (0,), "while_loop": (0, 1)}
_WRAPPERS = {
    "wrap_with_set_grad_enabled": 1, "wrap_with_autocast": 4, "tag_activation_checkpoint": 0,
    "wrap_activation_checkpoint": 0, "wrap": 0, "invoke_subgraph": 0, "strict_mode": 0, "hints_wrapper": 0,
}  # fmt: skip


def lower_higher_order(walk: Walk, node: fx.Node) -> None:
    """Rewrite a call that holds graphs."""
    kind = str(node.target)
    if kind in _WRAPPERS:
        _inline(walk, node, _WRAPPERS[kind])
        return
    args = walk._read(node.args)
    if kind == "out_dtype":  # an operator computed in a wider type
        wide = [to_dtype(walk.rewriter, a, args[1]) if isinstance(a, fx.Node) else a for a in args[2:]]
        walk.aliases.define(node, walk.rewriter.call(args[0], *wide))
        return
    if kind not in _GRAPHS:
        raise walk.rewriter.unsupported(node.target, "has no form in .pte files")
    for position in _GRAPHS[kind]:
        name = str(args[position].target)
        walk.attributes[name] = _Branch(walk, walk.attributes[name], node).run()
    val = node.meta["val"]
    walk.rewriter.origin = node
    walk.aliases.define(node, walk.rewriter._unpacked(walk.rewriter.emit(node.target, args, val=val), val))


# ---------------------------------------------------------------------------------------------------- branches


class _Held:
    """A branch, as far as a walk asks its program."""

    def __init__(self, module: fx.GraphModule) -> None:
        self.graph_module = module


class _Branch(Walk):
    """The walk over a branch or a loop body."""

    def __init__(self, outer: Walk, module: fx.GraphModule, call: fx.Node) -> None:
        rewriter = outer.rewriter
        super().__init__(_Held(module), Rewriter(rewriter.takes, rewriter.kept, rewriter.strict))
        self.call = call

    def visit(self, node: fx.Node) -> None:
        """Nodes that torch gave no source line have that of the call."""
        for key in ("stack_trace", "nn_module_stack"):
            if not node.meta.get(key) and self.call.meta.get(key):
                node.meta[key] = self.call.meta[key]
        super().visit(node)

    def _finish(self, output: fx.Node) -> fx.GraphModule:
        if any(self.aliases.written(node) is not None for node in self.placeholders.values()):
            self.rewriter.origin = self.call
            raise self.rewriter.unsupported(self.call.target, "must not write to its operands in a branch")
        self.rewriter.graph.output(self._read(output.args[0]))
        self.rewriter.graph.eliminate_dead_code()
        return fx.GraphModule(self.attributes, self.rewriter.graph)


# ---------------------------------------------------------------------------------------------------- wrappers


def _inline(walk: Walk, call: fx.Node, position: int) -> None:
    """Walk a wrapped graph as if its nodes stood where the call is: names of tensors stay names of them."""
    graph: Any = call.args[position]
    module = walk.attributes[str(walk.aliases.read(graph).target)]
    operands = [a for a in _flat(call.args[position + 1 :]) if not isinstance(a, str)]
    if str(call.target) == "wrap_with_autocast":
        module = _cast(module, call)
    outer, walk.module = walk.module, module
    for node, operand in zip(module.graph.find_nodes(op="placeholder"), operands, strict=False):
        _define(walk, node, operand)
    for node in module.graph.nodes:
        if node.op not in ("placeholder", "output"):
            node.meta.setdefault("nn_module_stack", call.meta.get("nn_module_stack", {}))
            walk.visit(node)
    walk.module = outer
    results = module.graph.output_node().args[0]
    if isinstance(results, fx.Node):
        _define(walk, call, results)
        return
    for user in [u for u in call.users if u.target.__name__ == "getitem"]:  # type: ignore[union-attr]
        _define(walk, user, results[user.args[1]])
        walk.inlined.add(user)
    walk.aliases.define(call, [walk._read(r) for r in results])


def _define(walk: Walk, node: fx.Node, source: Any) -> None:
    if isinstance(source, fx.Node):
        walk.aliases.define_same(node, source)
    else:
        walk.aliases.define(node, source)


def _flat(tree: Any) -> Iterable[Any]:
    for item in tree:
        if isinstance(item, tuple | list):
            yield from _flat(item)
        elif not isinstance(item, dict):
            yield item


def _cast(module: fx.GraphModule, call: fx.Node) -> fx.GraphModule:
    """A graph with the casts that autocast makes: torch.export leaves them to whoever runs it."""
    device, dtype, enabled, cache = call.args[:4]
    if not enabled:
        return module
    values = [n.meta["val"] for n in module.graph.find_nodes(op="placeholder")]

    def run(*given: Any) -> Any:
        with torch.autocast(device, dtype, enabled, cache):  # type: ignore[arg-type]
            return fx.Interpreter(module).run(*given)

    with fake_mode(values):
        traced: fx.GraphModule = make_fx(run, tracing_mode="symbolic", _allow_non_fake_inputs=True)(*values)
    for node in traced.graph.nodes:
        node.meta.setdefault("stack_trace", call.meta.get("stack_trace"))
    return traced


# ------------------------------------------------------------------------------------------------------ import


def import_branches(importer: _Importer, op: Op, node: fx.Node) -> None:
    """Give a control flow operator its graphs, and name its arguments.

    Graphs read operands as the values they are outside. What a loop carries is the loop's own output, which its
    graphs read; their outputs are what it becomes. ``inputs`` of a body are slices of ``xs``.
    """
    args = list(op.args.values())
    if op.kind == "cond":
        op.args = {"pred": args[0], "operands": list(args[3])}
        op.graphs = {name: _imported(importer, args[i], name, args[3]) for i, name in ((1, "true"), (2, "false"))}
    elif op.kind == "while_loop":
        op.args = {"initial": list(args[2]), "operands": list(args[3])}
        given = [*op.outputs, *args[3]]
        op.graphs = {name: _imported(importer, args[i], name, given) for i, name in ((0, "condition"), (1, "body"))}
    elif op.kind in ("map_impl", "scan"):
        initial, xs, operands = ([], *args[1:]) if op.kind == "map_impl" else args[1:]
        op.args = {"initial": list(initial), "xs": list(xs), "operands": list(operands)}
        given = [*op.outputs[: len(initial)], *([_SLICE] * len(xs)), *operands]
        op.graphs = {"body": _imported(importer, args[0], "body", given)}


_SLICE = object()


def _imported(importer: _Importer, module: fx.GraphModule, name: str, given: Iterable[Any]) -> Graph:
    child = type(importer)(importer.exported, name)
    child.module = module
    for node, value in zip(module.graph.find_nodes(op="placeholder"), given, strict=True):
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
