"""Readers for ``edgewright disasm``: one function per backend that turns a blob into text."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgewright.api.graph_text import graph_lines
from edgewright.errors import MissingError
from edgewright.formats.flatbuffer import Buffer
from edgewright.formats.twin_reader import read_twin
from edgewright.formats.twin_writer import MAGIC
from edgewright.ir.graph import Graph
from edgewright.runtime.delegates import DelegateBlob
from edgewright.runtime.twin_delegate import Twins

Facts = dict[str, Any]


@dataclass(frozen=True)
class DelegateContents:
    """A delegate of a file: its blob and the data it refers to."""

    blob: Buffer
    specs: Mapping[str, bytes]
    named_data: Mapping[str, Buffer]
    twins: Twins
    full: bool

    def graph(self) -> Graph | None:
        """The graph that this machine runs in place of the blob, from the blob itself or from its host twin."""
        if bytes(memoryview(self.blob).cast("B")[: len(MAGIC)]) == MAGIC:
            return next(iter(read_twin(bytes(self.blob)).values()))
        return self.twins.find(hashlib.sha256(self.blob).hexdigest())

    @property
    def is_simulated(self) -> bool:
        return bytes(memoryview(self.blob).cast("B")[: len(MAGIC)]) == MAGIC


def ethos_u(contents: DelegateContents) -> Facts:
    """The NPU's commands."""
    from edgewright.backends.ethos_u.blob import read_blob
    from edgewright.backends.ethos_u.npu.disasm import disassemble
    from edgewright.backends.ethos_u.npu.stream import decode

    blob = read_blob(contents.blob, contents.named_data)
    stream = decode(bytes(blob.cmd_data))
    return {
        "target": stream.accelerator,
        "command_bytes": len(blob.cmd_data),
        "weight_bytes": len(blob.weight_data),
        "scratch_bytes": blob.scratch_size,
        "inputs": [vars(t) for t in blob.inputs],
        "outputs": [vars(t) for t in blob.outputs],
        "text": disassemble(stream, full=contents.full),
    }


def xnnpack(contents: DelegateContents) -> Facts:
    """XNNPACK's graph, with operator names of the op table."""
    from edgewright.backends.xnnpack.delegate import XnnpackDelegate

    blob = DelegateBlob("XnnpackBackend", contents.blob, contents.specs, contents.named_data, deferred=True)
    return _facts(XnnpackDelegate(blob).device_graph, contents, "xnnpack")


def neutron(contents: DelegateContents) -> Facts:
    """The TFLite graph passed to NXP's converter, and the sizes of the microcode."""
    from edgewright.backends.nxp.blob import read_blob

    target = _text(contents.specs.get("target", b""))
    facts = _facts(contents.graph(), contents, target, "the TFLite graph passed to NXP's converter")
    if not contents.is_simulated:
        blob = read_blob(memoryview(contents.blob).cast("B"))
        facts |= {"command_bytes": len(blob.microcode), "weight_bytes": len(blob.weights)}
    return facts


def enn(contents: DelegateContents) -> Facts:
    """The graph passed to Samsung's compiler, whose output format is not documented."""
    return _facts(contents.graph(), contents, "exynos", "the graph passed to AI LiteCore")


def qnn(contents: DelegateContents) -> Facts:
    """The metadata of a context binary, and the graph passed to Qualcomm's compiler."""
    from edgewright.backends.qualcomm.blob import read_blob
    from edgewright.backends.qualcomm.libraries import find_build_id
    from edgewright.backends.qualcomm.qnn.info import compiler_settings

    if contents.is_simulated:
        return _facts(contents.graph(), contents, "hexagon", "the graph")
    context = read_blob(contents.blob).context
    # Metadata is located by its layout, which weights may imitate: drop values that are not printable ASCII.
    metadata = {
        name: ", ".join(sorted(filter(_is_text, values))) for name, values in sorted(compiler_settings(context).items())
    }
    facts = _facts(contents.graph(), contents, metadata.get("soc_type", "hexagon"), "the graph passed to QNN")
    lines = [f"context {len(context):,} bytes, QNN {find_build_id(context) or 'of an unknown release'}"]
    lines += [f"  {name} = {value}" for name, value in metadata.items()]
    for graph in _graphs(context):
        lines.append(f"  graph {graph.name!r}")
        lines += [f"    in  {end.name} {end.dtype}{list(end.dims)}" for end in graph.inputs]
        lines += [f"    out {end.name} {end.dtype}{list(end.dims)}" for end in graph.outputs]
        facts["inputs"] = facts["inputs"] or [end.name for end in graph.inputs]
        facts["outputs"] = facts["outputs"] or [end.name for end in graph.outputs]
    facts["context"] = {"bytes": len(context), "build": find_build_id(context), **metadata}
    facts["text"] = "\n".join([*lines, facts["text"]])
    return facts


def _is_text(text: str) -> bool:
    return text.isascii() and text.isprintable()


def _graphs(context: bytes) -> Sequence[Any]:
    """A context's graphs; empty unless Qualcomm's libraries are installed."""
    from edgewright.backends.qualcomm.qnn.info import BinaryReader

    try:
        reader = BinaryReader(context)
    except MissingError:
        return ()
    try:
        return reader.info.graphs
    finally:
        reader.close()


def _facts(graph: Graph | None, contents: DelegateContents, target: str, title: str = "") -> Facts:
    facts: Facts = {"target": target, "blob_bytes": len(contents.blob)}
    if graph is None:
        text = f"{title} is in the host twin (m.twin), which is missing next to the file"
        return {**facts, "operators": None, "inputs": [], "outputs": [], "text": text}
    lines = graph_lines(graph, full=contents.full)
    names = {side: [v.name for v in getattr(graph, side)] for side in ("inputs", "outputs")}
    return {
        **facts,
        "operators": len(graph.ops),
        **names,
        "text": "\n".join([*([f"{title}:"] if title else []), *lines]),
    }


def _text(data: bytes) -> str:
    return bytes(data).decode("utf-8", "replace")


READERS: dict[str, Callable[[DelegateContents], Facts]] = {
    "EthosUBackend": ethos_u,
    "XnnpackBackend": xnnpack,
    "NeutronBackend": neutron,
    "EnnBackend": enn,
    "QnnBackend": qnn,
}
