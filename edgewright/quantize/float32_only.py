"""What is quantized must be of 32 bits: observers and fake integers are, and rows of integers are rows of those."""

from __future__ import annotations

import logging

import torch
from torch import fx

from edgewright.errors import UsageError

log = logging.getLogger("edgewright.quantize")
_SHORT = (torch.float16, torch.bfloat16)


def require_single(module: fx.GraphModule) -> None:
    """Raise if the weights and inputs of a model are of lower precision; name the first if only some are."""
    held = {n: n.meta.get("val") for n in module.graph.nodes if n.op in ("get_attr", "placeholder")}
    reals = {n: v.dtype for n, v in held.items() if isinstance(v, torch.Tensor) and v.dtype.is_floating_point}
    short = [n for n, dtype in reals.items() if dtype in _SHORT]
    if not short:
        return
    first, kind = str(short[0].target), str(reals[short[0]]).removeprefix("torch.")
    if len(short) == len(reals):
        remedy = "Quantize model.float(), with inputs of float32: what comes of it is no larger."
        raise UsageError("model", "must be of float32 to be quantized", value=kind, remedy=remedy)
    log.warning("%s and %d more are not of float32 (%s): what reads them is not quantized", first, len(short) - 1, kind)
