"""Rejects quantized programs with batch norms in training mode: quantized models are for inference."""

from __future__ import annotations

import torch
from torch import fx
from torch.export import ExportedProgram

from edgewright.errors import UsageError
from edgewright.frontend.origin import describe_node

aten = torch.ops.aten
_NORMS = (
    aten.batch_norm.default,
    aten.native_batch_norm.default,
    aten._native_batch_norm_legit.default,
    aten._native_batch_norm_legit_functional.default,
)
_STATISTICS, _TRAINING = 3, 5  # indices among their arguments
_QUANTIZED = ("quantized_decomposed", "torchao")


def require_inference(exported: ExportedProgram) -> None:
    """Raise if a quantized program contains a batch norm in training mode: its results depend on the other samples of
    the batch, and its layer was quantized without it. A float program may do so on purpose."""
    graphs = [m.graph for m in exported.graph_module.modules() if isinstance(m, fx.GraphModule)]
    nodes = [node for graph in graphs for node in graph.nodes if node.op == "call_function"]
    norm = next((node for node in nodes if _is_training_norm(node)), None)
    if norm is None or not any(getattr(node.target, "namespace", "") in _QUANTIZED for node in nodes):
        return
    path, line = describe_node(norm)
    rule = "must not be in training mode in a quantized model"
    remedy = (
        "Call move_exported_model_to_eval(prepared) before convert_pt2e, and train with a config of is_qat=True, so "
        f"that it is fused into its layer; or export model.eval() and calibrate. {line}"
    )
    raise UsageError(f"batch norm{path}", rule, remedy=remedy.strip())


def _is_training_norm(node: fx.Node) -> bool:
    return node.target in _NORMS and node.args[_TRAINING] is True and node.args[_STATISTICS] is not None
