"""``executorch.exir._serialize._program``: deserializes a program, including delegate blobs."""

from __future__ import annotations

from dataclasses import dataclass, field

from edgewright.files import Source
from edgewright.formats import schema
from edgewright.formats.flatbuffer import Buffer
from edgewright.formats.pte_reader import read_program


@dataclass
class PTEFile:
    """A program with delegate blobs in ``program.backend_delegate_data``, like ExecuTorch's reader."""

    program: schema.Program
    named_data: dict[str, Buffer] = field(default_factory=dict)


def deserialize_pte_binary(program_data: Source) -> PTEFile:
    """Read and validate a program."""
    program = read_program(program_data)
    named_data = {item.key: program.segment(item.segment_index) for item in program.named_data or ()}
    blobs: list[schema.BackendDelegateInlineData] = []
    for plan in program.execution_plan:
        for delegate in plan.delegates:
            blobs.append(schema.BackendDelegateInlineData(data=bytes(program.blob(delegate))))
            delegate.processed = schema.BackendDelegateDataReference(
                location=schema.DataLocation.INLINE, index=len(blobs) - 1
            )
    program.backend_delegate_data = blobs
    return PTEFile(program, named_data)
