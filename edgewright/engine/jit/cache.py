"""Content-addressed object cache on disk, shared between processes.

The folder is ``$EDGEWRIGHT_CACHE``, or ``edgewright/engine`` in the user's cache folder; ``EDGEWRIGHT_CACHE=off`` keeps
nothing. Its contents are executed, so it is used only if it belongs to this user, nobody else may write to it, its
parent is not world-writable (unless sticky), and it is not a symbolic link. New folders are created with mode 0700.
An unusable folder costs time, not results; ``problem`` says why.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import stat
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from edgewright.logs import log_message

MAX_BYTES = 256 << 20  # least recently used entries are evicted first
MAX_WEIGHTS = 8 << 30  # of files of packed weights, which are not counted above
MAX_ENTRIES = 4096  # keeps a directory scan within milliseconds
_TRIM_SHARE = 64  # a process scans the folder once it has stored this fraction of either limit
_MAGIC = b"EWCACHE1"
HEADER = len(_MAGIC) + 8 + 32  # length and digest
_SUFFIX, _WEIGHTS_SUFFIX = ".o", ".weights"
_SAMPLES, _SAMPLE = 256, 4096  # of a file of weights: pieces and their bytes
_ABANDONED_AFTER = 3600  # seconds after which a temporary file counts as abandoned
_HAS_DIR_FD = os.open in os.supports_dir_fd  # not on Windows, where the folder's ACL protects it


def cache_key(*parts: str | bytes | memoryview) -> str:
    """The key of an entry: a digest of everything it depends on, in order. Lengths are hashed too.

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
    """The cache folder; None if caching is off."""
    return _locate()[0]


def _locate() -> tuple[Path | None, str]:
    """The folder, or None and the reason."""
    setting = os.environ.get("EDGEWRIGHT_CACHE")
    if setting is not None:
        return (None, "switched off by EDGEWRIGHT_CACHE") if setting in ("", "off") else _absolute(setting)
    variable = {"win32": "LOCALAPPDATA", "darwin": ""}.get(sys.platform, "XDG_CACHE_HOME")
    base = os.environ.get(variable, "")
    if not os.path.isabs(base):  # the XDG base directory specification says to ignore relative paths
        home_folder = os.path.expanduser("~")
        if not os.path.isabs(home_folder):
            return None, "this user has no home folder; EDGEWRIGHT_CACHE may name one"
        base = os.path.join(home_folder, *{"win32": (), "darwin": ("Library", "Caches")}.get(sys.platform, (".cache",)))
    return Path(base, "edgewright", "engine"), ""


@lru_cache(maxsize=8)
def _absolute(setting: str) -> tuple[Path | None, str]:
    """An absolute path, so that a later chdir does not move the cache."""
    try:
        return Path(os.path.abspath(os.path.expanduser(setting))), ""
    except OSError as error:
        return None, f"EDGEWRIGHT_CACHE={setting} is relative to a folder that is gone: {error.strerror}"


@dataclass(frozen=True)
class CacheEntry:
    name: str
    size: int
    used: float  # seconds since the epoch


class Cache:
    """Bytes by key. Safe for concurrent processes: entries are written atomically and never modified."""

    def __init__(self, folder: Path | None, limit: int = MAX_BYTES, problem: str = "") -> None:
        self.folder = folder
        self.limit = limit
        self.problem = problem
        self._untrimmed = [0, 0]  # entries and bytes stored since the last scan

    def get(self, key: str) -> bytes | None:
        """The stored bytes, or None. Damaged entries are removed."""
        payload = self.view(key)
        return None if payload is None else bytes(payload)

    def view(self, key: str) -> memoryview | None:
        """The stored bytes as a view of the mapped file, ``HEADER`` bytes from the start of a page."""
        with self._open() as folder:
            if folder is None:
                return None
            data = _read(folder, key + _SUFFIX)
            if data is None:
                return None
            payload = data[HEADER:]
            if data[:HEADER] != _header(key, payload):
                log_message(
                    "warning", "engine.cache", "%s: entry %s is damaged; it will be compiled again", self.folder, key
                )
                _remove(folder, key + _SUFFIX)
                return None
            return payload

    def put(self, key: str, payload: bytes) -> None:
        """Store an entry. Call ``trim`` after the last one."""
        with self._open(create=True) as folder:
            if folder is None:
                return
            try:
                _write(folder, key + _SUFFIX, [_header(key, payload), payload])
                self._untrimmed[0] += 1
                self._untrimmed[1] += len(payload)
            except OSError as error:  # a full disk must not end an inference
                self._disable(f"it cannot be written to: {error.strerror}")

    def view_weights(self, key: str) -> memoryview | None:
        """Like ``view``, of a file of weights. Only samples of it are compared with its digest: files of weights are
        large, and most of their pages may never be used."""
        with self._open() as folder:
            data = None if folder is None else _read(folder, key + _WEIGHTS_SUFFIX)
            if data is None:
                return None
            payload = data[HEADER:]
            if data[:HEADER] != _sampled_header(key, payload):
                _remove(folder, key + _WEIGHTS_SUFFIX)
                return None
            _drop_pages(data)
            return payload

    def put_weights(self, key: str, parts: Sequence[memoryview | bytes]) -> None:
        """Store a file of weights, whose contents are ``parts`` one after the other, and evict the least recently used
        files beyond the limit."""
        with self._open(create=True) as folder:
            if folder is None:
                return
            try:
                _write(folder, key + _WEIGHTS_SUFFIX, [_sampled_header(key, _Concatenation(parts)), *parts])
            except OSError as error:  # a full disk must not end an inference
                self._disable(f"it cannot be written to: {error.strerror}")
                return
            entries = [entry for entry in _entries(folder) if entry.name.endswith(_WEIGHTS_SUFFIX)]
            total = sum(entry.size for entry in entries)
            for entry in entries[:-1]:
                if total > MAX_WEIGHTS:
                    _remove(folder, entry.name)
                    total -= entry.size

    def trim(self) -> None:
        """Evict least recently used entries until both limits hold.

        A scan of a full folder takes longer than compiling a small graph, so this process scans only after it has
        stored a share of a limit; the folder exceeds its limits by no more than that share per process.
        """
        if self._untrimmed[0] * _TRIM_SHARE < MAX_ENTRIES and self._untrimmed[1] * _TRIM_SHARE < self.limit:
            return
        self._untrimmed = [0, 0]
        with self._open() as folder:
            entries = [] if folder is None else [e for e in _entries(folder) if e.name.endswith(_SUFFIX)]
            total = sum(entry.size for entry in entries)
            for at, entry in enumerate(entries):
                if total <= self.limit and len(entries) - at <= MAX_ENTRIES:
                    break
                _remove(folder, entry.name)
                total -= entry.size

    def entries(self) -> list[CacheEntry]:
        """All entries, least recently used first."""
        with self._open() as folder:
            return [] if folder is None else _entries(folder)

    def clear(self) -> int:
        """Remove everything; the number of entries removed."""
        with self._open() as folder:
            entries = [] if folder is None else _entries(folder)
            for entry in entries:
                _remove(folder, entry.name)
            return len(entries)

    @contextlib.contextmanager
    def _open(self, create: bool = False) -> Iterator[int | str | None]:
        """Open and check the folder: a descriptor for dir_fd calls, or a path where those do not exist."""
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
            self._disable(str(error.strerror))
            yield None
            return
        try:
            yield folder
        finally:
            if isinstance(folder, int):
                os.close(folder)

    def _disable(self, problem: str) -> None:
        if self.problem != problem:
            log_message("warning", "engine.cache", "%s is not used: %s", self.folder, problem)
        self.problem = problem


@lru_cache(maxsize=8)
def cache_at(folder: Path | None, problem: str = "") -> Cache:
    return Cache(folder, problem=problem)


def default_cache() -> Cache:
    return cache_at(*_locate())


def _make_folders(path: Path) -> None:
    """Create a folder and its missing parents with mode 0700, whatever the umask."""
    if not path.parent.is_dir():
        _make_folders(path.parent)
    _check_parent(path.parent)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)


def _check_parent(parent: Path) -> None:
    """Reject a world-writable parent without the sticky bit: anybody could replace the folder in it."""
    mode = os.stat(parent).st_mode
    if _HAS_DIR_FD and mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        raise OSError(0, f"everybody may write to {parent} (mode {stat.S_IMODE(mode):o}); chmod o-w it")


def _open_folder(path: Path) -> int | str:
    if not _HAS_DIR_FD:
        if path.is_symlink() or not path.is_dir():
            raise OSError(0, "it must be a folder, and no symbolic link")
        return str(path)
    if path.is_symlink():
        raise OSError(0, "it must not be a symbolic link")
    _check_parent(path.parent)
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    status = os.fstat(folder)
    problem = ""
    if status.st_uid != os.geteuid():
        problem = f"it belongs to user {status.st_uid}, not to {os.geteuid()}"
    elif status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        problem = f"others may write to it (mode {stat.S_IMODE(status.st_mode):o}); chmod 700 it"
    if problem:
        os.close(folder)
        raise OSError(0, problem)
    return folder


def _header(key: str, payload: bytes | memoryview) -> bytes:
    digest = hashlib.sha256(key.encode())  # including the key, so that a renamed entry is invalid
    digest.update(payload)
    return _MAGIC + len(payload).to_bytes(8, "little") + digest.digest()


class _Concatenation:
    """The bytes of several buffers, one after the other."""

    def __init__(self, parts: Sequence[memoryview | bytes]) -> None:
        self._parts = parts

    def __len__(self) -> int:
        return sum(len(part) for part in self._parts)

    def __getitem__(self, at: slice) -> bytes:
        start, stop, pieces = at.start, at.stop, []
        for part in self._parts:
            pieces.append(bytes(part[max(start, 0) : max(stop, 0)]))
            start, stop = start - len(part), stop - len(part)
        return b"".join(pieces)


def _sampled_header(key: str, payload: memoryview | _Concatenation) -> bytes:
    """A header with a digest of the key, the first bytes, and samples of the rest."""
    digest, size = hashlib.sha256(key.encode()), len(payload)
    step = max(size // _SAMPLES, _SAMPLE)
    for start in range(0, size, step):
        digest.update(payload[start : start + _SAMPLE])
    return _MAGIC + size.to_bytes(8, "little") + digest.digest()


def _drop_pages(data: memoryview) -> None:
    """Unmap the pages of a file that comparing samples made resident: each one brings its neighbours."""
    if isinstance(data.obj, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        data.obj.madvise(mmap.MADV_DONTNEED)


def _at(folder: int | str, name: str) -> tuple[str, int | None]:
    return (name, folder) if isinstance(folder, int) else (os.path.join(folder, name), None)


def _read(folder: int | str, name: str) -> memoryview | None:
    path, at = _at(folder, name)
    try:
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        with os.fdopen(os.open(path, flags, dir_fd=at), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or (_HAS_DIR_FD and status.st_uid != os.geteuid()):
                return None
            if not status.st_size:
                return memoryview(b"")
            # Mapping is safe: entries are replaced or removed, never modified.
            data = memoryview(mmap.mmap(file.fileno(), status.st_size, access=mmap.ACCESS_READ))
        os.utime(path, dir_fd=at)  # recency for eviction
        return data
    except OSError:
        return None


def _write(folder: int | str, name: str, parts: Sequence[bytes | memoryview]) -> None:
    temporary = f".{os.urandom(8).hex()}.tmp"
    path, at = _at(folder, temporary)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    try:
        with os.fdopen(os.open(path, flags, 0o600, dir_fd=at), "wb") as file:
            for part in parts:
                file.write(part)
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
    entries = []
    with os.scandir(folder) as files:
        for file in files:
            with contextlib.suppress(OSError):  # gone meanwhile
                status = file.stat(follow_symlinks=False)
                if file.name.endswith((_SUFFIX, _WEIGHTS_SUFFIX)):
                    entries.append(CacheEntry(file.name, status.st_size, status.st_mtime))
                elif file.name.endswith(".tmp") and time.time() - status.st_mtime > _ABANDONED_AFTER:
                    _remove(folder, file.name)
    return sorted(entries, key=lambda entry: (entry.used, entry.name))
