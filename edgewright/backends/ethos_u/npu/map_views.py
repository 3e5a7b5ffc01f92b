"""Feature maps as tensors of a core graph: loads and stores of NHWC and NHCWB16 maps in memory regions.

Inputs and outputs of a graph are byte ranges of the regions. A map that is not contiguous can be loaded if its padded
rows end within the region. To store it, the bytes in its gaps are loaded first and written back unchanged: they belong
to other tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edgewright.backends.ethos_u.npu.featuremap import BRICK, FeatureMap
from edgewright.backends.ethos_u.npu.trace import CONSTANTS, Executed
from edgewright.ir.graph import Array, Op, QParams, Value

_BYTE = np.dtype(np.uint8)
_LIMITS = {"int8": (-128, 127), "uint8": (0, 255)}


class NotTranslatedError(Exception):
    """This operation cannot be compiled; the simulator interprets it."""


@dataclass(frozen=True)
class ByteRange:
    """A byte range of a region."""

    region: int
    at: int
    length: int

    def overlaps(self, other: ByteRange) -> bool:
        return self.region == other.region and self.at < other.at + other.length and other.at < self.at + self.length


@dataclass
class CoreGraphBuilder:
    """Builds a core graph. ``sizes``: bytes per region; ``constants``: contents of the read-only region."""

    sizes: dict[int, int]
    constants: Array
    ops: list[Op] = field(default_factory=list)
    inputs: list[tuple[Value, ByteRange]] = field(default_factory=list)
    outputs: list[tuple[Value, ByteRange]] = field(default_factory=list)
    source: list[Executed] = field(default_factory=list)  # the traced operations it compiles

    def value(self, shape: Sequence[int], dtype: Any, zero: int | None = None, data: Array | None = None) -> Value:
        kind = np.dtype(dtype)
        q = None if zero is None else QParams(1.0, zero, kind, *_LIMITS[str(kind)])
        return Value(f"v{len(self.ops)}", kind, tuple(shape), tuple(range(len(shape))), data, q=q)

    def constant(self, data: Any, dtype: Any, zero: int | None = None) -> Value:
        buffer = np.ascontiguousarray(np.asarray(data, dtype))
        return self.value(buffer.shape, dtype, zero, buffer)

    def op(self, kind: str, out: Value, /, **args: Any) -> Value:
        self.ops.append(Op(kind, args, [out]))
        return out

    # ------------------------------------------------------------------------------------------------------ memory

    def _load_bytes(self, region: int, at: int, shape: Sequence[int]) -> Value:
        """Raw bytes of a region, as a graph input or a constant."""
        length = int(np.prod(shape, dtype=np.int64))
        if at < 0 or at + length > self.sizes[region]:
            raise NotTranslatedError("outside the region")
        if region == CONSTANTS:
            return self.constant(self.constants[at : at + length].reshape(shape), _BYTE)
        loaded = self.value(shape, _BYTE)
        self.inputs.append((loaded, ByteRange(region, at, length)))
        return loaded

    def copy(self, source: tuple[int, int], target: tuple[int, int], length: int) -> None:
        self._store_bytes(self._load_bytes(*source, (length,)), *target)

    def _store_bytes(self, value: Value, region: int, at: int) -> None:
        if region == CONSTANTS or at < 0 or at + value.nbytes > self.sizes[region]:
            raise NotTranslatedError("outside the region")
        target = ByteRange(region, at, value.nbytes)
        # True if no kernel of this operation writes the value
        aliased = not self.ops or self.ops[-1].outputs[0] is not value or self.ops[-1].kind == "core.view"
        # A kernel may compute its last vector again over elements it has already written, so an output that overlaps an
        # operand is computed in a temporary first.
        if aliased or any(target.overlaps(source) for _, source in self.inputs):
            copied = self.value(value.bound, _BYTE)
            zeros = [0] * len(value.bound)
            value = self.op("core.slice", copied, self=value, start=zeros, length=list(value.bound))
        self.outputs.append((value, target))

    # -------------------------------------------------------------------------------------------------------- maps

    def read(self, fm: FeatureMap, shape: tuple[int, int, int]) -> Value:
        """Load a map as a ``[1, height, width, depth]`` tensor of its own type and zero point."""
        low, high = _LIMITS[fm.dtype.name]
        if not low <= fm.zero_point <= high:
            raise NotTranslatedError("zero point out of range")
        return self._to_typed(self._load_map(fm, shape), fm)

    def move(self, source: FeatureMap, target: FeatureMap, shape: tuple[int, int, int]) -> None:
        """Copy a map's bytes unchanged to another map."""
        self._store_map(target, self._load_map(source, shape), shape)

    def _load_map(self, fm: FeatureMap, shape: tuple[int, int, int]) -> Value:
        height, width, depth = _check_single_tile(fm, shape)
        return (
            self._load_nhwc(fm, height, width, depth)
            if fm.layout == "NHWC"
            else self._load_nhcwb16(fm, height, width, depth)
        )

    def _load_nhwc(self, fm: FeatureMap, height: int, width: int, depth: int) -> Value:
        row, column, _ = fm.strides
        order = _memory_order((height, width, depth), (row, column, 1))
        if order is not None:
            dense = self._load_bytes(fm.region, fm.bases[0], [(height, width, depth)[d] for d in order])
            return self._reshape(self._permute(dense, np.argsort(order).tolist()), (1, height, width, depth))
        column = depth if width == 1 else column
        row = width * column if height == 1 else row
        if column < depth or row < width * column:
            raise NotTranslatedError("overlapping rows")
        rows = self._crop(self._load_bytes(fm.region, fm.bases[0], (height, row)), (height, width * column))
        pixels = self._crop(self._reshape(rows, (height, width, column)), (height, width, depth))
        return self._reshape(pixels, (1, height, width, depth))

    def _load_nhcwb16(self, fm: FeatureMap, height: int, width: int, depth: int) -> Value:
        row, _, brick = fm.strides
        count, brick_bytes = -(-depth // BRICK), width * BRICK
        brick = brick_bytes if count == 1 else brick
        row = count * brick if height == 1 else row
        if brick < brick_bytes or row < count * brick:
            raise NotTranslatedError("brick stride")
        flat = self._load_bytes(fm.region, fm.bases[0], (height, row))
        rows = self._reshape(self._crop(flat, (height, count * brick)), (height, count, brick))
        bricks = self._reshape(self._crop(rows, (height, count, brick_bytes)), (height, count, width, BRICK))
        nhwc = self.op("core.permute", self.value((height, width, count, BRICK), _BYTE), self=bricks, dims=[0, 2, 1, 3])
        return self._crop(self._reshape(nhwc, (1, height, width, count * BRICK)), (1, height, width, depth))

    def _permute(self, x: Value, dims: list[int]) -> Value:
        """Permute, or only reshape if no dimension larger than one changes its order."""
        shape = [x.bound[d] for d in dims]
        order = [d for d in dims if x.bound[d] != 1]
        if order == sorted(order):
            return self._reshape(x, shape)
        return self.op("core.permute", self.value(shape, _BYTE), self=x, dims=dims)

    def _crop(self, x: Value, shape: Sequence[int]) -> Value:
        """The leading elements along each dimension."""
        if x.bound == tuple(shape):
            return x
        return self.op("core.slice", self.value(shape, _BYTE), self=x, start=[0] * len(shape), length=list(shape))

    def _reshape(self, x: Value, shape: Sequence[int]) -> Value:
        return (
            x if x.bound == tuple(shape) else self.op("core.view", self.value(shape, _BYTE), self=x, size=list(shape))
        )

    def _to_typed(self, raw: Value, fm: FeatureMap) -> Value:
        """Reinterpret raw bytes as the map's type: int8 is ``(raw ^ 0x80) - 128``."""
        out = self.value(raw.bound, fm.dtype, fm.zero_point)
        offset_binary = raw
        if fm.dtype.kind == "i":
            offset_binary = self.op("tosa.bitwise_xor", self.value(raw.bound, _BYTE, 0), a=raw, b=self._sign_bit(raw))
        return self._add_and_cast(offset_binary, out, -128 if fm.dtype.kind == "i" else 0)

    def _add_and_cast(self, x: Value, out: Value, by: int) -> Value:
        """Add a constant and cast to the type of ``out``."""
        wide = self.op("tosa.cast", self.value(x.bound, np.int32), input=x, dtype="int32")
        if by:
            number = self.constant(np.full((1,) * len(x.bound), by), np.int32)
            wide = self.op("tosa.add", self.value(x.bound, np.int32), a=wide, b=number)
        return self.op("tosa.cast", out, input=wide, dtype=str(out.dtype))

    def _sign_bit(self, like: Value) -> Value:
        return self.constant(np.full((1,) * len(like.bound), 128), _BYTE, 0)

    def write(self, fm: FeatureMap, image: Value, shape: tuple[int, int, int]) -> None:
        """Store a tensor to a map."""
        signed = fm.dtype.kind == "i"
        raw = self._add_and_cast(image, self.value(image.bound, _BYTE, 0 if signed else None), 128 if signed else 0)
        if signed:
            raw = self.op("tosa.bitwise_xor", self.value(image.bound, _BYTE), a=raw, b=self._sign_bit(raw))
        self._store_map(fm, raw, shape)

    def _store_map(self, fm: FeatureMap, raw: Value, shape: tuple[int, int, int]) -> None:
        height, width, depth = _check_single_tile(fm, shape)
        if fm.layout == "NHWC":
            self._store_nhwc(fm, raw, height, width, depth)
        else:
            self._store_nhcwb16(fm, raw, height, width, depth)

    def _store_nhwc(self, fm: FeatureMap, raw: Value, height: int, width: int, depth: int) -> None:
        row, column, _ = fm.strides
        order = _memory_order((height, width, depth), (row, column, 1))
        if order is not None:
            self._store_bytes(self._permute(self._reshape(raw, (height, width, depth)), order), fm.region, fm.bases[0])
            return
        column = depth if width == 1 else column
        row = width * column if height == 1 else row
        if column != depth or row < width * column:
            raise NotTranslatedError("pixels with gaps")
        self._store_rows(fm, self._reshape(raw, (height, width * column)), row)

    def _store_nhcwb16(self, fm: FeatureMap, raw: Value, height: int, width: int, depth: int) -> None:
        row, _, brick = fm.strides
        count, brick_bytes = -(-depth // BRICK), width * BRICK
        brick = brick_bytes if count == 1 else brick
        row = count * brick if height == 1 else row
        if brick < brick_bytes or row < count * brick or fm.bases[0] % BRICK:
            raise NotTranslatedError("overlapping bricks")
        data = raw
        if count * BRICK != depth:  # the last brick is padded
            data = self.op("core.pad", self.value((1, height, width, count * BRICK), _BYTE), self=raw, before=[0] * 4,
                           after=[0, 0, 0, count * BRICK - depth], value=0.0)  # fmt: skip
        if count > 1 and width > 1:
            bricks = self._reshape(data, (height, width, count, BRICK))
            data = self.value((height, count, width, BRICK), _BYTE)
            self.op("core.permute", data, self=bricks, dims=[0, 2, 1, 3])
        if row == count * brick_bytes:
            self._store_bytes(data, fm.region, fm.bases[0])
            return
        if brick > brick_bytes:
            old = self._crop(self._load_bytes(fm.region, fm.bases[0], (height, row)), (height, count * brick))
            data = self._keep_gaps(
                self._reshape(data, (height, count, brick_bytes)), self._reshape(old, (height, count, brick))
            )
        self._store_rows(fm, self._reshape(data, (height, count * brick)), row)

    def _store_rows(self, fm: FeatureMap, rows: Value, row: int) -> None:
        """Store rows with gaps between them, writing the current bytes of the gaps back."""
        old = self._load_bytes(fm.region, fm.bases[0], (rows.bound[0], row))
        self._store_bytes(self._keep_gaps(rows, old), fm.region, fm.bases[0])

    def _keep_gaps(self, new: Value, old: Value) -> Value:
        """Extend each row of ``new`` with the end of the same row of ``old``."""
        start, shape = [0] * (len(new.bound) - 1) + [new.bound[-1]], (*old.bound[:-1], old.bound[-1] - new.bound[-1])
        if shape[-1] == 0:
            return new
        rest = self.op("core.slice", self.value(shape, _BYTE), self=old, start=start, length=list(shape))
        return self.op("core.cat", self.value(old.bound, _BYTE), tensors=[new, rest], dim=len(shape) - 1)


def _memory_order(shape: Sequence[int], strides: Sequence[int]) -> list[int] | None:
    """Dimensions from outermost to innermost in memory, or None if the map has gaps.

    >>> _memory_order((3, 224, 1), (1, 3, 1))
    [1, 0, 2]
    """
    dims = sorted(range(len(shape)), key=lambda d: (-strides[d] if shape[d] != 1 else 0, d))
    step = 1
    for d in reversed(dims):
        if shape[d] != 1 and strides[d] != step:
            return None
        step *= shape[d]
    return dims


def _check_single_tile(fm: FeatureMap, shape: tuple[int, int, int]) -> tuple[int, int, int]:
    """The shape of an 8-bit map in one tile; raises for other maps."""
    height, width, _ = shape
    if fm.dtype.itemsize != 1 or height > fm.height0 or width > fm.width0 or min(shape) < 1:
        raise NotTranslatedError("not 8-bit, or several tiles")
    return shape
