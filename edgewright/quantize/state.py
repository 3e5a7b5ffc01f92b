"""State of quantized models (key-value caches): functional writes while quantizing, integer storage while lowering."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import fx
from torch.ao.quantization.fx import _decomposed  # noqa: F401  (declares the operators)
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature, InputKind, OutputKind, OutputSpec, TensorArgument

from edgewright.errors import UsageError
from edgewright.frontend.replace_graph import with_graph
from edgewright.quantize.graph_module import writes_through_view

aten = torch.ops.aten
ENCODING = "state_encoding"  # key in a placeholder's meta: the quantization parameters of its integers
_QUANTIZE = torch.ops.quantized_decomposed.quantize_per_tensor.default
_DEQUANTIZE = torch.ops.quantized_decomposed.dequantize_per_tensor.default


# ----------------------------------------------------------------------------------------------------- while quantizing


def functionalize_state_writes(module: fx.GraphModule) -> fx.GraphModule:
    """Replace in-place writes to state by ``index_put`` and a copy of its result to the state, so that the value
    written, and read again, has a scale. A module that writes through views is unchanged: it must be functionalized
    first."""
    if any(writes_through_view(node) for node in module.graph.nodes):
        return module
    rewriter = _WriteRewriter(module.graph)
    for node in list(module.graph.nodes):
        rewriter.visit(node)
    module.graph.lint()
    module.recompile()
    return module


class _WriteRewriter:
    """One pass over a graph. Reads of state after a write are redirected to the written value, because the observer of
    the state itself sees it at the start of the graph."""

    def __init__(self, graph: fx.Graph) -> None:
        self.graph = graph
        self.states: dict[fx.Node, fx.Node] = {}  # nodes that alias an attribute, and its node
        self.newest: dict[Any, fx.Node] = {}  # by attribute name: the value last written

    def visit(self, node: fx.Node) -> None:
        if node.op == "get_attr":
            self.states[node] = node
            return
        target = node.args[0] if node.op == "call_function" and node.args else None
        state = self.states.get(target) if isinstance(target, fx.Node) and _is_mutating(node) else None
        for read in (n for n in node.all_input_nodes if n in self.states and not (state and n is target)):
            node.replace_input_with(read, self._contents(self.states[read]))
        if state is not None:
            self._write(node, state)

    def _contents(self, state: fx.Node) -> fx.Node:
        return self.newest.get(state.target, state)

    def _write(self, node: fx.Node, state: fx.Node) -> None:
        source = node.args[1] if len(node.args) > 1 else None
        if node.target is aten.copy_.default and isinstance(source, fx.Node) and _same_type(state, source):
            node.args = (state, *node.args[1:])
            self.states[node], self.newest[state.target] = state, source
            return
        result = _to_index_put(self.graph, node, state, self._contents(state))
        if result is None:  # written in place; its result is read from now on
            node.args = (state, *node.args[1:])
            self.states[node], self.newest[state.target] = state, node
            return
        result.meta.update(node.meta)
        with self.graph.inserting_after(result):
            self.graph.call_function(aten.copy_.default, (state, result)).meta["val"] = node.meta.get("val")
        self.states[result], self.newest[state.target] = state, result
        node.replace_all_uses_with(result)
        name = node.name
        self.graph.erase_node(node)
        result._rename(name)


def _to_index_put(graph: fx.Graph, node: fx.Node, state: fx.Node, contents: fx.Node) -> fx.Node | None:
    """``index_put`` to the contents of state, for an in-place write; None if it accumulates or is of another kind."""
    arguments: Any
    if node.target is aten.index_put_.default:
        arguments = dict(zip(("self", "indices", "values", "accumulate"), node.args, strict=False)) | node.kwargs
        if arguments.get("accumulate"):
            return None
        indices, values = arguments["indices"], arguments["values"]
    elif node.target is aten.index_copy_.default:
        arguments = dict(zip(("self", "dim", "index", "source"), node.args, strict=False)) | node.kwargs
        if arguments["index"].meta["val"].dim() != 1:
            return None
        indices, values = (
            [*[None] * (arguments["dim"] % state.meta["val"].dim()), arguments["index"]],
            arguments["source"],
        )
    else:
        return None
    with graph.inserting_before(node):
        return graph.call_function(aten.index_put.default, (contents, indices, values))


def _is_mutating(node: fx.Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


def _same_type(state: fx.Node, new: fx.Node) -> bool:
    a, b = state.meta.get("val"), new.meta.get("val")
    return a is not None and b is not None and a.shape == b.shape and a.dtype == b.dtype


# ------------------------------------------------------------------------------------------------------- while lowering


def integer_state(exported: ExportedProgram) -> ExportedProgram:
    """Store state as integers where every write dequantizes and every read quantizes with the same parameters: the
    values are the same, in a quarter or half of the memory."""
    signature = exported.graph_signature
    inputs = {s.target: s.arg.name for s in signature.input_specs if s.kind == InputKind.BUFFER}
    results: Any = exported.graph.output_node().args[0]
    nodes = {n.name: n for n in exported.graph.nodes}
    encodings: dict[int, tuple[str, tuple[Any, ...]]] = {}
    for index, spec in enumerate(signature.output_specs):
        if spec.kind == OutputKind.BUFFER_MUTATION and spec.target in inputs:
            qparams = _encoding(nodes[inputs[spec.target]], results[index])
            if qparams is not None:
                encodings[index] = (spec.target, qparams)
    return _with_integer_state(exported, encodings, inputs) if encodings else exported


def _encoding(state: fx.Node, result: Any) -> tuple[Any, ...] | None:
    """The quantization parameters that all writes and reads of a state have in common, or None."""
    if not isinstance(result, fx.Node) or result.target != _DEQUANTIZE:
        return None
    qparams: tuple[Any, ...] = tuple(result.args[1:])
    value = state.meta.get("val")
    if value is None or value.dtype != torch.float32 or not state.users:
        return None
    return qparams if all(u.target == _QUANTIZE and tuple(u.args[1:]) == qparams for u in state.users) else None


def _with_integer_state(
    exported: ExportedProgram, encodings: dict[int, tuple[str, tuple[Any, ...]]], inputs: dict[str, str]
) -> ExportedProgram:
    module = copy.deepcopy(exported.graph_module)
    for old, new in zip(exported.graph.nodes, module.graph.nodes, strict=True):
        new.name = old.name  # copying renames nodes named after builtins
    nodes = {n.name: n for n in module.graph.nodes}
    output: Any = module.graph.output_node()
    results, specs = list(output.args[0]), list(exported.graph_signature.output_specs)
    states, others = dict(exported.state_dict), dict(exported.constants)
    for index, (target, qparams) in encodings.items():
        _strip_quantize(nodes[inputs[target]], qparams)
        results[index] = results[index].args[0]
        specs[index] = OutputSpec(specs[index].kind, TensorArgument(results[index].name), target)
        table = states if target in states else others  # non-persistent buffers are among the constants
        table[target] = _QUANTIZE(table[target].detach(), *qparams)
    output.args = (tuple(results),)
    module.graph.eliminate_dead_code()
    module.recompile()
    signature = ExportGraphSignature(exported.graph_signature.input_specs, specs)
    return with_graph(exported, module, signature, states=states, constants=others)


def _strip_quantize(state: fx.Node, qparams: tuple[Any, ...]) -> None:
    """Make the integers the input: drop the quantize operators that read it."""
    for reader in list(state.users):
        reader.replace_all_uses_with(state)
        state.graph.erase_node(reader)
    state.meta["val"] = state.meta["val"].to(qparams[-1])
    state.meta[ENCODING] = qparams


def require_same_encoding(programs: Mapping[str, ExportedProgram]) -> None:
    """Raise unless methods that share state store it with the same quantization parameters."""
    first: dict[str, tuple[str, Any]] = {}
    for method, exported in programs.items():
        nodes = {n.name: n for n in exported.graph.nodes if n.op == "placeholder"}
        mutated = set(exported.graph_signature.buffers_to_mutate.values())
        for spec in exported.graph_signature.input_specs:
            if spec.kind != InputKind.BUFFER or spec.target not in mutated:
                continue
            qparams = nodes[spec.arg.name].meta.get(ENCODING)
            other, expected = first.setdefault(str(spec.target), (method, qparams))
            if expected != qparams:
                value = f"{_describe(expected)} in {other!r}, {_describe(qparams)} in {method!r}"
                remedy = "Calibrate the methods together, or lower them with integer_state=False."
                rule = "must have the same encoding in all methods that share it"
                raise UsageError(f"state {spec.target!r}", rule, value=value, remedy=remedy)


def _describe(qparams: tuple[Any, ...] | None) -> str:
    return "float32" if qparams is None else f"{str(qparams[-1]).removeprefix('torch.')} of scale {qparams[0]:g}"
