"""``SimpleADB`` on a phone: what ExecuTorch's scripts do with ``-s SERIAL``, by the code of ``edgewright device``."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from edgewright.backends.qualcomm.adb import Adb
from edgewright.backends.qualcomm.libraries import find_runner, htp_files, sdk_root
from edgewright.backends.qualcomm.phone import ETDUMP, LIST, Phone, requirements_of
from edgewright.formats.pte_reader import read_program

WriteInputs = Callable[[str, str, Sequence[Any]], tuple[str | None, list[str]]]


class ScriptPhone:
    """One program on a phone: pushed with its runner, libraries and inputs, executed, its results fetched.

    ``build_folder``: ExecuTorch's Android build; the SDK is ``QNN_SDK_ROOT``'s."""

    def __init__(
        self, serial: str, host: str | None, workspace: str, programs: Sequence[Path], build_folder: str,
        skip_push: bool,
    ) -> None:  # fmt: skip
        self.programs = list(programs)
        self.phone = Phone(Adb(serial, host), PurePosixPath(workspace))
        self._build_folder, self._skip_push = build_folder or None, skip_push
        self._has_inputs = False

    def push(self, inputs: Sequence[Any] | None, files: Sequence[str], write_inputs: WriteInputs) -> int:
        """Push what the phone lacks; the number of files. ``files``: a script's own."""
        needs = requirements_of(read_program(self.programs[0]), str(self.programs[0]))
        libraries = [] if self._skip_push else htp_files(sdk_root(), needs.arch)
        runner = [] if self._skip_push else find_runner(self._build_folder, None).files
        self.phone.check(needs, libraries)
        self._has_inputs = bool(inputs)
        with tempfile.TemporaryDirectory(prefix="edgewright-script-") as folder:
            listed, raw = write_inputs(folder, LIST, inputs) if inputs else (None, [])
            given = [*libraries, *runner, *self.programs, *map(Path, files), *map(Path, raw)]
            return self.phone.push((path, path.name) for path in (*given, *([Path(listed)] if listed else [])))

    def execute(self, repeat: int, on_line: Callable[[str], None]) -> str:
        """Run the first program on all inputs; what its runner printed."""
        return self.phone.run(self.programs[0].name, inputs=self._has_inputs, repeat=repeat, on_line=on_line)

    def pull(self, folder: Path) -> None:
        """Fetch ``outputs`` and the profile into a folder."""
        self.phone.pull(folder)

    def pull_etdump(self, path: Path) -> None:
        self.phone.adb.pull(self.phone.folder / ETDUMP, path)
