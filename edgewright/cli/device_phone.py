"""``edgewright device run | push | list``: programs with QNN delegates on Android phones, through ``adb``."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from edgewright.backends.qualcomm.adb import Adb
from edgewright.backends.qualcomm.emulated import release
from edgewright.backends.qualcomm.libraries import Runner, find_runner, htp_files, sdk_root
from edgewright.backends.qualcomm.phone import FOLDER, LIST, Needs, Phone, command, needs_of
from edgewright.backends.qualcomm.target import CHIPSETS, get_soc_to_chipset_map
from edgewright.cli.console import clean, console, note, plural, progress, table
from edgewright.cli.inputs import load_inputs
from edgewright.cli.outputs import save_arrays
from edgewright.errors import FileAccessError, UsageError, VendorError
from edgewright.files import write_file
from edgewright.ir.dtypes import dtype_named
from edgewright.pte.reader import read_program
from edgewright.runtime.metadata import MethodMetadata, TensorInfo, describe

Files = list[tuple[Path, str]]


def add_arguments(group: Any) -> None:
    add = group.add_argument
    add("-s", "--serial", "--device", metavar="S", help="which phone, as adb devices lists it")
    add("-H", "--host", metavar="HOST", help="of an adb server on another machine")
    add("-b", "--build_folder", metavar="FOLDER", help="ExecuTorch's build for Android, with runner and backend")
    add("--runner", metavar="PATH", help="qnn_executor_runner itself; its backend is looked for beside it")
    add("--qnn-sdk", metavar="FOLDER", help="Qualcomm's SDK (default: QNN_SDK_ROOT)")
    add("--device-folder", default=str(FOLDER), metavar="PATH", help="on the phone (default: %(default)s)")
    add("--output-folder", metavar="FOLDER", help="put outputs/ and etdump.etdp here (default: beside the program)")
    add("--skip_push", action="store_true", help="the phone has libraries and runner already")
    add("--any-soc", action="store_true", help="even if the program was compiled for another SoC")


def run(args: argparse.Namespace) -> int:
    if args.kind == "list":
        return _list(args)
    program = read_program(args.model)
    needs = needs_of(program, args.model)
    libraries, runner = ([], None) if args.skip_push else (
        htp_files(sdk_root(args.qnn_sdk), needs.arch), find_runner(args.build_folder, args.runner)
    )  # fmt: skip
    folder = PurePosixPath(args.device_folder)
    if args.dry_run:
        return _dry_run(args, folder, libraries, runner)
    phone = Phone(Adb(args.serial, args.host), folder)
    found = phone.check(needs, libraries, any_soc=args.any_soc)
    with tempfile.TemporaryDirectory(prefix="edgewright-phone-") as name:
        metadata = describe(program.execution_plan[0])
        given = _inputs(args, metadata, Path(name))
        _push(args, phone, [*_pairs(libraries, runner), (Path(args.model), _name(args.model)), *given], needs, found)
    if args.kind == "push":
        return 0
    return _run(args, phone, metadata, bool(given))


def _name(model: str) -> str:
    return Path(model).name


def _pairs(libraries: list[Path], runner: Runner | None) -> Files:
    return [(path, path.name) for path in (*libraries, *(runner.files if runner is not None else []))]


def _dry_run(args: argparse.Namespace, folder: PurePosixPath, libraries: list[Path], runner: Runner | None) -> int:
    for path, name in [*_pairs(libraries, runner), (Path(args.model), _name(args.model))]:
        print(f"push {path} {folder / name}")
    print(command(folder, _name(args.model), bool(args.inputs)))
    return 0


def _list(args: argparse.Namespace) -> int:
    """Every phone, with what can be asked of it."""
    rows = []
    for device in Adb(args.serial, args.host).devices():
        soc, arch, qnn = "", "", ""
        if device.state == "device":
            phone = Phone(Adb(device.serial, args.host), PurePosixPath(args.device_folder))
            soc, known = phone.soc, get_soc_to_chipset_map()
            arch = f"V{CHIPSETS[known[soc.upper()]].arch}" if soc.upper() in known else ""
            qnn = release(phone.qnn_build())
        rows.append((device.serial, device.state, device.model, soc, arch, qnn))
    if not rows:
        Adb(args.serial, args.host).choose()  # says what to do
    console().print(table("", ("serial", "state", "model", "SoC", "Hexagon", "QNN"), rows))
    return 0


def _inputs(args: argparse.Namespace, metadata: MethodMetadata, folder: Path) -> Files:
    """Inputs as files of bytes as they lie in memory, and the list of them."""
    if not args.inputs:
        if not args.quiet and args.kind == "run":
            note("No inputs given: the runner fills them as it likes.")
        return []
    made: Files = []
    for index, (value, info) in enumerate(zip(load_inputs(args.inputs, metadata), metadata.inputs, strict=True)):
        if not isinstance(info, TensorInfo):
            raise UsageError(args.model, "must take tensors only", value=info.name)
        path = folder / f"input_0_{index}.raw"
        write_file(path, [np.ascontiguousarray(np.asarray(value).transpose(info.dim_order)).tobytes()])
        made.append((path, path.name))
    write_file(folder / LIST, [(" ".join(name for _, name in made) + "\n").encode()])
    return [*made, (folder / LIST, LIST)]


def _push(args: argparse.Namespace, phone: Phone, files: Files, needs: Needs, qnn: str) -> None:
    with progress(f"pushing to {phone.device.serial}", len(files), quiet=args.quiet) as step:
        count = phone.push(files, lambda _: step())
    if not args.quiet:
        said = f"{plural(count, 'file')} pushed to {phone.folder}, {len(files) - count} there already"
        console().print(f"{clean(phone.device.serial)}: {said}; QNN {qnn}, Hexagon V{needs.arch}", soft_wrap=True)


def _run(args: argparse.Namespace, phone: Phone, metadata: MethodMetadata, given: bool) -> int:
    out = console()
    phone.run(_name(args.model), inputs=given,
              say=None if args.quiet else lambda line: out.print(clean(line), soft_wrap=True))  # fmt: skip
    folder = Path(args.output_folder) if args.output_folder else Path(args.model).resolve().parent
    files = phone.pull(folder)
    if args.output:
        infos = [info for info in metadata.outputs if isinstance(info, TensorInfo)]
        save_arrays(args.output, [[_array(path, info) for path, info in zip(files, infos, strict=True)]])
    if not args.quiet:
        out.print(f"{plural(len(files), 'output')} in {folder / 'outputs'}", style="green", soft_wrap=True)
    return 0


def _array(path: Path, info: TensorInfo) -> Any:
    """An output as the runner wrote it."""
    if not path.is_file():
        raise FileAccessError(path.name, "was not written by the runner")
    dtype, data = dtype_named(info.dtype), path.read_bytes()
    shape = [info.shape[dim] for dim in info.dim_order]
    if len(data) != int(np.prod(shape)) * dtype.itemsize:
        raise VendorError(path.name, f"must have the bytes of {list(info.shape)} {info.dtype}", value=len(data))
    return np.frombuffer(data, dtype).reshape(shape).transpose(np.argsort(info.dim_order))
