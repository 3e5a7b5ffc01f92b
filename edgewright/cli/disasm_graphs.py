"""What delegates hold, for ``edgewright disasm``: a function for each backend, from its blob to text."""

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
class Held:
    """A delegate of a file: its bytes and what it may look up."""

    blob: Buffer
    specs: Mapping[str, bytes]
    named: Mapping[str, Buffer]
    twins: Twins
    full: bool

    def graph(self) -> Graph | None:
        """The graph that this machine runs in place of the blob: in the blob, or in its host twin."""
        if bytes(memoryview(self.blob).cast("B")[: len(MAGIC)]) == MAGIC:
            return next(iter(read_twin(bytes(self.blob)).values()))
        return self.twins.find(hashlib.sha256(self.blob).hexdigest())

    @property
    def simulated(self) -> bool:
        return bytes(memoryview(self.blob).cast("B")[: len(MAGIC)]) == MAGIC


def ethos_u(held: Held) -> Facts:
    """The NPU's commands."""
    from edgewright.backends.ethos_u.blob import read_blob
    from edgewright.backends.ethos_u.npu.disasm import disassemble
    from edgewright.backends.ethos_u.npu.stream import decode

    blob = read_blob(held.blob, held.named)
    stream = decode(bytes(blob.cmd_data))
    return {
        "target": stream.accelerator,
        "command_bytes": len(blob.cmd_data),
        "weight_bytes": len(blob.weight_data),
        "scratch_bytes": blob.scratch_size,
        "inputs": [vars(t) for t in blob.inputs],
        "outputs": [vars(t) for t in blob.outputs],
        "text": disassemble(stream, full=held.full),
    }


def xnnpack(held: Held) -> Facts:
    """XNNPACK's graph, its nodes by the names of the op table."""
    from edgewright.backends.xnnpack.delegate import XnnpackDelegate

    given = DelegateBlob("XnnpackBackend", held.blob, held.specs, held.named, waits=True)
    return _facts(XnnpackDelegate(given).device_graph, held, "xnnpack")


def neutron(held: Held) -> Facts:
    """The TFLite graph that NXP's converter was given; of microcode, its sizes."""
    from edgewright.backends.nxp.blob import read_blob

    target = _text(held.specs.get("target", b""))
    facts = _facts(held.graph(), held, target, "the TFLite graph that NXP's converter was given")
    if not held.simulated:
        blob = read_blob(memoryview(held.blob).cast("B"))
        facts |= {"command_bytes": len(blob.microcode), "weight_bytes": len(blob.weights)}
    return facts


def enn(held: Held) -> Facts:
    """The graph that Samsung's compiler was given: its own program is not documented."""
    return _facts(held.graph(), held, "exynos", "the graph that AI LiteCore was given")


def qnn(held: Held) -> Facts:
    """What a context says of itself, and the graph that Qualcomm's compiler was given."""
    from edgewright.backends.qualcomm.blob import read_blob
    from edgewright.backends.qualcomm.libraries import build_in
    from edgewright.backends.qualcomm.qnn.info import settings

    if held.simulated:
        return _facts(held.graph(), held, "hexagon", "the graph")
    context = read_blob(held.blob).context
    # The context's text is found by its form, and weights may look like it: what is not words is none of it.
    said = {name: ", ".join(sorted(filter(_words, values))) for name, values in sorted(settings(context).items())}
    facts = _facts(held.graph(), held, said.get("soc_type", "hexagon"), "the graph that QNN was given")
    lines = [f"context {len(context):,} bytes, by QNN {build_in(context) or 'of a release it does not tell'}"]
    lines += [f"  {name} = {value}" for name, value in said.items()]
    for graph in _graphs(context):
        lines.append(f"  graph {graph.name!r}")
        lines += [f"    in  {end.name} {end.dtype}{list(end.dims)}" for end in graph.inputs]
        lines += [f"    out {end.name} {end.dtype}{list(end.dims)}" for end in graph.outputs]
        facts["inputs"] = facts["inputs"] or [end.name for end in graph.inputs]
        facts["outputs"] = facts["outputs"] or [end.name for end in graph.outputs]
    facts["context"] = {"bytes": len(context), "build": build_in(context), **said}
    facts["text"] = "\n".join([*lines, facts["text"]])
    return facts


def _words(text: str) -> bool:
    return text.isascii() and text.isprintable()


def _graphs(context: bytes) -> Sequence[Any]:
    """A context's graphs, where Qualcomm's libraries are installed to tell them."""
    from edgewright.backends.qualcomm.qnn.info import BinaryReader

    try:
        reader = BinaryReader(context)
    except MissingError:
        return ()
    try:
        return reader.info.graphs
    finally:
        reader.close()


def _facts(graph: Graph | None, held: Held, target: str, what: str = "") -> Facts:
    facts: Facts = {"target": target, "blob_bytes": len(held.blob)}
    if graph is None:
        why = f"{what} is in the host twin (m.twin), which is not beside the file"
        return {**facts, "operators": None, "inputs": [], "outputs": [], "text": why}
    lines = graph_lines(graph, full=held.full)
    names = {side: [v.name for v in getattr(graph, side)] for side in ("inputs", "outputs")}
    return {**facts, "operators": len(graph.ops), **names, "text": "\n".join([*([f"{what}:"] if what else []), *lines])}


def _text(data: bytes) -> str:
    return bytes(data).decode("utf-8", "replace")


READERS: dict[str, Callable[[Held], Facts]] = {
    "EthosUBackend": ethos_u,
    "XnnpackBackend": xnnpack,
    "NeutronBackend": neutron,
    "EnnBackend": enn,
    "QnnBackend": qnn,
}
