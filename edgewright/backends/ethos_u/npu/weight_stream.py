"""The compressed weight stream of U55 and U65: palettes, Golomb-Rice codes, and runs of zeros between weights.

A stream is a row of slices. Within one, codes come in chunks: the unary parts of up to 12 weights, those of the zero
runs, then the remainders of the chunk before. Where a chunk begins depends on the one before it, so a short loop finds
them all (``_Walker``) and numpy takes them apart at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edgewright.errors import FormatError

Array = np.ndarray[Any, Any]
_END, _NO_RUNS, _PLAIN = 7, 6, 7
_CHUNK = 12
_LARGEST = 255  # a weight has nine bits, less its zero point
_ONES = [bin(value).count("1") for value in range(1 << _CHUNK)]


class _Bits:
    """Bits of a stream, low ones first. Reading past the end gives zeros, and ``check`` finds that out."""

    def __init__(self, data: bytes) -> None:
        padded = np.frombuffer(data + bytes(64 - len(data) % 4), "<u4").astype(np.uint64)
        self.windows: list[int] = (padded[:-1] | padded[1:] << np.uint64(32)).tolist()  # 64 bits from every 32nd
        self.bytes = np.frombuffer(data + bytes(64), np.uint8)
        self.size, self.at = 8 * len(data), 0

    def read(self, count: int) -> int:
        """At most 32 bits."""
        value = self.windows[self.at >> 5] >> (self.at & 31) & ((1 << count) - 1)
        self.at += count
        return value

    def check(self) -> None:
        if self.at > self.size:
            raise FormatError("a weight stream must end with its end mark", value=f"{self.size // 8} bytes without",
                              where="weight_data")  # fmt: skip

    def gather(self, starts: Array, width: int) -> Array:
        """A number of ``width`` bits, 16 at most, from each start."""
        at = np.minimum(starts >> 3, self.bytes.size - 3)
        joined = self.bytes[at].astype(np.int64) | self.bytes[at + 1].astype(np.int64) << 8
        joined |= self.bytes[at + 2].astype(np.int64) << 16
        numbers: Array = joined >> (starts & 7) & ((1 << width) - 1)
        return numbers


@dataclass
class _Palette:
    """Values by index; indices beyond it stand for themselves, shifted by ``offset``. Bit 0 is the sign."""

    entries: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    offset: int = 0
    bits: int = 2

    def values(self, indices: Array) -> Array:
        beyond = indices - self.entries.size + self.offset
        if self.entries.size:
            inside = indices < self.entries.size
            beyond = np.where(inside, self.entries[np.where(inside, indices, 0)], beyond)
        signed: Array = np.where(beyond & 1, -(beyond >> 1), beyond >> 1)
        return signed


@dataclass
class _Chunks:
    """What ``_Walker`` finds of weights or of runs: unary parts, how many codes end, where their remainders begin."""

    unary: list[int] = field(default_factory=list)
    second: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    remainders: list[int] = field(default_factory=list)

    def numbers(self, bits: _Bits, quotients: Array, shift: int, width: int) -> Array:
        """Quotients with their remainders."""
        if not width:
            return quotients << shift
        ends = np.array(self.ends, np.int64)
        first = np.cumsum(ends) - ends
        starts = np.repeat(np.array(self.remainders, np.int64) - first * width, ends)
        return (quotients << shift) + bits.gather(starts + np.arange(starts.size) * width, width)


@dataclass(frozen=True)
class _Slice:
    """A slice's header. Divisors are powers of two, given by their exponents."""

    run_shift: int
    count: int
    shift: int
    truncated: bool
    leading_run: bool

    @property
    def has_runs(self) -> bool:
        return self.run_shift != _NO_RUNS

    @property
    def runs(self) -> int:
        return self.count + self.leading_run

    @property
    def run_chunk(self) -> int:
        return 8 if self.run_shift == 3 else _CHUNK

    @property
    def plain(self) -> bool:
        return self.shift == _PLAIN


def decode(data: bytes, wanted: int) -> Array:
    """The weights of a stream, in its order. It stops when there are ``wanted``: what follows is of no use.

    >>> decode(bytes.fromhex("360064500ee03fe4030404 9cc014ffff"), 7).tolist()
    [1, 2, -3, 0, 0, 200, -255]
    """
    bits, palette, parts, found = _Bits(data), _Palette(), [np.zeros(0, np.int64)], 0
    while found < wanted:
        bits.check()
        run_shift = bits.read(3)
        if run_shift == _END:
            break
        header, palette = _header(bits, run_shift, palette)
        parts.append(_slice(bits, header, palette))
        found += parts[-1].size
    values = np.concatenate(parts)
    if values.size and max(int(values.max()), -int(values.min())) > _LARGEST:
        raise FormatError(f"a weight must be within {_LARGEST} of zero", where="weight_data")
    return values.astype(np.int16)


def _header(bits: _Bits, run_shift: int, palette: _Palette) -> tuple[_Slice, _Palette]:
    count, shift, truncated, fresh = bits.read(15) + 1, bits.read(3), bool(bits.read(1)), bool(bits.read(1))
    if run_shift in (4, 5) or shift == 6:
        raise FormatError("a slice of weights must have known divisors", value=(run_shift, shift), where="weight_data")
    if fresh:
        offset, size, width = bits.read(5), bits.read(5), bits.read(3) + 2
        entries = [bits.read(width) for _ in range(size + 1 if size else 0)]
        palette = _Palette(np.array(entries, np.int64), offset, width)
    bits.check()
    return _Slice(run_shift, count, shift, truncated, fresh), palette


def _slice(bits: _Bits, header: _Slice, palette: _Palette) -> Array:
    width = header.shift
    if header.plain:
        width = (palette.entries.size - 1).bit_length() if palette.entries.size else palette.bits
    walker = _Walker(bits, header, width)
    walker.walk()
    bits.check()
    quotients = np.zeros(header.count, np.int64) if header.plain else _quotients(walker.weights, header)
    values = palette.values(walker.weights.numbers(bits, quotients, 0 if header.plain else header.shift, width))
    if not header.has_runs:
        return values
    lengths = walker.runs.numbers(bits, _run_quotients(walker.runs, header), header.run_shift, header.run_shift)
    return _spread(values, lengths, header.leading_run)


class _Walker:
    """Finds the chunks of a slice. Weights and runs take turns; weights run ahead by no more than eight."""

    def __init__(self, bits: _Bits, header: _Slice, width: int) -> None:
        self._bits, self._header, self._width = bits, header, width
        self._step = 8 if header.plain and width > 5 else _CHUNK
        self.weights, self.runs = _Chunks(), _Chunks()

    def walk(self) -> None:
        if self._header.has_runs:
            self._walk_both()
        else:
            self._walk_weights()

    def _walk_weights(self) -> None:
        """Most streams have no runs: the same as below for them, with less to decide."""
        bits, weights, left, due = self._bits, self.weights, self._header.count, -1
        while left and bits.at <= bits.size:
            ends = self._take(0 if self._header.plain else bits.read(_CHUNK), left)
            left -= ends
            if due >= 0:
                weights.remainders.append(bits.at)
                bits.at += due * self._width
            due = ends
        weights.remainders.append(bits.at)
        bits.at += max(due, 0) * self._width

    def _walk_both(self) -> None:
        bits, header = self._bits, self._header
        left, runs_left = header.count, header.runs
        due = run_due = -1  # codes whose remainders come next; -1 where no chunk was taken
        while bits.at <= bits.size:
            ahead = (header.count - left) - (header.runs - runs_left)
            take, take_run = left > 0 and ahead < 8, runs_left > 0 and ahead >= 0
            unary = bits.read(_CHUNK) if take and not header.plain else 0
            run_ends = self._take_run(runs_left) if take_run else -1
            ends = self._take(unary, left) if take else -1
            if due >= 0:
                self.weights.remainders.append(bits.at)
                bits.at += due * self._width
            if run_due >= 0:
                self.runs.remainders.append(bits.at)
                bits.at += run_due * header.run_shift
            due, run_due = ends, run_ends
            left, runs_left = left - max(ends, 0), runs_left - max(run_ends, 0)
            if not take and not take_run:
                return

    def _take(self, unary: int, left: int) -> int:
        second = self._bits.read(_ONES[unary])
        ends = self._step if self._header.truncated else self._step - _ONES[second]
        ends = ends if ends < left else left
        self.weights.unary.append(unary)
        self.weights.second.append(second)
        self.weights.ends.append(ends)
        return ends

    def _take_run(self, left: int) -> int:
        run = self._bits.read(self._header.run_chunk)
        ends = min(self._header.run_chunk - _ONES[run], left)
        self.runs.unary.append(run)
        self.runs.ends.append(ends)
        return ends


def _quotients(chunks: _Chunks, header: _Slice) -> Array:
    """Each of the 12 bits adds one to a code, or two if its second bit is set; a two goes on, unless truncated."""
    unary, second = np.array(chunks.unary)[:, None], np.array(chunks.second)[:, None]
    ones = unary >> np.arange(_CHUNK) & 1
    steps = (ones + (ones & (second >> np.maximum(np.cumsum(ones, 1) - 1, 0)))).reshape(-1)
    totals = np.cumsum(steps)[(steps < 2) | header.truncated][: header.count]
    return np.diff(totals, prepend=0)


def _run_quotients(chunks: _Chunks, header: _Slice) -> Array:
    """Plain unary: as many ones as come before a zero."""
    ones = (np.array(chunks.unary)[:, None] >> np.arange(header.run_chunk) & 1).reshape(-1)
    totals = np.cumsum(ones)[ones == 0][: header.runs]
    return np.diff(totals, prepend=0)


def _spread(values: Array, runs: Array, leading: bool) -> Array:
    """Weights with their runs of zeros after them, and one before the first where a palette begins."""
    spread = np.zeros(values.size + int(runs.sum()), np.int64)
    before = runs if leading else np.concatenate(([0], runs))
    spread[np.cumsum(before[: values.size]) + np.arange(values.size)] = values
    return spread
