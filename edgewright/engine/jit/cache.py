"""Object code kept on disk between processes, addressed by what it was made from.

The folder is ``$EDGEWRIGHT_CACHE``, or ``edgewright/engine`` in the user's cache folder; ``EDGEWRIGHT_CACHE=off`` keeps
nothing. It is used only if it belongs to this user, nobody else may write to it, not everybody may rename it, and it is
no symbolic link: what is in it will be executed. Folders that are made for it are for this user alone. Machine code
never comes from anywhere else. A folder that cannot be used costs time, not results: ``problem`` says why.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import stat
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from edgewright.logs import say

MAX_BYTES = 256 << 20  # bytes; what was used longest ago goes first
MAX_ENTRIES = 4096  # so that looking through all of them stays a matter of milliseconds
_MAGIC = b"EWCACHE1"
HEADER = len(_MAGIC) + 8 + 32  # length and digest
_SUFFIX = ".o"
_ABANDONED = 3600  # seconds after which a half-written file has no writer any more
_BY_FOLDER = os.open in os.supports_dir_fd  # not on Windows, where the folder's own access list protects it


def cache_key(*parts: str | bytes | memoryview) -> str:
    """The name of an entry: a digest of all it depends on, in order.

    >>> cache_key("ab", "c") == cache_key("a", "bc")
    False
    """
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def default_folder() -> Path | None:
    """Where objects are kept; None if nothing is to be kept."""
    return _where()[0]


def _where() -> tuple[Path | None, str]:
    """The folder; or None, and why nothing is kept."""
    given = os.environ.get("EDGEWRIGHT_CACHE")
    if given is not None:
        return (None, "switched off by EDGEWRIGHT_CACHE") if given in ("", "off") else _anchored(given)
    variable = {"win32": "LOCALAPPDATA", "darwin": ""}.get(sys.platform, "XDG_CACHE_HOME")
    base = os.environ.get(variable, "")
    if not os.path.isabs(base):  # which does not count, says XDG's specification
        home = os.path.expanduser("~")
        if not os.path.isabs(home):
            return None, "this user has no home folder; EDGEWRIGHT_CACHE may name one"
        base = os.path.join(home, *{"win32": (), "darwin": ("Library", "Caches")}.get(sys.platform, (".cache",)))
    return Path(base, "edgewright", "engine"), ""


@lru_cache(maxsize=8)
def _anchored(given: str) -> tuple[Path | None, str]:
    """An absolute folder, which stays the same when the process goes to another."""
    try:
        return Path(os.path.abspath(os.path.expanduser(given))), ""
    except OSError as error:
        return None, f"EDGEWRIGHT_CACHE={given} is relative to a folder that is gone: {error.strerror}"


@dataclass(frozen=True)
class CacheEntry:
    name: str
    size: int
    used: float  # seconds since the epoch


class Cache:
    """Bytes by key. Safe beside other processes: files appear whole, and vanish at worst."""

    def __init__(self, folder: Path | None, limit: int = MAX_BYTES, problem: str = "") -> None:
        self.folder = folder
        self.limit = limit
        self.problem = problem

    def get(self, key: str) -> bytes | None:
        """What was stored, or None. Whatever is not as it was written is removed."""
        found = self.view(key)
        return None if found is None else bytes(found)

    def view(self, key: str) -> memoryview | None:
        """The same, without a copy; ``HEADER`` bytes from the start of a page."""
        with self._open() as folder:
            if folder is None:
                return None
            data = _read(folder, key + _SUFFIX)
            if data is None:
                return None
            payload = data[HEADER:]
            if data[:HEADER] != _header(key, payload):
                say("warning", "engine.cache", "%s: entry %s is damaged; it will be made again", self.folder, key)
                _remove(folder, key + _SUFFIX)
                return None
            return payload

    def put(self, key: str, payload: bytes) -> None:
        """Store; ``trim`` when there is nothing more to store."""
        with self._open(create=True) as folder:
            if folder is None:
                return
            try:
                _write(folder, key + _SUFFIX, _header(key, payload) + payload)
            except OSError as error:  # a full disk must not end an inference
                self._refuse(f"it cannot be written to: {error.strerror}")

    def trim(self) -> None:
        """Make room if there is too much."""
        with self._open() as folder:
            entries = [] if folder is None else _entries(folder)
            total = sum(entry.size for entry in entries)
            for at, entry in enumerate(entries):
                if total <= self.limit and len(entries) - at <= MAX_ENTRIES:
                    break
                _remove(folder, entry.name)
                total -= entry.size

    def entries(self) -> list[CacheEntry]:
        """What is stored, longest unused first."""
        with self._open() as folder:
            return [] if folder is None else _entries(folder)

    def clear(self) -> int:
        """Remove everything; the number of entries removed."""
        with self._open() as folder:
            found = [] if folder is None else _entries(folder)
            for entry in found:
                _remove(folder, entry.name)
            return len(found)

    @contextlib.contextmanager
    def _open(self, create: bool = False) -> Iterator[int | str | None]:
        """The folder, checked, as files in it are addressed: a descriptor, or a path where there are none."""
        if self.folder is None:
            yield None
            return
        try:
            if create:
                _make_folders(self.folder)
            folder = _open_folder(self.folder)
        except FileNotFoundError:
            yield None  # nothing has been stored yet
            return
        except OSError as error:
            self._refuse(str(error.strerror))
            yield None
            return
        try:
            yield folder
        finally:
            if isinstance(folder, int):
                os.close(folder)

    def _refuse(self, problem: str) -> None:
        if self.problem != problem:
            say("warning", "engine.cache", "%s is not used: %s", self.folder, problem)
        self.problem = problem


@lru_cache(maxsize=8)
def cache_at(folder: Path | None, problem: str = "") -> Cache:
    return Cache(folder, problem=problem)


def default_cache() -> Cache:
    return cache_at(*_where())


def _make_folders(path: Path) -> None:
    """Make a folder and those around it that are missing, for this user alone, whatever the umask lets others do."""
    if not path.parent.is_dir():
        _make_folders(path.parent)
    _check_parent(path.parent)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)


def _check_parent(parent: Path) -> None:
    """Refuse a place where anybody may rename this user's folders; in one like ``/tmp`` only their owners may."""
    mode = os.stat(parent).st_mode
    if _BY_FOLDER and mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        raise OSError(0, f"everybody may write to {parent} (mode {stat.S_IMODE(mode):o}); chmod o-w it")


def _open_folder(path: Path) -> int | str:
    if not _BY_FOLDER:
        if path.is_symlink() or not path.is_dir():
            raise OSError(0, "it must be a folder, and no symbolic link")
        return str(path)
    if path.is_symlink():
        raise OSError(0, "it must not be a symbolic link")
    _check_parent(path.parent)
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    found = os.fstat(folder)
    problem = ""
    if found.st_uid != os.geteuid():
        problem = f"it belongs to user {found.st_uid}, not to {os.geteuid()}"
    elif found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        problem = f"others may write to it (mode {stat.S_IMODE(found.st_mode):o}); chmod 700 it"
    if problem:
        os.close(folder)
        raise OSError(0, problem)
    return folder


def _header(key: str, payload: bytes | memoryview) -> bytes:
    digest = hashlib.sha256(key.encode())  # of the key too: a renamed entry is a wrong one
    digest.update(payload)
    return _MAGIC + len(payload).to_bytes(8, "little") + digest.digest()


def _at(folder: int | str, name: str) -> tuple[str, int | None]:
    return (name, folder) if isinstance(folder, int) else (os.path.join(folder, name), None)


def _read(folder: int | str, name: str) -> memoryview | None:
    path, at = _at(folder, name)
    try:
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        with os.fdopen(os.open(path, flags, dir_fd=at), "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode) or (_BY_FOLDER and found.st_uid != os.geteuid()):
                return None
            if not found.st_size:
                return memoryview(b"")
            # In place, from the start of a page: entries are replaced and removed, never written to.
            data = memoryview(mmap.mmap(file.fileno(), found.st_size, access=mmap.ACCESS_READ))
        os.utime(path, dir_fd=at)  # it was used: keep it longer
        return data
    except OSError:
        return None


def _write(folder: int | str, name: str, data: bytes) -> None:
    temporary = f".{os.urandom(8).hex()}.tmp"
    path, at = _at(folder, temporary)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    try:
        with os.fdopen(os.open(path, flags, 0o600, dir_fd=at), "wb") as file:
            file.write(data)
        os.replace(path, _at(folder, name)[0], src_dir_fd=at, dst_dir_fd=at)
    except BaseException:
        _remove(folder, temporary)
        raise


def _remove(folder: int | str | None, name: str) -> None:
    if folder is not None:
        path, at = _at(folder, name)
        with contextlib.suppress(OSError):
            os.unlink(path, dir_fd=at)


def _entries(folder: int | str) -> list[CacheEntry]:
    found = []
    with os.scandir(folder) as files:
        for file in files:
            with contextlib.suppress(OSError):  # gone meanwhile
                status = file.stat(follow_symlinks=False)
                if file.name.endswith(_SUFFIX):
                    found.append(CacheEntry(file.name, status.st_size, status.st_mtime))
                elif file.name.endswith(".tmp") and time.time() - status.st_mtime > _ABANDONED:
                    _remove(folder, file.name)
    return sorted(found, key=lambda entry: (entry.used, entry.name))
