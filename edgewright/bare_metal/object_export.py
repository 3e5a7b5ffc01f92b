"""A program as one object file without a runtime: ``NAME.o`` and ``NAME.h``."""

from __future__ import annotations

import os
from pathlib import Path

from edgewright.backends.registry import all_backends, find_provider
from edgewright.bare_metal.c_source import check_name
from edgewright.bare_metal.describe import read_ports
from edgewright.bare_metal.object_header import NpuMemory, ObjectDescription, object_header
from edgewright.bare_metal.object_limits import Limits
from edgewright.bare_metal.pools import delegate_memory, device_blob, fast_scratch, find_method
from edgewright.engine.compiler import make_plan
from edgewright.engine.cross_target import CrossTarget, find_cross_target
from edgewright.engine.graph.memory import BufferLifetime, allocate
from edgewright.engine.object_file import Buffer, CpuCode, IndexGuard, NpuCall, Section, write_object
from edgewright.engine.plan import Plan
from edgewright.errors import UnsupportedOperatorError, UsageError
from edgewright.files import make_folder, write_file
from edgewright.formats import schema
from edgewright.formats.pte_reader import read_program
from edgewright.runtime.device_memory import DeviceCommands
from edgewright.runtime.jit.method_parts import CpuPart, DelegatePart, MethodParts, split_method
from edgewright.runtime.program import Runtime
from edgewright.runtime.tensor import TensorSlot


def export_object(
    path: str | os.PathLike[str], folder: str | os.PathLike[str], target: str, *, name: str = "model",
    method: str | None = None, flash: int | None = None, sram: int | None = None,
) -> tuple[ObjectDescription, list[tuple[Path, int]]]:  # fmt: skip
    """Write a program as an object file and its header to a folder; returns the description and the files with sizes.

    ``target``: a processor, such as ``cortex-m55`` (``CROSS_TARGETS``). ``flash``, ``sram``: bytes that code with
    constants, and that the arena with inputs and outputs, may take.
    """
    check_name(name)
    about = build_object(path, target, name=name, method=method, flash=flash, sram=sram)
    root = make_folder(folder)
    contents = {f"{name}.o": about.object.data, f"{name}.h": object_header(about).encode()}
    return about, [(root / file, write_file(root / file, [data])) for file, data in contents.items()]


def build_object(
    path: str | os.PathLike[str], target: str, *, name: str = "model", method: str | None = None,
    flash: int | None = None, sram: int | None = None,
) -> ObjectDescription:  # fmt: skip
    """Compile a program to an object file in memory."""
    processor = find_cross_target(target)
    program = read_program(os.fspath(path))
    plan = find_method(program, method, os.fspath(path))
    loaded = Runtime(threads=1).load_program(os.fspath(path)).load_method(plan.name)
    parts = split_method(loaded)
    inputs, outputs = read_ports(program, plan)
    sections, arena = _make_sections(parts, processor, program, plan)
    npu = _npu_memory(parts, program, plan)
    limits = Limits(program, plan, parts, sections, npu, flash, sram)
    limits.check(arena, (*inputs, *outputs))
    made = write_object(sections, processor, name, arena)
    macs = sum(step.macs for s in sections if isinstance(s, CpuCode) for step in s.plan.steps)
    about = ObjectDescription(name, processor, made, inputs, outputs, macs, npu)
    limits.check_flash("code and constants", about.flash)
    return about


# ------------------------------------------------------------------------------------------------------------- sections


def _make_sections(
    parts: MethodParts, target: CrossTarget, program: schema.Program, plan: schema.ExecutionPlan
) -> tuple[list[Section], int]:
    """Plans and command streams with the memory of their tensors, and the arena's size."""
    plans = {part: _make_plan(part, target) for part in parts.parts if isinstance(part, CpuPart)}
    calls = {part: _device_commands(part, program, plan) for part in parts.parts if isinstance(part, DelegatePart)}
    working = max(
        (*(CpuCode(p, (), ()).memory for p in plans.values()), *(each.scratch for each in calls.values())),
        default=0,
    )
    buffers, between = _place_tensors(parts, -(-working // 64) * 64)
    sections: list[Section] = []
    for part in parts.parts:
        inputs, outputs = (tuple(buffers[slot] for slot in slots) for slots in (part.inputs, part.outputs))
        if isinstance(part, CpuPart):
            sections.append(CpuCode(plans[part], inputs, outputs, _guards(part)))
        else:
            npu = calls[part]
            io = [tuple((buffer, *extent) for buffer, extent in zip(tensors, ranges, strict=True))
                  for tensors, ranges in ((inputs, npu.inputs), (outputs, npu.outputs))]  # fmt: skip
            sections.append(NpuCall(npu.commands, npu.weights, npu.scratch, io[0], io[1]))
    return sections, -(-working // 64) * 64 + between if between else working


def _make_plan(part: CpuPart, target: CrossTarget) -> Plan:
    plan = make_plan(part.graph, 1, part.numerics, isa=target.isa)
    for step in plan.steps:
        if step.python is not None:
            where = f" in layer {step.layer}" if step.layer else ""
            remedy = "Leave it out of the model and compute it in the application, or express it with other operators."
            rule = f"has no kernel for {target.name}"
            raise UnsupportedOperatorError(f"{step.label}{where}", rule, remedy=remedy)
    return plan


def _device_commands(part: DelegatePart, program: schema.Program, plan: schema.ExecutionPlan) -> DeviceCommands:
    delegate = plan.delegates[part.index]
    info = find_provider(delegate.id, lambda info: info.device_commands)
    if info is None:
        known = ", ".join(sorted({i.title for i in all_backends() if i.device_commands}))
        remedy = f"Compile the model for XNNPACK, for {known}, or without delegates."
        rule = "must have code for the CPU or commands for an NPU in an object file"
        raise UsageError(f"delegate {part.index}", rule, value=delegate.id, remedy=remedy)
    named = {item.key: program.segment(item.segment_index) for item in program.named_data or ()}
    commands: DeviceCommands = info.load_function(info.device_commands)(device_blob(program, delegate, named))
    return commands


def _npu_memory(parts: MethodParts, program: schema.Program, plan: schema.ExecutionPlan) -> NpuMemory:
    named = {item.key: program.segment(item.segment_index) for item in program.named_data or ()}
    called = [part.index for part in parts.parts if isinstance(part, DelegatePart)]
    each = [delegate_memory(program, plan.delegates[index], index, named) for index in called]
    fast, exact = fast_scratch(program, each)
    return NpuMemory(
        len(each), fast, exact, any(m.constants_in_sram for m in each), any(m.scratch_in_dram for m in each)
    )


def _guards(part: CpuPart) -> tuple[IndexGuard, ...]:
    position = {slot: index for index, slot in enumerate(part.inputs)}
    return tuple(
        IndexGuard(position[slot], -count if wrap else 0, count)
        for slot, count, wrap in sorted(part.guards, key=lambda guard: (position[guard[0]], *guard[1:]))
    )


def _place_tensors(parts: MethodParts, start: int) -> tuple[dict[TensorSlot, Buffer], int]:
    """The memory of every tensor that a part reads or writes, and how much of it is in the arena from ``start`` on."""
    written = {slot for part in parts.parts for slot in part.outputs}
    buffers: dict[TensorSlot, Buffer] = {slot: Buffer("input", i) for i, slot in enumerate(parts.inputs)}
    for number, slot in enumerate(parts.outputs):
        if slot not in written or slot in buffers:
            remedy = "Return each result once, and leave out inputs that are returned unchanged."
            raise UsageError(f"output {number}", "must be computed by the model, once", remedy=remedy)
        buffers[slot] = Buffer("output", number)
    first: dict[TensorSlot, int] = {}
    last: dict[TensorSlot, int] = {}
    for at, part in enumerate(parts.parts):
        for slot in (*part.inputs, *part.outputs):
            if slot not in buffers:
                first.setdefault(slot, at)
                last[slot] = at
    for slot in first:
        if slot not in written:
            raise UsageError("method", "must read inputs, constants and its own results only")
    bytes_of = {slot: slot.capacity * slot.dtype.itemsize for slot in first}
    offsets, total = allocate([BufferLifetime(bytes_of[slot], first[slot], last[slot]) for slot in first])
    buffers.update({slot: Buffer("arena", start + offset) for slot, offset in zip(first, offsets, strict=True)})
    return buffers, total
