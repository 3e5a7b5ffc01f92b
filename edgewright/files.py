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

Source = Union[str, "os.PathLike[str]", bytes, bytearray, memoryview, mmap.mmap]


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


def write_file(path: str | os.PathLike[str], chunks: Iterable[Any]) -> int:
    """Write ``chunks`` to a temporary file beside ``path``, then rename it into place; the bytes written.

    The old file stays whole until the new one is complete, and when anything fails. What is no file (``/dev/null``, a
    pipe) is written to as it is: renaming would put a file in its place.
    """
    target = _target(path)
    temporary = ""
    try:
        if _is_stream(target):
            with open(target, "wb") as stream:
                return sum(stream.write(chunk) for chunk in chunks)
        import tempfile  # only who writes needs it

        handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
        with os.fdopen(handle, "wb") as file:
            total = sum(file.write(chunk) for chunk in chunks)
        os.chmod(temporary, _mode(target))
        os.replace(temporary, target)
        return total
    except (OSError, ValueError) as error:  # a name with a null character is not the system's but Python's to refuse
        raise _unwritable(target, getattr(error, "errno", 0), getattr(error, "strerror", str(error))) from error
    finally:
        with contextlib.suppress(OSError):
            if temporary:
                os.unlink(temporary)


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
    holder = target if folder else target.parent
    while folder and not holder.exists():
        holder = holder.parent
    reason = 0
    if not holder.is_dir():
        reason = errno.ENOTDIR if holder.exists() else errno.ENOENT
    elif not folder and target.is_dir():
        reason = errno.EISDIR
    elif not os.access(holder, os.W_OK | os.X_OK):
        reason = errno.EACCES
    if reason:
        raise _unwritable(target, reason, os.strerror(reason))


def _unwritable(target: Path, number: int, reason: str) -> FileAccessError:
    remedies = {
        errno.ENOENT: f"Make the folder first: mkdir -p '{target.parent}'",
        errno.ENOSPC: "Make room there, or write elsewhere. What was there before is unchanged.",
        errno.EISDIR: "Name a file in it.",
        errno.EROFS: "Write elsewhere.",
        errno.EACCES: "Write elsewhere, or change the folder's permissions.",
    }
    return FileAccessError(str(target), f"cannot be written: {reason}", remedy=remedies.get(number, ""))


def make_folder(path: str | os.PathLike[str]) -> Path:
    """A folder, and those it lies in, unless they are there already."""
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileAccessError(str(path), f"cannot be made: {error.strerror}") from error
    return Path(path)


def _is_stream(target: Path) -> bool:
    try:
        mode = target.stat().st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISCHR(mode) or stat.S_ISFIFO(mode)


def _mode(target: Path) -> int:
    """The permissions of the file being replaced, or those a new file would get."""
    try:
        return stat.S_IMODE(target.stat().st_mode)
    except FileNotFoundError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask
