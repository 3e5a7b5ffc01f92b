"""Assembly of a program from its execution plans, constants and delegate blobs. No torch here."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from edgewright.formats import schema
from edgewright.formats.flatbuffer import Buffer
from edgewright.formats.layer_table import KEY, MethodLayers, write_layers
from edgewright.program.config import ExecutorchBackendConfig
from edgewright.program.constants import ConstantPool
from edgewright.program.delegates import DelegatePool

_SHARED_BYTES = 1 << 16  # named data of at least this size is stored with an equal constant


def assemble(
    plans: Sequence[schema.ExecutionPlan], constants: ConstantPool, states: ConstantPool, blobs: DelegatePool,
    named_data: Mapping[str, Buffer], config: ExecutorchBackendConfig,
) -> schema.Program:  # fmt: skip
    """The program: segments of constants, of initial state, of blobs, and of named data."""
    program = schema.Program(execution_plan=list(plans))
    index = program.add_segment(constants.chunks)  # type: ignore[arg-type]
    program.constant_segment = schema.SubsegmentOffsets(segment_index=index, offsets=constants.offsets)
    if len(states.offsets) > 1:
        index = program.add_segment(states.chunks, config.segment_alignment)  # type: ignore[arg-type]
        program.mutable_data_segments = [schema.SubsegmentOffsets(segment_index=index, offsets=states.offsets)]
    alignment = max(config.segment_alignment, config.delegate_alignment or 1)
    blobs.store(program, extract=config.extract_delegate_segments, alignment=alignment)
    for key, data in named_data.items():
        start = constants.find(hashlib.sha256(data).digest()) if len(data) >= _SHARED_BYTES else None
        if start is None:
            add_named_data(program, key, data, config.segment_alignment)
        else:  # such as the table of an embedding, which is the output layer's weights as well
            part = program.add_part(program.constant_segment.segment_index, start, data)
            program.named_data = [*(program.named_data or ()), schema.NamedData(key=key, segment_index=part)]
    return program


def add_named_data(program: schema.Program, key: str, data: Buffer, alignment: int) -> None:
    """Append a segment that runtimes find by its key; they ignore keys that they do not ask for."""
    index = program.add_segment(data, alignment)
    program.named_data = [*(program.named_data or ()), schema.NamedData(key=key, segment_index=index)]


def add_layers(program: schema.Program, layers: Mapping[str, MethodLayers], alignment: int) -> None:
    """Append the layer table, unless it names nothing."""
    data = write_layers(layers)
    if data:
        add_named_data(program, KEY, data, alignment)
