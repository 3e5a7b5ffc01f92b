"""State of quantized models (caches of keys and values): written by operators that rows know, and held as integers."""

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
ENCODING = "state_encoding"  # of a placeholder: how its integers are meant
_QUANTIZE = torch.ops.quantized_decomposed.quantize_per_tensor.default
_DEQUANTIZE = torch.ops.quantized_decomposed.dequantize_per_tensor.default


# ----------------------------------------------------------------------------------------------------- while quantizing


def functional_writes(module: fx.GraphModule) -> fx.GraphModule:
    """Rows written to state in place become an operator with a result, and a copy of it to the state: so that what is
    written, and what is read again, has a scale. A module that writes through views stays as it is: lowering's walk has
    to follow those first."""
    if any(writes_through_view(node) for node in module.graph.nodes):
        return module
    work = _Writes(module.graph)
    for node in list(module.graph.nodes):
        work.visit(node)
    module.graph.lint()
    module.recompile()
    return module


class _Writes:
    """One pass over a graph. Who reads state after a write reads what was written: scales of state itself are taken at
    the start of the graph."""

    def __init__(self, graph: fx.Graph) -> None:
        self.graph = graph
        self.states: dict[fx.Node, fx.Node] = {}  # what is the same memory as an attribute
        self.newest: dict[Any, fx.Node] = {}  # by the attribute's name: what was last written

    def visit(self, node: fx.Node) -> None:
        if node.op == "get_attr":
            self.states[node] = node
            return
        target = node.args[0] if node.op == "call_function" and node.args else None
        state = self.states.get(target) if isinstance(target, fx.Node) and _writes(node) else None
        for read in (n for n in node.all_input_nodes if n in self.states and not (state and n is target)):
            node.replace_input_with(read, self._contents(self.states[read]))
        if state is not None:
            self._write(node, state)

    def _contents(self, state: fx.Node) -> fx.Node:
        return self.newest.get(state.target, state)

    def _write(self, node: fx.Node, state: fx.Node) -> None:
        source = node.args[1] if len(node.args) > 1 else None
        if node.target is aten.copy_.default and isinstance(source, fx.Node) and _alike(state, source):
            node.args = (state, *node.args[1:])
            self.states[node], self.newest[state.target] = state, source
            return
        made = _as_put(self.graph, node, state, self._contents(state))
        if made is None:  # the memory itself is what is newest now
            node.args = (state, *node.args[1:])
            self.states[node] = state
            self.newest.pop(state.target, None)
            return
        made.meta.update(node.meta)
        with self.graph.inserting_after(made):
            self.graph.call_function(aten.copy_.default, (state, made)).meta["val"] = node.meta.get("val")
        self.states[made], self.newest[state.target] = state, made
        node.replace_all_uses_with(made)
        name = node.name
        self.graph.erase_node(node)
        made._rename(name)


def _as_put(graph: fx.Graph, node: fx.Node, state: fx.Node, held: fx.Node) -> fx.Node | None:
    """``index_put`` to what state holds, for a write in place; None if it adds, or writes in another way."""
    given: Any
    if node.target is aten.index_put_.default:
        given = dict(zip(("self", "indices", "values", "accumulate"), node.args, strict=False)) | node.kwargs
        if given.get("accumulate"):
            return None
        places, values = given["indices"], given["values"]
    elif node.target is aten.index_copy_.default:
        given = dict(zip(("self", "dim", "index", "source"), node.args, strict=False)) | node.kwargs
        if given["index"].meta["val"].dim() != 1:
            return None
        places, values = [*[None] * (given["dim"] % state.meta["val"].dim()), given["index"]], given["source"]
    else:
        return None
    with graph.inserting_before(node):
        return graph.call_function(aten.index_put.default, (held, places, values))


def _writes(node: fx.Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


def _alike(state: fx.Node, new: fx.Node) -> bool:
    a, b = state.meta.get("val"), new.meta.get("val")
    return a is not None and b is not None and a.shape == b.shape and a.dtype == b.dtype


# ------------------------------------------------------------------------------------------------------- while lowering


def integer_state(exported: ExportedProgram) -> ExportedProgram:
    """The program with state as integers, where all that is written to it comes from integers of one scale and all
    that reads it makes those again: the same numbers, in a quarter or a half of the bytes."""
    signature = exported.graph_signature
    inputs = {s.target: s.arg.name for s in signature.input_specs if s.kind == InputKind.BUFFER}
    results: Any = exported.graph.output_node().args[0]
    nodes = {n.name: n for n in exported.graph.nodes}
    chosen: dict[int, tuple[str, tuple[Any, ...]]] = {}
    for place, spec in enumerate(signature.output_specs):
        if spec.kind == OutputKind.BUFFER_MUTATION and spec.target in inputs:
            how = _encoding(nodes[inputs[spec.target]], results[place])
            if how is not None:
                chosen[place] = (spec.target, how)
    return _rewritten(exported, chosen, inputs) if chosen else exported


def _encoding(state: fx.Node, result: Any) -> tuple[Any, ...] | None:
    """The one scale (with its zero, range and dtype) of all that is written to state and read from it."""
    if not isinstance(result, fx.Node) or result.target != _DEQUANTIZE:
        return None
    how: tuple[Any, ...] = tuple(result.args[1:])
    held = state.meta.get("val")
    if held is None or held.dtype != torch.float32 or not state.users:
        return None
    return how if all(u.target == _QUANTIZE and tuple(u.args[1:]) == how for u in state.users) else None


def _rewritten(
    exported: ExportedProgram, chosen: dict[int, tuple[str, tuple[Any, ...]]], inputs: dict[str, str]
) -> ExportedProgram:
    module = copy.deepcopy(exported.graph_module)
    for old, new in zip(exported.graph.nodes, module.graph.nodes, strict=True):
        new.name = old.name  # copies get other names than Python's own
    nodes = {n.name: n for n in module.graph.nodes}
    output: Any = module.graph.output_node()
    results, specs = list(output.args[0]), list(exported.graph_signature.output_specs)
    states, others = dict(exported.state_dict), dict(exported.constants)
    for place, (target, how) in chosen.items():
        _open(nodes[inputs[target]], how)
        results[place] = results[place].args[0]
        specs[place] = OutputSpec(specs[place].kind, TensorArgument(results[place].name), target)
        kept = states if target in states else others  # what is not to be saved is among the constants
        kept[target] = _QUANTIZE(kept[target].detach(), *how)
    output.args = (tuple(results),)
    module.graph.eliminate_dead_code()
    module.recompile()
    signature = ExportGraphSignature(exported.graph_signature.input_specs, specs)
    return with_graph(exported, module, signature, states=states, constants=others)


def _open(state: fx.Node, how: tuple[Any, ...]) -> None:
    """The integers themselves are the input."""
    for reader in list(state.users):
        reader.replace_all_uses_with(state)
        state.graph.erase_node(reader)
    state.meta["val"] = state.meta["val"].to(how[-1])
    state.meta[ENCODING] = how


def check_shared(programs: Mapping[str, ExportedProgram]) -> None:
    """Raise unless methods that share state hold it the same way: integers of one scale are not those of another."""
    first: dict[str, tuple[str, Any]] = {}
    for method, exported in programs.items():
        nodes = {n.name: n for n in exported.graph.nodes if n.op == "placeholder"}
        written = set(exported.graph_signature.buffers_to_mutate.values())
        for spec in exported.graph_signature.input_specs:
            if spec.kind != InputKind.BUFFER or spec.target not in written:
                continue
            held = nodes[spec.arg.name].meta.get(ENCODING)
            other, before = first.setdefault(str(spec.target), (method, held))
            if before != held:
                value = f"{_told(before)} in {other!r}, {_told(held)} in {method!r}"
                remedy = "Calibrate the methods together, or lower them with integer_state=False."
                rule = "must be held the same way in all methods that share it"
                raise UsageError(f"state {spec.target!r}", rule, value=value, remedy=remedy)


def _told(how: tuple[Any, ...] | None) -> str:
    return "real numbers" if how is None else f"{str(how[-1]).removeprefix('torch.')} of scale {how[0]:g}"
