"""The Neutron delegate's blob: a header of bytes, then microcode, weights and kernels, each padded to 16 bytes.

::

    inputs | outputs | arguments | a flag for each input | for each output | argument of each input | of each output |
    version

A flag of 1 means that the runtime turns NCHW to NHWC. A blob for this machine only is a host twin instead.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from edgewright.backends.nxp.tables import CUSTOM, Model, Operator, SubGraph
from edgewright.backends.nxp.tflite_file import read_tflite
from edgewright.errors import FormatError, VendorError
from edgewright.formats import checked_int
from edgewright.formats.flatbuffer import Buffer

ALIGNMENT = 16
MAGIC = 0x64434D6E
_WORDS = {0: (11, 12), 1: (13, 14)}  # where the counts of inputs and outputs are, by version
_EXTRAS = {1: 0, 3: 1}  # versions by the number of outputs besides the graph's: scratch, profile, debug
_SIZES = (6, 7)  # of microcode and weights
_BYTE = 255


@dataclass(frozen=True)
class Blob:
    """What a delegate is. Maps say which argument an input or output is."""

    microcode: Buffer = field(repr=False)
    weights: Buffer = field(repr=False)
    kernels: Buffer = field(repr=False)
    arguments: int
    input_flags: Sequence[int]
    output_flags: Sequence[int]
    input_map: Sequence[int]
    output_map: Sequence[int]
    version: int = 0


def write_blob(blob: Blob) -> bytes:
    counts = (len(blob.input_map), len(blob.output_map), blob.arguments)
    if max(counts) > _BYTE:
        raise VendorError("Neutron delegate", f"may have {_BYTE} inputs and outputs", value=counts)
    flags = (*blob.input_flags, *blob.output_flags, *blob.input_map, *blob.output_map)
    header = bytes((*counts, *flags, blob.version))
    return b"".join(_padded(part) for part in (header, blob.microcode, blob.weights, blob.kernels))


def _padded(part: Buffer) -> bytes:
    return bytes(part) + bytes(-len(part) % ALIGNMENT)


def read_blob(data: Buffer) -> Blob:
    """Read and check a blob. Kernels are all that follows the weights."""
    view = memoryview(data).cast("B")
    try:
        return _read(view)
    except FormatError as error:
        raise error.inside("Neutron blob") from None


def _read(view: memoryview) -> Blob:
    checked_int.check_range(0, 4, len(view), "the header")
    inputs, outputs, arguments = view[:3]
    size = 4 + 2 * inputs + 2 * outputs
    at = checked_int.align(size, ALIGNMENT)
    checked_int.check_range(0, at, len(view), "the header")
    cells, place = [], 3
    for count in (inputs, outputs, inputs, outputs):
        cells.append(tuple(view[place : place + count]))
        place += count
    version = view[place]
    _check_header(cells, arguments, version)
    checked_int.check_range(at, 60, len(view), "the microcode's header")
    words = struct.unpack_from("<15I", view, at)
    if words[0] != MAGIC:
        raise FormatError("must start with nMCd", where="microcode", value=hex(words[0]), offset=at)
    if (found := tuple(words[i] for i in _WORDS[version])) != (inputs, outputs):
        raise FormatError("must count the header's inputs and outputs", where="microcode", value=found, offset=at)
    parts = []
    for name, word in zip(("microcode", "weights"), _SIZES, strict=True):
        checked_int.check_range(at, checked_int.align(words[word], ALIGNMENT), len(view), name)
        parts.append(view[at : at + words[word]])
        at += checked_int.align(words[word], ALIGNMENT)
    flags_in, flags_out, map_in, map_out = cells
    return Blob(parts[0], parts[1], view[at:], arguments, flags_in, flags_out, map_in, map_out, version)


def _check_header(cells: Sequence[Sequence[int]], arguments: int, version: int) -> None:
    if version not in _WORDS:
        raise FormatError("must be 0 or 1", where="version", value=version)
    if any(flag > 1 for flags in cells[:2] for flag in flags):
        raise FormatError("must be 0 or 1", where="format flags", value=cells[:2])
    if len(set(cells[2])) != len(cells[2]) or any(i >= arguments for i in cells[2]):
        raise FormatError(f"must name different arguments of {arguments}", where="input map", value=cells[2])
    if sorted(cells[3]) != list(range(len(cells[3]))):
        raise FormatError("must name each output once", where="output map", value=cells[3])


# -------------------------------------------------------------------------------------------- from NXP's converter


def from_converter(data: Buffer, inputs: Sequence[str], outputs: Sequence[str], turned: Sequence[str] = ()) -> Blob:
    """The blob of the converter's TFLite file. ``inputs`` and ``outputs``: names of the delegate's arguments, in
    order. ``turned``: those that the runtime must turn."""
    model = read_tflite(data)
    graph, op = _only_operator(model)
    ends = [_names(graph, op.inputs, graph.inputs), _names(graph, op.outputs, graph.outputs)]
    parts = [_constant(model, graph, index) for index in (op.inputs or ())[len(ends[0]) :]]
    extra = len(op.outputs or ()) - len(ends[1])
    if len(parts) != 3 or extra not in _EXTRAS:
        rule = "must have microcode, weights and kernels, and one or three outputs besides the graph's"
        raise VendorError("NeutronGraph", rule, value=(len(parts), extra))
    maps = [_places(names, given) for names, given in zip(ends, (inputs, outputs), strict=True)]
    flags = [[int(name in turned) for name in names] for names in ends]
    microcode, weights, kernels = parts
    return Blob(microcode, weights, kernels, len(inputs), flags[0], flags[1], maps[0], maps[1], _EXTRAS[extra])


def _only_operator(model: Model) -> tuple[SubGraph, Operator]:
    graphs, codes = model.subgraphs or (), model.operator_codes or ()
    ops = list(graphs[0].operators or ()) if len(graphs) == 1 else []
    names = [codes[op.opcode_index] if op.opcode_index < len(codes) else None for op in ops]
    taken = [c is not None and c.builtin_code == CUSTOM and c.custom_code == "NeutronGraph" for c in names]
    if taken != [True]:
        remedy = "Leave out what Neutron did not take: operators_not_to_delegate=[...]."
        rule = "must take the whole graph as one NeutronGraph"
        raise VendorError("NXP's Neutron converter", rule, value=f"{len(ops)} operators", remedy=remedy)
    return graphs[0], ops[0]


def _names(graph: SubGraph, places: Sequence[int] | None, ends: Sequence[int] | None) -> list[str]:
    """Names of an operator's tensors that are the graph's own ends."""
    tensors = graph.tensors or ()
    found = [place for place in places or () if place in (ends or ())]
    if any(not 0 <= place < len(tensors) for place in found):
        raise VendorError("NeutronGraph", "must name tensors of its graph", value=found)
    return [tensors[place].name or "" for place in found]


def _constant(model: Model, graph: SubGraph, index: int) -> Buffer:
    tensors, buffers = graph.tensors or (), model.buffers or ()
    if not 0 <= index < len(tensors) or tensors[index].buffer >= len(buffers):
        raise VendorError("NeutronGraph", "must name constants of its file", value=index)
    data: Buffer | None = buffers[tensors[index].buffer].data
    return b"" if data is None else data


def _places(names: Sequence[str], given: Sequence[str]) -> list[int]:
    missing = [name for name in names if name not in given]
    if missing:
        raise VendorError("NeutronGraph", "must keep the names of inputs and outputs", value=missing)
    return [list(given).index(name) for name in names]
