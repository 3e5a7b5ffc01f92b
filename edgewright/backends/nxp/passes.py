"""Passes for scripts that were written for ExecuTorch's Neutron flow, on graphs of any quantizer.

``NeutronQuantizer`` gives every value its own conversions, and rows take activations together with what is before them:
its graphs need none of this. Other quantizers leave movement without conversions inside an operator's, which is what
the default passes make good.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch.ao.quantization.fx import _decomposed  # noqa: F401  (declares the operators)

from edgewright.ir.aten.ops import OPS
from edgewright.quantize.integer_io import integer_io, strip_all_boundary_qdq

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from edgewright.quantize.integer_io import IOQParams

_ROUNDS = 10
_aten = torch.ops.aten
_QUANTIZE = torch.ops.quantized_decomposed.quantize_per_tensor.default
_DEQUANTIZE = torch.ops.quantized_decomposed.dequantize_per_tensor.default
_MOVES = ("view", "reshape", "flatten", "permute", "transpose", "t", "squeeze", "unsqueeze", "clone")
_MOVED = {overload for name in _MOVES for overload in OPS[name].aten}
_RESHAPED = {overload for name in ("squeeze", "unsqueeze") for overload in OPS[name].aten}
_STRIDED = (_aten.as_strided_copy.default, _aten.as_strided.default)
Pass = Callable[[fx.GraphModule], Any]


def _moves(node: Any, names: set[str] = _MOVED) -> bool:
    return isinstance(node, fx.Node) and node.op == "call_function" and str(node.target) in names


def _is(node: Any, target: Any) -> bool:
    return isinstance(node, fx.Node) and node.target == target


def _convert(graph: fx.Graph, source: fx.Node, parameters: Sequence[Any], place: fx.Node) -> fx.Node:
    """``source``, quantized and back, right behind ``place``."""
    with graph.inserting_after(place):
        stored = graph.call_function(_QUANTIZE, (source, *parameters))
    with graph.inserting_after(stored):
        real = graph.call_function(_DEQUANTIZE, (stored, *parameters))
    stored.meta = {**source.meta, "val": source.meta["val"].to(parameters[-1])}
    real.meta = {**source.meta, "val": source.meta["val"].clone()}
    return real


def split_leading_moves(module: fx.GraphModule) -> bool:
    """dequantize → movement → operator: the moved value is quantized with the parameters that it came with."""
    changed = False
    for node in list(module.graph.nodes):
        if not _moves(node) or not _is(node.args[0], _DEQUANTIZE) or all(_is(u, _QUANTIZE) for u in node.users):
            continue
        readers = [u for u in node.users if not _is(u, _QUANTIZE) and u.op != "output"]
        if readers:
            real = _convert(module.graph, node, node.args[0].args[1:], node)
            for reader in readers:
                reader.replace_input_with(node, real)
            changed = True
    return changed


def split_trailing_moves(module: fx.GraphModule) -> bool:
    """Operator → movement → quantize: what is moved is quantized before, with the parameters that it ends with."""
    changed = False
    for node in list(module.graph.nodes):
        source = node.args[0] if _moves(node) else None
        if not isinstance(source, fx.Node) or source.op != "call_function" or _is(source, _DEQUANTIZE):
            continue
        ends = {u.args[1:] for u in node.users if _is(u, _QUANTIZE)}
        if len(ends) == 1 and len(node.users) == sum(_is(u, _QUANTIZE) for u in node.users):
            node.replace_input_with(source, _convert(module.graph, source, next(iter(ends)), source))
            changed = True
    return changed


def remove_idle_strides(module: fx.GraphModule) -> bool:
    """``as_strided`` of what lies so already, as exporting a mean leaves it."""
    changed = False
    for node in list(module.graph.nodes):
        source = node.args[0] if node.target in _STRIDED else None
        if not isinstance(source, fx.Node) or source.meta["val"].shape != node.meta["val"].shape:
            continue
        held = source.meta["val"]
        if tuple(held.stride()) == tuple(node.args[2]) and not (node.args[3:] and node.args[3]):
            node.replace_all_uses_with(source)
            module.graph.erase_node(node)
            changed = True
    return changed


def reshape_by_view(module: fx.GraphModule) -> bool:
    """``squeeze`` and ``unsqueeze`` as ``view``."""
    changed = False
    for node in list(module.graph.nodes):
        if _moves(node, _RESHAPED) and all(isinstance(n, int) for n in node.meta["val"].shape):
            node.target, node.args, node.kwargs = _aten.view.default, (node.args[0], list(node.meta["val"].shape)), {}
            changed = True
    return changed


def fold_conversions(module: fx.GraphModule) -> bool:
    """dequantize → quantize with the same parameters is nothing."""
    changed = False
    for node in list(module.graph.nodes):
        source: Any = node.args[0] if _is(node, _QUANTIZE) else None
        if _is(source, _DEQUANTIZE) and source.args[1:] == node.args[1:]:
            node.replace_all_uses_with(source.args[0])
            changed = True
    module.graph.eliminate_dead_code()
    return changed


DEFAULT: tuple[Pass, ...] = (
    split_leading_moves,
    split_trailing_moves,
    remove_idle_strides,
    reshape_by_view,
    fold_conversions,
)


class NeutronEdgePassManager:
    """A pass that runs passes until none changes anything, ten times at most; by default those above.

    A pass gives True or False, or a result with ``graph_module`` and ``modified``, a module, or nothing. Activations
    stay with what is before them. ExecuTorch quantizes what a sigmoid or tangent is given with the parameters of its
    result; here it stays real, since all of it outside of that range would be lost.
    """

    def __init__(self, passes: Sequence[Pass] | None = None) -> None:
        self._passes = list(DEFAULT if passes is None else passes)

    def __call__(self, graph_module: fx.GraphModule) -> fx.GraphModule:
        for _ in range(_ROUNDS):
            changed = False
            for change in self._passes:
                done = change(graph_module)
                changed |= bool(done if isinstance(done, bool) else getattr(done, "modified", False))
                found = getattr(done, "graph_module", done)
                graph_module = found if isinstance(found, fx.GraphModule) else graph_module
            if not changed:
                break
        graph_module.graph.lint()
        graph_module.recompile()
        return graph_module


class RemoveAdditionalQDQClustersPass:
    """Movement that was left to the CPU moves the stored integers, if they are stored alike before and after."""

    def __call__(self, graph_module: fx.GraphModule) -> bool:
        changed = False
        for node in list(graph_module.graph.nodes):
            source: Any = node.args[0] if _moves(node) else None
            users = list(node.users)
            if not _is(source, _DEQUANTIZE) or not users:
                continue
            if all(_is(u, _QUANTIZE) and u.args[1:] == source.args[1:] for u in users):
                node.replace_input_with(source, source.args[0])
                node.meta["val"] = users[0].meta["val"]
                for user in users:
                    user.replace_all_uses_with(node)
                changed = True
        graph_module.graph.eliminate_dead_code()
        return changed


class RemoveIOQuantOpsPass:
    """8-bit integers at the program's ends: the conversions there are left to the caller."""

    def __init__(self, edge_program_manager: Any = None) -> None:
        self.ends: dict[str, IOQParams] = {}

    def __call__(self, graph_module: fx.GraphModule) -> fx.GraphModule:
        self.ends = strip_all_boundary_qdq(graph_module.graph)
        graph_module.recompile()
        return graph_module


def remove_io_quant_ops(exported: ExportedProgram) -> tuple[ExportedProgram, dict[str, IOQParams]]:
    """A quantized program that takes and gives 8-bit integers, and how they are to be read."""
    return integer_io(exported)
