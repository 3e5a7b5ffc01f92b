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

_MAX_OUTPUT_CHARS = 300  # characters of adb's output in errors
_DEVICE_LINE = re.compile(r"^(\S+)\s+(\S.*?)(?:\s+(?:usb:|product:|model:|device:|transport_id:).*)?$")
_MODEL = re.compile(r"\bmodel:(\S+)")
_EXIT_CODE = re.compile(r"^(.*)\[exit code (\d{1,3})\]$")
# Unusable states of a phone, with remedies.
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
_NO_PHONE = "Plug a phone in with USB debugging on, or adb connect HOST:PORT; adb devices lists those that are seen."
_DISCONNECTED = "Plug the phone in again; adb devices says whether it is there. Finished steps are not repeated."
_FOLDER_HINT = "Name a folder that adb's shell may write to: --device-folder /data/local/tmp/NAME."
# Remedies by command ("": any) and by text in adb's output.
_ADVICE = (
    ("push", "no space left", "Free space on the phone: adb shell df -h /data/local/tmp shows how much there is."),
    ("push", "permission denied", _FOLDER_HINT),
    ("push", "read-only file system", _FOLDER_HINT),
    ("push", "no such file or directory", _FOLDER_HINT),
    ("pull", "no space left", "Free disk space on this machine, or name another folder with --output-folder."),
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
    """Connection to one phone. ``serial``: which one, if several are connected; ``host``: of a remote adb server."""

    def __init__(self, serial: str | None = None, host: str | None = None) -> None:
        match = shutil.which("adb")
        if match is None:
            remedy = "Install Android's platform tools: apt install adb, or developer.android.com/tools/releases."
            raise MissingError("adb", "must be on PATH", remedy=remedy)
        self._command = [match, *(["-H", host] if host else [])]
        self._serial = serial

    def devices(self) -> list[Device]:
        """All connected phones."""
        lines = self._run(["devices", "-l"]).splitlines()
        start = next((i for i, line in enumerate(lines) if line.startswith("List of devices")), len(lines))
        return [_parse_device(line) for line in lines[start + 1 :] if line.strip()]

    def candidates(self) -> list[Device]:
        """All connected phones, or the one with the given serial; raises if there is none."""
        match = self.devices()
        if self._serial is None:
            if not match:
                raise MissingError("phone", "must be connected", remedy=_NO_PHONE)
            return match
        matching = [d for d in match if d.serial == self._serial]
        if not matching:
            listing = f"Those seen: {', '.join(d.serial for d in match)}." if match else _NO_PHONE
            raise UsageError("--serial", "must be a phone that is connected", value=self._serial, remedy=listing)
        return matching

    def choose(self) -> Device:
        """Select the phone to use; raises unless exactly one is ready."""
        match = self.candidates()
        ready = [d for d in match if d.state == "device"]
        if len(ready) > 1:
            listed = ", ".join(f"{d.serial} ({d.model})" if d.model else d.serial for d in ready)
            remedy = f"Name one: --serial {ready[0].serial}."
            raise UsageError("--serial", f"must select one of {len(ready)} phones", value=listed, remedy=remedy)
        if not ready:
            others = "".join(f"; {d.serial} is {d.state}" for d in match[1:])
            raise MissingError(
                f"phone {match[0].serial}", f"is {match[0].state}{others}", remedy=_state_remedies(match)
            )
        self._serial = ready[0].serial
        return ready[0]

    # ------------------------------------------------------------------------------------------------ one phone

    def shell(self, command: str, on_line: Callable[[str], None] | None = None) -> tuple[int, str]:
        """Run a command; returns its exit code and output. The command prints its exit code, because ``adb shell`` of
        old phones does not return it."""
        arguments = ["shell", f'{{ {command}\n}}; echo "[exit code $?]"']
        lines = self._run(
            arguments, on_line=lambda line: None if on_line is None or _EXIT_CODE.match(line) else on_line(line)
        ).splitlines()
        match = _EXIT_CODE.match(lines[-1].strip()) if lines else None
        if match is None:
            output, subject = "\n".join(lines)[-_MAX_OUTPUT_CHARS:] or "nothing", f"phone {self._serial or ''}".strip()
            raise VendorError(subject, "must finish its command", value=output, remedy=_DISCONNECTED)
        partial = [match.group(1)] if match.group(1) else []  # a last line without newline
        return int(match.group(2)), "\n".join([*lines[:-1], *partial])

    def push(self, source: Path, target: PurePosixPath) -> None:
        self._run(["push", str(source), str(target)], subject=f"adb push {source.name}")

    def pull(self, source: PurePosixPath, target: Path) -> None:
        self._run(["pull", str(source), str(target)], subject=f"adb pull {source.name}")

    def property(self, name: str) -> str:
        return self.shell(f"getprop {shlex.quote(name)}")[1].strip()

    # ---------------------------------------------------------------------------------------------------- adb itself

    def _run(self, arguments: Sequence[str], on_line: Callable[[str], None] | None = None, subject: str = "adb") -> str:
        selector = ["-s", self._serial] if self._serial is not None and arguments[0] != "devices" else []
        command = [*self._command, *selector, *arguments]
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, errors="replace") as running:  # fmt: skip
            assert running.stdout is not None
            lines = []
            for line in running.stdout:
                lines.append(line.rstrip("\r\n"))
                if on_line is not None:
                    on_line(lines[-1])
        text = "\n".join(lines)
        if running.returncode:
            value = text.strip()[-_MAX_OUTPUT_CHARS:] or running.returncode
            raise VendorError(subject, "must succeed", value=value, remedy=_remedy(arguments[0], text))
        return text


def _remedy(command: str, output: str) -> str:
    lowered = output.lower()
    remedies = (text for only, arguments, text in _ADVICE if only in ("", command) and arguments in lowered)
    return next(remedies, _DISCONNECTED)


def _state_remedies(match: Sequence[Device]) -> str:
    """Remedies for unusable phones, without duplicates."""
    remedies = (next((text for state, text in _STATES.items() if d.state.startswith(state)), _NO_PHONE) for d in match)
    return " ".join(dict.fromkeys(remedies))


def _parse_device(line: str) -> Device:
    match, model = _DEVICE_LINE.match(line.strip()), _MODEL.search(line)
    if match is None:
        raise VendorError("adb devices", "must list serial and state", value=line[:80])
    return Device(match.group(1), match.group(2).split(";")[0].strip(), model.group(1) if model else "")
