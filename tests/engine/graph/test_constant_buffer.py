"""Weights lie once where kernels read them, and files they came from need no memory."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgewright.engine.graph.memory import ConstantPool, make_resident, release_pages
from edgewright.engine.plan import ALIGN, SLACK

SIZE = 1 << 20


def mapped(path: Path, access: int) -> tuple[mmap.mmap, Any]:
    path.write_bytes(np.arange(SIZE // 4, dtype=np.int32).tobytes())
    with path.open("r+b") as file:
        whole = mmap.mmap(file.fileno(), 0, access=access)
    return whole, np.frombuffer(whole, np.int32)


def held(path: Path) -> int:
    """Bytes of the file that are in this process's memory."""
    lines = Path("/proc/self/smaps").read_text().split("\n")
    start = next(i for i, line in enumerate(lines) if line.endswith(path.name))
    return 1024 * int(next(line for line in lines[start:] if line.startswith("Rss:")).split()[1])


def test_small_equal_arrays_are_stored_once() -> None:
    weights = ConstantPool()
    one, other = np.arange(8, dtype=np.float32), np.arange(9, dtype=np.float32)
    places = [weights.add(a) for a in (one, other, one)]
    assert places[0] == places[2] != places[1]
    built = weights.build()
    assert bytes(built).count(one.tobytes()) == 2  # once, and as the beginning of the other
    assert np.array_equal(built[places[1].offset :][: other.nbytes].view(np.float32), other)


def test_built_weights_are_read_where_they_are() -> None:
    weights = ConstantPool()
    weights.reserve(100, lambda room: room.fill(7))
    built = weights.build()
    assert make_resident(built) is built
    assert built.ctypes.data % ALIGN == 0
    assert list(built[:100]) == [7] * 100


@pytest.mark.parametrize("cut", [slice(8, None), slice(0, None)])
def test_others_are_copied_to_where_reading_beyond_them_is_safe(cut: slice) -> None:
    given: Any = np.frombuffer(bytes(range(200)), np.uint8)[cut]
    held_now: Any = make_resident(given)
    assert held_now.ctypes.data % ALIGN == 0
    assert bytes(held_now) == bytes(given)
    assert not np.shares_memory(held_now, given)
    assert held_now.base.nbytes >= given.nbytes + SLACK


def test_a_mapped_file_is_let_go_of_and_reads_the_same(tmp_path: Path) -> None:
    path = tmp_path / "given_back"
    _, data = mapped(path, mmap.ACCESS_READ)
    total = int(data.sum())
    assert held(path) == SIZE
    release_pages(data[1000:-1000].reshape(-1, 8))
    assert held(path) <= 4 * mmap.PAGESIZE
    assert int(data.sum()) == total


def test_what_was_written_to_a_private_map_stays(tmp_path: Path) -> None:
    whole, data = mapped(tmp_path / "private", mmap.ACCESS_COPY)
    data[:] = 5
    release_pages(np.frombuffer(memoryview(whole).toreadonly(), np.int32))
    assert set(data.tolist()) == {5}


def test_arrays_of_their_own_are_left_alone() -> None:
    data: Any = np.ones(SIZE)
    release_pages(data)
    assert data.sum() == SIZE
