"""Which layer of the user's model each pass of a command stream computes, as Vela's own record of the stream says."""

from __future__ import annotations

from bisect import bisect_left

from edgewright.backends.ethos_u.estimates import source_ops
from edgewright.backends.ethos_u.npu.stream import decode
from edgewright.backends.ethos_u.vela import VelaOutput
from edgewright.formats.layer_table import DelegateLayers
from edgewright.ir.graph import Graph


def pass_layers(compiled: VelaOutput, device: Graph) -> DelegateLayers:
    """The origins of the passes, with Vela's cycles at the last pass of each operation; nothing if the record does not
    fit the stream."""
    if compiled.performance is None or not compiled.queue:
        return DelegateLayers()
    stream = decode(bytes(compiled.cmd_data))
    passes = [i.offset for i in stream.instructions if i.is_pass]
    start = stream.instructions[0].offset
    queue = sorted((start + offset, at) for offset, at in compiled.queue)
    if not {end for end, _ in queue} <= set(passes):
        return DelegateLayers()
    ends = [end for end, _ in queue]
    ops = source_ops(compiled.performance.layers, device)
    owners = [queue[min(bisect_left(ends, offset), len(queue) - 1)][1] for offset in passes]
    last = {at: number for number, at in enumerate(owners) if passes[number] in ends}
    cycles = {number: compiled.performance.layers[at].cycles for at, number in last.items()}
    return DelegateLayers([ops[at].origin for at in owners], dict(sorted(cycles.items())))
