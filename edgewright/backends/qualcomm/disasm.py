"""Contents of a blob for ``edgewright disasm``: the metadata of a context binary, and the graph passed to QNN."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edgewright.backends.qualcomm.blob import read_blob
from edgewright.backends.qualcomm.libraries import find_build_id
from edgewright.backends.qualcomm.qnn.info import BinaryReader, compiler_settings
from edgewright.errors import MissingError
from edgewright.runtime.disassembly import DelegateContents, Disassembly, describe_graph


def disassemble(contents: DelegateContents) -> Disassembly:
    if contents.is_simulated:
        return describe_graph(contents.graph(), contents, "hexagon", "the graph")
    context = read_blob(contents.blob).context
    # Metadata is located by its layout, which weights may imitate: drop values that are not printable ASCII.
    metadata = {
        name: ", ".join(sorted(filter(_is_text, values))) for name, values in sorted(compiler_settings(context).items())
    }
    facts = describe_graph(contents.graph(), contents, metadata.get("soc_type", "hexagon"), "the graph passed to QNN")
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
    try:
        reader = BinaryReader(context)
    except MissingError:
        return ()
    try:
        return reader.info.graphs
    finally:
        reader.close()
