"""Writing: whole files, and what is no file."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from edgewright.errors import FileAccessError
from edgewright.files import write_file


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    target = tmp_path / "a"
    target.write_bytes(b"old")
    assert write_file(target, [b"ne", b"w"]) == 3
    assert target.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["a"]


def test_a_failure_leaves_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "a"
    target.write_bytes(b"old")

    def broken() -> object:
        yield b"new"
        raise OSError(28, "No space left on device")

    with pytest.raises(FileAccessError, match="No space left"):
        write_file(target, broken())  # type: ignore[arg-type]
    assert target.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


def test_a_pipe_stays_a_pipe(tmp_path: Path) -> None:
    pipe, heard = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: heard.append(pipe.read_bytes()))
    reader.start()
    assert write_file(pipe, [b"data"]) == 4
    reader.join(600)
    assert heard == [b"data"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
