"""``edgewright device run | push | list``: run programs on Android phones through ``adb``, each with the runner of
ExecuTorch that its delegates need."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from edgewright.backends.qualcomm.adb import Adb, Device
from edgewright.backends.qualcomm.emulator_server import release
from edgewright.backends.qualcomm.libraries import RunnerFiles, find_program, find_runner, htp_files, sdk_root
from edgewright.backends.qualcomm.phone import (
    FOLDER,
    LIST,
    LineCallback,
    Phone,
    Requirements,
    command,
    read_outputs,
    requirements_of,
)
from edgewright.backends.qualcomm.target import CHIPSETS, get_soc_to_chipset_map
from edgewright.cli.inputs import load_inputs
from edgewright.cli.outputs import save_arrays
from edgewright.cli.phone_runners import PhoneRunner, find_kind
from edgewright.console import clean, console, note, plural, progress, table
from edgewright.errors import MissingError, UsageError, VendorError
from edgewright.files import write_file
from edgewright.formats.pte_reader import read_program
from edgewright.formats.schema import Program
from edgewright.runtime.metadata import MethodMetadata, TensorInfo, describe

Files = list[tuple[Path, str]]
Facts = dict[str, Any]


def add_arguments(group: Any) -> None:
    add = group.add_argument
    add("-s", "--serial", "--device", metavar="S", help="the phone's serial number (see adb devices)")
    add("-H", "--host", metavar="HOST", help="host of a remote adb server")
    add("-b", "--build_folder", metavar="FOLDER", help="ExecuTorch's Android build, with runner and backend")
    runner = "qnn_executor_runner, with its backend library in the same folder; enn_executor_runner; or executor_runner"
    add("--runner", metavar="PATH", help=runner)
    add("--qnn-sdk", metavar="FOLDER", help="Qualcomm's SDK (default: QNN_SDK_ROOT)")
    add("--device-folder", metavar="PATH", help=f"folder on the phone (default for Qualcomm: {FOLDER})")
    add("--output-folder", metavar="FOLDER", help="write outputs/ and etdump.etdp here (default: next to the program)")
    add("--repeat", type=int, default=1, metavar="N", help="run N times; the runner prints how long they took")
    add("--skip_push", action="store_true", help="libraries and runner are already on the phone")
    add("--any-soc", action="store_true", help="run even if the program was compiled for another SoC")


def run(args: argparse.Namespace) -> int:
    if args.kind == "list":
        return _list(args)
    if args.repeat < 1:
        raise UsageError("--repeat", "must be 1 or more", value=args.repeat)
    program = read_program(args.model)
    runner_kind = find_kind(program, args.model)
    if runner_kind is not None:
        return _run_plain(args, program, runner_kind)
    needs = requirements_of(program, args.model)
    libraries, runner = ([], None) if args.skip_push else (
        htp_files(sdk_root(args.qnn_sdk), needs.arch), find_runner(args.build_folder, args.runner)
    )  # fmt: skip
    folder = PurePosixPath(args.device_folder or FOLDER)
    if args.dry_run:
        return _dry_run(args, folder, libraries, runner)
    phone = Phone(Adb(args.serial, args.host), folder)
    device = phone.check(needs, libraries, any_soc=args.any_soc)
    with tempfile.TemporaryDirectory(prefix="edgewright-phone-") as name:
        metadata = describe(program.execution_plan[0])
        input_files = _inputs(args, metadata, Path(name))
        files = [*_pairs(libraries, runner), (Path(args.model), _name(args.model)), *input_files]
        facts = _push(args, phone, files, needs, device)
    if args.kind == "run":
        facts |= _run(args, phone, metadata, bool(input_files))
    if args.json:
        print(json.dumps(facts, indent=2))
    return 0


def _run_plain(args: argparse.Namespace, program: Program, kind: PhoneRunner) -> int:
    """Push a program and its runner, which needs nothing else, and run it."""
    runner = None if args.skip_push else find_program(kind.places, args.build_folder, args.runner, kind.remedy)
    folder = PurePosixPath(args.device_folder or kind.folder)
    model, metadata = _name(args.model), describe(program.execution_plan[0])
    with tempfile.TemporaryDirectory(prefix="edgewright-phone-") as name:
        inputs = [] if args.dry_run else [pair for pair in _inputs(args, metadata, Path(name)) if pair[1] != LIST]
        files = [*([] if runner is None else [(runner, kind.name)]), (Path(args.model), model), *inputs]
        names = [f"input_0_{i}.raw" for i in range(len(metadata.inputs))] if args.inputs else []
        line = kind.command(folder, model, names, args.repeat)
        if args.dry_run:
            return _print_dry_run(args, [(path, folder / to) for path, to in files], line)
        phone = Phone(Adb(args.serial, args.host), folder)
        kind.check(program, phone, any_soc=args.any_soc)
        facts = _push_files(args, phone, files)
    if args.kind == "run":
        facts |= _fetch(args, phone, metadata, lambda say: phone.execute(line, kind.name, say))
    if args.json:
        print(json.dumps(facts, indent=2))
    return 0


def _name(model: str) -> str:
    return Path(model).name


def _pairs(libraries: list[Path], runner: RunnerFiles | None) -> Files:
    return [(path, path.name) for path in (*libraries, *(runner.files if runner is not None else []))]


def _dry_run(args: argparse.Namespace, folder: PurePosixPath, libraries: list[Path], runner: RunnerFiles | None) -> int:
    files = [*_pairs(libraries, runner), (Path(args.model), _name(args.model))]
    pushes = [(path, folder / name) for path, name in files]
    return _print_dry_run(args, pushes, command(folder, _name(args.model), bool(args.inputs), args.repeat))


def _print_dry_run(args: argparse.Namespace, pushes: list[tuple[Path, PurePosixPath]], line: str) -> int:
    if args.json:
        print(json.dumps({"push": [{"from": str(a), "to": str(b)} for a, b in pushes], "command": line}, indent=2))
        return 0
    for path, destination in pushes:
        print(f"push {path} {destination}")
    print(line)
    return 0


def _list(args: argparse.Namespace) -> int:
    """List every phone, or the selected one, with its properties."""
    if args.model is not None:
        raise UsageError("device list", "takes no program", value=args.model, remedy="edgewright device run runs one.")
    phones = [_facts(args, device) for device in Adb(args.serial, args.host).candidates()]
    if args.json:
        print(json.dumps({"phones": phones}, indent=2))
        return 0
    rows = [[phone[key] or "" for key in phone] for phone in phones]
    console().print(table("", ("serial", "state", "model", "SoC", "Hexagon", "QNN"), rows))
    return 0


def _facts(args: argparse.Namespace, device: Device) -> Facts:
    """Properties of a phone; only serial and state if it is not authorized yet."""
    facts: Facts = {"serial": device.serial, "state": device.state, "model": device.model or None}
    facts |= {"soc": None, "hexagon": None, "qnn": None}
    if device.state == "device":
        try:
            facts |= _query(Phone(Adb(device.serial, args.host), PurePosixPath(args.device_folder or FOLDER)))
        except (MissingError, VendorError) as error:  # unplugged meanwhile: keep listing the others
            facts["state"] = "does not answer"
            note(f"{device.serial}: {error}")
    return facts


def _query(phone: Phone) -> Facts:
    soc = phone.soc
    known = get_soc_to_chipset_map().get(soc.upper())
    hexagon = None if known is None else f"V{CHIPSETS[known].arch}"
    return {"soc": soc or None, "hexagon": hexagon, "qnn": release(phone.qnn_build()) or None}


def _inputs(args: argparse.Namespace, metadata: MethodMetadata, folder: Path) -> Files:
    """Write inputs as raw files in memory order, and the list that names them."""
    if not args.inputs:
        if not args.quiet and args.kind == "run":
            note("No inputs: the runner chooses the values.")
        return []
    files: Files = []
    for index, (value, info) in enumerate(zip(load_inputs(args.inputs, metadata), metadata.inputs, strict=True)):
        if not isinstance(info, TensorInfo):
            raise UsageError(args.model, "must take tensors only", value=info.name)
        path = folder / f"input_0_{index}.raw"
        write_file(path, [np.ascontiguousarray(np.asarray(value).transpose(info.dim_order)).tobytes()],
                   durable=False)  # fmt: skip
        files.append((path, path.name))
    write_file(folder / LIST, [(" ".join(name for _, name in files) + "\n").encode()], durable=False)
    return [*files, (folder / LIST, LIST)]


def _push(args: argparse.Namespace, phone: Phone, files: Files, needs: Requirements, qnn: str) -> Facts:
    facts = _push_files(args, phone, files, f"; QNN {qnn}, Hexagon V{needs.arch}")
    return facts | {"hexagon": f"V{needs.arch}", "qnn": qnn}


def _push_files(args: argparse.Namespace, phone: Phone, files: Files, remark: str = "") -> Facts:
    with progress(f"pushing to {phone.device.serial}", len(files), quiet=args.quiet) as step:
        count = phone.push(files, lambda _: step())
    if _prints(args):
        summary = f"{plural(count, 'file')} pushed to {phone.folder}, {len(files) - count} already there"
        console().print(f"{clean(phone.device.serial)}: {summary}{remark}", soft_wrap=True)
    facts: Facts = {"serial": phone.device.serial, "folder": str(phone.folder)}
    return facts | {"pushed": count, "there_already": len(files) - count}


def _prints(args: argparse.Namespace) -> bool:
    return not args.quiet and not args.json


def _run(args: argparse.Namespace, phone: Phone, metadata: MethodMetadata, has_inputs: bool) -> Facts:
    def execute(say: LineCallback | None) -> str:
        return phone.run(_name(args.model), inputs=has_inputs, repeat=args.repeat, on_line=say)

    return _fetch(args, phone, metadata, execute)


def _fetch(
    args: argparse.Namespace, phone: Phone, metadata: MethodMetadata, execute: Callable[[LineCallback | None], str]
) -> Facts:
    """Run on the phone, showing what the runner prints, and fetch the outputs."""
    out = console()
    say = (lambda line: out.print(clean(line), soft_wrap=True)) if _prints(args) else None
    output = execute(say)
    folder = Path(args.output_folder) if args.output_folder else Path(args.model).resolve().parent
    files = phone.pull(folder)
    if args.output:
        save_arrays(args.output, read_outputs(files, metadata))
    if _prints(args):
        out.print(f"{plural(len(files), 'output')} in {folder / 'outputs'}", style="green", soft_wrap=True)
    return {"outputs": [str(path) for path in files], "written": args.output, "log": output.splitlines()}
