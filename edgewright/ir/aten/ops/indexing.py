"""Gather, scatter, and indexing by tensors.

A gathered result shares the scale of its source; ``embedding`` reads a weight instead.
"""

from __future__ import annotations

from edgewright.ir.aten.ops.row_builders import SELF, define_op
from edgewright.ir.aten.reference import indexing as ref
from edgewright.ir.aten.table import OpClass
from edgewright.ir.ports import ACT, INDEX, Port, Weight

# Written values share the result's scale; accumulated ones need a new one.
_WRITTEN: dict[str, Port] = {"self": ACT, "index": INDEX, "src": SELF, "out": SELF}
_ADDED: dict[str, Port] = {"self": ACT, "index": INDEX, "src": ACT, "out": ACT}

define_op(
    "embedding",
    "embedding.default",
    ref.embedding,
    ref.embedding_shape,
    OpClass.OTHER,
    weight=Weight(0),
    indices=INDEX,
    out=ACT,
)
define_op("gather", "gather.default", ref.gather, ref.gather_shape, OpClass.GATHER, self=ACT, index=INDEX, out=SELF)
define_op(
    "index_select",
    "index_select.default",
    ref.index_select,
    ref.index_select_shape,
    OpClass.GATHER,
    self=ACT,
    index=INDEX,
    out=SELF,
)
define_op("index", "index.Tensor", ref.index, ref.index_shape, OpClass.GATHER, self=ACT, indices=INDEX, out=SELF)
define_op("scatter", "scatter.src", ref.scatter, ref.scatter_shape, OpClass.OTHER, **_WRITTEN)
define_op(
    "scatter_value",
    "scatter.value",
    ref.scatter_value,
    ref.scatter_value_shape,
    OpClass.OTHER,
    self=ACT,
    index=INDEX,
    out=SELF,
)
define_op("scatter_add", "scatter_add.default", ref.scatter_add, ref.scatter_shape, OpClass.OTHER, **_ADDED)
define_op("scatter_reduce", "scatter_reduce.two", ref.scatter_reduce, ref.scatter_reduce_shape, OpClass.OTHER, **_ADDED)
define_op(
    "index_put",
    "index_put.default",
    ref.index_put,
    ref.index_put_shape,
    OpClass.OTHER,
    lambda op: not op.args["accumulate"],
    self=ACT,
    indices=INDEX,
    values=SELF,
    out=SELF,
)
define_op(
    "index_put_accumulate",
    "index_put.default",
    ref.index_put,
    ref.index_put_shape,
    OpClass.OTHER,
    lambda op: bool(op.args["accumulate"]),
    self=ACT,
    indices=INDEX,
    values=ACT,
    out=ACT,
)
for _name, _fn, _shape in (
    ("select_scatter", ref.select_scatter, ref.select_scatter_shape),
    ("slice_scatter", ref.slice_scatter, ref.slice_scatter_shape),
):
    define_op(_name, f"{_name}.default", _fn, _shape, OpClass.OTHER, self=ACT, src=SELF, out=SELF)
