"""The same file gives the same verdict however it comes, and what is not a file is refused at once."""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from edgewright.errors import EdgewrightError, FileAccessError, FormatError, UsageError
from edgewright.formats.pte_reader import read_program
from edgewright.runtime import Runtime
from tests.support import golden, hostile
from tests.support.mutate import format_of, mutations

FILES = ["linear_fp32_portable.pte", "linear_fp32_xnnpack.pte", "mlp_portable_weights.ptd", "linear_relu.bpte",
         "portable.etdp"]  # fmt: skip


def load(name: str) -> bytes:
    return (golden.GOLDEN / name).read_bytes()


@contextmanager
def mapped(path: Path) -> Iterator[Any]:
    with path.open("rb") as file:
        yield mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def verdicts(kind: str, data: bytes, path: Path) -> list[tuple[str, str]]:
    """The verdict on the file by path, as bytes, as bytes that can change, as a view and mapped."""
    path.write_bytes(data)
    wide = memoryview(b"xy" + data)[2:]
    found = [hostile.verdict(kind, source) for source in (path, str(path), data, bytearray(data), wide)]
    if data:
        with mapped(path) as source:
            found.append(hostile.verdict(kind, source))
    return found


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", FILES)
def test_one_verdict_from_path_bytes_and_mmap(name: str, tmp_path: Path) -> None:
    data, path = load(name), tmp_path / "file"
    kind = format_of(data)
    changed = [bytes_ for index, (_, bytes_) in enumerate(mutations(data)) if index % 17 == 0]
    cut = [data[:size] for size in range(0, len(data), max(len(data) // 64, 1))]
    seen = set()
    for case in [data, b"", *cut, *changed]:
        found = verdicts(kind, case, path)
        assert len(set(found)) == 1
        seen.add(found[0][0])
    assert {"ok", "FormatError"} <= seen


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("kind", sorted(hostile.READERS))
def test_a_file_of_another_kind_is_refused(name: str, kind: str) -> None:
    if format_of(load(name)) == kind:
        assert hostile.read(kind, load(name)) == "ok"
    else:
        assert hostile.read(kind, load(name)) == "FormatError"


def test_a_file_of_another_kind_is_recognised() -> None:
    for name, words in {
        "mlp_portable_weights.ptd": "data=",
        "linear_relu.bpte": "bundled",
        "portable.etdp": "ETDump",
    }.items():
        with pytest.raises(FormatError, match=words):
            read_program(load(name))
    with pytest.raises(FormatError, match="zip archive"):
        read_program(b"PK\x03\x04" + bytes(100))
    with pytest.raises(FormatError, match="edgewright llm compile"):
        read_program(b"GGUF\x03" + bytes(100))


@pytest.mark.parametrize("kind", sorted(hostile.READERS))
def test_what_is_not_a_file_is_refused(kind: str, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.touch()
    assert hostile.read(kind, empty) == "FormatError"
    assert hostile.read(kind, b"") == "FormatError"
    for path in (tmp_path, tmp_path / "missing", tmp_path / "empty" / "below", Path("a\0b"), Path("x" * 5000)):
        with pytest.raises(FileAccessError):
            hostile.READERS[kind](path)


@pytest.mark.parametrize("kind", sorted(hostile.READERS))
def test_a_pipe_without_a_writer_is_refused_and_not_waited_for(kind: str, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    outcome: list[str] = []
    reader = threading.Thread(target=lambda: outcome.append(hostile.read(kind, pipe)), daemon=True)
    reader.start()
    reader.join(600)
    assert outcome == ["FileAccessError"]


def test_a_file_that_may_not_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("edgewright.files.os.open", refuse)
    with pytest.raises(FileAccessError, match="Permission denied"):
        read_program(golden.path("linear_fp32_portable"))


def test_the_name_of_a_model_is_no_file() -> None:
    with pytest.raises(FileAccessError, match=r"(?s)cannot be opened.*edgewright compile package\.module:Model"):
        read_program("package.module:Model")


def test_a_device_is_refused() -> None:
    assert hostile.read("pte", "/dev/zero") == "FileAccessError"


def test_what_is_not_even_a_source() -> None:
    closed = memoryview(b"x" * 100)
    closed.release()
    for source in (None, 3, ["a"], memoryview(b"x" * 100)[::2], closed):
        with pytest.raises(UsageError):
            read_program(source)  # type: ignore[arg-type]


def test_a_file_that_is_cut_by_path_is_refused_as_from_memory(tmp_path: Path) -> None:
    data, path = load("linear_fp32_portable.pte"), tmp_path / "m.pte"
    for size in (8, 60, 64, 100, 1464, 1535, 1536, len(data) - 1):
        path.write_bytes(data[:size])
        for source in (path, data[:size]):
            with pytest.raises(EdgewrightError):
                Runtime.get().load_program(source)


def test_the_callers_bytes_stay_alive_and_unchanged() -> None:
    data = bytearray(load("linear_fp32_portable.pte"))
    before = bytes(data)
    assert hostile.run(data) == ["ok"]
    assert bytes(data) == before
    program = Runtime.get().load_program(bytearray(before))
    method = program.load_method()
    del program
    assert len(method.execute(hostile.zero_inputs(method) or [])) == 1
