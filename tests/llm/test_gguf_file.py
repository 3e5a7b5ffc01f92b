"""GGUF files: values of every type, every block format against the package gguf, and hostile files."""

from __future__ import annotations

import random
import struct
from typing import Any

import gguf
import numpy as np
import pytest

from edgewright.errors import EdgewrightError, FormatError, VersionError
from edgewright.llm.gguf_file import GGML_TYPES, read_gguf
from edgewright.llm.stored_tensor import BLOCKS
from tests.support.gguf_writer import gguf_bytes, text

METADATA: dict[str, Any] = {
    "general.architecture": "llama", "a.count": 7, "a.real": 0.5, "a.flag": True, "a.negative": -3,
    "a.texts": ["x", "é", ""], "a.numbers": [1, -2, 3],
}  # fmt: skip
MATRIX = np.arange(64, dtype=np.float32).reshape(2, 32)
TENSORS = {"w": (0, (2, 32), MATRIX.tobytes()), "b": (0, (3,), np.ones(3, "<f4").tobytes())}


def test_values_and_tensors() -> None:
    file = read_gguf(gguf_bytes(METADATA, TENSORS))
    for key, expected in METADATA.items():
        found = file.metadata[key]
        assert (found.tolist() if isinstance(found, np.ndarray) else found) == expected, key
    np.testing.assert_array_equal(file.tensors["w"].float32(), MATRIX)
    assert file.tensors["b"].shape == (3,)


@pytest.mark.parametrize("kind", GGML_TYPES.values())
def test_block_formats(kind: str) -> None:
    elements, size = BLOCKS[kind]
    rng = np.random.default_rng(0)
    data = rng.integers(0, 256, (3, 2 * size), np.uint8) if elements > 1 else rng.random((3, 2), np.float32)
    if elements > 1:
        data = np.where(np.isfinite(gguf.dequantize(data, gguf.GGMLQuantizationType[kind])).all(1)[:, None], data, 0)
        expected = gguf.dequantize(data.astype(np.uint8), gguf.GGMLQuantizationType[kind])
        content = data.astype(np.uint8).tobytes()
    else:
        content = gguf.quantize(data, gguf.GGMLQuantizationType[kind]).tobytes()
        expected = gguf.dequantize(
            gguf.quantize(data, gguf.GGMLQuantizationType[kind]), gguf.GGMLQuantizationType[kind]
        )
    number = int(gguf.GGMLQuantizationType[kind])
    tensor = read_gguf(gguf_bytes({}, {"w": (number, (3, 2 * elements), content)})).tensors["w"]
    np.testing.assert_array_equal(tensor.float32(), expected)
    swapped = tensor.rows(np.array([2, 0]))
    np.testing.assert_array_equal(swapped.float32(), expected[[2, 0]])


def test_a_file_that_ends_early_is_rejected_wherever_it_ends() -> None:
    data = gguf_bytes(METADATA, TENSORS)
    for length in range(len(data)):
        with pytest.raises(FormatError):
            read_gguf(data[:length])


def test_elements_of_a_vector_in_blocks_cannot_be_reordered() -> None:
    tensor = read_gguf(gguf_bytes({}, {"w": (2, (32,), bytes(18))})).tensors["w"]  # Q4_0
    with pytest.raises(FormatError, match=r"must be floats.*got Q4_0"):
        tensor.rows(slice(0, 16))


def u64(data: bytes, at: int, number: int) -> bytes:
    return data[:at] + struct.pack("<Q", number) + data[at + 8 :]


EXTREMES = (0, 1, 2, 255, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1)


def test_extreme_numbers_in_every_field_of_the_header() -> None:
    """A typed error, or a file whose tensors are inside it."""
    data = gguf_bytes(METADATA, TENSORS)
    end = data.index(MATRIX.tobytes())
    for at in range(4, end - 8):
        for number in EXTREMES:
            try:
                file = read_gguf(u64(data, at, number))
            except EdgewrightError:
                continue
            assert sum(t.nbytes for t in file.tensors.values()) <= 4 * len(data)


@pytest.mark.sample(1)
@pytest.mark.parametrize("seed", range(20))
def test_random_changes(seed: int) -> None:
    chance = random.Random(seed)
    data = gguf_bytes(METADATA, TENSORS)
    for _ in range(2000):
        changed = bytearray(data)
        for _ in range(chance.randint(1, 4)):
            changed[chance.randrange(len(changed))] = chance.choice((0, 1, 255, chance.randrange(256)))
        try:
            for tensor in read_gguf(bytes(changed)).tensors.values():
                tensor.float32()
        except EdgewrightError:
            continue


def with_info(name: bytes, rank: int, dims: tuple[int, ...], kind: int, offset: int) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, 0)
    info = name + struct.pack(f"<I{len(dims)}QIQ", rank, *dims, kind, offset)
    return head + info + bytes(256)


REJECTED: dict[str, tuple[bytes, str]] = {
    "another format": (b"GGML" + bytes(60), "starts with 'GGUF'"),
    "version 1": (gguf_bytes({}, {}, version=1), "version 2 or 3"),
    "big endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "version 2 or 3"),
    "too many tensors": (b"GGUF" + struct.pack("<IQQ", 3, 2**40, 0), "at most"),
    "too many keys": (b"GGUF" + struct.pack("<IQQ", 3, 0, 2**63), "at most"),
    "a key twice": (b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + 2 * (text("a") + struct.pack("<II", 4, 1)), "must differ"),
    "a key that is not text": (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1) + b"\xff", "UTF-8"),
    "a type": (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("a") + struct.pack("<IQ", 13, 0), "known type"),
    "a bool": (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("a") + struct.pack("<IB", 7, 2), "0 or 1"),
    "arrays of arrays": (gguf_bytes({"a": struct.pack("<IIQ", 9, 9, 1)}, {}), "numbers or text"),
    "a huge array": (gguf_bytes({"a": struct.pack("<IIQ", 9, 12, 2**61)}, {}), "63 bits"),
    "a huge list": (gguf_bytes({"a": struct.pack("<IIQ", 9, 8, 2**60)}, {}), "in the file"),
    "a huge text": (gguf_bytes({"a": struct.pack("<IQ", 8, 2**63)}, {}), "more bytes"),
    "alignment": (gguf_bytes({"general.alignment": 3}, {}), "power of two"),
    "no alignment": (gguf_bytes({"general.alignment": 0}, {}), "power of two"),
    "rank 0": (with_info(text("w"), 0, (), 0, 0), "dimensions"),
    "rank 5": (with_info(text("w"), 5, (1,) * 5, 0, 0), "dimensions"),
    "no elements": (with_info(text("w"), 1, (0,), 0, 0), "positive"),
    "more than 63 bits": (with_info(text("w"), 2, (2**40, 2**40), 0, 0), "63 bits"),
    "beyond the file": (with_info(text("w"), 1, (64,), 0, 224), "lie within"),
    "an offset near the end of numbers": (with_info(text("w"), 1, (1,), 0, 2**64 - 32), "63 bits"),
    "unaligned": (with_info(text("w"), 1, (1,), 0, 4), "multiple of 32"),
    "part of a block": (with_info(text("w"), 1, (33,), 2, 0), "multiples of 32"),
    "an unknown block format": (with_info(text("w"), 1, (32,), 99, 0), "must be one of"),
}  # fmt: skip


@pytest.mark.parametrize("name", REJECTED)
def test_rejected(name: str) -> None:
    data, message = REJECTED[name]
    with pytest.raises(FormatError, match=message) as caught:
        read_gguf(data)
    assert isinstance(caught.value, VersionError) == ("version" in message)
