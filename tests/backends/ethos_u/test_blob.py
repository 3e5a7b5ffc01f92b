"""The delegate's blob: stock's bytes, and nothing believed."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewright.backends.ethos_u.blob import HEADER, Blob, Tensor, read_blob, write_blob
from edgewright.backends.ethos_u.delegate import EthosUDelegate
from edgewright.errors import EdgewrightError, FormatError, MissingDataError
from edgewright.formats import read_program
from edgewright.runtime.delegates import DelegateBlob
from tests.support.golden import GOLDEN

NAMES = ["ethos_u55_128", "ethos_u65_256", "ethos_u85_256"]


def stock(name: str = NAMES[0]) -> bytes:
    program = read_program(GOLDEN / "ethos_u" / f"{name}.pte")
    return bytes(program.blob(program.execution_plan[0].delegates[0]))


def plain(**changes: Any) -> Blob:
    tensor = Tensor((1, 1, 1, 2, 2, 4), 1, 0)
    fields: dict[str, Any] = {"cmd_data": b"COP1", "weight_data": b"w", "scratch_size": 32, "inputs": [tensor]}
    return Blob(**{**fields, "outputs": [Tensor((1, 1, 1, 1, 2, 4), 2, 16)], **changes})


@pytest.mark.parametrize("name", NAMES)
def test_stocks_bytes_come_back(name: str) -> None:
    blob = read_blob(stock(name))
    assert write_blob(blob) == stock(name)
    assert bytes(blob.cmd_data[:4]) == b"COP1"
    assert [t.shape for t in blob.inputs] == [(1, 1, 1, 16, 16, 4)]
    assert [t.nbytes for t in blob.outputs] == [256]


def test_every_block_is_aligned() -> None:
    data = write_blob(plain(weight_data=b"12345"))
    assert len(data) % 16 == 0
    assert data[:16] == b"vela_bin_stream\0" and data[-32:-16] == b"vela_end_stream\0"
    assert read_blob(data).weight_data == b"12345"


def test_blocks_may_be_elsewhere() -> None:
    """Stock can put commands and constants into named data, under the hash of a tag and the bytes."""
    weights = bytes(range(100))
    key = hashlib.sha256(b"flash\0" + weights).hexdigest()
    data = write_blob(plain(external={"weight_data": key}))
    blob = read_blob(data, {key: weights})
    assert blob.weight_data == weights and blob.external == {"weight_data": key}
    assert write_blob(blob) == data
    with pytest.raises(MissingDataError, match=r"weight_data: is external, under the key [0-9a-f]{64}\n.*\.ptd"):
        read_blob(data, {})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cmd_data": b"COP9...."}, "cmd_data: must start with COP1"),
        ({"scratch_size": 1 << 32}, "scratch_size: must fit 32 bits"),
        ({"inputs": [Tensor((1, 2), 1, 0)]}, r"inputs\[0\]\.shape: must have 6 sizes"),
        ({"inputs": [Tensor((1,) * 6, 3, 0)]}, r"inputs\[0\]\.element_size: must be one of"),
        ({"inputs": [Tensor((1,) * 6, 1, 0, 2)]}, r"inputs\[0\]\.region: must be 1"),
        ({"inputs": [Tensor((1,) * 6, 1, 32)]}, r"inputs\[0\]: the scratch must lie within its 32 bytes"),
        ({"outputs": [Tensor((1,) * 6, 1, -1)]}, r"outputs\[0\]: the scratch must lie within"),
        ({"outputs": [Tensor((1, 1, 1, 1, 1, -4), 1, 0)]}, "a size must not be negative"),
        ({"outputs": [Tensor((2**31 - 1,) * 6, 8, 0)]}, "must fit 63 bits"),
    ],
)
def test_what_does_not_fit_is_not_written(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(FormatError, match=message):
        write_blob(plain(**changes))


def mutated(at: int, value: int) -> bytes:
    data = bytearray(write_blob(plain()))
    data[at] = value
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "a block's header must lie within its 0 bytes"),
        (mutated(0, 0), "must be the name of a block"),
        (mutated(HEADER.size, 0xFF), "must be the name of a block"),
        (mutated(20, 2), "must have zeros where nothing is stored"),
        (mutated(21, 1), "must have zeros where nothing is stored"),
        (mutated(16, 1), "must have zeros|must be empty"),
        (mutated(HEADER.size + 19, 0xFF), "block 'cmd_data' must lie within"),
        (mutated(HEADER.size + 20, 1), "cmd_data: must be a key of 64 hexadecimal digits"),
        (write_blob(plain()) + bytes(16), "must end with its last block"),
        (write_blob(plain())[:32] * 2 + write_blob(plain())[32:], "blocks start with"),
        (write_blob(plain())[:32] + write_blob(plain())[-32:], "must have the blocks cmd_data, weight_data"),
    ],
)
def test_broken_blobs_are_refused_in_words(data: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=message) as caught:
        read_blob(data)
    assert caught.value.where.startswith("Ethos-U blob")


def test_counts_are_checked_against_sizes() -> None:
    data = bytearray(write_blob(plain()))
    at = data.index(b"inputs\0") + HEADER.size
    for count in (2, -1, 0x7FFFFFFF):
        data[at : at + 4] = count.to_bytes(4, "little", signed=True)
        with pytest.raises(FormatError, match="must be a count and 36 bytes for each"):
            read_blob(bytes(data))


@pytest.mark.parametrize("name", NAMES)
def test_truncation_anywhere_is_an_error_of_ours(name: str) -> None:
    whole = stock(name)
    for end in range(0, len(whole), 1 if len(whole) < 4096 else 7):
        with pytest.raises(FormatError):
            read_blob(whole[:end])


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(stock()) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_flips_give_results_or_errors_of_ours(changes: list[tuple[int, int]]) -> None:
    data = bytearray(stock())
    for at, value in changes:
        data[at] = value
    run(bytes(data))


def run(data: bytes) -> None:
    import numpy as np

    try:
        delegate = EthosUDelegate(DelegateBlob("EthosUBackend", data, {}, {}, memory=1 << 22))
        delegate.execute([np.zeros(t.nbytes, np.int8) for t in read_blob(data).inputs if t.element_size == 1])
    except EdgewrightError:
        pass


def test_every_field_at_its_extremes() -> None:
    whole = stock()
    places = [whole.index(name) + 16 for name in (b"cmd_data\0", b"weight_data\0", b"scratch_size\0", b"inputs\0")]
    starts = [whole.index(name) + HEADER.size for name in (b"scratch_size\0", b"inputs\0", b"outputs\0")]
    places += [start + 4 * i for start in starts for i in range(10)]
    for at in places:
        for value in (0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF):
            data = bytearray(whole)
            data[at : at + 4] = value.to_bytes(4, "little")
            run(bytes(data))
