"""Partition to TFLite device graph, without layout transposes at its boundary: the delegate's runtime performs them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgewright.backends.nxp.dialect import DIALECT
from edgewright.backends.nxp.dialect.table import PREFIX
from edgewright.backends.nxp.lower import NeutronLowering
from edgewright.ir.aten.ops import OPS
from edgewright.ir.graph import Graph, Op, Value
from edgewright.ir.verify import verify
from edgewright.lowering.passes import apply
from edgewright.lowering.passes.constant_folding import fold_constants

_TO_NHWC, _TO_NCHW = [0, 2, 3, 1], [0, 3, 1, 2]


def strip_io_transposes(graph: Graph) -> tuple[Graph, list[Value]]:
    """The graph without NCHW/NHWC transposes at its inputs and outputs, and the values that now are NHWC."""
    inputs, outputs, ops = list(graph.inputs), list(graph.outputs), list(graph.ops)
    transposed = []
    for index, value in enumerate(inputs):
        readers = [op for op in ops if any(v is value for v in op.inputs())]
        if len(readers) == 1 and _is_transpose(readers[0], _TO_NHWC) and value not in outputs:
            inputs[index] = _output(readers[0])
            ops.remove(readers[0])
            transposed.append(inputs[index])
    for index, value in enumerate(outputs):
        producers = [op for op in ops if _output(op) is value]
        if len(producers) != 1 or not _is_transpose(producers[0], _TO_NCHW):
            continue
        source = producers[0].args["inputs"][0]
        if not any(v is source for v in (*inputs, *outputs)) and source.data is None:
            outputs[index] = source
            ops.remove(producers[0])
            transposed.append(source)
    return Graph(graph.name, inputs, outputs, ops), transposed


def _is_transpose(op: Op, dims: list[int]) -> bool:
    return op.kind == f"{PREFIX}TRANSPOSE" and op.args["inputs"][1].data.tolist() == dims


def _output(op: Op) -> Value:
    out = op.outputs[0]
    assert out is not None
    return out


def to_tflite(group: Graph, rows: Mapping[str, Any], target: Any = None) -> Graph:
    """Lower a partition and eliminate dead operators."""
    apply(group, lambda graph: fold_constants(graph, OPS))
    device = NeutronLowering(group, rows, target).run()
    _eliminate_dead_ops(device)
    verify(device, DIALECT)
    return device


def _eliminate_dead_ops(graph: Graph) -> None:
    """Flattening may have produced an image in a dimension order that no operator uses."""
    live = set(graph.outputs)
    ops = []
    for op in reversed(graph.ops):
        if any(o in live for o in op.outputs):
            ops.append(op)
            live |= set(op.inputs())
    graph.ops = ops[::-1]
