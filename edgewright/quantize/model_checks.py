"""Requirements of models to quantize: float32 weights and activations, and batch norms for inference.

Observers, fake quantization and the tables' integer rows are float32. Quantized models are for inference.
"""

from __future__ import annotations

import logging

import torch
from torch import fx
from torch.export import ExportedProgram

from edgewright.errors import UsageError
from edgewright.frontend.origin import describe_node

log = logging.getLogger("edgewright.quantize")
_LOW_PRECISION = (torch.float16, torch.bfloat16)


def require_float32(module: fx.GraphModule) -> None:
    """Raise if all weights and inputs of a model have lower precision; warn if some have."""
    values = {n: n.meta.get("val") for n in module.graph.nodes if n.op in ("get_attr", "placeholder")}
    float_dtypes = {n: v.dtype for n, v in values.items() if isinstance(v, torch.Tensor) and v.dtype.is_floating_point}
    low_precision = [n for n, dtype in float_dtypes.items() if dtype in _LOW_PRECISION]
    if not low_precision:
        return
    first, kind = str(low_precision[0].target), str(float_dtypes[low_precision[0]]).removeprefix("torch.")
    if len(low_precision) == len(float_dtypes):
        remedy = "Quantize model.float(), with inputs of float32: the quantized model is no larger."
        raise UsageError("model", "must be of float32 to be quantized", value=kind, remedy=remedy)
    log.warning(
        "%s and %d more are not of float32 (%s): their readers are not quantized", first, len(low_precision) - 1, kind
    )


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
