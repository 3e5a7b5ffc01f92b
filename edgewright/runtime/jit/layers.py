"""Lowering of the kernels of transformers: batched matmul, norms, softmax, reductions."""

from __future__ import annotations

import math
from collections.abc import Sequence

from edgewright.runtime.jit.graph_builder import TRANSCENDENTAL_COST, GraphBuilder
from edgewright.runtime.jit.registry import Args, core_kind, lowers
from edgewright.runtime.tensor import TensorSlot


@lowers("aten::bmm.out")
def _bmm(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, y = a["self"], a["mat2"]
    if not g.supports_float(x, y, *outs) or len(x.bound) != 3 or len(y.bound) != 3:
        return False
    g.macs += math.prod(x.bound) * y.bound[-1]
    g.emit_to("core.bmm", outs[0], {"self": g.value(x), "other": g.value(y)})
    return True


@lowers("aten::native_layer_norm.out")
def _layer_norm(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, weight, bias = a["input"], a["weight"], a["bias"]
    if not g.supports_float(x, weight, bias, outs[0]) or not x.bound:
        return False
    g.macs += TRANSCENDENTAL_COST * math.prod(x.bound)
    factors = {n: None if s is None else g.value(s) for n, s in (("weight", weight), ("bias", bias))}
    shape = [int(n) for n in a["normalized_shape"]]
    g.emit_to(
        "core.layer_norm", outs[0], {"input": g.value(x), "normalized_shape": shape, **factors, "eps": float(a["eps"])}
    )
    return True


@lowers("aten::native_group_norm.out")
def _group_norm(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, weight, bias = a["input"], a["weight"], a["bias"]
    if not g.supports_float(x, weight, bias, outs[0]) or len(x.bound) < 2 or not a["group"]:
        return False
    if (a["N"], a["C"], a["HxW"]) != (x.bound[0], x.bound[1], math.prod(x.bound[2:])):
        return False
    g.macs += TRANSCENDENTAL_COST * math.prod(x.bound)
    factors = {n: None if s is None else g.value(s) for n, s in (("weight", weight), ("bias", bias))}
    g.emit_to("core.group_norm", outs[0],
          {"input": g.value(x), "num_groups": int(a["group"]), **factors, "eps": float(a["eps"])})  # fmt: skip
    return True


@lowers("aten::_softmax.out")
def _softmax(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, rank = a["self"], len(a["self"].bound)
    if not g.supports_float(x, *outs) or not rank or not -rank <= a["dim"] < rank or a["half_to_float"]:
        return False
    g.macs += TRANSCENDENTAL_COST * math.prod(x.bound)
    axis = a["dim"] % rank
    if axis == rank - 1:
        g.emit_to("core.softmax", outs[0], {"self": g.value(x)})
        return True
    dims = [*(d for d in range(rank) if d != axis), axis]
    transposed = g.emit_core("core.permute", [x.bound[d] for d in dims], {"self": g.value(x), "dims": dims})
    probabilities = g.emit_core("core.softmax", transposed.bound, {"self": transposed})
    g.emit_to("core.permute", outs[0], {"self": probabilities, "dims": [dims.index(d) for d in range(rank)]})
    return True


@lowers("aten::gelu.out")
def _gelu(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x = a["self"]
    if not g.supports_float(x, *outs) or x.bound != outs[0].bound or a["approximate"] != "none":
        return False
    g.macs += TRANSCENDENTAL_COST * math.prod(x.bound)
    nhwc = g.prefers_nhwc([x])
    g.emit_to("core.gelu", outs[0], {"self": g.value_nhwc(x) if nhwc else g.value(x)}, nhwc=nhwc)
    return True


@lowers("aten::sum.IntList_out", "aten::amax.out", "aten::amin.out")
def _reduction(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    return emit_reduction(g, a, outs, core_kind(a))


def emit_reduction(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot], kind: str) -> bool:
    """A float32 reduction over any dimensions."""
    x = a["self"]
    if not g.supports_float(x, *outs) or a.get("dtype") is not None:
        return False
    dims = [int(d) for d in a.get("dim") or []]
    g.emit_to(kind, outs[0], {"self": g.value(x), "dim": dims, "keepdim": bool(a.get("keepdim"))})
    return True


@lowers("aten::mean.out")
def _mean(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    """A mean over height and width is global average pooling in NHWC; any other is a reduction."""
    x, dims = a["self"], a.get("dim")
    if not g.supports_float(x, *outs) or a.get("dtype") is not None:
        return False
    if not (g.is_image(x) and a.get("keepdim") and dims and sorted(d % 4 for d in dims) == [2, 3]):
        return emit_reduction(g, a, outs, "core.mean")
    g.emit_to("core.global_avg_pool2d", outs[0], {"self": g.value_nhwc(x)}, nhwc=True)
    return True
