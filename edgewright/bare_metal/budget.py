"""What a program takes of a board's flash and SRAM, part by part, and what to do if it does not fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from edgewright.bare_metal.describe import Description
from edgewright.errors import LimitError
from edgewright.formats import schema
from edgewright.formats.checked_int import tensor_bytes
from edgewright.formats.pte_reader import read_program
from edgewright.ir.dtypes import ScalarType
from edgewright.units import size

FLASH, SRAM, DRAM = "flash", "SRAM", "DRAM"
# The size that ExecuTorch's documentation states for its runtime, without kernels and delegates.
RUNTIME_CODE = 50 << 10
_WORTH_SAYING = 0.05  # of the memory, for advice
_SCRATCH = ", with the NPU's scratch"
_WEIGHTS = "NPU: weights and biases"
_RUNTIME = "code of the runtime, without kernels"
# What makes a part smaller that does not fit.
_REMEDIES = {
    f"temp allocator{_SCRATCH}": "Compile with --optimise size, which takes more cycles, or reduce the model's input.",
    _WEIGHTS: "Prune or cluster the weights (edgewright.compress), or reduce the model's width.",
    _RUNTIME: "It is an estimate: pass the size in the linker's map with --code.",
}
_INTEGERS = ("quantized_decomposed::quantize_per_tensor.out", "quantized_decomposed::dequantize_per_tensor.out")


@dataclass(frozen=True)
class Row:
    """A part: the memory it is in, its size, and how the size is known."""

    part: str
    memory: str
    bytes: int
    basis: str = "exact"


@dataclass(frozen=True)
class Budget:
    """All parts, and advice on the larger ones."""

    rows: Sequence[Row]
    advice: Sequence[str]

    def total(self, memory: str) -> int:
        return sum(row.bytes for row in self.rows if row.memory == memory)

    def errors(self, limits: dict[str, int | None]) -> list[LimitError]:
        """An error for each memory that is too small."""
        found = []
        for memory, limit in limits.items():
            total = self.total(memory)
            if limit is not None and total > limit:
                largest = max((row for row in self.rows if row.memory == memory), key=lambda row: row.bytes)
                what = f"The largest part: {largest.part}, {size(largest.bytes)}."
                remedy = f"{what} {_REMEDIES.get(largest.part, '')}".strip()
                value = f"{size(total)}, {size(total - limit)} too much"
                found.append(LimitError(memory, f"the program must fit {size(limit)}", value=value, remedy=remedy))
        return found


def make_budget(about: Description, path: str, code: int | None = None, bits: int = 32) -> Budget:
    """The budget of a described method. ``code``: bytes of the firmware's code, if known; ``bits``: of a pointer."""
    rows = [*_flash(about, path, code), *_ram(about, bits)]
    return Budget(rows, list(_advice(about, rows)))


def _flash(about: Description, path: str, code: int | None) -> Iterator[Row]:
    parts: dict[str, int] = {}
    for delegate in about.pools.delegates:
        for name, count in delegate.parts.items():
            parts[f"NPU: {name}"] = parts.get(f"NPU: {name}", 0) + count
    program = read_program(path)
    constants = program.constant_segment
    if constants is not None and program.segments:
        parts["weights of kernels on the CPU"] = program.segments[constants.segment_index].size
    parts["manifest and names of layers"] = _described_bytes(program)
    parts["tables of the program"] = program.layout.flatbuffer_size if program.layout else 0
    parts["headers and alignment"] = len(about.file) - sum(parts.values())
    yield from (Row(name, FLASH, count) for name, count in parts.items() if count)
    if code is None:
        yield Row(_RUNTIME, FLASH, RUNTIME_CODE, "estimate: ExecuTorch's own statement")
    else:
        yield Row("code", FLASH, code, "given")


def _described_bytes(program: schema.Program) -> int:
    """What Edgewright stores about the program: the runtime does not read it."""
    named = (n for n in program.named_data or () if n.key.startswith("edgewright."))
    return sum(len(program.segment(n.segment_index)) for n in named)


def _ram(about: Description, bits: int) -> Iterator[Row]:
    pools = about.pools
    for number, count in enumerate(pools.planned):
        yield Row(f"planned memory {number}", SRAM, count)
    bound = "exact" if pools.method_exact else "upper bound"
    yield Row("method allocator", SRAM, pools.method[bits], bound)
    in_dram = any(d.scratch_in_dram for d in pools.delegates)
    of_npu = _SCRATCH if pools.scratch else ""
    yield Row(f"temp allocator{of_npu}", DRAM if in_dram else SRAM, pools.temp[bits])
    if pools.fast_scratch:
        yield Row("NPU: fast scratch", SRAM, pools.fast_scratch, "exact" if pools.fast_scratch_exact else "upper bound")
    copied = sum(sum(d.parts.values()) for d in pools.delegates if d.constants_in_sram)
    if copied:
        yield Row("NPU: commands and constants, in SRAM by the memory mode", SRAM, copied)
    unplanned = sum(port.bytes for port in (*about.inputs, *about.outputs) if not port.planned)
    if unplanned:
        yield Row("inputs and outputs of the application", SRAM, unplanned)


def _advice(about: Description, rows: Sequence[Row]) -> Iterator[str]:
    flash = len(about.file)
    final = sum(d.final_table_bytes for d in about.pools.delegates)
    if final >= _WORTH_SAYING * flash:
        commands = sum(d.final_command_bytes for d in about.pools.delegates)
        layers = [name for d in about.pools.delegates for name in d.final_layers]
        what = ", ".join(layers[:3]) if layers else "functions (a softmax, or similar)"
        yield (
            f"after the last matrix product, {what} takes {size(final)} of tables and {size(commands)} of commands, of "
            f"{size(flash)}. End the model before it if the firmware only needs the largest result, or can compute it."
        )
    floats = sum(p.bytes for p in (*about.inputs, *about.outputs) if p.type == "float32" and p.planned)
    conversions = [name for name in _INTEGERS if name in about.operators]
    if floats and conversions and about.pools.delegates:
        yield (
            f"floating-point inputs and outputs take {size(floats)} of planned memory and need "
            f"{' and '.join(conversions)}. Compile with --integer-io to pass integers; the header has their scales."
        )
    weights = _float_weights(about.plan)
    if weights >= _WORTH_SAYING * flash:
        saved = weights - weights // 4
        yield f"weights of {size(weights)} are float32: as int8 they would take about {size(saved)} less."
    described = next((row.bytes for row in rows if "manifest" in row.part), 0)
    if described:
        keep = " It also holds the scales of integer inputs: export first." if _has_scales(about) else ""
        yield f"`edgewright strip` removes {size(described)} that the board does not read.{keep}"


def _has_scales(about: Description) -> bool:
    return any(port.scale is not None for port in (*about.inputs, *about.outputs))


def _float_weights(plan: schema.ExecutionPlan) -> int:
    """Bytes of constants in float32, each counted once."""
    constants = {
        value.data_buffer_idx: tensor_bytes(value.scalar_type, value.sizes)
        for value in plan.values
        if isinstance(value, schema.Tensor) and value.data_buffer_idx and value.allocation_info is None
        if value.scalar_type == ScalarType.FLOAT32
    }
    return sum(constants.values())
