"""Kernel calls of transformers as operators of a device graph: products, norms, softmax, reductions."""

from __future__ import annotations

import math
from collections.abc import Sequence

from edgewright.runtime.jit.graph_builder import Maker, new
from edgewright.runtime.jit.registry import Args, taken
from edgewright.runtime.tensor import TensorSlot

COSTLY = 10  # products of numbers that a function of an element is worth


@taken("aten::bmm.out")
def _bmm(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, y = a["self"], a["mat2"]
    if not m.usable(x, y, *outs) or len(x.bound) != 3 or len(y.bound) != 3:
        return False
    m.macs += math.prod(x.bound) * y.bound[-1]
    m.add("bmm", outs[0], {"self": m.planes(x), "other": m.planes(y)})
    return True


@taken("aten::native_layer_norm.out")
def _layer_norm(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, weight, bias = a["input"], a["weight"], a["bias"]
    if not m.usable(x, weight, bias, outs[0]) or not x.bound:
        return False
    m.macs += COSTLY * math.prod(x.bound)
    factors = {n: None if s is None else m.planes(s) for n, s in (("weight", weight), ("bias", bias))}
    shape = [int(n) for n in a["normalized_shape"]]
    m.add("layer_norm", outs[0], {"input": m.planes(x), "normalized_shape": shape, **factors, "eps": float(a["eps"])})
    return True


@taken("aten::native_group_norm.out")
def _group_norm(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, weight, bias = a["input"], a["weight"], a["bias"]
    if not m.usable(x, weight, bias, outs[0]) or len(x.bound) < 2 or not a["group"]:
        return False
    if (a["N"], a["C"], a["HxW"]) != (x.bound[0], x.bound[1], math.prod(x.bound[2:])):
        return False
    m.macs += COSTLY * math.prod(x.bound)
    factors = {n: None if s is None else m.planes(s) for n, s in (("weight", weight), ("bias", bias))}
    m.add("group_norm", outs[0],
          {"input": m.planes(x), "num_groups": int(a["group"]), **factors, "eps": float(a["eps"])})  # fmt: skip
    return True


@taken("aten::_softmax.out")
def _softmax(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, rank = a["self"], len(a["self"].bound)
    if not m.usable(x, *outs) or not rank or not -rank <= a["dim"] < rank or a["half_to_float"]:
        return False
    m.macs += COSTLY * math.prod(x.bound)
    axis = a["dim"] % rank
    if axis == rank - 1:
        m.add("softmax", outs[0], {"self": m.planes(x)})
        return True
    dims = [*(d for d in range(rank) if d != axis), axis]
    turned = m.between("permute", [x.bound[d] for d in dims], {"self": m.planes(x), "dims": dims})
    shares = m.between("softmax", turned.bound, {"self": turned})
    m.add("permute", outs[0], {"self": shares, "dims": [dims.index(d) for d in range(rank)]})
    return True


@taken("aten::gelu.out")
def _gelu(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x = a["self"]
    if not m.usable(x, *outs) or x.bound != outs[0].bound or a["approximate"] != "none":
        return False
    m.macs += COSTLY * math.prod(x.bound)
    pixels = m.like([x])
    m.add("gelu", outs[0], {"self": m.pixels(x) if pixels else m.planes(x)}, pixels=pixels)
    return True


@taken("aten::sum.IntList_out", "aten::amax.out", "aten::amin.out")
def _reduction(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    return reduction(m, a, outs, a["key"].partition("::")[2].partition(".")[0])


def reduction(m: Maker, a: Args, outs: Sequence[TensorSlot], kind: str) -> bool:
    """Over any dimensions; where they are images, they are seen as planes."""
    x = a["self"]
    if not m.usable(x, *outs) or a.get("dtype") is not None:
        return False
    dims = [int(d) for d in a.get("dim") or []]
    m.add(kind, outs[0], {"self": m.planes(x), "dim": dims, "keepdim": bool(a.get("keepdim"))})
    return True


@taken("aten::mul.Scalar_out", "aten::add.Scalar_out", "aten::sub.Scalar_out", "aten::div.Scalar_out")
def _with_number(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, other = a["self"], a["other"]
    if not m.usable(x, *outs) or x.bound != outs[0].bound or a.get("alpha", 1) != 1 or m.constant(x) is not None:
        return False
    pixels = m.like([x])
    number = new((1,), m.single(other))
    given = {"self": m.pixels(x) if pixels else m.planes(x), "other": number}
    m.add(a["key"][6:9], outs[0], given, pixels=pixels)
    return True


@taken("aten::pow.Tensor_Scalar_out")
def _square(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x = a["self"]
    if not m.usable(x, *outs) or x.bound != outs[0].bound or a["exponent"] != 2:
        return False
    m.add("square", outs[0], {"self": m.planes(x)})
    return True


@taken("aten::mean.out")
def _mean(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    """Of whole images, as they lie; other means are reductions."""
    x, dims = a["self"], a.get("dim")
    if not m.usable(x, *outs) or a.get("dtype") is not None:
        return False
    if not (m.image(x) and a.get("keepdim") and dims and sorted(d % 4 for d in dims) == [2, 3]):
        return reduction(m, a, outs, "mean")
    m.add("global_avg_pool2d", outs[0], {"self": m.pixels(x)}, pixels=True)
    return True
