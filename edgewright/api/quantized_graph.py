"""Predicates on nodes of a quantized graph: conversions, weights, and operators that hardware computes in integers."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

# Of exported programs, before decomposition: most have no row in the op table.
_DISCONTINUOUS = {
    "argmax", "argmin", "argsort", "topk", "sort", "histc", "bincount", "bucketize", "searchsorted", "round", "floor",
    "ceil", "trunc", "frac", "sign", "sgn", "floor_divide", "fmod", "remainder", "eq", "ne", "gt", "ge", "lt", "le",
    "nonzero", "isinf", "isnan", "one_hot", "median", "mode", "unique", "signbit", "heaviside",
}  # fmt: skip
_CONSTANT_KINDS = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


def target_name(node: Any) -> str:
    return str(getattr(node, "target", ""))


def operator_name(node: fx.Node) -> str:
    """An operator's name without namespace and overload.

    >>> graph = fx.Graph()
    >>> operator_name(graph.call_function(torch.ops.aten.view_copy.default, (graph.placeholder("x"), [1])))
    'view'
    """
    parts = target_name(node).split(".")
    return (parts[1] if len(parts) > 1 else parts[0]).removesuffix("_copy")


def is_quantize(node: Any) -> bool:
    """True for a quantize operator."""
    name = target_name(node)
    return "quantized_decomposed.quantize" in name or "torchao.quantize_affine" in name


def is_dequantize(node: Any) -> bool:
    name = target_name(node)
    return "quantized_decomposed.dequantize" in name or "torchao.dequantize_affine" in name


def is_conversion(node: Any) -> bool:
    """True for quantize, dequantize and ``choose_qparams`` operators."""
    return is_quantize(node) or is_dequantize(node) or "choose_qparams" in target_name(node)


def is_quantized(graph: fx.Graph) -> bool:
    """True if a graph contains quantization operators."""
    return any(is_conversion(node) for node in graph.nodes)


def has_discontinuities(graph: fx.Graph) -> bool:
    """True if a graph has discontinuous operators (selection, comparison, counting), which rounding can flip."""
    names = {operator_name(n) for n in graph.nodes if n.op == "call_function"}
    return bool(names & _DISCONTINUOUS)


def is_dynamic(quantize: fx.Node) -> bool:
    """True if the scale is computed at run time."""
    return any("choose_qparams" in target_name(a) for n in quantize.all_input_nodes for a in (n, *n.all_input_nodes))


def is_mutable(node: Any) -> bool:
    """True for an operator that writes to an argument."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and bool(schema.is_mutable)


def constant_nodes(exported: ExportedProgram) -> set[fx.Node]:
    """The placeholders of a program's weights, without state."""
    signature = exported.graph_signature
    names = {spec.arg.name for spec in signature.input_specs if spec.kind in _CONSTANT_KINDS}
    mutated = set(signature.buffers_to_mutate.values())
    state = {name for name, target in signature.inputs_to_buffers.items() if target in mutated}
    nodes = [n for n in exported.graph.nodes if n.op == "placeholder" and n.name in names - state]
    return {n for n in nodes if not any(is_mutable(user) for user in n.users)}


def is_weight(node: fx.Node, constants: Collection[fx.Node] = ()) -> bool:
    """True for a constant or a dequantized constant."""
    constant = node.all_input_nodes[0] if is_dequantize(node) else node
    return constant.op == "get_attr" or constant in constants


def dequantized_node(node: fx.Node) -> fx.Node | None:
    """The node that dequantizes a result, if it is quantized."""
    for quantize in (u for u in node.users if is_quantize(u)):
        return next((u for u in quantize.users if is_dequantize(u)), None)
    return None


def integer_nodes(graph: fx.Graph, constants: Collection[fx.Node] = ()) -> set[fx.Node]:
    """Operators between dequantize and quantize that hardware computes in integers: all their inputs are quantized,
    including weights but not one-dimensional biases."""
    result: set[fx.Node] = set()
    for node in graph.nodes:
        if is_quantize(node) and isinstance(node.args[0], fx.Node):
            layer = operators_before(node.args[0], ())
            if all(_is_quantized(a, constants) for n in layer for a in n.all_input_nodes if a not in layer):
                result.update(layer)
    return result


def operators_before(node: fx.Node, ends: Collection[fx.Node]) -> list[fx.Node]:
    """The operators that compute a value, last first: back to conversions, inputs and ``ends``."""
    operators: dict[fx.Node, None] = {}
    todo = [node]
    while todo:
        current = todo.pop()
        if current not in operators and current.op == "call_function" and not is_conversion(current):
            operators[current] = None
            todo += [a for a in current.all_input_nodes if a not in ends]
    return list(operators)


def _is_quantized(node: fx.Node, constants: Collection[fx.Node]) -> bool:
    value = node.meta.get("val")
    if is_dequantize(node) or not isinstance(value, torch.Tensor):
        return True
    return is_weight(node, constants) and value.dim() < 2
