"""Integer inputs and outputs on request: the conversions at a program's ends are left to the caller."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.ao.quantization.fx import _decomposed  # noqa: F401  (declares the operators)
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature, OutputKind, OutputSpec, TensorArgument

from edgewright.errors import UsageError
from edgewright.frontend.replace_graph import with_graph

_QUANTIZE = torch.ops.quantized_decomposed.quantize_per_tensor.default
_DEQUANTIZE = torch.ops.quantized_decomposed.dequantize_per_tensor.default


@dataclass(frozen=True)
class Parameters:
    """How an input or output is stored: ``real = scale * (stored - zero_point)``."""

    scale: float
    zero_point: int
    qmin: int
    qmax: int
    dtype: torch.dtype


def integer_io(
    exported: ExportedProgram, inputs: Iterable[int] | None = None, outputs: Iterable[int] | None = None
) -> tuple[ExportedProgram, dict[str, Parameters]]:
    """A quantized program whose inputs and outputs are the integers themselves, and their parameters by name
    (``input0``, ``output0``). ``inputs`` and ``outputs``: which ones, by place; all of them by default.
    """
    module = copy.deepcopy(exported.graph_module)
    for old, new in zip(exported.graph.nodes, module.graph.nodes, strict=True):
        new.name = old.name  # copies get other names than Python's own
    found, renamed = open_chosen(module.graph, exported.graph_signature, inputs, outputs)
    module.recompile()
    specs = [
        OutputSpec(s.kind, TensorArgument(renamed[i]), s.target) if i in renamed else s
        for i, s in enumerate(exported.graph_signature.output_specs)
    ]
    signature = ExportGraphSignature(exported.graph_signature.input_specs, specs)
    return with_graph(exported, module, signature), found


def open_chosen(
    graph: fx.Graph, signature: ExportGraphSignature, inputs: Iterable[int] | None, outputs: Iterable[int] | None
) -> tuple[dict[str, Parameters], dict[int, str]]:
    """The same on the graph of a program, in place; and the results' new names, by their places in the graph."""
    found: dict[str, Parameters] = {}
    names = list(signature.user_inputs)
    for i in _places("input", inputs, len(names)):
        found[f"input{i}"] = _open_input(graph, str(names[i]), i)
    results = [s for s in signature.output_specs if s.kind == OutputKind.USER_OUTPUT]
    renamed: dict[int, str] = {}
    for i in _places("output", outputs, len(results)):
        place = signature.output_specs.index(results[i])
        found[f"output{i}"], renamed[place] = _open_output(graph, place, i)
    graph.eliminate_dead_code()
    return found, renamed


def open_ends(graph: fx.Graph) -> dict[str, Parameters]:
    """The same on a graph alone, in place: of every input and output that is converted, numbered as they come."""
    found: dict[str, Parameters] = {}
    names = [n.name for n in graph.nodes if n.op == "placeholder" and any(u.target == _QUANTIZE for u in n.users)]
    for i, name in enumerate(names):
        found[f"input{i}"] = _open_input(graph, name, i)
    output: Any = graph.output_node()
    places = [i for i, r in enumerate(output.args[0]) if isinstance(r, fx.Node) and r.target == _DEQUANTIZE]
    for i, place in enumerate(places):
        found[f"output{i}"], _ = _open_output(graph, place, i)
    if not found:
        raise _not_quantized("input", 0, [n for n in graph.nodes if n.op == "placeholder"])
    graph.eliminate_dead_code()
    return found


def _places(side: str, wanted: Iterable[int] | None, count: int) -> list[int]:
    chosen = list(range(count)) if wanted is None else list(wanted)
    bad = [i for i in chosen if not isinstance(i, int) or not 0 <= i < count]
    if bad:
        raise UsageError(f"{side}s", f"must be places from 0 to {count - 1}", value=bad)
    return chosen


def _open_input(graph: fx.Graph, name: str, place: int) -> Parameters:
    node = next(n for n in graph.nodes if n.op == "placeholder" and n.name == name)
    readers = list(node.users)
    kinds = {r.args[1:] for r in readers if r.target == _QUANTIZE}
    if len(kinds) != 1 or any(r.target != _QUANTIZE for r in readers):
        raise _not_quantized("input", place, readers)
    held, kind = node.meta["val"], readers[0].meta["val"].dtype
    for reader in readers:
        reader.replace_all_uses_with(node)
        graph.erase_node(reader)
    node.meta["val"] = held.to(kind)  # keeps the order of dimensions
    return _parameters(next(iter(kinds)))


def _open_output(graph: fx.Graph, place: int, number: int) -> tuple[Parameters, str]:
    node: Any = graph.output_node()
    results = list(node.args[0])
    last = results[place]
    if not isinstance(last, fx.Node) or last.target != _DEQUANTIZE:
        raise _not_quantized("output", number, [last])
    source: Any = last.args[0]
    results[place] = source
    node.args = (tuple(results),)
    return _parameters(last.args[1:]), source.name


def _parameters(args: Any) -> Parameters:
    scale, zero, low, high, dtype = args
    return Parameters(float(scale), int(zero), int(low), int(high), dtype)


def _not_quantized(side: str, place: int, nodes: list[Any]) -> UsageError:
    remedy = "Quantize the model first, so that what reads it (or makes it) works on integers."
    found = ", ".join(str(getattr(n, "target", n)) for n in nodes) or "nothing"
    return UsageError(f"{side} {place}", "must be quantized once, for all its readers", value=found, remedy=remedy)
