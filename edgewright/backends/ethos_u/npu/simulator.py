"""NPU interpreter: executes the operations of a command stream in order, in place on the caller's memory regions."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Any

import numpy as np

from edgewright.backends.ethos_u.npu import pooling, weights
from edgewright.backends.ethos_u.npu.compiled_stream import Replay
from edgewright.backends.ethos_u.npu.convolution import convolve, convolve_depthwise, row_strips
from edgewright.backends.ethos_u.npu.elementwise import UNARY, UNSCALED, apply_binary, apply_unary, operand_scales
from edgewright.backends.ethos_u.npu.featuremap import FeatureMap, element_type, feature_map_from_registers
from edgewright.backends.ethos_u.npu.kernel import Kernel, kernel_from_registers, padded_input
from edgewright.backends.ethos_u.npu.memory import INTERNAL, Budget, NpuMemory
from edgewright.backends.ethos_u.npu.output_stage import OutputStage, output_stage_from_registers
from edgewright.backends.ethos_u.npu.pass_timer import PassTimer
from edgewright.backends.ethos_u.npu.registers import Registers
from edgewright.backends.ethos_u.npu.stream import CommandStream, Instruction
from edgewright.backends.ethos_u.npu.trace import (
    Convolution,
    Copy,
    Elementwise,
    Executed,
    Operand2,
    Operation,
    Pool,
    Trace,
)
from edgewright.errors import FormatError, MissingError

Array = np.ndarray[Any, Any]
_ELEMENT_COST = 64  # budget steps per element of the output stage, in multiplications
_WEIGHT_CACHE_ELEMENTS = 1 << 26
_SYNC_COMMANDS = frozenset(("DMA_WAIT", "KERNEL_WAIT", "PMU_MASK", "IRQ"))  # no-ops: operations run one after another


class Npu:
    """One NPU: its registers, its memory, and a budget that bounds a run."""

    def __init__(self, program: CommandStream, memory: NpuMemory, budget: Budget) -> None:
        self._program = program
        self._memory = memory
        self._budget = budget
        self._registers = Registers()
        self._trace = Trace()
        self._operations: dict[str, Callable[[Instruction], Operation | None]] = {
            "CONV": self._convolution,
            "DEPTHWISE": self._convolution,
            "POOL": self._pool,
            "ELEMENTWISE": self._elementwise,
            "DMA_START": self._dma,
        }

    def run(self, timer: PassTimer) -> Trace:
        """Run every operation and return the trace."""
        for instruction in self._program.instructions:
            name = instruction.command.name
            if name == "STOP":
                self._trace.steps = self._budget.used
                return self._trace
            if name in self._operations:
                with timer.time(instruction):
                    operation = _run_located(self._operations[name], instruction)
                self._trace.add(instruction, self._registers, operation)
            elif name not in _SYNC_COMMANDS:
                self._registers.set(instruction)
        raise FormatError("a command stream must end with STOP", where="cmd_data")

    def replay(self, replay: Replay, timer: PassTimer) -> None:
        """Run a compiled replay of an earlier run on the current contents of memory."""
        self._budget.spend(replay.steps)
        self._budget = Budget(replay.steps)
        replay.run(self, self._memory.regions, timer)

    def run_one(self, executed: Executed) -> None:
        """Run one traced operation again on the current contents of memory."""
        self._registers = executed.registers
        _run_located(self._operations[executed.instruction.command.name], executed.instruction)

    # Operations -------------------------------------------------------------------------------------------------------

    def _convolution(self, instruction: Instruction) -> Operation | None:
        registers, window = self._registers, kernel_from_registers(self._registers)
        ofm, ifm, stage, (height, width, depth) = self._feature_maps()
        depthwise = instruction.command.name == "DEPTHWISE"
        if ifm.dtype.itemsize == 4:
            raise FormatError("a convolution's input must have 8 or 16 bits", value=32, where="cmd_data")
        ifm_depth = registers.count("IFM_DEPTH")
        if depthwise and ifm_depth != depth:
            raise FormatError("a depthwise convolution must keep its depth", value=(ifm_depth, depth), where="cmd_data")
        taps = window.elements * (1 if depthwise else ifm_depth)
        self._budget.check_elements((taps, depth))
        self._budget.spend(height * width * depth * (taps + _ELEMENT_COST) + 4 * taps * depth)
        filters = self._weights(window, depth, 1 if depthwise else ifm_depth, depthwise, ifm.dtype.itemsize * 8)
        image = padded_input(ifm, self._memory, window, (height, width), ifm_depth, self._budget)
        sums = (convolve_depthwise if depthwise else convolve)(image, filters, window, (height, width))
        bias, multiplier, shift = self._channel_scales(depth)
        if registers.field("OFM_PRECISION", "global_scale"):
            multiplier, shift = (np.array(part, np.int64) for part in registers.scale("OFM_SCALE"))
        sums += bias
        self._store(ofm, stage, sums, multiplier, shift)
        if not self._constant_inputs(stage, "WEIGHT", "SCALE"):
            return None
        return Convolution(
            ofm, ifm, stage, window, (height, width, depth), ifm_depth, filters, bias, multiplier, shift, depthwise
        )

    def _pool(self, instruction: Instruction) -> Operation | None:
        registers, window = self._registers, kernel_from_registers(self._registers)
        ofm, ifm, stage, (height, width, depth) = self._feature_maps()
        mode = _mode(instruction)
        ifm_depth = registers.count("IFM_DEPTH")
        if mode != "REDUCE_SUM" and ifm_depth != depth:
            raise FormatError("a pool must keep its depth", value=(ifm_depth, depth), where="cmd_data")
        self._budget.spend(height * width * (ifm_depth * 4 * window.elements + depth * _ELEMENT_COST))
        size, fill = (height, width), pooling.PADDING_VALUE[ifm.dtype.itemsize] if mode == "MAX" else 0
        image = padded_input(ifm, self._memory, window, size, ifm_depth, self._budget, fill)
        if mode == "MAX":
            values = pooling.max_pool(image, window, size)
        elif mode == "AVERAGE":
            values = pooling.average_pool(image, window, size, stage.rounding)
        else:
            values = pooling.sum_pool(image, window, size).sum(2, keepdims=True)
            depth = _check_depth_one(depth)
        scales = self._scales(depth)
        self._store(ofm, stage, values, *scales)
        if mode == "REDUCE_SUM" or not self._constant_scales(stage):
            return None
        return Pool(ofm, ifm, stage, window, (height, width, depth), mode, *scales)

    def _elementwise(self, instruction: Instruction) -> Operation | None:
        registers, mode = self._registers, _mode(instruction)
        ofm, ifm, stage, shape = self._feature_maps()
        height, width, depth = shape
        self._budget.spend(height * width * depth * 2 * _ELEMENT_COST)
        first = ifm.read(self._memory, *shape)
        b_values = np.zeros((1, 1, 1), np.int64) if mode in UNARY else self._read_operand2(shape)
        values = np.empty(shape, ofm.dtype)
        scales = operand_scales(registers) if mode in ("ADD", "SUB") else None
        unscaled = mode in UNSCALED and not registers.field("OFM_PRECISION", "global_scale")
        multiplier, shift = (1, 0) if unscaled else self._scales(depth)
        if mode == "MUL" and ifm.dtype.itemsize == 4:
            multiplier = 1  # the hardware only shifts a 64-bit product
        swapped = mode not in UNARY and registers.field("IFM2_BROADCAST", "reversed")
        for rows in row_strips(height, width * depth):
            a = first[rows].astype(np.int64) - ifm.zero_point
            b = b_values[rows] if b_values.shape[0] > 1 else b_values
            a, b = (b, a) if swapped else (a, b)
            if scales is not None:
                a, b = scales(a, b, ifm.dtype.itemsize)
            result = apply_unary(mode, a) if mode in UNARY else apply_binary(mode, a, b, stage.rounding)
            if mode == "LRELU":
                values[rows] = np.where(result < 0, stage(result, multiplier, shift), stage(result, 1, 0))
            else:
                values[rows] = stage(result, multiplier, shift)
        self._write(ofm, values)
        if not (unscaled or self._constant_scales(stage)):
            return None
        operand2 = None if mode in UNARY else self._operand2(shape)
        return Elementwise(ofm, ifm, stage, shape, mode, operand2, bool(swapped), scales, multiplier, shift)

    def _dma(self, instruction: Instruction) -> Operation | None:
        registers = self._registers
        for side in ("SRC", "DST"):
            if registers.field(f"DMA0_{side}_REGION", "dimensions"):
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
        self._trace.mark_written(region, target, target + length, self._trace.is_constant(*source, length))
        return Copy(source, (region, target), length) if isinstance(region, int) and length else None

    # Registers and streams --------------------------------------------------------------------------------------------

    def _feature_maps(self) -> tuple[FeatureMap, FeatureMap, OutputStage, tuple[int, int, int]]:
        registers = self._registers
        ofm, ifm = feature_map_from_registers(registers, "OFM"), feature_map_from_registers(registers, "IFM")
        shape = (registers.count("OFM_HEIGHT"), registers.count("OFM_WIDTH"), registers.count("OFM_DEPTH"))
        self._budget.check_elements(shape)
        return ofm, ifm, output_stage_from_registers(registers, self._memory, ofm.dtype), shape

    def _read_operand2(self, shape: tuple[int, int, int]) -> Array:
        """The second operand of an elementwise operation, with its zero point subtracted."""
        operand = self._operand2(shape)
        if operand.map is None:
            return np.full((1, 1, 1), operand.number, np.int64)
        return operand.map.read(self._memory, *operand.shape).astype(np.int64) - operand.map.zero_point

    def _operand2(self, shape: tuple[int, int, int]) -> Operand2:
        registers = self._registers
        if registers.field("IFM2_BROADCAST", "scalar"):
            sign, bits = registers.field("IFM2_PRECISION", "signed"), registers.choice("IFM2_PRECISION", "bits")
            element_type(sign, bits)
            value = registers.signed("IFM2_SCALAR") if sign else registers.number("IFM2_SCALAR")
            return Operand2(value - registers.signed("IFM2_ZERO_POINT"))
        axes = ("height", "width", "depth")
        broadcast = [registers.field("IFM2_BROADCAST", axis) for axis in axes]
        height, width, depth = (1 if is_broadcast else n for n, is_broadcast in zip(shape, broadcast, strict=True))
        return Operand2(0, feature_map_from_registers(registers, "IFM2"), (height, width, depth))

    def _constant_scales(self, stage: OutputStage) -> bool:
        return self._constant_inputs(
            stage, *(() if self._registers.field("OFM_PRECISION", "global_scale") else ("SCALE",))
        )

    def _constant_inputs(self, stage: OutputStage, *streams: str) -> bool:
        """True if the streams and the lookup table an operation reads are the same bytes in every run."""
        registers = self._registers
        ranges = [(registers.number(f"{s}_REGION"), registers.address(f"{s}_BASE"), registers.number(f"{s}_LENGTH"))
                 for s in streams]  # fmt: skip
        constant = all(self._trace.is_constant(*byte_range) for byte_range in ranges)
        return constant and (
            stage.table is None or self._trace.is_constant(INTERNAL, *self._memory.table_range(stage.table))
        )

    def _scales(self, channels: int) -> tuple[Any, Any]:
        """The output's multiplier and shift for operations without a bias: per tensor, or per channel."""
        if self._registers.field("OFM_PRECISION", "global_scale"):
            return self._registers.scale("OFM_SCALE")
        bias, multiplier, shift = self._channel_scales(channels)
        if bias.any():
            raise FormatError("only convolutions may have a bias", where="cmd_data")
        return multiplier, shift

    def _channel_scales(self, channels: int) -> tuple[Array, Array, Array]:
        """Bias, multiplier and shift of each channel."""
        length = self._registers.number("SCALE_LENGTH")
        if length < channels * weights.RECORD_BYTES:
            rule = f"a scale stream must hold {channels} records of {weights.RECORD_BYTES} bytes"
            raise FormatError(rule, value=f"{length} bytes", where="cmd_data")
        region, base = self._registers.number("SCALE_REGION"), self._registers.address("SCALE_BASE")
        return weights.unpack_scales(self._memory.bytes(region, base, length), channels)

    def _weights(self, window: Kernel, depth: int, ifm_depth: int, depthwise: bool, bits: int) -> Array:
        """A layer's unpacked weights, cached: stripes of one layer and later runs read the same stream."""
        registers = self._registers
        layout = weights.StreamLayout(
            ofm_depth=depth,
            ifm_depth=ifm_depth,
            height=window.size[0],
            width=window.size[1],
            dilation=window.dilation,
            block_depth=registers.count("OFM_BLK_DEPTH"),
            ifm_bits=bits,
            part_kernel=window.part_kernel,
            depthwise=depthwise,
            ofm_ublock_depth=weights.ofm_ublock_depth(self._program.accelerator),
        )
        region, base = registers.number("WEIGHT_REGION"), registers.address("WEIGHT_BASE")
        stream = self._memory.bytes(region, base, registers.number("WEIGHT_LENGTH"))
        cache, key = self._program.unpacked, (blake2b(stream, digest_size=16).digest(), layout)
        if key not in cache:
            unpacked = weights.unpack_weights(stream, layout)
            if sum(array.size for array in cache.values()) + unpacked.size > _WEIGHT_CACHE_ELEMENTS:
                cache.clear()
            cache[key] = unpacked
        return cache[key]

    def _store(self, ofm: FeatureMap, stage: OutputStage, values: Array, multiplier: Any, shift: Any) -> None:
        elements = np.empty(values.shape, ofm.dtype)
        for rows in row_strips(values.shape[0], values.shape[1] * values.shape[2]):
            elements[rows] = stage(values[rows], multiplier, shift)
        self._write(ofm, elements)

    def _write(self, ofm: FeatureMap, values: Array) -> None:
        ofm.write(self._memory, values)
        for low, high in ofm.byte_ranges(*values.shape):
            self._trace.mark_written(ofm.region, low, high)


def _mode(instruction: Instruction) -> str:
    row = instruction.command.fields[0]
    value = row.of(instruction.parameter)
    if value not in row.names:
        rule = f"must be a mode of {instruction.command.name}"
        raise FormatError(rule, value=value, where="cmd_data", offset=instruction.offset)
    return row.names[value]


def _check_depth_one(depth: int) -> int:
    if depth != 1:
        raise FormatError("a sum over channels must have a depth of one", value=depth, where="cmd_data")
    return depth


def _run_located(operation: Callable[[Instruction], Operation | None], instruction: Instruction) -> Operation | None:
    """Run one operation; a format error gets the command's offset in the stream."""
    try:
        return operation(instruction)
    except FormatError as error:
        if error.offset is None and error.where == "cmd_data":
            error.offset = instruction.offset
        raise
