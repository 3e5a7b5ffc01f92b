"""Contents of a blob for ``edgewright disasm``: the graph passed to NXP's converter, and the sizes of the microcode."""

from __future__ import annotations

from edgewright.backends.nxp.blob import read_blob
from edgewright.runtime.disassembly import DelegateContents, Disassembly, describe_graph


def disassemble(contents: DelegateContents) -> Disassembly:
    target = contents.specs.get("target", b"").decode("utf-8", "replace")
    facts = describe_graph(contents.graph(), contents, target, "the TFLite graph passed to NXP's converter")
    if not contents.is_simulated:
        blob = read_blob(memoryview(contents.blob).cast("B"))
        facts["command_bytes"], facts["weight_bytes"] = len(blob.microcode), len(blob.weights)
    return facts
