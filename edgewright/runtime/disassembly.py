"""What ``edgewright disasm`` prints of a delegate: the argument and the result of a backend's disassembler.

A backend without a disassembler gets ``disassemble_graph``, which prints the graph of the blob or of its host twin, or
the one that its delegate has.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypedDict

from edgewright.backends.registry import find_delegate
from edgewright.formats.flatbuffer import Buffer
from edgewright.formats.layer_table import DelegateLayers
from edgewright.formats.twin_reader import read_twin
from edgewright.formats.twin_writer import MAGIC
from edgewright.ir.graph import Graph
from edgewright.ir.graph_text import graph_lines
from edgewright.runtime.delegates import DelegateBlob, make_delegate
from edgewright.runtime.twin_delegate import Twins


@dataclass(frozen=True)
class DelegateContents:
    """A delegate of a file: its blob and the data it refers to. ``full``: print every constant and parameter."""

    backend: str
    blob: Buffer
    specs: Mapping[str, bytes]
    named_data: Mapping[str, Buffer]
    twins: Twins
    full: bool
    layers: DelegateLayers = field(default_factory=DelegateLayers)

    def graph(self) -> Graph | None:
        """The graph that this machine runs in place of the blob, from the blob itself or from its host twin."""
        if self.is_simulated:
            return next(iter(read_twin(bytes(self.blob)).values()))
        return self.twins.find(hashlib.sha256(self.blob).hexdigest())

    def device_graph(self) -> Graph | None:
        """The graph that the delegate executes, if there is a delegate and it has one."""
        if find_delegate(self.backend) is None:
            return None
        blob = DelegateBlob(self.backend, self.blob, self.specs, self.named_data, deferred=True, layers=self.layers)
        return make_delegate(blob).device_graph

    @property
    def is_simulated(self) -> bool:
        return bytes(memoryview(self.blob).cast("B")[: len(MAGIC)]) == MAGIC


class _Required(TypedDict):
    target: str  # the device
    inputs: list[Any]
    outputs: list[Any]
    text: str  # the lines to print


class PassTraffic(TypedDict):
    """An operation of an NPU: what it is, the bytes that it reads and writes by memory, the layer of the user's model
    that it computes, if the file says so, and its multiply-accumulates."""

    text: str
    traffic: dict[str, int]
    layer: str
    macs: int


class Disassembly(_Required, total=False):
    """The contents of a blob. Sizes are in bytes; ``operators`` is None if the graph is missing."""

    operators: int | None
    blob_bytes: int
    command_bytes: int
    weight_bytes: int
    scratch_bytes: int
    context: dict[str, Any]  # further facts, for ``--json``
    passes: list[PassTraffic]
    traffic_basis: str  # how the traffic of passes is counted


def describe_graph(graph: Graph | None, contents: DelegateContents, target: str, title: str = "") -> Disassembly:
    """The contents of a blob that is one graph. ``title``: what the graph is."""
    facts = Disassembly(target=target, blob_bytes=len(contents.blob), operators=None, inputs=[], outputs=[], text="")
    if graph is None:
        facts["text"] = f"{title} is in the host twin (m.twin), which is missing next to the file"
        return facts
    facts["operators"] = len(graph.ops)
    facts["inputs"], facts["outputs"] = ([v.name for v in side] for side in (graph.inputs, graph.outputs))
    facts["text"] = "\n".join([*([f"{title}:"] if title else []), *graph_lines(graph, full=contents.full)])
    return facts


def disassemble_graph(contents: DelegateContents, target: str) -> Disassembly:
    """The graph of a blob whose backend has no disassembler."""
    graph = contents.graph()
    graph = contents.device_graph() if graph is None else graph
    facts = describe_graph(graph, contents, target)
    if graph is None:
        facts["text"] = f"{contents.backend} has no disassembler, and the blob has no graph that this machine can run"
    return facts
