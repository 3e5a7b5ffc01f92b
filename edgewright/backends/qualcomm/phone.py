"""Runs a program on a phone: pushes its files, executes ExecuTorch's runner, pulls and reads the outputs."""

from __future__ import annotations

import hashlib
import re
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from edgewright.backends.qualcomm.adb import Adb
from edgewright.backends.qualcomm.blob import read_blob
from edgewright.backends.qualcomm.emulator_server import check_version, release
from edgewright.backends.qualcomm.libraries import find_build_id, names_on_phone
from edgewright.backends.qualcomm.options import KEY
from edgewright.backends.qualcomm.target import CHIPSETS, QcomChipset, QnnTarget, get_soc_to_chipset_map
from edgewright.errors import ExecutionError, FileAccessError, FormatError, MissingError, UsageError, VendorError
from edgewright.formats import schema
from edgewright.formats.twin_writer import MAGIC
from edgewright.ir.dtypes import parse_dtype
from edgewright.runtime.metadata import MethodMetadata, TensorInfo
from edgewright.units import size


def read_outputs(files: Sequence[Path], metadata: MethodMetadata, runs: int = 1) -> list[list[Any]]:
    """Read the outputs of every inference; raises if the number or size of files is wrong."""
    infos = [info for info in metadata.outputs if isinstance(info, TensorInfo)]
    if len(files) != runs * len(infos):
        remedy = "Its log says where it stopped; the program on the phone must be the one that was pushed."
        rule = f"must write {runs * len(infos)} outputs: {len(infos)} for each of {runs} inferences"
        raise VendorError("runner", rule, value=len(files), remedy=remedy)
    arrays = [_array(path, infos[i % len(infos)]) for i, path in enumerate(files)]
    return [arrays[n * len(infos) : (n + 1) * len(infos)] for n in range(runs)]


def _array(path: Path, info: TensorInfo) -> Any:
    dtype, data = parse_dtype(info.dtype), path.read_bytes()
    shape = [info.shape[dim] for dim in info.dim_order]
    expected = int(np.prod(shape)) * dtype.itemsize
    if len(data) != expected:
        rule = f"must have the {expected} bytes of {list(info.shape)} {info.dtype}"
        remedy = "The runner was interrupted, or the phone is full: run it again."
        raise VendorError(path.name, rule, value=len(data), remedy=remedy)
    return np.frombuffer(data, dtype).reshape(shape).transpose(np.argsort(info.dim_order))


FOLDER = PurePosixPath("/data/local/tmp/executorch_qualcomm_tutorial")
BACKEND = "QnnBackend"
RUNNER = "qnn_executor_runner"
OUTPUTS, ETDUMP, LIST = "outputs", "etdump.etdp", "input_list.txt"
_VENDOR = "/vendor/lib64/libQnnHtp.so"  # shipped with Android
_BUILD = r"v[0-9]+[.][0-9]+[.][0-9]+[.][0-9]{6,20}"
_SUM = re.compile(r"^([0-9a-f]{32})\s+\*?(\S.*)$")
_MAX_OUTPUT_CHARS = 300
_SOC_VENDORS = ("qti", "qualcomm")
_LOG_REMEDY = "Its log is above; --verbose and compile specs with debug=True say more."
_LINK_REMEDY = "The phone lacks a library that the runner was built with; adb push it into the folder."
_EXIT_REMEDIES = {  # remedies by the runner's exit code
    126: "The runner cannot be executed there: name a folder below /data/local/tmp with --device-folder.",
    137: "Android killed it, usually because memory was low: close other programs.",
    139: "It crashed: build runner and backend from one release of ExecuTorch, with the QNN whose libraries are used.",
}
LineCallback = Callable[[str], None]


@dataclass(frozen=True)
class Requirements:
    """Requirements of a program: its SoC, and the QNN build that compiled it."""

    soc: QcomChipset
    build: str

    @property
    def arch(self) -> int:
        return CHIPSETS[self.soc].arch


def requirements_of(program: schema.Program, name: str) -> Requirements:
    """Requirements of a program's QNN delegates, which must all have the same SoC."""
    socs: set[QcomChipset] = set()
    builds = []
    for delegate in (d for plan in program.execution_plan for d in plan.delegates if d.id == BACKEND):
        specs = {spec.key: bytes(spec.value) for spec in delegate.compile_specs or ()}
        if KEY not in specs:
            raise FormatError(f"must have {KEY}", where=f"{BACKEND} delegate")
        blob = bytes(program.blob(delegate))
        if blob[: len(MAGIC)] == MAGIC:
            remedy = "Compile it without simulate_only."
            raise UsageError(name, "is for this machine only", remedy=remedy)
        socs.add(QnnTarget.read(specs[KEY]).soc)
        builds.append(find_build_id(read_blob(blob).context))
    if len(socs) != 1:
        rule = "must have QNN delegates" if not socs else "must be for one SoC"
        remedy = "Compile it for a phone: edgewright compile --backend qualcomm:SM8650."
        raise UsageError(name, rule, value=", ".join(sorted(s.name for s in socs)) or "none", remedy=remedy)
    return Requirements(socs.pop(), max(builds, key=_version_key))


def _version_key(build: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", build)[:3])


class Phone:
    """One phone and a folder on it."""

    def __init__(self, adb: Adb, folder: PurePosixPath = FOLDER) -> None:
        if not folder.is_absolute():
            remedy = f"Such as {FOLDER}, the default."
            raise UsageError("--device-folder", "must start with /", value=str(folder), remedy=remedy)
        self.adb, self.folder = adb, folder
        self.device = adb.choose()

    @property
    def soc(self) -> str:
        """The SoC's name as reported by Android; older versions report the platform, or nothing."""
        return self.adb.property("ro.soc.model") or self.adb.property("ro.board.platform")

    def qnn_build(self, path: str = _VENDOR) -> str:
        """The build of a QNN library on the phone; empty if there is none."""
        quoted = shlex.quote(path)
        code, output = self.adb.shell(
            f"[ -f {quoted} ] && grep -a -o -E -m 1 {shlex.quote(_BUILD)} {quoted} | head -n 1"
        )
        return find_build_id(output.encode()) if code == 0 else ""

    def check(self, needs: Requirements, libraries: Sequence[Path], *, any_soc: bool = False) -> str:
        """Raise unless the phone's SoC and QNN libraries fit a program; returns the QNN release."""
        chipsets, output = get_soc_to_chipset_map(), self.soc.upper()
        vendor = self.adb.property("ro.soc.manufacturer")
        if vendor and vendor.lower() not in _SOC_VENDORS and not any_soc:
            remedy = "Plug in a phone with a Snapdragon, or pass --any-soc to try anyway."
            raise UsageError("program", "was compiled for Qualcomm's SoCs, and this phone's is by", value=vendor,
                             remedy=remedy)  # fmt: skip
        if output in chipsets and CHIPSETS[chipsets[output]].arch != needs.arch and not any_soc:
            rule = f"was compiled for {needs.soc.name} (Hexagon V{needs.arch}), and this phone is"
            value = f"{output} (V{CHIPSETS[chipsets[output]].arch})"
            remedy = f"Compile it for {output}, or pass --any-soc to try anyway."
            raise UsageError("program", rule, value=value, remedy=remedy)
        if not libraries:
            self._check_files(names_on_phone(needs.arch))
        htp = next((f for f in libraries if f.name == "libQnnHtp.so"), None)
        library_build = (
            find_build_id(htp.read_bytes()) if htp is not None else self.qnn_build(str(self.folder / "libQnnHtp.so"))
        )
        if library_build and needs.build:
            check_version(needs.build, library_build)
        return release(library_build) if library_build else "unknown"

    def _check_files(self, names: Sequence[str]) -> None:
        """Raise if files that will not be pushed are missing."""
        arguments = "; ".join(f"[ -f {shlex.quote(str(self.folder / n))} ] || echo {shlex.quote(n)}" for n in names)
        missing = self.adb.shell(arguments)[1].split()
        if missing:
            remedy = "Push them once: the same without --skip_push. --device-folder names another folder."
            rule = f"lacks {', '.join(missing)} in {self.folder}"
            raise MissingError(f"phone {self.device.serial}", rule, remedy=remedy)

    # ------------------------------------------------------------------------------------------------------- files

    def push(self, files: Iterable[tuple[Path, str]], step: LineCallback = lambda _: None) -> int:
        """Copy files to the folder under the given names, except unchanged ones; returns the number copied.

        A file is renamed to its final name only after it has been copied completely.
        """
        self._shell_checked(f"mkdir -p {shlex.quote(str(self.folder))}", "make its folder")
        listed = list(files)
        for path in (p for p, _ in listed if not p.is_file()):
            raise MissingError(str(path), "is needed on the phone, and is not there")
        remote = self._md5_sums([name for _, name in listed])
        changed = {name for path, name in listed if remote.get(name) != _md5(path)}
        self._check_space(sum(path.stat().st_size for path, name in listed if name in changed))
        for path, name in listed:
            if name in changed:
                part = self.folder / f"{name}.part"
                self.adb.push(path, part)
                arguments = shlex.join(["mv", "-f", str(part), str(self.folder / name)])
                self._shell_checked(arguments, f"rename {part.name}")
            step(name)
        return len(changed)

    def _check_space(self, needed: int) -> None:
        """Raise if the phone reports too little free space; some phones do not report it."""
        _, output = self.adb.shell(f"df -k {shlex.quote(str(self.folder))}")
        arguments = output.splitlines()[-1].split() if output else []
        if len(arguments) < 4 or not arguments[3].isdecimal() or int(arguments[3]) * 1024 >= needed:
            return
        rule = f"has {size(1024 * int(arguments[3]))} free for {self.folder}, and {size(needed)} are to be pushed"
        remedy = "Free space on the phone, or name another folder with --device-folder."
        raise VendorError(f"phone {self.device.serial}", rule, remedy=remedy)

    def _md5_sums(self, names: Sequence[str]) -> dict[str, str]:
        """MD5 of the files on the phone; empty if it lacks ``md5sum``."""
        arguments = " ".join(shlex.quote(f"./{n}") for n in names)
        _, output = self.adb.shell(f"cd {shlex.quote(str(self.folder))} && md5sum {arguments} 2>/dev/null")
        socs = [_SUM.match(line.strip()) for line in output.splitlines()]
        return {m.group(2).removeprefix("./"): m.group(1) for m in socs if m is not None}

    def _shell_checked(self, command: str, action: str) -> None:
        code, output = self.adb.shell(command)
        if code:
            remedy = f"The folder must be one that adb's shell may write to, such as {FOLDER}."
            raise VendorError(
                f"phone {self.device.serial}",
                f"must {action}",
                value=output[-_MAX_OUTPUT_CHARS:] or code,
                remedy=remedy,
            )

    # --------------------------------------------------------------------------------------------------------- runs

    def run(self, model: str, *, inputs: bool, repeat: int = 1, on_line: LineCallback | None = None) -> str:
        """Run a program that was pushed; returns the runner's output."""
        return self.execute(command(self.folder, model, inputs, repeat), RUNNER, on_line)

    def execute(self, line: str, runner: str, on_line: LineCallback | None = None) -> str:
        """Run a shell command that calls a runner; returns its output, or raises with what it printed last."""
        code, output = self.adb.shell(line, on_line)
        if code:
            remedy = _LINK_REMEDY if "CANNOT LINK EXECUTABLE" in output else _EXIT_REMEDIES.get(code, _LOG_REMEDY)
            value = output.strip()[-_MAX_OUTPUT_CHARS:] or "nothing"
            raise ExecutionError(f"{runner} on {self.device.serial}", f"ended with {code}", value=value, remedy=remedy)
        return output

    def pull(self, into: Path) -> list[Path]:
        """Fetch outputs and ETDump; returns the output files in order. Files of an earlier run are replaced only after
        everything has been fetched."""
        try:
            into.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".pulled-", dir=into) as name:
                self.adb.pull(self.folder / OUTPUTS, Path(name))
                code, _ = self.adb.shell(f"[ -f {shlex.quote(str(self.folder / ETDUMP))} ]")
                if code == 0:
                    self.adb.pull(self.folder / ETDUMP, Path(name) / ETDUMP)
                shutil.rmtree(into / OUTPUTS, ignore_errors=True)
                (into / ETDUMP).unlink(missing_ok=True)
                for path in Path(name).iterdir():
                    path.rename(into / path.name)
        except OSError as error:
            remedy = "Name another folder with --output-folder."
            raise FileAccessError(str(into), f"cannot be written: {error.strerror}", remedy=remedy) from error
        return sorted((p for p in (into / OUTPUTS).glob("*") if p.suffix in (".raw", ".bin")), key=_numbers)


def command(folder: PurePosixPath, model: str, inputs: bool, repeat: int = 1) -> str:
    """The shell command that runs a program on the phone."""
    quoted = shlex.quote(str(folder))
    arguments = [f"./{RUNNER}", "--model_path", f"./{model}"]
    arguments += ["--input_list_path", f"./{LIST}"] if inputs else []
    arguments += ["--iteration", str(repeat)] if repeat > 1 else []
    arguments += ["--output_folder_path", f"./{OUTPUTS}", "--etdump_path", f"./{ETDUMP}"]
    return (
        f"cd {quoted} && rm -rf {OUTPUTS} {ETDUMP} && mkdir -p {OUTPUTS} && chmod +x {RUNNER}"
        f" && export LD_LIBRARY_PATH={quoted} && export ADSP_LIBRARY_PATH={quoted} && {shlex.join(arguments)}"
    )


def _numbers(path: Path) -> list[int]:
    return [int(n) for n in re.findall(r"\d+", path.stem)]


def _md5(path: Path) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while part := file.read(1 << 20):
            digest.update(part)
    return digest.hexdigest()
