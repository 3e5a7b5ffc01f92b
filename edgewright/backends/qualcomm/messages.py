"""Messages between this program and its emulator: a JSON header, and bytes. Nothing that comes back is believed.

The emulator is native code that was given a file; what it sends is read like a file, not unpickled.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Sequence
from typing import Any

from edgewright import errors
from edgewright.errors import EdgewrightError, FormatError, VendorError
from edgewright.pte.flat import Buffer

_HEAD = struct.Struct("<IQ")
_MAX_HEADER = 1 << 22
_FIELDS = ("subject", "rule", "remedy", "where", "file")


class Ended(Exception):  # noqa: N818
    """The other side is gone."""


def send(to: socket.socket, header: dict[str, Any], parts: Sequence[Buffer] = ()) -> None:
    """One message; its header says how many bytes each part has."""
    views = [memoryview(p).cast("B") for p in parts]
    text = json.dumps({**header, "sizes": [len(v) for v in views]}).encode()
    try:
        to.sendall(_HEAD.pack(len(text), sum(map(len, views))) + text)
        for view in views:
            to.sendall(view)
    except OSError as error:
        raise Ended from error


def receive(source: socket.socket, most: int) -> tuple[dict[str, Any], list[bytes]]:
    """One message, whose parts have ``most`` bytes together at most."""
    length, total = _HEAD.unpack(_exactly(source, _HEAD.size))
    if length > _MAX_HEADER or total > most:
        raise VendorError("QNN emulator", f"must answer with at most {most} bytes", value=total)
    try:
        header = json.loads(_exactly(source, length))
        sizes = [int(n) for n in header["sizes"]]
    except (ValueError, KeyError, TypeError) as error:
        raise VendorError("QNN emulator", "must answer in its own language", value=repr(error)[:80]) from error
    if any(n < 0 for n in sizes) or sum(sizes) != total:
        raise VendorError("QNN emulator", "must say the sizes of its answer", value=sizes[:8])
    return header, [_exactly(source, n) for n in sizes]


def _exactly(source: socket.socket, count: int) -> bytes:
    room = bytearray(count)
    view = memoryview(room)
    while view:
        try:
            got = source.recv_into(view)
        except OSError as error:
            raise Ended from error
        if not got:
            raise Ended
        view = view[got:]
    return bytes(room)


def error_fields(error: EdgewrightError) -> dict[str, str]:
    """An error as a header."""
    text = str(error)  # which also settles the subject of a format error
    held = {name: str(getattr(error, name, "") or "") for name in _FIELDS}
    return {"error": type(error).__name__, "value": str(error.value)[:400] if "; got " in text else "", **held}


def raise_error(header: dict[str, Any]) -> None:
    """Raise the error that a header tells of, if it does."""
    if "error" not in header:
        return
    found = getattr(errors, str(header["error"]), None)
    said = {name: str(header.get(name, ""))[:2000] for name in (*_FIELDS, "value")}
    more: dict[str, Any] = {"remedy": said["remedy"], **({"value": said["value"]} if said["value"] else {})}
    if isinstance(found, type) and issubclass(found, FormatError):
        raise found(said["rule"], where=said["where"], file=said["file"], **more)
    kind = found if isinstance(found, type) and issubclass(found, EdgewrightError) else VendorError
    raise kind(said["subject"], said["rule"], **more)
