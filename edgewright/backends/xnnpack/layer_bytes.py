"""Constants of a blob by the layer that reads them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from edgewright.backends.xnnpack.blob import node_ids, read_blob
from edgewright.backends.xnnpack.nodes import XNNGraph, XNode
from edgewright.backends.xnnpack.tables import PerChannelGroupQuant, PerChannelQuant, XValue
from edgewright.formats.flatbuffer import Buffer
from edgewright.ir.layer_names import layer_of
from edgewright.runtime.disassembly import DelegateContents
from edgewright.runtime.layer_bytes import LayerBytes


def layer_bytes(contents: DelegateContents) -> Iterator[LayerBytes]:
    """Every constant once, for the first node that reads it."""
    graph = read_blob(contents.blob).graph
    values = {value.tensor.id_out: value for value in graph.xvalues}
    origins = contents.layers.origins
    named = contents.layers.ordered and len(origins) == len(graph.xnodes)
    seen: set[tuple[str, int, int]] = set()
    for number, node in enumerate(graph.xnodes):
        layer = layer_of(origins[number]) if named else ""
        for index in _constants(node, values):
            key, start, size = _place(graph, index, contents.named_data)
            if (key, start, size) not in seen:
                yield LayerBytes(layer or f"{node.row.kind.removeprefix('core.')} {number}", size, key)
            seen.add((key, start, size))


def _constants(node: XNode, values: Mapping[int, XValue]) -> Iterator[int]:
    """The constants of a node: operands, and scales of operands."""
    for value in (values[i] for i in node_ids(node.node)[0]):
        if value.tensor.constant_buffer_idx:
            yield value.tensor.constant_buffer_idx
        if isinstance(value.quant, PerChannelQuant | PerChannelGroupQuant) and value.quant.scale_buffer_idx:
            yield value.quant.scale_buffer_idx


def _place(graph: XNNGraph, index: int, named_data: Mapping[str, Buffer]) -> tuple[str, int, int]:
    """The key of a constant, or where it is in the blob; and its size."""
    if not graph.constant_data:  # before ExecuTorch 0.4, constants were in the tables
        buffers = graph.constant_buffer or ()
        return "", index, len(buffers[index].storage or b"")
    constant = graph.constant_data[index]
    if constant.named_key is None:
        return "", constant.offset, constant.size
    return constant.named_key, 0, len(named_data.get(constant.named_key, b""))
