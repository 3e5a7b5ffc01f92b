"""File access: mapped for reading, replaced atomically when written."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import re
import stat
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any, Union

from edgewright.errors import FileAccessError, UsageError

try:
    import fcntl
except ImportError:  # on Windows: temporary files of killed writers are not removed there
    fcntl = None  # type: ignore[assignment]

Source = Union[str, "os.PathLike[str]", bytes, bytearray, memoryview, mmap.mmap]

_PREFIX, _SUFFIX = ".edgewright-", ".tmp"
_MODEL_NAME = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")  # package.module:factory
_SWEPT: set[str] = set()
_MAX_NAMES = 2000  # of a folder, that a missing file is compared with


def open_source(source: Source, name: str, *, private: bool = False) -> tuple[memoryview, str]:
    """A read-only view of ``source``, and its name in errors. A path is memory-mapped.

    ``private``: the mapping is copy-on-write, so that writes do not change the file.
    """
    if isinstance(source, bytes | bytearray | memoryview | mmap.mmap):
        return _view(source, name), name
    path = text_path(source)
    if path is None:
        raise UsageError(name, "must be a path, bytes, a memoryview or an mmap", value=type(source).__name__)
    try:
        with open(path, "rb", opener=_open_nonblocking) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise FileAccessError(path, "must be a regular file")
            if not os.fstat(file.fileno()).st_size:
                return memoryview(b""), path  # an empty file cannot be mapped
            return memoryview(
                mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY if private else mmap.ACCESS_READ)
            ), path
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise FileAccessError(path, f"cannot be opened: {reason}", remedy=_opening_remedy(path, error)) from error


def _opening_remedy(path: str, error: Exception) -> str:
    if isinstance(error, IsADirectoryError):
        return "Name a file in it."
    if isinstance(error, FileNotFoundError) and _MODEL_NAME.fullmatch(path):
        return f"It reads like the name of a model. Compile that first: edgewright compile {path} -o m.pte."
    hint = _similar_file(path) if isinstance(error, FileNotFoundError) else ""
    return f"{hint} Check the path and its permissions.".lstrip()


def _similar_file(path: str) -> str:
    """A question with the file of the same folder and ending whose name is most similar; empty if there is none."""
    from edgewright.hints import did_you_mean

    folder, name = os.path.split(path)
    ending = os.path.splitext(name)[1]
    try:
        with os.scandir(folder or ".") as entries:
            names = [entry.name for entry in islice(entries, _MAX_NAMES) if entry.name.endswith(ending)]
    except (OSError, ValueError):  # the folder is missing too
        return ""
    hint = did_you_mean(name, names)
    return hint.replace("Did you mean ", f"Did you mean {os.path.join(folder, '')}", 1) if hint else ""


def text_path(path: object) -> str | None:
    """A path as text; None if it is not a path, or is a path of bytes."""
    try:
        text = os.fspath(path)  # type: ignore[call-overload]
    except TypeError:
        return None
    return text if isinstance(text, str) else None


def _view(source: bytes | bytearray | memoryview | mmap.mmap, name: str) -> memoryview:
    try:
        view = memoryview(source)
        return view.cast("B").toreadonly() if view.nbytes else memoryview(b"")
    except (TypeError, ValueError) as error:  # strided, or closed
        raise UsageError(name, f"must be an open, contiguous buffer: {error}") from error


def _open_nonblocking(path: str, flags: int) -> int:
    """Open without blocking: a pipe without a writer is rejected instead of waited for."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def write_file(path: str | os.PathLike[str], chunks: Iterable[Any], *, durable: bool = True) -> int:
    """Write ``chunks`` to a temporary file next to ``path``, then rename it to ``path``; returns the bytes written.

    The old file is unchanged until the new one is complete, and if writing fails. For a symbolic link, its target is
    replaced. A new file has the mode of the umask; a replaced one keeps mode and owner. Streams (``/dev/null``, a pipe)
    are written directly: a rename would replace them by a file. ``durable``: data and name are synced to disk before
    this returns, which temporary folders do not need.
    """
    target = _target(path)
    try:
        if _is_stream(target):
            with open(target, "wb") as stream:
                return sum(stream.write(chunk) for chunk in chunks)
        resolved = _resolve_links(target)
        _sweep(os.path.dirname(resolved))
        return _replace(resolved, chunks, durable)
    except (OSError, ValueError) as error:
        raise _unwritable(target, error) from error


def _resolve_links(target: Path) -> str:
    """The target of symbolic links, which must not be a folder."""
    resolved = os.path.realpath(target)
    if os.path.islink(resolved):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    if os.path.isdir(resolved):
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
    return resolved


def _replace(path: str, chunks: Iterable[Any], durable: bool) -> int:
    folder = os.path.dirname(path)
    handle, temporary = _create(folder)
    try:
        with os.fdopen(handle, "wb") as file:
            total = sum(file.write(chunk) for chunk in chunks)
            file.flush()
            _copy_access(file.fileno(), path)
            if durable:
                os.fsync(file.fileno())
            if fcntl is not None:  # while the lock is held
                os.replace(temporary, path)
        if fcntl is None:
            os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    if durable:
        _sync_folder(folder)
    return total


def _create(folder: str) -> tuple[int, str]:
    """A new file, locked while it is open, so that other processes see that its writer is alive."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    while True:
        path = os.path.join(folder, f"{_PREFIX}{os.urandom(8).hex()}{_SUFFIX}")
        handle = os.open(path, flags, 0o666)  # minus the umask
        if not _lock(handle) or os.fstat(handle).st_nlink:
            return handle, path
        os.close(handle)  # another process removed it before it was locked


def _lock(handle: int, *, wait: bool = True) -> bool:
    """Lock a file; False if that is not possible."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True


def _copy_access(handle: int, path: str) -> None:
    """Copy mode and, if permitted, owner from the file that is replaced."""
    if not hasattr(os, "fchown"):
        return
    try:
        old = os.stat(path)
    except FileNotFoundError:
        return
    new = os.fstat(handle)
    if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
        with contextlib.suppress(PermissionError):
            os.fchown(handle, old.st_uid, old.st_gid)
    os.fchmod(handle, stat.S_IMODE(old.st_mode))  # last: changing the owner clears mode bits


def _sync_folder(folder: str) -> None:
    """Sync a folder's entries to disk, on systems that can open folders."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _sweep(folder: str) -> None:
    """Remove temporary files of this user's killed writers from a folder; once per process and folder."""
    if fcntl is None or folder in _SWEPT:
        return
    _SWEPT.add(folder)
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            middle = entry.name[len(_PREFIX) : -len(_SUFFIX)]
            if entry.name == f"{_PREFIX}{middle}{_SUFFIX}" and len(middle) == 16 and middle.isalnum():
                _remove_abandoned(entry.path)


def _remove_abandoned(path: str) -> None:
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            status = os.fstat(handle)
            is_own = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
            if is_own and _lock(handle, wait=False):
                os.unlink(path)
        finally:
            os.close(handle)


def _target(path: str | os.PathLike[str]) -> Path:
    text = text_path(path)
    if text is None:
        raise UsageError("file to write", "must be a path", value=type(path).__name__)
    return Path(text)


def check_writable(path: str | os.PathLike[str], *, folder: bool = False) -> None:
    """Raise if no file can be written at ``path``, before the work to produce one. ``folder``: files in a folder, which
    is created if needed.

    >>> check_writable("out.pte"), check_writable("new/folder", folder=True)
    (None, None)
    """
    target = _target(path)
    if _is_stream(target):
        return
    try:
        resolved = Path(os.path.realpath(target) if folder else _resolve_links(target))
        parent = resolved if folder else resolved.parent
        while folder and not parent.exists():
            parent = parent.parent
        if not parent.is_dir():
            number = errno.ENOTDIR if parent.exists() else errno.ENOENT
            raise OSError(number, os.strerror(number))
        if not os.access(parent, os.W_OK | os.X_OK):
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
        with contextlib.suppress(FileNotFoundError):
            os.lstat(resolved)  # raises for an invalid name
    except (OSError, ValueError) as error:
        raise _unwritable(target, error) from error


def _unwritable(target: Path, error: OSError | ValueError) -> FileAccessError:
    """The error for a failed write, with a remedy. Python raises ValueError for names with a null character."""
    number, reason = getattr(error, "errno", 0), getattr(error, "strerror", None) or str(error)
    dangling_link = number == errno.ENOENT and target.is_symlink()
    folder = os.path.dirname(os.path.realpath(target)) if dangling_link else target.parent
    remedies = {
        errno.ENOENT: f"Make the folder first: mkdir -p '{folder}'",
        errno.ENOSPC: "Free disk space, or write to another folder. The old file is unchanged.",
        errno.EISDIR: "Name a file in it.",
        errno.ELOOP: "Remove the link.",
        errno.EROFS: "Write to another folder.",
        errno.EACCES: "Write to another folder, or change the folder's permissions.",
    }
    return FileAccessError(str(target), f"cannot be written: {reason}", remedy=remedies.get(number, ""))


def make_folder(path: str | os.PathLike[str]) -> Path:
    """Create a folder and its parents unless they exist."""
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise FileAccessError(str(path), f"cannot be created: {getattr(error, 'strerror', error)}") from error
    return Path(path)


def _is_stream(target: Path) -> bool:
    try:
        mode = target.stat().st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISCHR(mode) or stat.S_ISFIFO(mode)
