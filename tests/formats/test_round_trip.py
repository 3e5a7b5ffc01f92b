"""Every format: what stock wrote is read, what we write reads back the same."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np
import pytest

from edgewright.errors import FormatError, UsageError
from edgewright.formats import read_program, schema, write_program
from edgewright.formats.bpte import BundledProgram, TestCase, read_bundled, write_bundled
from edgewright.formats.etdump import read_etdump, write_etdump
from edgewright.formats.ptd import PtdEntry, read_data, tensor_entry, write_data
from tests.support import golden
from tests.support.build import PlanBuilder


@pytest.mark.parametrize("name", golden.PROGRAMS)
def test_program_round_trips(name: str) -> None:
    stock = golden.path(name).read_bytes()
    program = read_program(stock)
    ours = write_program(program)
    assert read_program(ours) == program
    assert write_program(read_program(ours)) == ours
    # The manual builder packs as tightly as flatc does.
    assert len(ours) <= len(stock) + 16


@pytest.mark.parametrize("name", golden.PROGRAMS)
def test_path_bytes_and_mmap_read_the_same(name: str) -> None:
    path = golden.path(name)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        programs = [read_program(s) for s in (path, str(path), path.read_bytes(), bytearray(path.read_bytes()), mapped)]
        assert all(p == programs[0] for p in programs)
        del programs  # views of the map must go before the map does


def test_segments_are_views_of_the_file_not_copies() -> None:
    buffer = golden.path("linear_fp32_portable").read_bytes()
    program = read_program(buffer)
    segment = memoryview(program.segment(0))
    assert segment.obj is buffer
    assert np.frombuffer(segment, np.float32).shape == (15,)


def test_a_header_without_data_size_is_read() -> None:
    """Files from before 1.0 have a 24-byte header."""
    data = bytearray(golden.path("linear_fp32_portable").read_bytes())
    data[12:16] = (24).to_bytes(4, "little")
    data[32:40] = bytes(8)
    assert read_program(data) == read_program(golden.path("linear_fp32_portable"))


def test_longer_files_are_read() -> None:
    data = golden.path("linear_fp32_portable").read_bytes()
    assert read_program(data + b"trailing") == read_program(data)


def test_written_files_are_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    program = read_program(golden.path("cond"))
    target = tmp_path / "m.pte"
    assert write_program(program, target) == target.stat().st_size
    before = target.read_bytes()
    program.execution_plan[0].inputs = [999]
    with pytest.raises(FormatError, match="inputs"):
        write_program(program, target)
    assert target.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["m.pte"]


def test_what_does_not_fit_a_field_is_named() -> None:
    builder = PlanBuilder()
    builder.value(schema.Int(int_val=1 << 63))
    with pytest.raises(UsageError, match="int_val"):
        write_program(builder.program())
    builder = PlanBuilder()
    builder.value(schema.String(string_val=3))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"String\.string_val"):
        write_program(builder.program())


def test_segment_alignment_is_honoured() -> None:
    program = read_program(golden.path("linear_fp32_portable"))
    moved = read_program(write_program(program, segment_alignment=4096))
    assert moved == program
    assert moved.layout is not None
    assert moved.layout.segment_base % 4096 == 0
    with pytest.raises(UsageError, match="segment_alignment"):
        write_program(program, segment_alignment=48)


@pytest.mark.parametrize("name", ["mlp_portable_weights", "mlp_xnn_weights"])
def test_data_round_trips_in_as_many_bytes_as_stock_has(name: str) -> None:
    stock = (golden.GOLDEN / f"{name}.ptd").read_bytes()
    entries = read_data(stock)
    ours = write_data(entries)
    assert read_data(ours) == entries
    assert len(ours) == len(stock)


def test_equal_data_is_stored_once() -> None:
    zeros = np.zeros(1000, np.float32)
    entries = {"a": tensor_entry(zeros), "b": tensor_entry(zeros), "c": PtdEntry(b"blob")}
    data = write_data(entries)
    assert len(data) < 6000
    assert read_data(data) == entries


def test_bundle_round_trips() -> None:
    bundle = read_bundled(golden.GOLDEN / "linear_relu.bpte")
    again = read_bundled(write_bundled(bundle))
    assert bytes(again.program) == bytes(bundle.program)
    assert list(again.suites) == ["forward"]
    for case, other in zip(bundle.suites["forward"], again.suites["forward"], strict=True):
        np.testing.assert_array_equal(case.inputs[0], other.inputs[0])
        np.testing.assert_array_equal(case.expected[0], other.expected[0])


def test_bundles_hold_numbers_and_any_layout() -> None:
    values = [3, True, 2.5, np.arange(24, dtype=np.int16).reshape(1, 2, 3, 4)]
    bundle = BundledProgram(b"program", {"f": [TestCase(values, [])]})
    case = read_bundled(write_bundled(bundle)).suites["f"][0]
    assert case.inputs[:3] == values[:3]
    assert type(case.inputs[1]) is bool
    np.testing.assert_array_equal(case.inputs[3], values[3])
    assert case.expected == []
    with pytest.raises(UsageError, match="str"):
        write_bundled(BundledProgram(b"", {"f": [TestCase(["text"])]}))  # type: ignore[list-item]


@pytest.mark.parametrize("name", ["portable", "xnnpack"])
def test_profile_round_trips(name: str) -> None:
    dump = read_etdump(golden.GOLDEN / f"{name}.etdp")
    assert read_etdump(write_etdump(dump)) == dump
