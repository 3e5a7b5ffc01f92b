"""Writing: whole files, and what is no file."""

from __future__ import annotations

import importlib.util
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgewright import files
from edgewright.errors import FileAccessError, UsageError
from edgewright.files import check_writable, make_folder, write_file


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


# ------------------------------------------------------------------------------------- writers that die, links, modes

POSIX = pytest.mark.skipif(sys.platform == "win32", reason="links, modes and locks are POSIX's")
WRITER = """
import sys, time
from edgewright.files import write_file
def chunks():
    yield b"half"
    print("writing", flush=True)
    time.sleep(600)
write_file(sys.argv[1], chunks())
"""


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process, in the middle of writing ``a``."""
    command = [sys.executable, "-c", WRITER, str(tmp_path / "a")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "writing\n"
        yield process
        process.kill()


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that wrote nothing yet."""
    monkeypatch.setattr(files, "_SWEPT", set())


@POSIX
@pytest.mark.parametrize("name", ["a", "b"])
def test_what_a_killed_writer_leaves_is_removed(tmp_path: Path, writer, fresh, name: str) -> None:
    writer.kill()
    writer.wait()
    assert len(os.listdir(tmp_path)) == 1
    write_file(tmp_path / name, [b"new"])
    assert os.listdir(tmp_path) == [name]


@POSIX
def test_what_another_writer_is_writing_stays(tmp_path: Path, writer, fresh) -> None:
    write_file(tmp_path / "a", [b"new"])
    assert len(os.listdir(tmp_path)) == 2 and (tmp_path / "a").read_bytes() == b"new"


@POSIX
def test_files_of_others_that_look_alike_stay(tmp_path: Path, fresh) -> None:
    names = [".edgewright-.tmp", ".edgewright-0123456789abcdef.tmp.txt", "edgewright-0123456789abcdef.tmp", ".a.tmp"]
    for name in names:
        (tmp_path / name).write_bytes(b"")
    (tmp_path / ".edgewright-0123456789abcdef.tmp").mkdir()
    write_file(tmp_path / "a", [b"new"])
    assert sorted(os.listdir(tmp_path)) == sorted([*names, "a", ".edgewright-0123456789abcdef.tmp"])


@POSIX
def test_a_writer_whose_file_was_swept_before_it_was_locked_takes_another(tmp_path: Path, fresh, monkeypatch) -> None:
    opened, lock = [], files._lock

    def swept(handle: int) -> bool:
        if not opened:
            opened.extend(tmp_path.iterdir())
            opened[0].unlink()
        return lock(handle)

    monkeypatch.setattr(files, "_lock", swept)
    assert write_file(tmp_path / "a", [b"new"]) == 3
    assert os.listdir(tmp_path) == ["a"] and (tmp_path / "a").read_bytes() == b"new"


@POSIX
def test_links_are_written_through(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "a").write_bytes(b"old")
    (tmp_path / "link").symlink_to("far/a")
    (tmp_path / "link to link").symlink_to("link")
    (tmp_path / "dangling").symlink_to("far/new")
    for name, target in (("link", "a"), ("link to link", "a"), ("dangling", "new")):
        write_file(tmp_path / name, [name.encode()])
        assert (tmp_path / name).is_symlink()
        assert (tmp_path / "far" / target).read_bytes() == name.encode()
    assert sorted(os.listdir(tmp_path / "far")) == ["a", "new"]


@POSIX
def test_links_that_lead_nowhere_are_named(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "gone").symlink_to("folder/a")
    with pytest.raises(FileAccessError, match="loop: cannot be written: Too many levels of symbolic links"):
        write_file(tmp_path / "loop", [b"x"])
    with pytest.raises(FileAccessError, match=r"gone: cannot be written: No such file or directory\n  Make the folder"):
        write_file(tmp_path / "gone", [b"x"])
    assert (tmp_path / "loop").is_symlink() and sorted(os.listdir(tmp_path)) == ["gone", "loop"]


@POSIX
@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0, 0o666)])
def test_new_files_have_the_mode_that_the_umask_leaves(tmp_path: Path, monkeypatch, mask: int, mode: int) -> None:
    before = os.umask(mask)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(os, "umask", lambda _: pytest.fail("it is the whole process's, in all threads"))
            write_file(tmp_path / "a", [b"x"])
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == mode


@POSIX
def test_a_file_keeps_its_mode(tmp_path: Path) -> None:
    for mode in (0o600, 0o755, 0o444):
        (tmp_path / "a").unlink(missing_ok=True)
        (tmp_path / "a").write_bytes(b"old")
        (tmp_path / "a").chmod(mode)
        write_file(tmp_path / "a", [b"new"])
        assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == mode


@POSIX
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files away")
def test_a_file_keeps_its_owner(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    os.chown(tmp_path / "a", 1234, 2345)
    (tmp_path / "a").chmod(0o4755)
    write_file(tmp_path / "a", [b"new"])
    found = (tmp_path / "a").stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (1234, 2345, 0o4755)


@POSIX
def test_bytes_are_on_the_disk_before_the_name_is_and_the_name_before_it_returns(tmp_path: Path, monkeypatch) -> None:
    done, fsync, replace = [], os.fsync, os.replace

    def synced(handle: int) -> None:
        done.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else os.fstat(handle).st_size)
        fsync(handle)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", lambda *args, **more: (done.append("rename"), replace(*args, **more)))
    write_file(tmp_path / "a", [b"new"])
    assert done == [3, "rename", "folder"]
    done.clear()
    write_file(tmp_path / "a", [b"new"], durable=False)
    assert done == ["rename"]


def test_names_may_be_as_long_as_the_system_lets_them(tmp_path: Path) -> None:
    write_file(tmp_path / ("x" * 255), [b"x"])
    with pytest.raises(FileAccessError, match="File name too long"):
        write_file(tmp_path / ("x" * 256), [b"x"])
    assert os.listdir(tmp_path) == ["x" * 255]


def test_a_folder_is_not_replaced_and_nothing_is_computed_for_it(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "..", ""):
        with pytest.raises(FileAccessError, match=r"cannot be written: Is a directory\n  Name a file in it"):
            write_file(path, (pytest.fail("computed") for _ in range(1)))


def test_writers_at_the_same_time_leave_one_whole_file(tmp_path: Path) -> None:
    def write(letter: bytes) -> None:
        for _ in range(20):
            write_file(tmp_path / "a", [letter * 1000] * 10, durable=False)

    threads = [threading.Thread(target=write, args=(letter,)) for letter in (b"a", b"b", b"c")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = (tmp_path / "a").read_bytes()
    assert len(found) == 10_000 and len(set(found)) == 1 and os.listdir(tmp_path) == ["a"]


@POSIX
def test_what_cannot_be_written_is_known_before(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "gone").symlink_to("folder/a")
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "link").symlink_to("file")
    for name in ("file", "link", "new"):
        check_writable(tmp_path / name)
    reasons = {
        "loop": "Too many levels of symbolic links\n  Remove the link",
        "gone": f"No such file.*mkdir -p '{tmp_path}/folder'",
        ".": "Is a directory", "file/a": "Not a directory", "x" * 256: "File name too long", "a\0b": "null",
        "none/a": f"No such file.*mkdir -p '{tmp_path}/none'",
    }  # fmt: skip
    for name, reason in reasons.items():
        with pytest.raises(FileAccessError, match=f"(?s)cannot be written: .*{reason}"):
            check_writable(tmp_path / name)
        with pytest.raises(FileAccessError, match=f"(?s)cannot be written: .*{reason}"):
            write_file(tmp_path / name, [b"x"])
    with pytest.raises(FileAccessError, match="cannot be created"):
        make_folder(tmp_path / "a\0b")


def test_folders_to_come_and_streams_can_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    check_writable(os.devnull)
    check_writable(tmp_path / "new" / "folder", folder=True)
    assert not (tmp_path / "new").exists()  # looking makes nothing
    for folder in ("file", "file/folder"):
        with pytest.raises(FileAccessError, match="cannot be written: Not a directory"):
            check_writable(tmp_path / folder, folder=True)
    assert make_folder(tmp_path / "new" / "folder").is_dir()
    for wrong in (None, 5, b"a"):
        with pytest.raises(UsageError, match="file to write: must be a path"):
            check_writable(wrong)  # type: ignore[arg-type]


def test_a_folder_that_this_user_may_not_write_to_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write everywhere
    with pytest.raises(
        FileAccessError, match=r"Permission denied\n  Write to another folder, or change the folder's permissions"
    ):
        check_writable(tmp_path / "a")


@pytest.fixture
def without_locks(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module as it is where there are no POSIX locks and no owners."""
    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.delattr(os, "fchown", raising=False)
    spec = importlib.util.spec_from_file_location("edgewright_files_without_locks", files.__file__)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.fcntl is None
    return module


def test_files_are_replaced_whole_without_locks(tmp_path: Path, without_locks: Any) -> None:
    target = tmp_path / "a"
    abandoned = tmp_path / f".edgewright-{'0' * 16}.tmp"
    abandoned.write_bytes(b"")  # whether its writer lives cannot be known
    for content in (b"old", b"new"):
        assert without_locks.write_file(target, [content[:1], content[1:]]) == 3
        assert target.read_bytes() == content

    def broken() -> Iterator[bytes]:
        yield b"half"
        raise OSError(28, "No space left on device")

    with pytest.raises(FileAccessError, match="No space left"):
        without_locks.write_file(target, broken())
    assert target.read_bytes() == b"new"
    assert sorted(os.listdir(tmp_path)) == sorted([abandoned.name, "a"])
