"""Contents of a blob for ``edgewright disasm``: the graph passed to AI LiteCore."""

from __future__ import annotations

from edgewright.runtime.disassembly import DelegateContents, Disassembly, describe_graph


def disassemble(contents: DelegateContents) -> Disassembly:
    # The format of AI LiteCore's output is not documented.
    return describe_graph(contents.graph(), contents, "exynos", "the graph passed to AI LiteCore")
