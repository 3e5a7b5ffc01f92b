"""Requires float32 models for quantization: observers, fake quantization and the tables' integer rows are float32."""

from __future__ import annotations

import logging

import torch
from torch import fx

from edgewright.errors import UsageError

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
