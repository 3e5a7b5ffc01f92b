"""A stand-in for adb's server and the phones behind it: the real ``adb`` client talks to it over its own protocol.

A phone is a folder. Commands run in this machine's shell, with the phone's paths turned into the folder's.
"""

from __future__ import annotations

import os
import socketserver
import stat
import struct
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

VERSION = b"0029"  # of the protocol, in hexadecimal: what clients of Debian and Android's tools expect
_U32 = struct.Struct("<I")
_HEAD = struct.Struct("<4sI")


@dataclass
class StandIn:
    """A phone. ``properties``: what ``getprop`` gives. ``room``: bytes that a file may have before there is no space
    left. ``cut``: bytes of a file after which the cable is pulled. ``mute``: it is there, and ends every command."""

    serial: str
    root: Path
    state: str = "device"
    model: str = "Stand_In"
    properties: dict[str, str] = field(default_factory=dict)
    commands: list[str] = field(default_factory=list)
    room: int | None = None
    cut: int | None = None
    mute: bool = False

    def __post_init__(self) -> None:
        for name in ("data/local/tmp", "vendor/lib64", "bin"):
            (self.root / name).mkdir(parents=True, exist_ok=True)
        lines = [f"  {name}) echo {value!r};;" for name, value in self.properties.items()]
        script = self.root / "bin" / "getprop"
        script.write_text("\n".join(["#!/bin/sh", 'case "$1" in', *lines, "esac", ""]))
        script.chmod(0o755)

    def place(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def shell(self, command: str) -> bytes:
        self.commands.append(command)
        local = command
        for folder in ("/data/local/tmp", "/vendor/lib64"):
            local = local.replace(folder, str(self.root) + folder)
        environment = {**os.environ, "PATH": f"{self.root / 'bin'}{os.pathsep}{os.environ['PATH']}"}
        environment["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
        done = subprocess.run(["sh", "-c", local], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=600, check=False)  # fmt: skip
        return done.stdout


class _Connection(socketserver.BaseRequestHandler):
    server: AdbServer

    def handle(self) -> None:
        self.phone: StandIn | None = None
        while True:
            head = self._exactly(4)
            if not head:
                return
            if not self._serve(self._exactly(int(head, 16)).decode()):
                return

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            part = self.request.recv(count - len(data))
            if not part:
                return b""
            data += part
        return data

    def _text(self, text: bytes) -> None:
        self.request.sendall(b"OKAY" + f"{len(text):04x}".encode() + text)

    def _fail(self, text: str) -> None:
        self.request.sendall(b"FAIL" + f"{len(text):04x}".encode() + text.encode())

    def _serve(self, service: str) -> bool:
        """Whether more may come over this connection."""
        if service == "host:version":
            self._text(VERSION)
        elif service in ("host:devices", "host:devices-l"):
            lines = [f"{p.serial:<22} {p.state} model:{p.model} transport_id:{i}\n" for i, p in
                     enumerate(self.server.phones, 1)]  # fmt: skip
            self._text("".join(lines).encode())
        elif service.endswith(":features"):
            self._text(b"")
        elif service.startswith(("host:tport:", "host:transport")):
            return self._choose(service)
        elif service.startswith("shell:") and self.phone is not None:
            said = b"" if self.phone.mute else self.phone.shell(service.removeprefix("shell:"))
            self.request.sendall(b"OKAY" + said)
        elif service == "sync:" and self.phone is not None:
            self.request.sendall(b"OKAY")
            _Files(self, self.phone).serve()
        else:
            self._fail(f"unknown service {service}")
        return False

    def _choose(self, service: str) -> bool:
        serial = service.split(":", 3)[3] if service.startswith("host:tport:serial:") else None
        found = [p for p in self.server.phones if serial in (None, p.serial)]
        if len(found) != 1 or found[0].state != "device":
            self._fail(f"device {found[0].state}" if found else f"device {serial!r} not found")
            return False
        self.phone = found[0]
        number = struct.pack("<Q", 1) if service.startswith("host:tport:") else b""
        self.request.sendall(b"OKAY" + number)
        return True


class _Files:
    """The protocol of ``adb push`` and ``adb pull``."""

    def __init__(self, connection: Any, phone: StandIn) -> None:
        self._connection, self._phone, self._line = connection, phone, connection.request

    def serve(self) -> None:
        while True:
            head = self._connection._exactly(8)
            if not head:
                return
            kind, count = _HEAD.unpack(head)
            name = self._connection._exactly(count).decode() if kind != b"QUIT" else ""
            if kind == b"QUIT":
                return
            {b"STAT": self._stat, b"LIST": self._list, b"SEND": self._take, b"RECV": self._give}[kind](name)
            if self._phone.state != "device":
                return

    def _stat(self, name: str) -> None:
        self._line.sendall(b"STAT" + self._about(self._phone.place(name)))

    def _about(self, path: Path) -> bytes:
        if not path.exists():
            return struct.pack("<III", 0, 0, 0)
        found = path.stat()
        return struct.pack("<III", found.st_mode, found.st_size, int(found.st_mtime))

    def _list(self, name: str) -> None:
        for path in sorted(self._phone.place(name).iterdir()):
            raw = path.name.encode()
            self._line.sendall(b"DENT" + self._about(path) + _U32.pack(len(raw)) + raw)
        self._line.sendall(b"DONE" + bytes(16))

    def _take(self, name: str) -> None:
        target, _, mode = name.rpartition(",")
        path, data = self._phone.place(target), bytearray()
        while True:
            kind, count = _HEAD.unpack(self._connection._exactly(8))
            if kind == b"DONE":
                break
            data += self._connection._exactly(count)
            if self._phone.cut is not None and len(data) > self._phone.cut:
                path.write_bytes(data[: self._phone.cut])
                self._phone.state = "offline"
                return
        if not path.parent.is_dir():
            self._fail("couldn't create file: No such file or directory")
        elif self._phone.room is not None and len(data) > self._phone.room:
            self._fail("write failed: No space left on device")
        else:
            path.write_bytes(data)
            path.chmod(stat.S_IMODE(int(mode)) | stat.S_IRUSR | stat.S_IWUSR)
            self._line.sendall(b"OKAY" + bytes(4))

    def _fail(self, text: str) -> None:
        self._line.sendall(b"FAIL" + _U32.pack(len(text)) + text.encode())

    def _give(self, name: str) -> None:
        data = self._phone.place(name).read_bytes()
        cut = self._phone.cut
        if cut is not None and len(data) > cut:
            self._line.sendall(b"DATA" + _U32.pack(len(data)) + data[:cut])
            self._phone.state = "offline"
            return
        for start in range(0, len(data), 1 << 16):
            part = data[start : start + (1 << 16)]
            self._line.sendall(b"DATA" + _U32.pack(len(part)) + part)
        self._line.sendall(b"DONE" + bytes(4))


class AdbServer(socketserver.ThreadingTCPServer):
    """Serves phones on a port of its own until it is closed."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, phones: list[StandIn]) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.phones = phones
        self.port = self.server_address[1]
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def close(self) -> None:
        self.shutdown()
        self.server_close()
