"""Reads and writes at indices that are tensors."""

from __future__ import annotations

import numpy as np

from edgewright.ir.core.evaluation import EvaluationContext
from edgewright.ir.core.index_bounds import OutOfRangePolicy
from edgewright.ir.core.table import DIM, aten_shape, define
from edgewright.ir.dialect import FLAG, Attribute
from edgewright.ir.graph import Array, Op

OUTSIDE = Attribute("an OutOfRangePolicy", lambda value: isinstance(value, OutOfRangePolicy)).or_absent()
_WRITES = ("scatter", "scatter_add", "index_put")


def _indexed(ex: EvaluationContext, op: Op) -> Array:
    """The op table's reference. Out-of-range indices read from, or write to, an extra slice after the last one."""
    from edgewright.ir.aten.ops import OPS

    out, policy = op.outputs[0], op.args.get("outside")
    args = {name: ex.map_values(ex.raw, a) for name, a in op.args.items() if name != "outside"}
    data: Array = args["weight" if op.name == "embedding" else "self"]
    if policy is not None:
        at = next((d for d, index in enumerate(args.get("indices", ())) if index is not None), None)
        dim = int(args["dim"]) % max(data.ndim, 1) if at is None else at
        index = policy.check(args["index"] if at is None else args["indices"][at], data.shape[dim])
        args |= (
            {"index": index} if at is None else {"indices": [*args["indices"][:at], index, *args["indices"][at + 1 :]]}
        )
        extra = np.full_like(data, policy.number, shape=(*data.shape[:dim], 1, *data.shape[dim + 1 :]))
        args["self"] = np.concatenate([data, extra], dim)
    result = np.asarray(OPS[op.name].call(args)[0])
    if op.name in _WRITES:
        result = result[tuple(slice(n) for n in data.shape)]
    assert out is not None
    return result.astype(out.dtype, copy=False)


def _define(names: str, summary: str, operands: str, types: str, **attributes: Attribute) -> None:
    define(names, summary, operands, types, aten_shape, _indexed, attributes)


_define("index_select", "slices of `dim` at the indices", "self index", "M= index -> M=", dim=DIM, outside=OUTSIDE)
_define("embedding", "rows of `weight` at the indices", "weight indices", "M= index -> M=")
_define("index", "elements at the indices of each dimension; None: all of it", "self indices*?", "M= index?* -> M=")
_define(
    "gather", "for each index, the element there along `dim`", "self index", "N index -> N", dim=DIM, outside=OUTSIDE
)
_define("scatter", "a copy with `src` written at the indices along `dim`", "self index src", "N index N -> N", dim=DIM,
        outside=OUTSIDE)  # fmt: skip
_define(
    "scatter_add", "a copy with `src` added at the indices along `dim`", "self index src", "N index N -> N", dim=DIM
)
_define("index_put", "a copy with `values` written, or added, at the indices of each dimension",
        "self values indices*?", "N N index?* -> N", accumulate=FLAG, outside=OUTSIDE)  # fmt: skip
