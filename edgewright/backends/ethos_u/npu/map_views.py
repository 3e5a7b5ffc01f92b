"""Feature maps of bytes as tensors of a device graph: where they lie in memory, and the moves that make images of them.

A graph's inputs and outputs are ranges of memory, as raw bytes. What lies otherwise than a range without gaps can be
read if its rows end within the memory; it is not written, as what lies in gaps is not the map's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edgewright.backends.ethos_u.npu.featuremap import BRICK, FeatureMap
from edgewright.backends.ethos_u.npu.trace import CONSTANTS, Done
from edgewright.ir.graph import Array, Op, QParams, Value

_BYTE = np.dtype(np.uint8)
_LIMITS = {"int8": (-128, 127), "uint8": (0, 255)}


class NotTranslatedError(Exception):
    """Left to the simulator's own way."""


@dataclass(frozen=True)
class Range:
    """Bytes of a region."""

    region: int
    at: int
    length: int

    def overlaps(self, other: Range) -> bool:
        return self.region == other.region and self.at < other.at + other.length and other.at < self.at + self.length


@dataclass
class Builder:
    """A device graph in the making. ``sizes``: bytes of each region; ``constants``: those of the one never written."""

    sizes: dict[int, int]
    constants: Array
    ops: list[Op] = field(default_factory=list)
    inputs: list[tuple[Value, Range]] = field(default_factory=list)
    outputs: list[tuple[Value, Range]] = field(default_factory=list)
    source: list[Done] = field(default_factory=list)  # what it was made from

    def value(self, shape: Sequence[int], dtype: Any, zero: int | None = None, data: Array | None = None) -> Value:
        kind = np.dtype(dtype)
        q = None if zero is None else QParams(1.0, zero, kind, *_LIMITS[str(kind)])
        return Value(f"v{len(self.ops)}", kind, tuple(shape), tuple(range(len(shape))), data, q=q)

    def constant(self, data: Any, dtype: Any, zero: int | None = None) -> Value:
        held = np.ascontiguousarray(np.asarray(data, dtype))
        return self.value(held.shape, dtype, zero, held)

    def op(self, kind: str, out: Value, /, **args: Any) -> Value:
        self.ops.append(Op(kind, args, [out]))
        return out

    # ------------------------------------------------------------------------------------------------------ memory

    def _given(self, region: int, at: int, shape: Sequence[int]) -> Value:
        """Raw bytes of memory."""
        length = int(np.prod(shape, dtype=np.int64))
        if at < 0 or at + length > self.sizes[region]:
            raise NotTranslatedError("beyond the memory")
        if region == CONSTANTS:
            return self.constant(self.constants[at : at + length].reshape(shape), _BYTE)
        made = self.value(shape, _BYTE)
        self.inputs.append((made, Range(region, at, length)))
        return made

    def copy(self, source: tuple[int, int], target: tuple[int, int], length: int) -> None:
        self._made(self._given(*source, (length,)), *target)

    def _made(self, value: Value, region: int, at: int) -> None:
        if region == CONSTANTS or at < 0 or at + value.nbytes > self.sizes[region]:
            raise NotTranslatedError("beyond the memory")
        target = Range(region, at, value.nbytes)
        held = not self.ops or self.ops[-1].outputs[0] is not value or self.ops[-1].kind == "view"  # another's bytes
        # A kernel may compute its last vector over elements that it has written already, so what is written over its
        # own operand is computed elsewhere first.
        if held or any(target.overlaps(source) for _, source in self.inputs):
            copied = self.value(value.bound, _BYTE)
            zeros = [0] * len(value.bound)
            value = self.op("slice", copied, self=value, start=zeros, length=list(value.bound))
        self.outputs.append((value, target))

    # -------------------------------------------------------------------------------------------------------- maps

    def read(self, fm: FeatureMap, shape: tuple[int, int, int]) -> Value:
        """A map as an image ``[1, height, width, depth]`` of its own type, with its zero point."""
        low, high = _LIMITS[fm.dtype.name]
        if not low <= fm.zero_point <= high:
            raise NotTranslatedError("a zero point that is none")
        return self._typed(self._raw(fm, shape), fm)

    def move(self, source: FeatureMap, target: FeatureMap, shape: tuple[int, int, int]) -> None:
        """A map's bytes as they are, to where another lies."""
        self._write_raw(target, self._raw(source, shape), shape)

    def _raw(self, fm: FeatureMap, shape: tuple[int, int, int]) -> Value:
        height, width, depth = _single(fm, shape)
        return self._pixels(fm, height, width, depth) if fm.layout == "NHWC" else self._bricks(fm, height, width, depth)

    def _pixels(self, fm: FeatureMap, height: int, width: int, depth: int) -> Value:
        row, column, _ = fm.strides
        order = _order((height, width, depth), (row, column, 1))
        if order is not None:
            lying = self._given(fm.region, fm.bases[0], [(height, width, depth)[d] for d in order])
            return self._viewed(self._turned(lying, np.argsort(order).tolist()), (1, height, width, depth))
        column = depth if width == 1 else column
        row = width * column if height == 1 else row
        if column < depth or row < width * column:
            raise NotTranslatedError("rows that overlap")
        lines = self._cut(self._given(fm.region, fm.bases[0], (height, row)), (height, width * column))
        cut = self._cut(self._viewed(lines, (height, width, column)), (height, width, depth))
        return self._viewed(cut, (1, height, width, depth))

    def _bricks(self, fm: FeatureMap, height: int, width: int, depth: int) -> Value:
        row, _, brick = fm.strides
        count, line = -(-depth // BRICK), width * BRICK
        brick = line if count == 1 else brick
        row = count * brick if height == 1 else row
        if brick < line or row < count * brick:
            raise NotTranslatedError("bricks in another order")
        flat = self._given(fm.region, fm.bases[0], (height, row))
        lines = self._viewed(self._cut(flat, (height, count * brick)), (height, count, brick))
        bricks = self._viewed(self._cut(lines, (height, count, line)), (height, count, width, BRICK))
        turned = self.op("permute", self.value((height, width, count, BRICK), _BYTE), self=bricks, dims=[0, 2, 1, 3])
        return self._cut(self._viewed(turned, (1, height, width, count * BRICK)), (1, height, width, depth))

    def _turned(self, x: Value, dims: list[int]) -> Value:
        """With other dimensions first, if that makes a difference."""
        shape = [x.bound[d] for d in dims]
        kept = [d for d in dims if x.bound[d] != 1]
        if kept == sorted(kept):
            return self._viewed(x, shape)
        return self.op("permute", self.value(shape, _BYTE), self=x, dims=dims)

    def _cut(self, x: Value, shape: Sequence[int]) -> Value:
        """The first elements along each dimension."""
        if x.bound == tuple(shape):
            return x
        return self.op("slice", self.value(shape, _BYTE), self=x, start=[0] * len(shape), length=list(shape))

    def _viewed(self, x: Value, shape: Sequence[int]) -> Value:
        return x if x.bound == tuple(shape) else self.op("view", self.value(shape, _BYTE), self=x, size=list(shape))

    def _typed(self, raw: Value, fm: FeatureMap) -> Value:
        """Raw bytes as the integers they are: the sign bit is turned, and 128 taken off."""
        out = self.value(raw.bound, fm.dtype, fm.zero_point)
        moved = raw
        if fm.dtype.kind == "i":
            moved = self.op("tosa.bitwise_xor", self.value(raw.bound, _BYTE, 0), a=raw, b=self._sign(raw))
        return self._moved(moved, out, -128 if fm.dtype.kind == "i" else 0)

    def _moved(self, x: Value, out: Value, by: int) -> Value:
        """Plus a number, in another type of bytes."""
        wide = self.op("tosa.cast", self.value(x.bound, np.int32), input=x, dtype="int32")
        if by:
            number = self.constant(np.full((1,) * len(x.bound), by), np.int32)
            wide = self.op("tosa.add", self.value(x.bound, np.int32), a=wide, b=number)
        return self.op("tosa.cast", out, input=wide, dtype=str(out.dtype))

    def _sign(self, like: Value) -> Value:
        return self.constant(np.full((1,) * len(like.bound), 128), _BYTE, 0)

    def write(self, fm: FeatureMap, made: Value, shape: tuple[int, int, int]) -> None:
        """An image to where a map lies."""
        signed = fm.dtype.kind == "i"
        raw = self._moved(made, self.value(made.bound, _BYTE, 0 if signed else None), 128 if signed else 0)
        if signed:
            raw = self.op("tosa.bitwise_xor", self.value(made.bound, _BYTE), a=raw, b=self._sign(raw))
        self._write_raw(fm, raw, shape)

    def _write_raw(self, fm: FeatureMap, raw: Value, shape: tuple[int, int, int]) -> None:
        height, width, depth = _single(fm, shape)
        if fm.layout == "NHWC":
            self._write_pixels(fm, raw, height, width, depth)
        else:
            self._write_bricks(fm, raw, height, width, depth)

    def _write_pixels(self, fm: FeatureMap, raw: Value, height: int, width: int, depth: int) -> None:
        row, column, _ = fm.strides
        order = _order((height, width, depth), (row, column, 1))
        if order is not None:
            self._made(self._turned(self._viewed(raw, (height, width, depth)), order), fm.region, fm.bases[0])
            return
        column = depth if width == 1 else column
        row = width * column if height == 1 else row
        if column != depth or row < width * column:
            raise NotTranslatedError("pixels with gaps")
        self._write_lines(fm, self._viewed(raw, (height, width * column)), row)

    def _write_bricks(self, fm: FeatureMap, raw: Value, height: int, width: int, depth: int) -> None:
        row, _, brick = fm.strides
        count, line = -(-depth // BRICK), width * BRICK
        brick = line if count == 1 else brick
        row = count * brick if height == 1 else row
        if brick < line or row < count * brick or fm.bases[0] % BRICK:
            raise NotTranslatedError("bricks that overlap")
        whole = raw
        if count * BRICK != depth:  # what is left of the last brick is nobody's
            whole = self.op("pad", self.value((1, height, width, count * BRICK), _BYTE), self=raw, before=[0] * 4,
                            after=[0, 0, 0, count * BRICK - depth], value=0.0)  # fmt: skip
        if count > 1 and width > 1:
            bricks = self._viewed(whole, (height, width, count, BRICK))
            whole = self.value((height, count, width, BRICK), _BYTE)
            self.op("permute", whole, self=bricks, dims=[0, 2, 1, 3])
        if row == count * line:
            self._made(whole, fm.region, fm.bases[0])
            return
        if brick > line:
            old = self._cut(self._given(fm.region, fm.bases[0], (height, row)), (height, count * brick))
            whole = self._filled(self._viewed(whole, (height, count, line)), self._viewed(old, (height, count, brick)))
        self._write_lines(fm, self._viewed(whole, (height, count * brick)), row)

    def _write_lines(self, fm: FeatureMap, lines: Value, row: int) -> None:
        """Lines that others lie between: those are written over with what they are."""
        old = self._given(fm.region, fm.bases[0], (lines.bound[0], row))
        self._made(self._filled(lines, old), fm.region, fm.bases[0])

    def _filled(self, new: Value, old: Value) -> Value:
        """Rows that begin as the first and end as the second."""
        start, shape = [0] * (len(new.bound) - 1) + [new.bound[-1]], (*old.bound[:-1], old.bound[-1] - new.bound[-1])
        if shape[-1] == 0:
            return new
        rest = self.op("slice", self.value(shape, _BYTE), self=old, start=start, length=list(shape))
        return self.op("cat", self.value(old.bound, _BYTE), tensors=[new, rest], dim=len(shape) - 1)


def _order(shape: Sequence[int], strides: Sequence[int]) -> list[int] | None:
    """The dimensions as they lie in memory, if there are no gaps.

    >>> _order((3, 224, 1), (1, 3, 1))
    [1, 0, 2]
    """
    dims = sorted(range(len(shape)), key=lambda d: (-strides[d] if shape[d] != 1 else 0, d))
    step = 1
    for d in reversed(dims):
        if shape[d] != 1 and strides[d] != step:
            return None
        step *= shape[d]
    return dims


def _single(fm: FeatureMap, shape: tuple[int, int, int]) -> tuple[int, int, int]:
    """The shape of a map of bytes that lies in one tile."""
    height, width, _ = shape
    if fm.dtype.itemsize != 1 or height > fm.height0 or width > fm.width0 or min(shape) < 1:
        raise NotTranslatedError("not bytes in one tile")
    return shape
