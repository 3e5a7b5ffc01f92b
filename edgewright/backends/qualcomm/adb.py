"""Wrapper of ``adb``: lists devices, transfers files and runs commands."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from edgewright.errors import MissingError, UsageError, VendorError

_SHOWN = 300  # characters of what adb said
_LINE = re.compile(r"^(\S+)\s+(\S.*?)(?:\s+(?:usb:|product:|model:|device:|transport_id:).*)?$")
_MODEL = re.compile(r"\bmodel:(\S+)")
_CODE = re.compile(r"^(.*)\[exit code (\d{1,3})\]$")
# What a phone that cannot be used is called, and what to do about it.
_STATES = {
    "unauthorized": "Unlock it and allow USB debugging for this computer; then try again.",
    "authorizing": "Wait a moment; then try again.",
    "connecting": "Wait a moment; then try again.",
    "offline": "Plug it in again, or restart adb: adb kill-server.",
    "recovery": "Start it normally: adb reboot.",
    "sideload": "Start it normally: adb reboot.",
    "bootloader": "Start it normally: fastboot reboot.",
    "no permissions": "Give your user access to it: apt install android-sdk-platform-tools-common.",
}
_NONE = "Plug a phone in with USB debugging on, or adb connect HOST:PORT; adb devices lists those that are seen."
_GONE = "Plug the phone in again; adb devices says whether it is there. What was done is not done again."
_THERE = "Name a folder that adb's shell may write to: --device-folder /data/local/tmp/NAME."
# Words in what adb says, and what to do then: for one of its commands, or for all of them ("").
_ADVICE = (
    ("push", "no space left", "Make room on the phone: adb shell df -h /data/local/tmp says how much there is."),
    ("push", "permission denied", _THERE),
    ("push", "read-only file system", _THERE),
    ("push", "no such file or directory", _THERE),
    ("pull", "no space left", "Make room on this machine, or name another folder with --output-folder."),
    ("pull", "no such file or directory", "The runner wrote nothing; its log says why: edgewright device run."),
    ("", "unauthorized", _STATES["unauthorized"]),
    ("", "no permissions", _STATES["no permissions"]),
    ("", "daemon", "Start adb's server: adb kill-server, then adb start-server; on another machine (--host): "
                   "adb -a nodaemon server."),
)  # fmt: skip


@dataclass(frozen=True)
class Device:
    """A phone as ``adb devices`` lists it."""

    serial: str
    state: str
    model: str = ""


class Adb:
    """One phone, or the only one. ``host``: of an adb server elsewhere."""

    def __init__(self, serial: str | None = None, host: str | None = None) -> None:
        found = shutil.which("adb")
        if found is None:
            remedy = "Install Android's platform tools: apt install adb, or developer.android.com/tools/releases."
            raise MissingError("adb", "must be on PATH", remedy=remedy)
        self._command = [found, *(["-H", host] if host else [])]
        self._serial = serial

    def devices(self) -> list[Device]:
        """All phones that are seen."""
        lines = self._run(["devices", "-l"]).splitlines()
        start = next((i for i, line in enumerate(lines) if line.startswith("List of devices")), len(lines))
        return [_device(line) for line in lines[start + 1 :] if line.strip()]

    def listed(self) -> list[Device]:
        """The phones to choose from, at least one: all of them, or the one that is named."""
        found = self.devices()
        if self._serial is None:
            if not found:
                raise MissingError("phone", "must be connected", remedy=_NONE)
            return found
        named = [d for d in found if d.serial == self._serial]
        if not named:
            seen = f"Those seen: {', '.join(d.serial for d in found)}." if found else _NONE
            raise UsageError("--serial", "must be a phone that is connected", value=self._serial, remedy=seen)
        return named

    def choose(self) -> Device:
        """The phone to use; it must be there, the only one or named, and allow itself to be used."""
        found = self.listed()
        ready = [d for d in found if d.state == "device"]
        if len(ready) > 1:
            listed = ", ".join(f"{d.serial} ({d.model})" if d.model else d.serial for d in ready)
            remedy = f"Name one: --serial {ready[0].serial}."
            raise UsageError("--serial", f"must say which of {len(ready)} phones", value=listed, remedy=remedy)
        if not ready:
            others = "".join(f"; {d.serial} is {d.state}" for d in found[1:])
            raise MissingError(f"phone {found[0].serial}", f"is {found[0].state}{others}", remedy=_remedies(found))
        self._serial = ready[0].serial
        return ready[0]

    # ------------------------------------------------------------------------------------------------ one phone

    def shell(self, command: str, say: Callable[[str], None] | None = None) -> tuple[int, str]:
        """A command's exit code and what it printed. Old phones do not give the code, so that it is printed, too."""
        words = ["shell", f'{{ {command}\n}}; echo "[exit code $?]"']
        lines = self._run(words, say=lambda line: None if say is None or _CODE.match(line) else say(line)).splitlines()
        found = _CODE.match(lines[-1].strip()) if lines else None
        if found is None:
            said, subject = "\n".join(lines)[-_SHOWN:] or "nothing", f"phone {self._serial or ''}".strip()
            raise VendorError(subject, "must finish its command", value=said, remedy=_GONE)
        unended = [found.group(1)] if found.group(1) else []  # a last line without its end
        return int(found.group(2)), "\n".join([*lines[:-1], *unended])

    def push(self, source: Path, target: PurePosixPath) -> None:
        self._run(["push", str(source), str(target)], subject=f"adb push {source.name}")

    def pull(self, source: PurePosixPath, target: Path) -> None:
        self._run(["pull", str(source), str(target)], subject=f"adb pull {source.name}")

    def property(self, name: str) -> str:
        return self.shell(f"getprop {shlex.quote(name)}")[1].strip()

    # ---------------------------------------------------------------------------------------------------- adb itself

    def _run(self, words: Sequence[str], say: Callable[[str], None] | None = None, subject: str = "adb") -> str:
        chosen = ["-s", self._serial] if self._serial is not None and words[0] != "devices" else []
        command = [*self._command, *chosen, *words]
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, errors="replace") as running:  # fmt: skip
            assert running.stdout is not None
            lines = []
            for line in running.stdout:
                lines.append(line.rstrip("\r\n"))
                if say is not None:
                    say(lines[-1])
        text = "\n".join(lines)
        if running.returncode:
            value = text.strip()[-_SHOWN:] or running.returncode
            raise VendorError(subject, "must succeed", value=value, remedy=_advice(words[0], text))
        return text


def _advice(command: str, said: str) -> str:
    lowered = said.lower()
    fitting = (text for only, words, text in _ADVICE if only in ("", command) and words in lowered)
    return next(fitting, _GONE)


def _remedies(found: Sequence[Device]) -> str:
    """What to do about phones that cannot be used, each thing once."""
    each = (next((text for state, text in _STATES.items() if d.state.startswith(state)), _NONE) for d in found)
    return " ".join(dict.fromkeys(each))


def _device(line: str) -> Device:
    found, model = _LINE.match(line.strip()), _MODEL.search(line)
    if found is None:
        raise VendorError("adb devices", "must list serial and state", value=line[:80])
    return Device(found.group(1), found.group(2).split(";")[0].strip(), model.group(1) if model else "")
