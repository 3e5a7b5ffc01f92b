"""Contents of a blob for ``edgewright disasm``: the NPU's commands."""

from __future__ import annotations

from edgewright.backends.ethos_u.blob import read_blob
from edgewright.backends.ethos_u.npu.disasm import disassemble as disassemble_stream
from edgewright.backends.ethos_u.npu.stream import decode
from edgewright.backends.ethos_u.npu.traffic import BASIS, passes
from edgewright.runtime.disassembly import DelegateContents, Disassembly


def disassemble(contents: DelegateContents) -> Disassembly:
    blob = read_blob(contents.blob, contents.named_data)
    stream = decode(bytes(blob.cmd_data), contents.layers)
    return Disassembly(
        target=stream.accelerator,
        command_bytes=len(blob.cmd_data),
        weight_bytes=len(blob.weight_data),
        scratch_bytes=blob.scratch_size,
        inputs=[vars(t) for t in blob.inputs],
        outputs=[vars(t) for t in blob.outputs],
        text=disassemble_stream(stream, full=contents.full),
        passes=passes(stream),
        traffic_basis=BASIS,
    )
