"""Decoder of the compressed weight stream of U55 and U65: palettes, Golomb-Rice codes and zero runs.

A stream is a sequence of slices. Each has a header (Rice parameters of weights and of zero runs, an optional palette)
and Rice-coded values: a value v with parameter k is the quotient v >> k in unary and the low k bits as they are. A code
is interleaved so that hardware decodes several weights a cycle: a chunk holds the unary bits of up to 12 weights, those
of the zero runs, and then the remainders of the *previous* chunk. The start of a chunk depends on how many codes end
in the one before it, so a short sequential loop (``_ChunkScanner``) finds chunk boundaries and numpy decodes the fields
of all chunks at once.

To read on: Golomb, "Run-length encodings" (1966); the encoder in Vela, ``ethosu/mlw_codec/mlw_encode.c``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edgewright.errors import FormatError

Array = np.ndarray[Any, Any]
_END, _NO_ZERO_RUNS, _UNCOMPRESSED = 7, 6, 7
_CHUNK_BITS = 12
_MAX_WEIGHT = 255  # nine bits: an 8-bit weight minus its zero point
_POPCOUNT = [bin(value).count("1") for value in range(1 << _CHUNK_BITS)]


class _BitReader:
    """Bit reader, least significant bit first. Reads past the end return zeros; ``check`` reports them."""

    def __init__(self, data: bytes) -> None:
        padded = np.frombuffer(data + bytes(64 - len(data) % 4), "<u4").astype(np.uint64)
        self.windows: list[int] = (padded[:-1] | padded[1:] << np.uint64(32)).tolist()  # 64 bits from every 32nd
        self.bytes = np.frombuffer(data + bytes(64), np.uint8)
        self.size, self.at = 8 * len(data), 0

    def read(self, count: int) -> int:
        """The next ``count`` bits, at most 32."""
        value = self.windows[self.at >> 5] >> (self.at & 31) & ((1 << count) - 1)
        self.at += count
        return value

    def check(self) -> None:
        if self.at > self.size:
            raise FormatError("a weight stream must end with its end mark", value=f"{self.size // 8} bytes without",
                              where="weight_data")  # fmt: skip

    def gather(self, starts: Array, width: int) -> Array:
        """The ``width``-bit field, 16 bits at most, at each bit offset of ``starts``."""
        at = np.minimum(starts >> 3, self.bytes.size - 3)
        window = self.bytes[at].astype(np.int64) | self.bytes[at + 1].astype(np.int64) << 8
        window |= self.bytes[at + 2].astype(np.int64) << 16
        codes: Array = window >> (starts & 7) & ((1 << width) - 1)
        return codes


@dataclass
class _Palette:
    """Palette lookup; an index past the palette encodes its value directly, plus ``offset``. Bit 0 is the sign."""

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
class _CodeChunks:
    """Chunks of weight or run codes: unary bits, codes that end in each chunk, bit offsets of the remainders."""

    unary: list[int] = field(default_factory=list)
    unary2: list[int] = field(default_factory=list)
    code_counts: list[int] = field(default_factory=list)
    remainders: list[int] = field(default_factory=list)

    def codes(self, bits: _BitReader, quotients: Array, shift: int, width: int) -> Array:
        """Quotients combined with their remainders."""
        if not width:
            return quotients << shift
        counts = np.array(self.code_counts, np.int64)
        first = np.cumsum(counts) - counts
        starts = np.repeat(np.array(self.remainders, np.int64) - first * width, counts)
        return (quotients << shift) + bits.gather(starts + np.arange(starts.size) * width, width)


@dataclass(frozen=True)
class _SliceHeader:
    """Header of a slice. ``shift`` and ``run_shift`` are Rice parameters."""

    run_shift: int
    count: int
    shift: int
    truncated: bool
    leading_run: bool

    @property
    def has_runs(self) -> bool:
        return self.run_shift != _NO_ZERO_RUNS

    @property
    def run_count(self) -> int:
        return self.count + self.leading_run

    @property
    def run_chunk(self) -> int:
        return 8 if self.run_shift == 3 else _CHUNK_BITS

    @property
    def is_uncompressed(self) -> bool:
        return self.shift == _UNCOMPRESSED


def decode(data: bytes, count: int) -> Array:
    """Decode a stream in its own order, stopping at ``count`` weights: the rest is padding.

    >>> decode(bytes.fromhex("360064500ee03fe4030404 9cc014ffff"), 7).tolist()
    [1, 2, -3, 0, 0, 200, -255]
    """
    bits, palette, parts, decoded = _BitReader(data), _Palette(), [np.zeros(0, np.int64)], 0
    while decoded < count:
        bits.check()
        run_shift = bits.read(3)
        if run_shift == _END:
            break
        header, palette = _read_header(bits, run_shift, palette)
        parts.append(_decode_slice(bits, header, palette))
        decoded += parts[-1].size
    values = np.concatenate(parts)
    if values.size and max(int(values.max()), -int(values.min())) > _MAX_WEIGHT:
        raise FormatError(f"a weight must be within {_MAX_WEIGHT} of zero", where="weight_data")
    return values.astype(np.int16)


def _read_header(bits: _BitReader, run_shift: int, palette: _Palette) -> tuple[_SliceHeader, _Palette]:
    count, shift, truncated, new_palette = bits.read(15) + 1, bits.read(3), bool(bits.read(1)), bool(bits.read(1))
    if run_shift in (4, 5) or shift == 6:
        raise FormatError("a slice of weights must have known divisors", value=(run_shift, shift), where="weight_data")
    if new_palette:
        offset, size, width = bits.read(5), bits.read(5), bits.read(3) + 2
        entries = [bits.read(width) for _ in range(size + 1 if size else 0)]
        palette = _Palette(np.array(entries, np.int64), offset, width)
    bits.check()
    return _SliceHeader(run_shift, count, shift, truncated, new_palette), palette


def _decode_slice(bits: _BitReader, header: _SliceHeader, palette: _Palette) -> Array:
    width = header.shift
    if header.is_uncompressed:
        width = (palette.entries.size - 1).bit_length() if palette.entries.size else palette.bits
    scanner = _ChunkScanner(bits, header, width)
    scanner.scan()
    bits.check()
    quotients = np.zeros(header.count, np.int64) if header.is_uncompressed else _quotients(scanner.weights, header)
    values = palette.values(
        scanner.weights.codes(bits, quotients, 0 if header.is_uncompressed else header.shift, width)
    )
    if not header.has_runs:
        return values
    lengths = scanner.runs.codes(bits, _run_quotients(scanner.runs, header), header.run_shift, header.run_shift)
    return _insert_zero_runs(values, lengths, header.leading_run)


class _ChunkScanner:
    """Finds the chunks of a slice. Weight and run chunks alternate; weights lead by at most eight codes."""

    def __init__(self, bits: _BitReader, header: _SliceHeader, width: int) -> None:
        self._bits, self._header, self._width = bits, header, width
        self._step = 8 if header.is_uncompressed and width > 5 else _CHUNK_BITS
        self.weights, self.runs = _CodeChunks(), _CodeChunks()

    def scan(self) -> None:
        if self._header.has_runs:
            self._scan_weights_and_runs()
        else:
            self._scan_weights()

    def _scan_weights(self) -> None:
        """The loop of ``_scan_weights_and_runs`` for the common slice without zero runs."""
        bits, weights, left, pending = self._bits, self.weights, self._header.count, -1
        while left and bits.at <= bits.size:
            ends = self._scan_weight_chunk(0 if self._header.is_uncompressed else bits.read(_CHUNK_BITS), left)
            left -= ends
            if pending >= 0:
                weights.remainders.append(bits.at)
                bits.at += pending * self._width
            pending = ends
        weights.remainders.append(bits.at)
        bits.at += max(pending, 0) * self._width

    def _scan_weights_and_runs(self) -> None:
        bits, header = self._bits, self._header
        left, runs_left = header.count, header.run_count
        pending = run_pending = -1  # codes whose remainders come next; -1: no chunk was read
        while bits.at <= bits.size:
            ahead = (header.count - left) - (header.run_count - runs_left)
            read_weights, read_runs = left > 0 and ahead < 8, runs_left > 0 and ahead >= 0
            unary = bits.read(_CHUNK_BITS) if read_weights and not header.is_uncompressed else 0
            run_ends = self._scan_run_chunk(runs_left) if read_runs else -1
            ends = self._scan_weight_chunk(unary, left) if read_weights else -1
            if pending >= 0:
                self.weights.remainders.append(bits.at)
                bits.at += pending * self._width
            if run_pending >= 0:
                self.runs.remainders.append(bits.at)
                bits.at += run_pending * header.run_shift
            pending, run_pending = ends, run_ends
            left, runs_left = left - max(ends, 0), runs_left - max(run_ends, 0)
            if not read_weights and not read_runs:
                return

    def _scan_weight_chunk(self, unary: int, left: int) -> int:
        unary2 = self._bits.read(_POPCOUNT[unary])
        ends = self._step if self._header.truncated else self._step - _POPCOUNT[unary2]
        ends = ends if ends < left else left
        self.weights.unary.append(unary)
        self.weights.unary2.append(unary2)
        self.weights.code_counts.append(ends)
        return ends

    def _scan_run_chunk(self, left: int) -> int:
        run = self._bits.read(self._header.run_chunk)
        ends = min(self._header.run_chunk - _POPCOUNT[run], left)
        self.runs.unary.append(run)
        self.runs.code_counts.append(ends)
        return ends


def _quotients(chunks: _CodeChunks, header: _SliceHeader) -> Array:
    """Sum unary steps per code: a bit adds 1, or 2 if its second bit is set; 2 continues the code unless truncated."""
    unary, unary2 = np.array(chunks.unary)[:, None], np.array(chunks.unary2)[:, None]
    ones = unary >> np.arange(_CHUNK_BITS) & 1
    steps = (ones + (ones & (unary2 >> np.maximum(np.cumsum(ones, 1) - 1, 0)))).reshape(-1)
    totals = np.cumsum(steps)[(steps < 2) | header.truncated][: header.count]
    return np.diff(totals, prepend=0)


def _run_quotients(chunks: _CodeChunks, header: _SliceHeader) -> Array:
    """Plain unary: the number of ones before each zero."""
    ones = (np.array(chunks.unary)[:, None] >> np.arange(header.run_chunk) & 1).reshape(-1)
    totals = np.cumsum(ones)[ones == 0][: header.run_count]
    return np.diff(totals, prepend=0)


def _insert_zero_runs(values: Array, run_lengths: Array, leading: bool) -> Array:
    """Insert the zero run after each weight, and one before the first where the slice has a new palette."""
    weights = np.zeros(values.size + int(run_lengths.sum()), np.int64)
    zeros_before = run_lengths if leading else np.concatenate(([0], run_lengths))
    weights[np.cumsum(zeros_before[: values.size]) + np.arange(values.size)] = values
    return weights
