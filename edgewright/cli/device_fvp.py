"""``edgewright device fvp``: run a program on an installed Arm Fixed Virtual Platform."""

from __future__ import annotations

import argparse
import json
import shlex
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from edgewright.backends.ethos_u import fvp
from edgewright.backends.ethos_u.blob import read_blob
from edgewright.backends.ethos_u.npu.stream import accelerator_of
from edgewright.backends.ethos_u.target import ACCELERATORS, check_choice
from edgewright.cli.inputs import load_inputs
from edgewright.cli.outputs import save_arrays
from edgewright.console import clean, console
from edgewright.errors import FileAccessError, MissingError, UsageError, VendorError
from edgewright.files import write_file
from edgewright.formats import schema
from edgewright.formats.ptd import read_data
from edgewright.formats.pte_reader import read_program
from edgewright.ir.dtypes import parse_dtype
from edgewright.runtime.example_inputs import ones
from edgewright.runtime.metadata import MethodMetadata, TensorInfo, describe

_BACKEND = "EthosUBackend"


def add_arguments(group: Any) -> None:
    add = group.add_argument
    add("--target", metavar="ethos-u55-128", help="the NPU (default: the one the program was compiled for)")
    add("--elf", metavar="runner", help="ExecuTorch's arm_executor_runner (default: m/cmake-out/arm_executor_runner)")
    add("--fvp", metavar="PATH", help="the platform's executable (default: the target's, on PATH)")
    add("--timeout", type=int, default=600, metavar="S", help="simulated seconds after which to give up (default: 600)")
    add("--address", type=lambda text: int(text, 0), metavar="0x70000000", help="load the program at this address")
    add("--semihosting", action="store_true", help="the runner reads program and inputs from this machine's files")
    add("--data", action="append", default=[], metavar="w.ptd", help="external data of the program")
    add("--trace", metavar="FILE", help="write the NPU's performance counters to a file")


def run(args: argparse.Namespace) -> int:
    program = read_program(args.model)
    target = _target(args, program)
    executable = fvp.BOARDS[ACCELERATORS[target][0]].executable
    if not args.dry_run or args.fvp:
        executable = fvp.find_executable(target, args.fvp)
    files = bool(args.semihosting or args.inputs or args.output)
    if files and args.address is not None:
        raise UsageError("--address", "cannot go with --semihosting: the program is in memory or in a file")
    if args.timeout < 1:
        raise UsageError("--timeout", "must be at least a second", value=args.timeout)
    elf = _elf(args, target, files)
    base: dict[str, Any] = {"target": target, "elf": elf, "executable": executable, "timeout": args.timeout}
    base |= {"address": args.address, "program": Path(args.model).resolve(), "trace": args.trace}
    if not files:
        platform = fvp.Platform(**base)
        return _finish(args, platform, _start(args, platform))
    with tempfile.TemporaryDirectory(prefix="edgewright-fvp-") as name:
        folder = Path(name)
        metadata = _prepare(args, program, folder)
        inputs = sorted(folder.glob("i*.bin"), key=lambda path: int(path.stem[1:]))
        words = ["executor_runner", "-m", "m.pte", "-o", "out", *(w for i in inputs for w in ("-i", i.name))]
        platform = fvp.Platform(**base, folder=folder, arguments=words)
        report = _start(args, platform)
        if args.output and report is not None:
            save_arrays(args.output, [[_read(folder, i, t) for i, t in enumerate(_tensors(metadata.outputs))]])
        return _finish(args, platform, report)


def _target(args: argparse.Namespace, program: schema.Program) -> str:
    """The NPU to run on, which must be the one that the delegates were compiled for."""
    named_data = {item.key: program.segment(item.segment_index) for item in program.named_data or ()}
    named_data.update({key: entry.data for path in args.data for key, entry in read_data(path).items()})
    targets = {
        accelerator_of(bytes(read_blob(program.blob(delegate), named_data).cmd_data))
        for plan in program.execution_plan
        for delegate in plan.delegates
        if delegate.id == _BACKEND
    }
    if not targets and args.target is None:
        remedy = "Compile it with EthosUPartitioner, or name the platform with --target."
        raise UsageError(args.model, "has no Ethos-U delegate, which would specify the NPU", remedy=remedy)
    target = check_choice("--target", args.target or sorted(targets)[0], ACCELERATORS)
    if targets - {target}:
        remedy = f"Compile it for {target}, or leave out --target."
        raise UsageError(args.model, f"must be compiled for {target}", value=", ".join(sorted(targets)), remedy=remedy)
    return target


def _elf(args: argparse.Namespace, target: str, files: bool) -> Path:
    elf = Path(args.elf) if args.elf else Path(args.model).with_suffix("") / "cmake-out" / "arm_executor_runner"
    if not elf.is_file() and not args.dry_run:
        program = "semihosting" if files else args.model if args.address is None else f"{args.address:#010x}"
        remedy = (
            "Build it in a checkout of ExecuTorch: backends/arm/scripts/build_executor_runner.sh"
            f" --pte={program} --target={target}; then name it with --elf."
        )
        raise MissingError(str(elf), "is needed: the binary that the platform runs", remedy=remedy)
    return elf.resolve()


def _start(args: argparse.Namespace, platform: fvp.Platform) -> fvp.FvpOutput | None:
    """Run the platform to completion; a dry run only prints the command."""
    if args.dry_run:
        words = platform.command()
        print(json.dumps({"command": words}, indent=2) if args.json else shlex.join(words))
        return None
    out, prints = console(), not args.quiet and not args.json
    report = fvp.run(platform, lambda line: out.print(clean(line), soft_wrap=True) if prints else None)
    if prints:
        cycles = "" if report.cycles is None else f"; the NPU counted {report.cycles:,} cycles"
        out.print(f"{platform.board.executable} ended without errors{cycles}", style="green", soft_wrap=True)
    return report


def _finish(args: argparse.Namespace, platform: fvp.Platform, report: fvp.FvpOutput | None) -> int:
    if args.json and report is not None:
        facts = {"platform": platform.executable, "target": platform.target, "cycles": report.cycles}
        print(json.dumps({**facts, "written": args.output, "log": report.lines}, indent=2))
    return 0


# ------------------------------------------------------------------------------------------------- semihosting files


def _prepare(args: argparse.Namespace, program: schema.Program, folder: Path) -> MethodMetadata:
    """Write program and inputs under short names, inputs in memory order."""
    metadata = describe(program.execution_plan[0])
    values = load_inputs(args.inputs, metadata) if args.inputs else ones(metadata)
    write_file(folder / "m.pte", [Path(args.model).read_bytes()], durable=False)
    for index, (value, info) in enumerate(zip(values, metadata.inputs, strict=True)):
        if not isinstance(info, TensorInfo):
            raise UsageError(args.model, "must take tensors only", value=info.name)
        array = np.ascontiguousarray(np.asarray(value).transpose(info.dim_order))
        write_file(folder / f"i{index}.bin", [array.tobytes()], durable=False)
    return metadata


def _tensors(infos: Any) -> list[TensorInfo]:
    return [info for info in infos if isinstance(info, TensorInfo)]


def _read(folder: Path, index: int, info: TensorInfo) -> Any:
    path = folder / f"out-{index}.bin"
    if not path.is_file():
        raise FileAccessError(path.name, "was not written by the runner", remedy="Was it built for semihosting?")
    dtype = parse_dtype(info.dtype)
    data = path.read_bytes()
    shape = [info.shape[dim] for dim in info.dim_order]
    if len(data) != int(np.prod(shape)) * dtype.itemsize:
        raise VendorError(path.name, f"must have the bytes of {list(info.shape)} {info.dtype}", value=len(data))
    return np.frombuffer(data, dtype).reshape(shape).transpose(np.argsort(info.dim_order))
