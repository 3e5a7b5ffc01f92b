"""Flatbuffers no writer makes: tables in circles, on top of each other, and shared to blow up when read."""

from __future__ import annotations

import struct
import tracemalloc

import pytest

from edgewright.errors import FormatError
from edgewright.formats.etdump import ETDump, read_etdump
from edgewright.formats.flatbuffer_reader import FlatReader, read_root
from edgewright.formats.pte_reader import read_program
from edgewright.formats.schema import Frame, FrameList, Int, Operator, Program
from tests.support import golden
from tests.support.mutate import cells

_ROOT = 28  # where ``profile`` puts the vector of run_data


def profile(vector: bytes) -> bytes:
    """A profile whose root has ``vector`` as its ``run_data``."""
    body = struct.pack("<I4sHHHHiI", 16, b"ED00", 8, 8, 0, 4, 8, 4) + vector
    return struct.pack("<I", len(body)) + body


def vector_to(target: int, count: int, start: int = _ROOT) -> bytes:
    """A vector at byte ``start`` whose ``count`` elements all point at byte ``target``."""
    links = [target - (start + 4 + 4 * index) for index in range(count)]
    return struct.pack(f"<I{count}I", count, *links)


def peak_of_reading(data: bytes) -> tuple[int, str]:
    """The most memory that reading took, and how it ended."""
    tracemalloc.start()
    try:
        read_etdump(data)
        outcome = "ok"
    except FormatError as error:
        outcome = str(error)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak, outcome


def test_one_table_named_many_times_costs_a_fixed_multiple_of_the_file() -> None:
    count = 1 << 16
    data = profile(vector_to(_ROOT + 4 + 4 * count + 4, count) + struct.pack("<HHi", 4, 4, 4))
    peak, _ = peak_of_reading(data)
    assert peak < 64 * len(data)


def test_tables_that_share_a_vector_of_tables_are_not_read_a_square_of_times() -> None:
    count = 1 << 12
    table = _ROOT + 4 + 4 * count + 12
    events = table + 8
    last = events + 4 + 4 * count + 8
    data = profile(
        vector_to(table, count)
        + struct.pack("<6HiI", 12, 8, 0, 0, 0, 4, 12, 4)  # RunData: only events
        + vector_to(last, count, events)
        + struct.pack("<4Hi", 8, 4, 0, 0, 8)  # an empty event
    )
    peak, outcome = peak_of_reading(data)
    assert "overlap too much" in outcome
    assert peak < 100 * len(data)


def test_a_vtable_for_every_table_costs_a_fixed_multiple_of_the_file() -> None:
    count = 1 << 14
    first = _ROOT + 4 + 4 * count
    links = [first + 8 * i + 4 - (_ROOT + 4 + 4 * i) for i in range(count)]
    data = profile(struct.pack(f"<I{count}I", count, *links) + struct.pack("<HHi", 4, 4, 4) * count)
    peak, outcome = peak_of_reading(data)
    assert "overlap too much" in outcome
    assert peak < 128 * len(data)


def test_text_that_is_shared_is_read_once() -> None:
    """Real files name the same source file in every frame: that must not use up the budget."""
    count, text = 2000, b"/a/rather/long/path/of/a/source/file.py" * 8
    # Offsets go forward only, so the text comes after the frames.
    table = struct.pack("<HHHH", 6, 8, 4, 0)
    size = len(table) + 8 * count
    body = b"".join(struct.pack("<iI", len(table) + 8 * i, size - (len(table) + 8 * i + 4)) for i in range(count))
    data = memoryview(table + body + struct.pack("<I", len(text)) + text + b"\0")
    reader = FlatReader(data)
    before = reader.budget
    names = [reader.table(Frame, len(table) + 8 * i).filename for i in range(count)]
    assert names[0] == text.decode()
    assert all(name is names[0] for name in names)
    assert before - reader.budget < 2 * len(text) + 2 * len(data)  # reading it in every frame costs 2000 texts


def test_a_table_that_is_its_own_vtable() -> None:
    data = memoryview(struct.pack("<iii", 0, 0, 0))
    with pytest.raises(FormatError, match="vtable"):
        FlatReader(data).table(Int, 0)


@pytest.mark.parametrize("distance", [-(2**31), 2**31 - 1, -4096, 4096, 1, -1, 3])
def test_a_vtable_outside_the_file(distance: int) -> None:
    data = memoryview(struct.pack("<HHHHi", 6, 8, 4, 0, distance) + bytes(8))
    with pytest.raises(FormatError):
        FlatReader(data).table(Int, 8)


@pytest.mark.parametrize("length", [0, 1, 2, 3, 5, 0xFFFF, 0xFFFE])
def test_a_vtable_of_impossible_length(length: int) -> None:
    data = memoryview(struct.pack("<HHHHi", length, 12, 4, 0, 8) + bytes(8))
    with pytest.raises(FormatError, match="vtable"):
        FlatReader(data).table(Int, 8)


@pytest.mark.parametrize("field", [1, 2, 3, 5, 9, 0xFFFF, 0xFFF8])
def test_a_field_outside_or_askew(field: int) -> None:
    data = memoryview(struct.pack("<HHHHi", 6, 12, field, 0, 8) + bytes(12))
    with pytest.raises(FormatError):
        FlatReader(data).table(Int, 8)


def test_a_table_longer_than_the_file() -> None:
    data = memoryview(struct.pack("<HHHHi", 6, 0xFFFF, 0, 0, 8) + bytes(8))
    with pytest.raises(FormatError, match="inside the file"):
        FlatReader(data).table(Int, 8)


def test_two_fields_at_one_place() -> None:
    data = memoryview(struct.pack("<HHHHi", 8, 12, 4, 4, 8) + bytes(8))
    with pytest.raises(FormatError, match="overlap"):
        FlatReader(data).table(Operator, 8)


def test_a_field_on_top_of_the_tables_own_offset() -> None:
    data = memoryview(struct.pack("<HHHHi", 6, 12, 2, 0, 8) + bytes(8))
    with pytest.raises(FormatError, match="overlap"):
        FlatReader(data).table(FrameList, 8)


@pytest.mark.parametrize("link", [8, 2**31, 2**32 - 4, 2**32 - 12, 2**32 - 1, 1, 2])
def test_an_offset_that_leads_nowhere_or_back(link: int) -> None:
    """The vector of frames: in circles through its own table, outside, or between bytes."""
    data = memoryview(struct.pack("<HHHHiI", 6, 8, 4, 0, 8, link) + bytes(4))
    with pytest.raises(FormatError):
        FlatReader(data).table(FrameList, 8)


def test_a_root_that_points_at_itself() -> None:
    for root in (0, 1, 2, 4, 2**31, 2**32 - 1):
        with pytest.raises(FormatError):
            read_root(Program, memoryview(struct.pack("<I4s", root, b"ET12") + bytes(64)))


def test_a_table_cannot_contain_itself() -> None:
    """An offset that wraps around to the table holding it, or to any table before it, is outside the file."""
    data = (golden.GOLDEN / "linear_fp32_portable.pte").read_bytes()
    for cell in [c for c in cells(data) if c.kind == "offset" and c.code == "I"]:
        for target in (8, struct.unpack_from("<I", data)[0], cell.at - 4, cell.at - 8):
            with pytest.raises(FormatError):
                read_program(cell.put(data, target - cell.at + (1 << 32)))


def test_a_plan_at_any_other_place_is_none() -> None:
    data = (golden.GOLDEN / "linear_fp32_portable.pte").read_bytes()
    cell = next(c for c in cells(data) if c.path == "execution_plan[0]")
    for link in range(len(data)):
        if link != cell.get(data):
            with pytest.raises(FormatError):
                read_program(cell.put(data, link))


@pytest.mark.parametrize("count", [2**32 - 1, 2**31, 2**30, 2**30 + 1, 2**29])
def test_a_vector_whose_size_in_bytes_wraps(count: int) -> None:
    data = (golden.GOLDEN / "linear_fp32_portable.pte").read_bytes()
    for cell in [c for c in cells(data) if c.kind == "length"]:
        with pytest.raises(FormatError):
            read_program(cell.put(data, count))


def test_text_must_end_and_be_text() -> None:
    data = (golden.GOLDEN / "linear_fp32_portable.pte").read_bytes()
    name = {c.path: c for c in cells(data)}
    with pytest.raises(FormatError, match="UTF-8"):
        read_program(name["execution_plan[0].name.byte[0]"].put(data, 0xFF))
    with pytest.raises(FormatError, match="zero byte"):
        read_program(name["execution_plan[0].name.byte[7]"].put(data, 1))


def test_a_profile_that_is_sound() -> None:
    """The buffers above are wrong only where they mean to be."""
    count = 3
    data = profile(vector_to(_ROOT + 4 + 4 * count + 4, count) + struct.pack("<HHi", 4, 4, 4))
    dump = read_etdump(data)
    assert isinstance(dump, ETDump)
    assert len(dump.run_data or ()) == count
