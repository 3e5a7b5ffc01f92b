"""FX passes for scripts written for ExecuTorch's Neutron flow, on graphs from any quantizer.

Graphs from ``NeutronQuantizer`` need none of them: it quantizes every value, and the partitioner fuses activations.
Other quantizers leave data movement without quantize/dequantize pairs next to an operator; the default passes insert
them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch.ao.quantization.fx import _decomposed  # noqa: F401  (declares the operators)
from torch.fx.passes.infra.pass_base import PassBase, PassResult

from edgewright.ir.aten.ops import OPS
from edgewright.ir.aten.table import OpClass
from edgewright.quantize.integer_io import integer_io, strip_all_boundary_qdq

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from edgewright.quantize.integer_io import IOQParams

log = logging.getLogger("edgewright.nxp")

_MAX_ITERATIONS = 10
_aten = torch.ops.aten
_QUANTIZE = torch.ops.quantized_decomposed.quantize_per_tensor.default
_DEQUANTIZE = torch.ops.quantized_decomposed.dequantize_per_tensor.default
_MOVEMENT_OVERLOADS = {
    overload for row in OPS.values() if row.op_class in (OpClass.RESHAPE, OpClass.TRANSPOSE) for overload in row.aten
}
_SQUEEZE_OVERLOADS = {overload for name in ("squeeze", "unsqueeze") for overload in OPS[name].aten}
_AS_STRIDED = (_aten.as_strided_copy.default, _aten.as_strided.default)
Pass = Callable[[fx.GraphModule], Any]


def _is_movement(node: Any, names: set[str] = _MOVEMENT_OVERLOADS) -> bool:
    return isinstance(node, fx.Node) and node.op == "call_function" and str(node.target) in names


def _calls(node: Any, target: Any) -> bool:
    return isinstance(node, fx.Node) and node.target == target


def _insert_qdq(graph: fx.Graph, source: fx.Node, parameters: Sequence[Any], position: fx.Node) -> fx.Node:
    """Insert quantize and dequantize of ``source`` after ``position``."""
    with graph.inserting_after(position):
        quantized = graph.call_function(_QUANTIZE, (source, *parameters))
    with graph.inserting_after(quantized):
        dequantized = graph.call_function(_DEQUANTIZE, (quantized, *parameters))
    quantized.meta = {**source.meta, "val": source.meta["val"].to(parameters[-1])}
    dequantized.meta = {**source.meta, "val": source.meta["val"].clone()}
    return dequantized


def quantize_after_leading_movement(module: fx.GraphModule) -> bool:
    """dequantize → movement → operator: quantize the moved value with the parameters of the dequantize."""
    changed = False
    for node in list(module.graph.nodes):
        if (
            not _is_movement(node)
            or not _calls(node.args[0], _DEQUANTIZE)
            or all(_calls(u, _QUANTIZE) for u in node.users)
        ):
            continue
        readers = [u for u in node.users if not _calls(u, _QUANTIZE) and u.op != "output"]
        if readers:
            dequantized = _insert_qdq(module.graph, node, node.args[0].args[1:], node)
            for reader in readers:
                reader.replace_input_with(node, dequantized)
            changed = True
    return changed


def quantize_before_trailing_movement(module: fx.GraphModule) -> bool:
    """Operator → movement → quantize: quantize the operator's output with the parameters of the quantize."""
    changed = False
    for node in list(module.graph.nodes):
        source = node.args[0] if _is_movement(node) else None
        if not isinstance(source, fx.Node) or source.op != "call_function" or _calls(source, _DEQUANTIZE):
            continue
        parameters = {u.args[1:] for u in node.users if _calls(u, _QUANTIZE)}
        if len(parameters) == 1 and len(node.users) == sum(_calls(u, _QUANTIZE) for u in node.users):
            node.replace_input_with(source, _insert_qdq(module.graph, source, next(iter(parameters)), source))
            changed = True
    return changed


def remove_noop_as_strided(module: fx.GraphModule) -> bool:
    """Remove ``as_strided`` that does not change the strides, which exporting a mean produces."""
    changed = False
    for node in list(module.graph.nodes):
        source = node.args[0] if node.target in _AS_STRIDED else None
        if not isinstance(source, fx.Node) or source.meta["val"].shape != node.meta["val"].shape:
            continue
        tensor = source.meta["val"]
        if tuple(tensor.stride()) == tuple(node.args[2]) and not (node.args[3:] and node.args[3]):
            node.replace_all_uses_with(source)
            module.graph.erase_node(node)
            changed = True
    return changed


def squeeze_to_view(module: fx.GraphModule) -> bool:
    """Replace ``squeeze`` and ``unsqueeze`` by ``view``."""
    changed = False
    for node in list(module.graph.nodes):
        if _is_movement(node, _SQUEEZE_OVERLOADS) and all(isinstance(n, int) for n in node.meta["val"].shape):
            node.target, node.args, node.kwargs = _aten.view.default, (node.args[0], list(node.meta["val"].shape)), {}
            changed = True
    return changed


def fold_qdq_pairs(module: fx.GraphModule) -> bool:
    """Remove dequantize → quantize pairs with equal parameters."""
    changed = False
    for node in list(module.graph.nodes):
        source: Any = node.args[0] if _calls(node, _QUANTIZE) else None
        if _calls(source, _DEQUANTIZE) and source.args[1:] == node.args[1:]:
            node.replace_all_uses_with(source.args[0])
            changed = True
    module.graph.eliminate_dead_code()
    return changed


DEFAULT_PASSES: tuple[Pass, ...] = (
    quantize_after_leading_movement,
    quantize_before_trailing_movement,
    remove_noop_as_strided,
    squeeze_to_view,
    fold_qdq_pairs,
)


class NeutronEdgePassManager:
    """Runs passes (by default those of this module) to a fixed point, with at most ten iterations.

    A pass returns a bool, a result with ``graph_module`` and ``modified``, a module, or None. Activations stay fused
    with the preceding operator. ExecuTorch quantizes the input of a sigmoid or tanh with the parameters of its output;
    here the input stays in floating point, because that range would saturate it.
    """

    def __init__(self, passes: Sequence[Pass] | None = None) -> None:
        self._passes = list(DEFAULT_PASSES if passes is None else passes)

    def __call__(self, graph_module: fx.GraphModule) -> fx.GraphModule:
        for _ in range(_MAX_ITERATIONS):
            changed = False
            for run_pass in self._passes:
                outcome = run_pass(graph_module)
                changed |= bool(outcome if isinstance(outcome, bool) else getattr(outcome, "modified", False))
                module = getattr(outcome, "graph_module", outcome)
                graph_module = module if isinstance(module, fx.GraphModule) else graph_module
            if not changed:
                break
        graph_module.graph.lint()
        graph_module.recompile()
        return graph_module


class RemoveAdditionalQDQClustersPass:
    """Lets data movement on the CPU operate on stored integers if its input and output have equal parameters."""

    def __call__(self, graph_module: fx.GraphModule) -> bool:
        changed = False
        for node in list(graph_module.graph.nodes):
            source: Any = node.args[0] if _is_movement(node) else None
            users = list(node.users)
            if not _calls(source, _DEQUANTIZE) or not users:
                continue
            if all(_calls(u, _QUANTIZE) and u.args[1:] == source.args[1:] for u in users):
                node.replace_input_with(source, source.args[0])
                node.meta["val"] = users[0].meta["val"]
                for user in users:
                    user.replace_all_uses_with(node)
                changed = True
        graph_module.graph.eliminate_dead_code()
        return changed


class QuantizeFusedConvBnBiasAtenPass(PassBase):
    """Quantizes the biases that folded batch norms leave, in ExecuTorch. Here lowering does, so the graph stays as it
    is."""

    def __init__(
        self, exported_program: Any = None, default_zero_bias: bool = False, symmetric_quant: bool = False
    ) -> None:
        super().__init__()
        for name, chosen in (("default_zero_bias", default_zero_bias), ("symmetric_quant", symmetric_quant)):
            if chosen:
                log.warning("%s makes no difference: lowering gives biases the scale of the products", name)

    def call(self, graph_module: fx.GraphModule) -> PassResult:
        return PassResult(graph_module, False)


class RemoveIOQuantOpsPass:
    """Makes inputs and outputs int8: removes the quantize and dequantize operators at the program's boundary."""

    def __init__(self, edge_program_manager: Any = None) -> None:
        self.ends: dict[str, IOQParams] = {}

    def __call__(self, graph_module: fx.GraphModule) -> fx.GraphModule:
        self.ends = strip_all_boundary_qdq(graph_module.graph)
        graph_module.recompile()
        return graph_module


def remove_io_quant_ops(exported: ExportedProgram) -> tuple[ExportedProgram, dict[str, IOQParams]]:
    """A quantized program with int8 inputs and outputs, and their quantization parameters."""
    return integer_io(exported)
