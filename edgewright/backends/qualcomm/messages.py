"""Wire format between the host and the emulator process: lengths, a JSON header, and raw bytes.

Responses are untrusted, because the emulator is native code that has processed a file: they are validated like a file
and never unpickled.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from edgewright import errors
from edgewright.errors import EdgewrightError, FormatError, VendorError
from edgewright.formats.flatbuffer import Buffer

_HEAD = struct.Struct("<IQ")
_MAX_HEADER = 1 << 22
_FIELDS = ("subject", "rule", "remedy", "where", "file")


class PeerClosed(Exception):  # noqa: N818
    """The peer has closed the connection."""


def send(
    to: socket.socket, header: dict[str, Any], parts: Sequence[Buffer] = (), deadline: float | None = None
) -> None:
    """Send one message; its header contains the size of each part. Raises TimeoutError after ``deadline``."""
    views = [memoryview(p).cast("B") for p in parts]
    text = json.dumps({**header, "sizes": [len(v) for v in views]}).encode()
    head = memoryview(_HEAD.pack(len(text), sum(map(len, views))) + text)
    for view in (head, *views):
        with _socket_deadline(to, deadline):
            to.sendall(view)


def receive(source: socket.socket, limit: int, deadline: float | None = None) -> tuple[dict[str, Any], list[bytes]]:
    """Receive one message with at most ``limit`` bytes of parts. Raises TimeoutError after ``deadline``."""
    length, total = _HEAD.unpack(_receive_exactly(source, _HEAD.size, deadline))
    if length > _MAX_HEADER or total > limit:
        raise VendorError("QNN emulator", f"must answer with at most {limit} bytes", value=total)
    try:
        header = json.loads(_receive_exactly(source, length, deadline))
        sizes = [int(n) for n in header["sizes"]]
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise VendorError("QNN emulator", "must answer in the message format", value=repr(error)[:80]) from error
    if any(n < 0 for n in sizes) or sum(sizes) != total:
        raise VendorError("QNN emulator", "must list the sizes of its response", value=sizes[:8])
    return header, [_receive_exactly(source, n, deadline) for n in sizes]


def _receive_exactly(source: socket.socket, count: int, deadline: float | None) -> bytes:
    buffer = bytearray(count)
    view = memoryview(buffer)
    while view:
        with _socket_deadline(source, deadline):
            received = source.recv_into(view)
        if not received:
            raise PeerClosed
        view = view[received:]
    return bytes(buffer)


@contextmanager
def _socket_deadline(connection: socket.socket, deadline: float | None) -> Iterator[None]:
    """Translate socket errors other than timeouts to ``PeerClosed``."""
    try:
        if deadline is not None:
            connection.settimeout(max(deadline - time.monotonic(), 1e-3))  # 0 would mean not to wait at all
        yield
    except TimeoutError:
        raise
    except OSError as error:
        raise PeerClosed from error


def error_fields(error: EdgewrightError) -> dict[str, str]:
    """Encode an error as a header."""
    text = str(error)  # also sets the subject of a format error
    fields = {name: str(vars(error).get(name) or "") for name in _FIELDS}
    return {"error": type(error).__name__, "value": str(error.value)[:400] if "; got " in text else "", **fields}


def raise_error(header: dict[str, Any]) -> None:
    """Raise the error that a header contains, if any."""
    if "error" not in header:
        return
    error_class = vars(errors).get(str(header["error"]))
    fields = {name: str(header.get(name, ""))[:2000] for name in (*_FIELDS, "value")}
    details: dict[str, Any] = {"remedy": fields["remedy"], **({"value": fields["value"]} if fields["value"] else {})}
    if isinstance(error_class, type) and issubclass(error_class, FormatError):
        raise error_class(fields["rule"], where=fields["where"], file=fields["file"], **details)
    kind = error_class if isinstance(error_class, type) and issubclass(error_class, EdgewrightError) else VendorError
    raise kind(fields["subject"], fields["rule"], **details)
