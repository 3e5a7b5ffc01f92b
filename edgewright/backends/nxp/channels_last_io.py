"""Ends of a device graph that are left channels-last, for the runtime to turn."""

from __future__ import annotations

from edgewright.ir.graph import Graph, Op, Value
from edgewright.ir.tflite.table import PREFIX

_IN, _OUT = [0, 2, 3, 1], [0, 3, 1, 2]


def channels_last_ends(graph: Graph) -> tuple[Graph, list[Value]]:
    """The graph without transposes between NCHW and NHWC at its inputs and outputs, and the ends that lost theirs."""
    inputs, outputs, ops = list(graph.inputs), list(graph.outputs), list(graph.ops)
    turned = []
    for index, value in enumerate(inputs):
        readers = [op for op in ops if any(v is value for v in op.inputs())]
        if len(readers) == 1 and _turns(readers[0], _IN) and value not in outputs:
            inputs[index] = _made(readers[0])
            ops.remove(readers[0])
            turned.append(inputs[index])
    for index, value in enumerate(outputs):
        makers = [op for op in ops if _made(op) is value]
        if len(makers) != 1 or not _turns(makers[0], _OUT):
            continue
        source = makers[0].args["inputs"][0]
        if not any(v is source for v in (*inputs, *outputs)) and source.data is None:
            outputs[index] = source
            ops.remove(makers[0])
            turned.append(source)
    return Graph(graph.name, inputs, outputs, ops), turned


def _turns(op: Op, dims: list[int]) -> bool:
    return op.kind == f"{PREFIX}TRANSPOSE" and op.args["inputs"][1].data.tolist() == dims


def _made(op: Op) -> Value:
    out = op.outputs[0]
    assert out is not None
    return out
