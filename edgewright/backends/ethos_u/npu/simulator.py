"""The machine: it walks a command stream and runs its operations in order, in place on the given memories."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Any

import numpy as np

from edgewright.backends.ethos_u.npu import pooling, weights
from edgewright.backends.ethos_u.npu.compiled_stream import Replay
from edgewright.backends.ethos_u.npu.convolution import convolve, convolve_depthwise, strips
from edgewright.backends.ethos_u.npu.elementwise import UNARY, UNSCALED, combine, operand_scales, transform
from edgewright.backends.ethos_u.npu.featuremap import FeatureMap, element_type, feature_map
from edgewright.backends.ethos_u.npu.kernel import Kernel, kernel, padded_input
from edgewright.backends.ethos_u.npu.memory import INTERNAL, Budget, Memory
from edgewright.backends.ethos_u.npu.output_stage import OutputStage, output_stage
from edgewright.backends.ethos_u.npu.registers import Registers
from edgewright.backends.ethos_u.npu.stream import Instruction, Program
from edgewright.backends.ethos_u.npu.trace import Block, Copy, Done, Elementwise, Pool, Product, Record, Second
from edgewright.errors import FormatError, MissingError

Array = np.ndarray[Any, Any]
_ELEMENT_STEPS = 64  # an element that passes the output stage counts as so many multiplications
_KEPT_WEIGHTS = 1 << 26
_WAITS = frozenset(("DMA_WAIT", "KERNEL_WAIT", "PMU_MASK", "IRQ"))  # nothing runs ahead here, so nothing is waited for


class Npu:
    """One NPU with its registers and memories."""

    def __init__(self, program: Program, memory: Memory, budget: Budget) -> None:
        self._program = program
        self._memory = memory
        self._budget = budget
        self._registers = Registers()
        self._record = Record()
        self._operations: dict[str, Callable[[Instruction], Block | None]] = {
            "CONV": self._convolution,
            "DEPTHWISE": self._convolution,
            "POOL": self._pool,
            "ELEMENTWISE": self._elementwise,
            "DMA_START": self._copy,
        }

    def run(self) -> Record:
        """All operations, and what they were."""
        for instruction in self._program.instructions:
            name = instruction.command.name
            if name == "STOP":
                self._record.spent = self._budget.spent
                return self._record
            if name in self._operations:
                block = _located(self._operations[name], instruction)
                self._record.add(instruction, self._registers, block)
            elif name not in _WAITS:
                self._registers.set(instruction)
        raise FormatError("a command stream must end with STOP", where="cmd_data")

    def repeat(self, replay: Replay) -> None:
        """The same operations as in an earlier run, on what memories hold now."""
        self._budget.spend(replay.spent)
        self._budget = Budget(replay.spent)
        replay.run(self, self._memory.regions)

    def again(self, done: Done) -> None:
        """One operation of an earlier run, on what memories hold now."""
        self._registers = done.registers
        _located(self._operations[done.instruction.command.name], done.instruction)

    # Operations -------------------------------------------------------------------------------------------------------

    def _convolution(self, instruction: Instruction) -> Block | None:
        registers, window = self._registers, kernel(self._registers)
        ofm, ifm, stage, (height, width, depth) = self._ends()
        depthwise = instruction.command.name == "DEPTHWISE"
        if ifm.dtype.itemsize == 4:
            raise FormatError("a convolution's input must have 8 or 16 bits", value=32, where="cmd_data")
        ifm_depth = registers.count("IFM_DEPTH")
        if depthwise and ifm_depth != depth:
            raise FormatError("a depthwise convolution must keep its depth", value=(ifm_depth, depth), where="cmd_data")
        taps = window.elements * (1 if depthwise else ifm_depth)
        self._budget.elements((taps, depth))
        self._budget.spend(height * width * depth * (taps + _ELEMENT_STEPS) + 4 * taps * depth)
        matrix = self._weights(window, depth, 1 if depthwise else ifm_depth, depthwise, ifm.dtype.itemsize * 8)
        image = padded_input(ifm, self._memory, window, (height, width), ifm_depth, self._budget)
        sums = (convolve_depthwise if depthwise else convolve)(image, matrix, window, (height, width))
        bias, multiplier, shift = self._records(depth)
        if registers.field("OFM_PRECISION", "global_scale"):
            multiplier, shift = (np.array(part, np.int64) for part in registers.scale("OFM_SCALE"))
        sums += bias
        self._store(ofm, stage, sums, multiplier, shift)
        if not self._same_numbers(stage, "WEIGHT", "SCALE"):
            return None
        return Product(ofm, ifm, stage, window, (height, width, depth), ifm_depth, matrix, bias, multiplier, shift,
                       depthwise)  # fmt: skip

    def _pool(self, instruction: Instruction) -> Block | None:
        registers, window = self._registers, kernel(self._registers)
        ofm, ifm, stage, (height, width, depth) = self._ends()
        mode = _mode(instruction)
        ifm_depth = registers.count("IFM_DEPTH")
        if mode != "REDUCE_SUM" and ifm_depth != depth:
            raise FormatError("a pool must keep its depth", value=(ifm_depth, depth), where="cmd_data")
        self._budget.spend(height * width * (ifm_depth * 4 * window.elements + depth * _ELEMENT_STEPS))
        size, fill = (height, width), pooling.LEAST[ifm.dtype.itemsize] if mode == "MAX" else 0
        image = padded_input(ifm, self._memory, window, size, ifm_depth, self._budget, fill)
        if mode == "MAX":
            values = pooling.largest(image, window, size)
        elif mode == "AVERAGE":
            values = pooling.mean(image, window, size, stage.rounding)
        else:
            values = pooling.summed(image, window, size).sum(2, keepdims=True)
            depth = _must_be_one(depth)
        scales = self._scales(depth)
        self._store(ofm, stage, values, *scales)
        if mode == "REDUCE_SUM" or not self._same_scales(stage):
            return None
        return Pool(ofm, ifm, stage, window, (height, width, depth), mode, *scales)

    def _elementwise(self, instruction: Instruction) -> Block | None:
        registers, mode = self._registers, _mode(instruction)
        ofm, ifm, stage, shape = self._ends()
        height, width, depth = shape
        self._budget.spend(height * width * depth * 2 * _ELEMENT_STEPS)
        first = ifm.read(self._memory, *shape)
        second = np.zeros((1, 1, 1), np.int64) if mode in UNARY else self._second(shape)
        values = np.empty(shape, ofm.dtype)
        scales = operand_scales(registers) if mode in ("ADD", "SUB") else None
        unscaled = mode in UNSCALED and not registers.field("OFM_PRECISION", "global_scale")
        multiplier, shift = (1, 0) if unscaled else self._scales(depth)
        if mode == "MUL" and ifm.dtype.itemsize == 4:
            multiplier = 1  # a product of 64 bits is only shifted
        swapped = mode not in UNARY and registers.field("IFM2_BROADCAST", "reversed")
        for rows in strips(height, width * depth):
            a = first[rows].astype(np.int64) - ifm.zero_point
            b = second[rows] if second.shape[0] > 1 else second
            a, b = (b, a) if swapped else (a, b)
            if scales is not None:
                a, b = scales(a, b, ifm.dtype.itemsize)
            result = transform(mode, a) if mode in UNARY else combine(mode, a, b, stage.rounding)
            if mode == "LRELU":
                values[rows] = np.where(result < 0, stage(result, multiplier, shift), stage(result, 1, 0))
            else:
                values[rows] = stage(result, multiplier, shift)
        self._write(ofm, values)
        if not (unscaled or self._same_scales(stage)):
            return None
        other = None if mode in UNARY else self._second_operand(shape)
        return Elementwise(ofm, ifm, stage, shape, mode, other, bool(swapped), scales, multiplier, shift)

    def _copy(self, instruction: Instruction) -> Block | None:
        registers = self._registers
        for end in ("SRC", "DST"):
            if registers.field(f"DMA0_{end}_REGION", "dimensions"):
                raise MissingError("a copy in two or three dimensions", "is not simulated yet")
        if registers.field("DMA0_SRC_REGION", "internal"):
            raise FormatError("a copy must not come out of the NPU", where="cmd_data", offset=instruction.offset)
        source = registers.field("DMA0_SRC_REGION", "region"), registers.address("DMA0_SRC")
        internal = registers.field("DMA0_DST_REGION", "internal")
        region: int | str = INTERNAL if internal else registers.field("DMA0_DST_REGION", "region")
        length = registers.address("DMA0_LEN")
        if length < 0:
            raise FormatError("a copy's length must not be negative", value=length, where="cmd_data")
        self._budget.spend(length)
        target = registers.address("DMA0_DST")
        self._memory.copy(source, (region, target), length)
        self._record.written(region, target, target + length, self._record.fixed(*source, length))
        return Copy(source, (region, target), length) if isinstance(region, int) and length else None

    # Parts ------------------------------------------------------------------------------------------------------------

    def _ends(self) -> tuple[FeatureMap, FeatureMap, OutputStage, tuple[int, int, int]]:
        registers = self._registers
        ofm, ifm = feature_map(registers, "OFM"), feature_map(registers, "IFM")
        shape = (registers.count("OFM_HEIGHT"), registers.count("OFM_WIDTH"), registers.count("OFM_DEPTH"))
        self._budget.elements(shape)
        return ofm, ifm, output_stage(registers, self._memory, ofm.dtype), shape

    def _second(self, shape: tuple[int, int, int]) -> Array:
        """The second operand of an elementwise operation, less its zero point."""
        second = self._second_operand(shape)
        if second.map is None:
            return np.full((1, 1, 1), second.number, np.int64)
        return second.map.read(self._memory, *second.shape).astype(np.int64) - second.map.zero_point

    def _second_operand(self, shape: tuple[int, int, int]) -> Second:
        registers = self._registers
        if registers.field("IFM2_BROADCAST", "scalar"):
            sign, bits = registers.field("IFM2_PRECISION", "signed"), registers.choice("IFM2_PRECISION", "bits")
            element_type(sign, bits)
            value = registers.signed("IFM2_SCALAR") if sign else registers.number("IFM2_SCALAR")
            return Second(value - registers.signed("IFM2_ZERO_POINT"))
        axes = ("height", "width", "depth")
        spread = [registers.field("IFM2_BROADCAST", axis) for axis in axes]
        height, width, depth = (1 if one else n for n, one in zip(shape, spread, strict=True))
        return Second(0, feature_map(registers, "IFM2"), (height, width, depth))

    def _same_scales(self, stage: OutputStage) -> bool:
        return self._same_numbers(
            stage, *(() if self._registers.field("OFM_PRECISION", "global_scale") else ("SCALE",))
        )

    def _same_numbers(self, stage: OutputStage, *streams: str) -> bool:
        """What an operation reads beside its maps will be the same in every run: streams, and the table it looks up."""
        registers = self._registers
        found = [(registers.number(f"{s}_REGION"), registers.address(f"{s}_BASE"), registers.number(f"{s}_LENGTH"))
                 for s in streams]  # fmt: skip
        fixed = all(self._record.fixed(*place) for place in found)
        return fixed and (stage.table is None or self._record.fixed(INTERNAL, *self._memory.place(stage.table)))

    def _scales(self, channels: int) -> tuple[Any, Any]:
        """The output's multiplier and shift, where there is no bias: one for all channels, or one for each."""
        if self._registers.field("OFM_PRECISION", "global_scale"):
            return self._registers.scale("OFM_SCALE")
        bias, multiplier, shift = self._records(channels)
        if bias.any():
            raise FormatError("only convolutions may have a bias", where="cmd_data")
        return multiplier, shift

    def _records(self, channels: int) -> tuple[Array, Array, Array]:
        """Bias, multiplier and shift of each channel."""
        length = self._registers.number("SCALE_LENGTH")
        if length < channels * weights.RECORD_BYTES:
            rule = f"a scale stream must hold {channels} records of {weights.RECORD_BYTES} bytes"
            raise FormatError(rule, value=f"{length} bytes", where="cmd_data")
        region, base = self._registers.number("SCALE_REGION"), self._registers.address("SCALE_BASE")
        return weights.scales(self._memory.bytes(region, base, length), channels)

    def _weights(self, window: Kernel, depth: int, ifm_depth: int, depthwise: bool, bits: int) -> Array:
        """A layer's weights. Stripes of a layer and later runs share them, so what was unpacked is kept."""
        registers = self._registers
        shape = weights.Shape(depth, ifm_depth, *window.size, window.dilation, registers.count("OFM_BLK_DEPTH"), bits,
                              window.part_kernel, depthwise, weights.ofm_micro(self._program.accelerator))  # fmt: skip
        region, base = registers.number("WEIGHT_REGION"), registers.address("WEIGHT_BASE")
        stream = self._memory.bytes(region, base, registers.number("WEIGHT_LENGTH"))
        known, key = self._program.unpacked, (blake2b(stream, digest_size=16).digest(), shape)
        if key not in known:
            unpacked = weights.unpack(stream, shape)
            if sum(array.size for array in known.values()) + unpacked.size > _KEPT_WEIGHTS:
                known.clear()
            known[key] = unpacked
        return known[key]

    def _store(self, ofm: FeatureMap, stage: OutputStage, values: Array, multiplier: Any, shift: Any) -> None:
        stored = np.empty(values.shape, ofm.dtype)
        for rows in strips(values.shape[0], values.shape[1] * values.shape[2]):
            stored[rows] = stage(values[rows], multiplier, shift)
        self._write(ofm, stored)

    def _write(self, ofm: FeatureMap, values: Array) -> None:
        ofm.write(self._memory, values)
        for low, high in ofm.reach(*values.shape):
            self._record.written(ofm.region, low, high)


def _mode(instruction: Instruction) -> str:
    row = instruction.command.fields[0]
    value = row.of(instruction.parameter)
    if value not in row.names:
        rule = f"must be a mode of {instruction.command.name}"
        raise FormatError(rule, value=value, where="cmd_data", offset=instruction.offset)
    return row.names[value]


def _must_be_one(depth: int) -> int:
    if depth != 1:
        raise FormatError("a sum over channels must have a depth of one", value=depth, where="cmd_data")
    return depth


def _located(operation: Callable[[Instruction], Block | None], instruction: Instruction) -> Block | None:
    """Run one operation; what is wrong with it is reported at its place in the stream."""
    try:
        return operation(instruction)
    except FormatError as error:
        if error.offset is None and error.where == "cmd_data":
            error.offset = instruction.offset
        raise
