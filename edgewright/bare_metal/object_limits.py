"""Limits of flash and SRAM for an object file: checked before code is generated; what to change if it is too large."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from edgewright.bare_metal.describe import Port
from edgewright.bare_metal.object_header import NpuMemory
from edgewright.engine.object_file import CpuCode, NpuCall, Section
from edgewright.engine.plan import Address, Plan
from edgewright.errors import LimitError
from edgewright.formats import schema
from edgewright.report.collect import delegate_contents
from edgewright.report.graphs import stream_groups
from edgewright.report.layer_sizes import NO_LAYER, delegate_bytes
from edgewright.runtime.jit.method_parts import CpuPart, DelegatePart, MethodParts
from edgewright.units import size

_CONSTANTS, _INTERNAL = "constants", "internal"  # memories of an NPU's passes that are not in SRAM


@dataclass(frozen=True)
class Limits:
    """``flash``, ``sram``: bytes of the board, or None for any."""

    program: schema.Program
    plan: schema.ExecutionPlan
    parts: MethodParts
    sections: Sequence[Section]
    npu: NpuMemory
    flash: int | None
    sram: int | None

    def check(self, arena: int, ports: Sequence[Port]) -> None:
        """Reject a model whose constants or memory cannot fit."""
        calls = [section for section in self.sections if isinstance(section, NpuCall)]
        of_npu = sum(len(call.commands) + len(call.weights) for call in calls)
        of_cpu = sum(code.plan.weights.nbytes for code in self.sections if isinstance(code, CpuCode))
        self.check_flash("weights alone", of_cpu + of_npu)
        parts = {
            "arena": 0 if self.npu.scratch_in_dram else arena,
            "inputs and outputs": sum(port.bytes for port in ports),
            "the NPU's fast scratch": self.npu.fast_scratch,
            "the NPU's commands and weights": of_npu if self.npu.constants_in_sram else 0,
        }
        what = ", ".join(f"{name} ({size(count)})" for name, count in parts.items() if count)
        self._check("--sram", what, sum(parts.values()), self.sram)

    def check_flash(self, what: str, needed: int) -> None:
        self._check("--flash", what, needed, self.flash)

    def _check(self, option: str, what: str, needed: int, limit: int | None) -> None:
        if limit is None or needed <= limit:
            return
        in_flash = option == "--flash"
        largest, name = max(self._layers(in_flash), default=(0, ""))
        where = f" Largest layer: {name} ({size(largest)})." if largest else ""
        remedy = f"{self._remedy(in_flash)}{where}"
        raise LimitError(option, f"{what} must fit in {size(limit)}", value=size(needed), remedy=remedy)

    def _remedy(self, in_flash: bool) -> str:
        weights = (v for part in self.parts.parts if isinstance(part, CpuPart) for v in part.graph.values())
        if any(v.constant and v.dtype == np.float32 and len(v.shape) > 1 for v in weights):
            return "Quantize to int8, or reduce the width or the input size of the model."
        if in_flash:
            compress = "Prune or cluster the weights (edgewright.compress), or reduce" if self.npu.calls else "Reduce"
            return f"{compress} the width of the model."
        save = "Compile with --optimise size, or reduce" if self.npu.calls else "Reduce"
        return f"{save} the input size of the model, or the width of its first layers."

    def _layers(self, in_flash: bool) -> Iterator[tuple[int, str]]:
        """Bytes of each layer: of its constants, or of all that it reads and writes."""
        for plan in (section.plan for section in self.sections if isinstance(section, CpuCode)):
            counts = _weight_bytes(plan) if in_flash else [step.bytes for step in plan.steps]
            yield from ((count, step.layer or step.label) for step, count in zip(plan.steps, counts, strict=True))
        contents = delegate_contents(self.program, None, {})
        called = [part.index for part in self.parts.parts if isinstance(part, DelegatePart)]
        if in_flash:
            for entry in delegate_bytes(self.program, contents):
                if entry.method == self.plan.name and entry.index in called:
                    yield from ((count, layer) for layer, count in entry.layers.items() if layer not in NO_LAYER)
            return
        for group in (group for index in called for group in stream_groups(contents(self.plan.delegates[index]))):
            moved = (count for memory, count in group.traffic.items() if memory not in (_CONSTANTS, _INTERNAL))
            yield sum(moved), group.layer or group.operator


def _weight_bytes(plan: Plan) -> list[int]:
    """Bytes of the constants that each step reads."""
    reads = [[a.offset for a in step.args if isinstance(a, Address) and a.buffer == "weights"] for step in plan.steps]
    offsets = sorted({offset for each in reads for offset in each})
    ends = dict(itertools.zip_longest(offsets, offsets[1:], fillvalue=plan.weights.nbytes))
    return [sum(ends[offset] - offset for offset in each) for each in reads]
