"""A client with the command line of Android's ``adb``, for machines that have none: what the tests need of it.

It speaks the protocol of the real client (``host:`` services, ``shell:``, ``sync:``), so both talk to the same server,
and the same tests run with either. ``on_path`` gives the folder to put on PATH; ``InProcess`` starts no process.

    python adb_client.py [-H HOST] [-s SERIAL] devices -l | shell COMMAND | push FILE PATH | pull PATH FILE
"""

from __future__ import annotations

import argparse
import io
import os
import shlex
import socket
import stat
import struct
import sys
from collections.abc import Sequence
from pathlib import Path
from posixpath import basename
from typing import Any, BinaryIO

_HEAD = struct.Struct("<4sI")
_PART = 1 << 16  # the largest part of a file that the protocol sends at once


def on_path(folder: Path) -> Path:
    """A folder with an executable ``adb`` that is this module."""
    folder.mkdir()
    script = folder / "adb"
    command = shlex.join([sys.executable, "-I", "-S", __file__])
    script.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    script.chmod(0o755)
    return folder


class InProcess:
    """Stands in for ``subprocess.Popen`` of an adb command with its standard error in its standard output."""

    def __init__(self, command: Sequence[str], **_: Any) -> None:
        printed = io.BytesIO()
        self.returncode = main(command[1:], printed, printed)
        self.stdout = io.StringIO(printed.getvalue().decode(errors="replace"))

    def __enter__(self) -> InProcess:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class AdbError(Exception):
    """What is printed to stderr before the exit code 1."""


class Connection:
    """One connection to the server, which serves one command."""

    def __init__(self, host: str) -> None:
        port = int(os.environ.get("ANDROID_ADB_SERVER_PORT", "5037"))
        try:
            self._socket = socket.create_connection((host, port))
        except OSError as error:
            raise AdbError(f"adb: cannot connect to daemon at tcp:{host}:{port}: {error.strerror}") from error

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            part = self._socket.recv(count - len(data))
            if not part:
                raise AdbError("adb: error: unexpected EOF")
            data += part
        return data

    def send(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise AdbError(f"adb: error: write failed: {error.strerror}") from error

    def request(self, service: str) -> None:
        raw = service.encode()
        self.send(f"{len(raw):04x}".encode() + raw)
        if self.exactly(4) != b"OKAY":
            raise AdbError(f"adb: {self.text()}")

    def text(self) -> str:
        return self.exactly(int(self.exactly(4), 16)).decode()

    def transport(self, serial: str | None) -> None:
        self.request("host:tport:any" if serial is None else f"host:tport:serial:{serial}")
        self.exactly(8)  # the transport's number

    def copy_to(self, output: BinaryIO) -> None:
        while part := self._socket.recv(_PART):
            output.write(part)
            output.flush()


class Sync:
    """``push`` and ``pull`` over a connection that was switched to ``sync:``."""

    def __init__(self, connection: Connection) -> None:
        self._line = connection
        connection.request("sync:")

    def _send(self, kind: bytes, path: str) -> None:
        raw = path.encode()
        self._line.send(_HEAD.pack(kind, len(raw)) + raw)

    def push(self, source: Path, target: str) -> None:
        self._send(b"SEND", f"{target},{stat.S_IMODE(source.stat().st_mode) | stat.S_IFREG}")
        data = source.read_bytes()
        for start in range(0, len(data), _PART):
            part = data[start : start + _PART]
            self._line.send(_HEAD.pack(b"DATA", len(part)) + part)
        self._line.send(_HEAD.pack(b"DONE", int(source.stat().st_mtime)))
        kind, count = _HEAD.unpack(self._line.exactly(8))
        if kind != b"OKAY":
            said = self._line.exactly(count).decode()
            raise AdbError(f"adb: error: failed to copy '{source}' to '{target}': remote {said}")

    def pull(self, source: str, target: Path) -> None:
        mode = self._mode(source)
        if not mode:
            raise AdbError(f"adb: error: failed to stat remote object '{source}': No such file or directory")
        self._copy(source, mode, target / basename(source) if target.is_dir() else target)

    def _copy(self, source: str, mode: int, target: Path) -> None:
        if stat.S_ISDIR(mode):
            target.mkdir(exist_ok=True)
            for name, kind in self._entries(source):
                self._copy(f"{source}/{name}", kind, target / name)
            return
        self._send(b"RECV", source)
        with target.open("wb") as file:
            while True:
                kind, count = _HEAD.unpack(self._line.exactly(8))
                if kind == b"DONE":
                    return
                data = self._line.exactly(count)
                if kind != b"DATA":
                    raise AdbError(f"adb: error: failed to copy '{source}' to '{target}': remote {data.decode()}")
                file.write(data)

    def _mode(self, path: str) -> int:
        self._send(b"STAT", path)
        mode: int = struct.unpack("<4sIII", self._line.exactly(16))[1]
        return mode

    def _entries(self, path: str) -> list[tuple[str, int]]:
        self._send(b"LIST", path)
        found = []
        while True:
            kind, mode, _, _, count = struct.unpack("<4sIIII", self._line.exactly(20))
            if kind == b"DONE":
                return found
            found.append((self._line.exactly(count).decode(), mode))


def _run(args: argparse.Namespace, line: Connection, output: BinaryIO) -> None:
    if args.command == "devices":
        line.request("host:devices-l")
        output.write(f"List of devices attached\n{line.text()}\n".encode())
        return
    line.transport(args.s)
    if args.command == "shell":
        line.request(f"shell:{' '.join(args.words)}")
        line.copy_to(output)
        return
    source, target = args.words
    if args.command == "push":
        Sync(line).push(Path(source), target)
    else:
        Sync(line).pull(source, Path(target))


def main(arguments: Sequence[str], output: BinaryIO, errors: BinaryIO) -> int:
    parser = argparse.ArgumentParser(prog="adb")
    parser.add_argument("-H", default="127.0.0.1")
    parser.add_argument("-s")
    parser.add_argument("command", choices=("devices", "shell", "push", "pull"))
    parser.add_argument("words", nargs=argparse.REMAINDER)
    args = parser.parse_args(arguments)
    try:
        with Connection(args.H) as line:
            _run(args, line, output)
    except AdbError as error:
        errors.write(f"{error}\n".encode())
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:], sys.stdout.buffer, sys.stderr.buffer))
