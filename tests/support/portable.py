"""Programs without delegates."""

from __future__ import annotations

from typing import Any

from edgewright import to_edge_transform_and_lower
from edgewright.runtime import Runtime


class PortableProgram:
    """What ``CompileResult`` has, of a program without delegates."""

    report = None

    def __init__(self, exported: Any) -> None:
        self.exported = exported
        self.buffer = to_edge_transform_and_lower(exported).to_executorch().buffer

    def method(self) -> Any:
        return Runtime.get().load_program(self.buffer).load_method("forward")
