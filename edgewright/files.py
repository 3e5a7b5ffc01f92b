"""Files in and out: mapped for reading, renamed into place when written."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Union

from edgewright.errors import FileAccessError, UsageError

try:
    import fcntl
except ImportError:  # Windows has other locks, and what a killed writer leaves there stays
    fcntl = None  # type: ignore[assignment]

Source = Union[str, "os.PathLike[str]", bytes, bytearray, memoryview, mmap.mmap]

_PREFIX, _SUFFIX = ".edgewright-", ".tmp"
_SWEPT: set[str] = set()


def open_source(source: Source, what: str, *, private: bool = False) -> tuple[memoryview, str]:
    """A read-only view of ``source`` and the name errors call it by. A path is mapped, never read whole.

    ``private``: writing to what is mapped copies the page written to; the file stays as it is.
    """
    if isinstance(source, bytes | bytearray | memoryview | mmap.mmap):
        return _view(source, what), what
    path = text_path(source)
    if path is None:
        raise UsageError(what, "must be a path, bytes, a memoryview or an mmap", value=type(source).__name__)
    try:
        with open(path, "rb", opener=_open_now) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise FileAccessError(path, "must be a regular file")
            if not os.fstat(file.fileno()).st_size:
                return memoryview(b""), path  # an empty file cannot be mapped
            return memoryview(
                mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY if private else mmap.ACCESS_READ)
            ), path
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise FileAccessError(
            path, f"cannot be opened: {reason}", remedy="Check the path and its permissions."
        ) from error


def text_path(path: object) -> str | None:
    """A path as text; None if it is no path, or one of bytes."""
    try:
        text = os.fspath(path)  # type: ignore[call-overload]
    except TypeError:
        return None
    return text if isinstance(text, str) else None


def _view(source: bytes | bytearray | memoryview | mmap.mmap, what: str) -> memoryview:
    try:
        view = memoryview(source)
        return view.cast("B").toreadonly() if view.nbytes else memoryview(b"")
    except (TypeError, ValueError) as error:  # strided, or closed
        raise UsageError(what, f"must be an open, contiguous buffer: {error}") from error


def _open_now(path: str, flags: int) -> int:
    """Open without waiting: a pipe without a writer must be refused, not waited for."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def write_file(path: str | os.PathLike[str], chunks: Iterable[Any], *, durable: bool = True) -> int:
    """Write ``chunks`` to a temporary file beside ``path``, then rename it into place; the bytes written.

    The old file stays whole until the new one is complete, and when anything fails. A link is written through: what it
    leads to is replaced. A new file has the mode that the umask leaves, another keeps mode and owner. What is no file
    (``/dev/null``, a pipe) is written to as it is: renaming would put a file in its place. ``durable``: bytes and name
    are on the disk when this returns; not worth the wait in a temporary folder.
    """
    target = _target(path)
    try:
        if _is_stream(target):
            with open(target, "wb") as stream:
                return sum(stream.write(chunk) for chunk in chunks)
        place = _resolved(target)
        _sweep(os.path.dirname(place))
        return _replace(place, chunks, durable)
    except (OSError, ValueError) as error:
        raise _unwritable(target, error) from error


def _resolved(target: Path) -> str:
    """Where links lead; no folder."""
    place = os.path.realpath(target)
    if os.path.islink(place):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    if os.path.isdir(place):
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
    return place


def _replace(place: str, chunks: Iterable[Any], durable: bool) -> int:
    folder = os.path.dirname(place)
    handle, temporary = _create(folder)
    try:
        with os.fdopen(handle, "wb") as file:
            total = sum(file.write(chunk) for chunk in chunks)
            file.flush()
            _keep_access(file.fileno(), place)
            if durable:
                os.fsync(file.fileno())
            if fcntl is not None:  # while it is locked
                os.replace(temporary, place)
        if fcntl is None:
            os.replace(temporary, place)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    if durable:
        _sync_folder(folder)
    return total


def _create(folder: str) -> tuple[int, str]:
    """A new file, locked for as long as it is open: so that others see whether its writer lives."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    while True:
        path = os.path.join(folder, f"{_PREFIX}{os.urandom(8).hex()}{_SUFFIX}")
        handle = os.open(path, flags, 0o666)  # of which the system takes the umask
        if not _lock(handle) or os.fstat(handle).st_nlink:
            return handle, path
        os.close(handle)  # swept before it was locked


def _lock(handle: int, *, wait: bool = True) -> bool:
    """Lock a file; False where that cannot be done."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True


def _keep_access(handle: int, place: str) -> None:
    """Give a new file the mode and, if this user may, the owner of the one that it replaces."""
    if not hasattr(os, "fchown"):
        return
    try:
        found = os.stat(place)
    except FileNotFoundError:
        return
    new = os.fstat(handle)
    if (found.st_uid, found.st_gid) != (new.st_uid, new.st_gid):
        with contextlib.suppress(PermissionError):
            os.fchown(handle, found.st_uid, found.st_gid)
    os.fchmod(handle, stat.S_IMODE(found.st_mode))  # last: giving a file away takes bits of its mode


def _sync_folder(folder: str) -> None:
    """Put a folder's names on the disk, where folders can be opened for that."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _sweep(folder: str) -> None:
    """Remove what writers of this user left in a folder when they were killed; once a process and folder."""
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
            found = os.fstat(handle)
            own = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
            if own and _lock(handle, wait=False):
                os.unlink(path)
        finally:
            os.close(handle)


def _target(path: str | os.PathLike[str]) -> Path:
    text = text_path(path)
    if text is None:
        raise UsageError("file to write", "must be a path", value=type(path).__name__)
    return Path(text)


def check_writable(path: str | os.PathLike[str], *, folder: bool = False) -> None:
    """Raise if no file can be written there (a ``folder``: made, and written to), before work is spent on one.

    >>> check_writable("out.pte"), check_writable("new/folder", folder=True)
    (None, None)
    """
    target = _target(path)
    if _is_stream(target):
        return
    try:
        place = Path(os.path.realpath(target) if folder else _resolved(target))
        holder = place if folder else place.parent
        while folder and not holder.exists():
            holder = holder.parent
        if not holder.is_dir():
            number = errno.ENOTDIR if holder.exists() else errno.ENOENT
            raise OSError(number, os.strerror(number))
        if not os.access(holder, os.W_OK | os.X_OK):
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
        with contextlib.suppress(FileNotFoundError):
            os.lstat(place)  # what is not there may be; a name that cannot be is refused
    except (OSError, ValueError) as error:
        raise _unwritable(target, error) from error


def _unwritable(target: Path, error: OSError | ValueError) -> FileAccessError:
    """What is wrong, and what to do. A name with a null character is not the system's but Python's to refuse."""
    number, reason = getattr(error, "errno", 0), getattr(error, "strerror", None) or str(error)
    linked = number == errno.ENOENT and target.is_symlink()
    folder = os.path.dirname(os.path.realpath(target)) if linked else target.parent
    remedies = {
        errno.ENOENT: f"Make the folder first: mkdir -p '{folder}'",
        errno.ENOSPC: "Make room there, or write elsewhere. What was there before is unchanged.",
        errno.EISDIR: "Name a file in it.",
        errno.ELOOP: "Remove the link.",
        errno.EROFS: "Write elsewhere.",
        errno.EACCES: "Write elsewhere, or change the folder's permissions.",
    }
    return FileAccessError(str(target), f"cannot be written: {reason}", remedy=remedies.get(number, ""))


def make_folder(path: str | os.PathLike[str]) -> Path:
    """A folder, and those it lies in, unless they are there already."""
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise FileAccessError(str(path), f"cannot be made: {getattr(error, 'strerror', error)}") from error
    return Path(path)


def _is_stream(target: Path) -> bool:
    try:
        mode = target.stat().st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISCHR(mode) or stat.S_ISFIFO(mode)
