"""Objects on disk: found again, never trusted blindly, never too many."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from edgewright.cli import main
from edgewright.engine.jit import build, cache
from edgewright.engine.jit.cache import Cache, cache_key, default_cache, default_folder

POSIX = pytest.mark.skipif(sys.platform == "win32", reason="owners and modes are POSIX's")
KEY = cache_key("a")
TEXT = "define i64 @answer() {\n  ret i64 42\n}\n"


@pytest.fixture
def store(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


def test_what_is_put_is_got(store: Cache) -> None:
    assert store.get(KEY) is None
    store.put(KEY, b"code")
    assert store.get(KEY) == b"code"
    assert Cache(store.folder).get(KEY) == b"code"
    assert [e.name for e in store.entries()] == [f"{KEY}.o"]


@POSIX
def test_only_the_owner_may_look(store: Cache) -> None:
    store.put(KEY, b"code")
    assert store.folder is not None
    assert store.folder.stat().st_mode & 0o777 == 0o700
    assert (store.folder / f"{KEY}.o").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty", "extend", "rename"])
def test_damaged_entries_are_removed(store: Cache, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    store.put(KEY, b"code" * 100)
    assert store.folder is not None
    path = store.folder / f"{KEY}.o"
    data = path.read_bytes()
    if damage == "rename":
        store.put(cache_key("b"), b"other")
        (store.folder / f"{cache_key('b')}.o").rename(path)
    else:
        changed = {"truncate": data[:-1], "flip": data[:99] + b"!" + data[100:], "empty": b"", "extend": data + b"!"}
        path.write_bytes(changed[damage])
    assert store.get(KEY) is None
    assert not path.exists()
    assert "damaged" in caplog.text


@POSIX
def test_a_folder_that_is_a_link_is_not_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    store = Cache(tmp_path / "link")
    store.put(KEY, b"code")
    assert store.get(KEY) is None
    assert not list((tmp_path / "real").iterdir())
    assert "symbolic link" in store.problem and "symbolic link" in caplog.text


@POSIX
@pytest.mark.parametrize("mode", [0o770, 0o702])
def test_a_folder_others_may_write_to_is_not_used(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(mode)
    store = Cache(folder)
    store.put(KEY, b"code")
    assert store.get(KEY) is None and not list(folder.iterdir())
    assert "others may write" in store.problem


@POSIX
def test_a_folder_of_somebody_else_is_not_used(store: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put(KEY, b"code")
    monkeypatch.setattr(os, "geteuid", lambda: 123_456)
    assert store.get(KEY) is None
    assert "belongs to user" in store.problem


@POSIX
def test_entries_that_are_links_are_not_followed(store: Cache, tmp_path: Path) -> None:
    store.put(KEY, b"code")
    assert store.folder is not None
    entry = store.folder / f"{KEY}.o"
    entry.rename(tmp_path / "elsewhere.o")
    entry.symlink_to(tmp_path / "elsewhere.o")
    assert store.get(KEY) is None


@POSIX
def test_a_pipe_in_place_of_an_entry_is_not_waited_for(store: Cache) -> None:
    store.put(KEY, b"code")
    assert store.folder is not None
    (store.folder / f"{KEY}.o").unlink()
    os.mkfifo(store.folder / f"{KEY}.o")
    assert store.get(KEY) is None


def test_a_folder_that_cannot_be_made_costs_no_result(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    store = Cache(tmp_path / "file" / "cache")
    assert build.build_objects([TEXT], "", "", store)[0]
    assert store.problem


def test_the_longest_unused_go_first(tmp_path: Path) -> None:
    store = Cache(tmp_path / "cache", limit=350)
    assert store.folder is not None
    for age, name in enumerate("abc"):
        store.put(cache_key(name), bytes(50))  # 98 with its head
        os.utime(store.folder / f"{cache_key(name)}.o", (1000 + age, 1000 + age))
    assert store.get(cache_key("a")) is not None  # used just now
    store.put(cache_key("d"), bytes(50))
    store.trim()
    assert store.get(cache_key("b")) is None
    assert all(store.get(cache_key(name)) is not None for name in "acd")


def test_entries_are_limited_in_number(store: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "MAX_ENTRIES", 5)
    for at in range(9):
        store.put(cache_key(str(at)), b"code")
    store.trim()
    assert len(store.entries()) == 5


def test_scans_are_amortized_over_stores(store: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    scans = []
    monkeypatch.setattr(cache, "_entries", lambda folder: scans.append(folder) or [])
    monkeypatch.setattr(cache, "MAX_ENTRIES", 4 * cache._TRIM_SHARE)
    for at in range(10):
        store.put(cache_key(str(at)), b"code")
        store.trim()
    assert len(scans) == 2


def test_abandoned_files_are_removed(store: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "MAX_ENTRIES", 5)  # so that one entry is enough to scan
    store.put(KEY, b"code")
    assert store.folder is not None
    for name, used in ((".old.tmp", 1000.0), (".new.tmp", None)):
        (store.folder / name).write_bytes(b"half")
        if used:
            os.utime(store.folder / name, (used, used))
    store.trim()
    assert sorted(p.name for p in store.folder.iterdir()) == [".new.tmp", f"{KEY}.o"]


def test_keys_depend_on_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {build.object_key("t", "cpu", "f"), build.object_key("u", "cpu", "f"), build.object_key("t", "cpu2", "f")}
    keys.add(build.object_key("t", "cpu", "f2"))
    monkeypatch.setattr(build, "VERSION", "another")
    keys.add(build.object_key("t", "cpu", "f"))
    assert len(keys) == 5


def test_the_second_build_compiles_nothing(store: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    first = build.build_objects([TEXT, TEXT], "", "", store)
    monkeypatch.setattr(build, "compile_all", lambda *_: pytest.fail("compiled again"))
    assert build.build_objects([TEXT, TEXT], "", "", store) == first


def test_kernels_found_by_name_are_not_even_written(store: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    written = []

    def write() -> str:
        written.append(1)
        return TEXT

    first = build.build_kernels({"answer_1": write, "plain": TEXT}, "", "", store)
    assert build.build_kernels({"answer_1": write, "plain": TEXT}, "", "", store) == first
    assert len(written) == 1
    build.build_kernels({"answer_2": write}, "", "", store)
    assert len(written) == 2
    monkeypatch.setattr(build, "FINGERPRINT", "an edited engine")
    build.build_kernels({"answer_1": write}, "", "", store)
    assert len(written) == 3


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2, 3])
def test_other_processes_compile_the_same(processes: int) -> None:
    texts = [TEXT.replace("answer", f"answer{k}").replace("42", str(k)) for k in range(12)]
    made = build.compile_all(texts, "", "", processes)
    assert made == [build.compile_all([text], "", "", 1)[0] for text in texts]


@pytest.mark.parametrize("executable", ["/nonexistent/python", "", sys.executable])
def test_without_other_processes_this_one_compiles(monkeypatch: pytest.MonkeyPatch, executable: str) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    monkeypatch.setattr(build, "_COMPILER_SCRIPT", "raise SystemExit(3)")
    texts = [TEXT.replace("answer", f"answer{k}") for k in range(6)]
    assert all(build.compile_all(texts, "", "", 2))


def test_processes_at_the_same_time(tmp_path: Path) -> None:
    script = f"""
from pathlib import Path
from edgewright.engine.jit.cache import Cache, cache_key
store = Cache(Path({str(tmp_path / "cache")!r}), limit=3000)
for at in range(150):
    key = cache_key(str(at % 40))
    found = store.get(key)
    assert found in (None, key.encode()), found
    store.put(key, key.encode())
    store.trim()
"""
    running = [subprocess.Popen([sys.executable, "-c", script]) for _ in range(3)]
    assert [process.wait(600) for process in running] == [0, 0, 0]
    assert sum(entry.size for entry in Cache(tmp_path / "cache").entries()) <= 3000


def test_where_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("EDGEWRIGHT_CACHE", str(tmp_path))
    assert default_folder() == tmp_path
    for off in ("off", ""):
        monkeypatch.setenv("EDGEWRIGHT_CACHE", off)
        assert default_folder() is None
        default_cache().put(KEY, b"code")
        assert default_cache().get(KEY) is None
    monkeypatch.delenv("EDGEWRIGHT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    if sys.platform == "linux":
        assert default_folder() == tmp_path / "edgewright" / "engine"


def test_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "cache"
    monkeypatch.setenv("EDGEWRIGHT_CACHE", str(folder))
    default_cache().put(KEY, b"code")
    assert main(["cache", "path"]) == 0
    assert capsys.readouterr().out.strip() == str(folder)
    assert main(["cache", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["folder"] == str(folder) and facts["entries"] == 1 and facts["bytes"] == 52 and not facts["problem"]
    assert main(["cache", "clear"]) == 0
    assert "1 object" in capsys.readouterr().out
    assert main(["cache"]) == 0
    assert "objects: 0, 0 B" in capsys.readouterr().out
    assert not default_cache().entries()


@POSIX
def test_the_command_says_what_is_wrong(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    monkeypatch.setenv("EDGEWRIGHT_CACHE", str(folder))
    assert main(["cache"]) == 0
    assert "others may write to it" in capsys.readouterr().out
    monkeypatch.setenv("EDGEWRIGHT_CACHE", "off")
    assert main(["cache", "path"]) == 0
    assert "switched off" in capsys.readouterr().err


@pytest.mark.parametrize("helper", [None, "raise SystemExit(3)"])
def test_the_processor_is_the_same_whoever_asks(monkeypatch: pytest.MonkeyPatch, helper: str | None) -> None:
    import llvmlite.binding as llvm

    monkeypatch.setattr(build, "_is_llvm_loaded", lambda: False)
    if helper is not None:
        monkeypatch.setattr(build, "_COMPILER_SCRIPT", helper)
    assert build.host_cpu() == (llvm.get_host_cpu_name(), dict(llvm.get_host_cpu_features()))


# -------------------------------------------------------------------------------------------- the folders around it


@POSIX
@pytest.mark.parametrize("mask", [0, 0o022, 0o077])
def test_folders_that_are_made_are_the_users_alone(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        store = Cache(tmp_path / "a" / "b" / "cache")
        store.put(KEY, b"code")
    finally:
        os.umask(before)
    assert store.get(KEY) == b"code"
    for folder in (tmp_path / "a", tmp_path / "a" / "b", tmp_path / "a" / "b" / "cache"):
        assert folder.stat().st_mode & 0o7777 == 0o700


@POSIX
def test_a_parent_that_everybody_may_write_to_is_not_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    parent = tmp_path / "open"
    parent.mkdir()
    parent.chmod(0o777)
    store = Cache(parent / "cache")
    store.put(KEY, b"code")
    assert store.get(KEY) is None and not list(parent.iterdir())
    assert f"everybody may write to {parent} (mode 777)" in store.problem and "not used" in caplog.text
    (parent / "cache").mkdir(mode=0o700)
    assert Cache(parent / "cache").get(KEY) is None
    parent.chmod(0o1777)  # as /tmp: everybody may make files there, and remove their own
    store.put(KEY, b"code")
    assert store.get(KEY) == b"code"


def test_a_relative_folder_is_where_the_process_was(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDGEWRIGHT_CACHE", "relative/cache")
    assert default_folder() == tmp_path / "relative" / "cache"
    default_cache().put(KEY, b"code")
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert default_folder() == tmp_path / "relative" / "cache"
    assert default_cache().get(KEY) == b"code" and not list((tmp_path / "elsewhere").iterdir())


@POSIX
def test_a_home_is_filled_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("EDGEWRIGHT_CACHE", "~/of-mine")
    assert default_folder() == tmp_path / "of-mine"


@pytest.mark.skipif(sys.platform != "linux", reason="XDG is Linux's")
def test_a_relative_cache_home_does_not_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """So says the specification that names the variable."""
    monkeypatch.delenv("EDGEWRIGHT_CACHE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert default_folder() == tmp_path / ".cache" / "edgewright" / "engine"


@POSIX
def test_a_user_without_a_home_has_no_cache(monkeypatch: pytest.MonkeyPatch, capsys, tmp_path: Path) -> None:
    for name in ("EDGEWRIGHT_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # as for a user who is in no list of users
    assert default_folder() is None
    assert default_cache().get(KEY) is None
    assert main(["cache", "path"]) == 0
    assert "this user has no home folder; EDGEWRIGHT_CACHE may name one" in capsys.readouterr().err
