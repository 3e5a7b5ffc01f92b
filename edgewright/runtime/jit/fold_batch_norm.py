"""Folding of a batch norm call into the weights and bias of the convolution that produces its input."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgewright.ir.graph import Op
from edgewright.lowering.aten_to_core.operands import require_floats, result
from edgewright.lowering.aten_to_core.products import batch_norm_scale_shift
from edgewright.lowering.passes.layout import NHWC
from edgewright.runtime.jit.graph_builder import GraphBuilder
from edgewright.runtime.tensor import TensorSlot


def fold_batch_norm(g: GraphBuilder, op: Op, slots: Sequence[TensorSlot]) -> bool:
    """Fold ``op`` if it is a batch norm and nothing else reads the convolution's result."""
    if op.kind != "batch_norm" or len(op.args["input"].shape) != 4 or not g.has_single_reader(slots[0]):
        return False
    x, out = op.args["input"], result(op)
    conv_out = g.get(x, NHWC) if NHWC in g.orders(x) and g.is_bound(slots[0]) else None
    conv = None if conv_out is None else g.producers.get(conv_out)
    if conv is None or conv_out is None or conv.kind not in ("core.conv2d", "core.depthwise_conv2d"):
        return False
    require_floats(x, out)
    factor, shift = batch_norm_scale_shift(op, g.statistics_dtype)
    weight, bias = conv.args["weight"], conv.args["bias"]
    scale = factor if conv.kind == "core.depthwise_conv2d" else factor[:, None, None, None]
    conv.args["weight"] = g.constant((weight.data * scale).astype(np.float32))
    conv.args["bias"] = g.constant((shift if bias is None else bias.data * factor + shift).astype(np.float32))
    g.alias(out, NHWC, conv_out)
    return True
