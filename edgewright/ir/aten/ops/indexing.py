"""Rows of reading and writing at places that other tensors name.

Index tensors lie element by element beside the data, so data and index need one layout: the original.
``index_select`` alone names a dimension.
"""

from __future__ import annotations

from edgewright.ir.aten.ops.row_builders import SELF, row
from edgewright.ir.aten.reference import indexing as ref
from edgewright.ir.aten.table import Layout
from edgewright.ir.ports import ACT, INDEX, Port, Weight

SHAPE = Layout.SHAPE

# Written values become values of the result, which has one scale; added ones make new values.
_WRITTEN: dict[str, Port] = {"self": ACT, "index": INDEX, "src": SELF, "out": SELF}
_ADDED: dict[str, Port] = {"self": ACT, "index": INDEX, "src": ACT, "out": ACT}

row(
    "embedding",
    "embedding.default",
    ref.embedding,
    ref.embedding_shape,
    SHAPE,
    weight=Weight(0),
    indices=INDEX,
    out=ACT,
)
row("gather", "gather.default", ref.gather, ref.gather_shape, SHAPE, self=ACT, index=INDEX, out=SELF)
row(
    "index_select",
    "index_select.default",
    ref.index_select,
    ref.index_select_shape,
    Layout.AXES,
    self=ACT,
    index=INDEX,
    out=SELF,
)
row("index", "index.Tensor", ref.index, ref.index_shape, SHAPE, self=ACT, indices=INDEX, out=SELF)
row("scatter", "scatter.src", ref.scatter, ref.scatter_shape, SHAPE, **_WRITTEN)
row(
    "scatter_value",
    "scatter.value",
    ref.scatter_value,
    ref.scatter_value_shape,
    SHAPE,
    self=ACT,
    index=INDEX,
    out=SELF,
)
row("scatter_add", "scatter_add.default", ref.scatter_add, ref.scatter_shape, SHAPE, **_ADDED)
row("scatter_reduce", "scatter_reduce.two", ref.scatter_reduce, ref.scatter_reduce_shape, SHAPE, **_ADDED)
row(
    "index_put",
    "index_put.default",
    ref.index_put,
    ref.index_put_shape,
    SHAPE,
    lambda op: not op.args["accumulate"],
    self=ACT,
    indices=INDEX,
    values=SELF,
    out=SELF,
)
row(
    "index_put_accumulate",
    "index_put.default",
    ref.index_put,
    ref.index_put_shape,
    SHAPE,
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
    row(_name, f"{_name}.default", _fn, _shape, Layout.AXES, self=ACT, src=SELF, out=SELF)
