"""Format of the Neutron delegate's blob: a header, then microcode, weights and kernels, each padded to 16 bytes.

Every field of the header is one byte, and ``I`` and ``O`` are the numbers of inputs and outputs::

    I | O | arguments | I input flags | O output flags | I argument indices | O argument indices | version

A flag of 1 asks the runtime to transpose between NCHW and NHWC. The maps exist because the converter may reorder
inputs and outputs. The sections' sizes are in the header of the microcode (``nMCd``), which ``read_blob`` checks
against the blob's. A program that is compiled for simulation only contains a host twin instead of a blob.
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
_COUNT_WORDS = {0: (11, 12), 1: (13, 14)}  # by version: words of the microcode header that count inputs and outputs
_VERSION_BY_EXTRA_OUTPUTS = {1: 0, 3: 1}  # extra outputs: scratch, or scratch, profile and debug
_SIZE_WORDS = (6, 7)  # words that contain the sizes of microcode and weights
_MAX_COUNT = 255


@dataclass(frozen=True)
class Blob:
    """A parsed blob. The maps give the argument index of each input and output."""

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
    if max(counts) > _MAX_COUNT:
        raise VendorError("Neutron delegate", f"must have at most {_MAX_COUNT} inputs and outputs", value=counts)
    flags = (*blob.input_flags, *blob.output_flags, *blob.input_map, *blob.output_map)
    header = bytes((*counts, *flags, blob.version))
    return b"".join(_pad(part) for part in (header, blob.microcode, blob.weights, blob.kernels))


def _pad(part: Buffer) -> bytes:
    return bytes(part) + bytes(-len(part) % ALIGNMENT)


def read_blob(data: Buffer) -> Blob:
    """Parse and verify a blob. The kernels are everything after the weights."""
    view = memoryview(data).cast("B")
    try:
        return _read(view)
    except FormatError as error:
        raise error.inside("Neutron blob") from None


def _read(view: memoryview) -> Blob:
    checked_int.check_range(0, 4, len(view), "the header")
    inputs, outputs, arguments = view[:3]
    size = 4 + 2 * inputs + 2 * outputs
    offset = checked_int.align(size, ALIGNMENT)
    checked_int.check_range(0, offset, len(view), "the header")
    fields, index = [], 3
    for count in (inputs, outputs, inputs, outputs):
        fields.append(tuple(view[index : index + count]))
        index += count
    version = view[index]
    _check_header(fields, arguments, version)
    checked_int.check_range(offset, 60, len(view), "the microcode's header")
    words = struct.unpack_from("<15I", view, offset)
    if words[0] != MAGIC:
        raise FormatError("must start with nMCd", where="microcode", value=hex(words[0]), offset=offset)
    if (counts := tuple(words[i] for i in _COUNT_WORDS[version])) != (inputs, outputs):
        raise FormatError("must count the header's inputs and outputs", where="microcode", value=counts, offset=offset)
    sections = []
    for name, word in zip(("microcode", "weights"), _SIZE_WORDS, strict=True):
        checked_int.check_range(offset, checked_int.align(words[word], ALIGNMENT), len(view), name)
        sections.append(view[offset : offset + words[word]])
        offset += checked_int.align(words[word], ALIGNMENT)
    flags_in, flags_out, map_in, map_out = fields
    return Blob(sections[0], sections[1], view[offset:], arguments, flags_in, flags_out, map_in, map_out, version)


def _check_header(fields: Sequence[Sequence[int]], arguments: int, version: int) -> None:
    if version not in _COUNT_WORDS:
        raise FormatError("must be 0 or 1", where="version", value=version)
    if any(flag > 1 for flags in fields[:2] for flag in flags):
        raise FormatError("must be 0 or 1", where="format flags", value=fields[:2])
    if len(set(fields[2])) != len(fields[2]) or any(i >= arguments for i in fields[2]):
        raise FormatError(f"must name different arguments of {arguments}", where="input map", value=fields[2])
    if sorted(fields[3]) != list(range(len(fields[3]))):
        raise FormatError("must be a permutation of the outputs", where="output map", value=fields[3])


# --------------------------------------------------------------------------------------------- converter output


def from_converter(data: Buffer, inputs: Sequence[str], outputs: Sequence[str], transposed: Sequence[str] = ()) -> Blob:
    """Build the blob from the converter's TFLite file. ``inputs`` and ``outputs``: names of the delegate's arguments,
    in order. ``transposed``: those that the runtime must transpose."""
    model = read_tflite(data)
    graph, op = _single_operator(model)
    io_names = [_tensor_names(graph, op.inputs, graph.inputs), _tensor_names(graph, op.outputs, graph.outputs)]
    sections = [_constant(model, graph, index) for index in (op.inputs or ())[len(io_names[0]) :]]
    extra_outputs = len(op.outputs or ()) - len(io_names[1])
    if len(sections) != 3 or extra_outputs not in _VERSION_BY_EXTRA_OUTPUTS:
        rule = "must have microcode, weights and kernels, and one or three outputs besides the graph's"
        raise VendorError("NeutronGraph", rule, value=(len(sections), extra_outputs))
    maps = [_argument_indices(names, arguments) for names, arguments in zip(io_names, (inputs, outputs), strict=True)]
    flags = [[int(name in transposed) for name in names] for names in io_names]
    microcode, weights, kernels = sections
    return Blob(
        microcode,
        weights,
        kernels,
        len(inputs),
        flags[0],
        flags[1],
        maps[0],
        maps[1],
        _VERSION_BY_EXTRA_OUTPUTS[extra_outputs],
    )


def _single_operator(model: Model) -> tuple[SubGraph, Operator]:
    graphs, codes = model.subgraphs or (), model.operator_codes or ()
    ops = list(graphs[0].operators or ()) if len(graphs) == 1 else []
    names = [codes[op.opcode_index] if op.opcode_index < len(codes) else None for op in ops]
    converted = [c is not None and c.builtin_code == CUSTOM and c.custom_code == "NeutronGraph" for c in names]
    if converted != [True]:
        remedy = "Exclude the operators that Neutron rejected: operators_not_to_delegate=[...]."
        rule = "must convert the entire graph to one NeutronGraph"
        raise VendorError("NXP's Neutron converter", rule, value=f"{len(ops)} operators", remedy=remedy)
    return graphs[0], ops[0]


def _tensor_names(graph: SubGraph, indices: Sequence[int] | None, io: Sequence[int] | None) -> list[str]:
    """Names of those tensors of an operator that are inputs or outputs of the graph."""
    tensors = graph.tensors or ()
    io_indices = [index for index in indices or () if index in (io or ())]
    if any(not 0 <= index < len(tensors) for index in io_indices):
        raise VendorError("NeutronGraph", "must name tensors of its graph", value=io_indices)
    return [tensors[index].name or "" for index in io_indices]


def _constant(model: Model, graph: SubGraph, index: int) -> Buffer:
    tensors, buffers = graph.tensors or (), model.buffers or ()
    if not 0 <= index < len(tensors) or tensors[index].buffer >= len(buffers):
        raise VendorError("NeutronGraph", "must name constants of its file", value=index)
    data: Buffer | None = buffers[tensors[index].buffer].data
    return b"" if data is None else data


def _argument_indices(names: Sequence[str], arguments: Sequence[str]) -> list[int]:
    missing = [name for name in names if name not in arguments]
    if missing:
        raise VendorError("NeutronGraph", "must keep the names of inputs and outputs", value=missing)
    return [list(arguments).index(name) for name in names]
