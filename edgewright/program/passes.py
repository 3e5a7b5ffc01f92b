"""User passes on a method's graph, and a graph as a table."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Union

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature, OutputSpec, TensorArgument

from edgewright.errors import UsageError
from edgewright.frontend.replace_graph import with_graph

Pass = Callable[[Any], Any]
Passes = Union[Sequence[Pass], Mapping[str, Sequence[Pass]]]


def pass_list(passes: Any) -> Sequence[Pass]:
    inner = getattr(passes, "passes", passes)  # a PassManager has a list of them
    return list(inner) if isinstance(inner, Sequence) else [inner]


def apply_passes(program: ExportedProgram, passes: Sequence[Pass]) -> ExportedProgram:
    """The program after ``passes``, each of which modifies the module in place or returns another (or a PassResult)."""
    if not passes:
        return program
    original = program.graph_module
    module: Any = torch.fx.GraphModule(original, copy.deepcopy(original.graph))  # passes may change it in place
    module.meta.update(original.meta)
    for old, new in zip(original.graph.nodes, module.graph.nodes, strict=True):
        new.name = old.name  # deepcopy renames nodes called like a builtin, such as input
    for graph_pass in passes:
        result = graph_pass(module)
        returned = getattr(result, "graph_module", result)
        module = returned if isinstance(returned, torch.nn.Module) else module
    for node, name in zip(_placeholders(module), [n.name for n in _placeholders(original)], strict=False):
        node.name = name  # a pass that retraces the graph renames its inputs
    return with_graph(program, module, _updated_signature(program.graph_signature, module.graph))


def _placeholders(module: Any) -> list[torch.fx.Node]:
    return [node for node in module.graph.nodes if node.op == "placeholder"]


def _updated_signature(old: ExportGraphSignature, graph: torch.fx.Graph) -> ExportGraphSignature:
    """The signature with the graph's current results, which passes may have replaced."""
    output: Any = graph.output_node()
    results, specs = list(output.args[0]), []
    if len(results) != len(old.output_specs):
        raise UsageError("transform_passes", f"must keep the {len(old.output_specs)} results", value=len(results))
    for spec, result in zip(old.output_specs, results, strict=True):
        renamed = isinstance(spec.arg, TensorArgument) and isinstance(result, torch.fx.Node)
        specs.append(OutputSpec(spec.kind, TensorArgument(result.name), spec.target) if renamed else spec)
    return ExportGraphSignature(old.input_specs, specs)


def tabulate(graph: torch.fx.Graph) -> str:
    """A graph as a table: opcode, name, target, args, kwargs."""
    rows = [("opcode", "name", "target", "args", "kwargs")]
    rows += [(n.op, n.name, str(n.target), str(n.args), str(n.kwargs)) for n in graph.nodes]
    widths = [max(len(row[i]) for row in rows) for i in range(5)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)
