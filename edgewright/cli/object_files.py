"""``edgewright compile --emit object``: a model as object files that need no runtime, one for each processor."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

from edgewright.backends.registry import find_backend
from edgewright.backends.targets import Target, all_targets, find_target
from edgewright.bare_metal.object_header import ObjectDescription
from edgewright.cli.run import parse_memory
from edgewright.console import clean, console, table
from edgewright.engine.cross_target import CROSS_TARGETS, find_cross_target
from edgewright.errors import UsageError
from edgewright.hints import did_you_mean
from edgewright.units import size

CPU_BACKEND = "xnnpack"  # whose programs are compiled for processors
Written = tuple[str, ObjectDescription, list[tuple[Path, int]]]  # the processor, and its files with their sizes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--cpu", metavar="cortex-m55",
        help=f"with --emit object: the processor beside an NPU: {', '.join(CROSS_TARGETS)}")  # fmt: skip
    add("--flash", type=parse_memory, metavar="512K", help="with --emit object: fail if code and constants take more")
    add("--sram", type=parse_memory, metavar="256K",
        help="with --emit object: fail if arena, inputs and outputs take more")  # fmt: skip


def select_processors(args: argparse.Namespace) -> list[str]:
    """The processors that object files are written for. Targets that are processors are replaced by the backend that
    compiles for them."""
    named = [name.lower() for name in args.target if name.lower() in CROSS_TARGETS]
    if args.emit != "object":
        if named:
            remedy = f"Add --emit object, for {named[0]} as a model's only processor, without a runtime."
            raise UsageError(
                "--target", "is a processor that object files are written for", value=named[0], remedy=remedy
            )
        for option in ("cpu", "flash", "sram"):
            if getattr(args, option) is not None:
                raise UsageError(f"--{option}", "goes with --emit object")
        return []
    if args.backend:
        raise UsageError("--emit object", "goes with --target, not with --backend")
    if args.cpu is not None and named:
        raise UsageError("--cpu", "is for an NPU's --target; this one is a processor already", value=named[0])
    rest = [name for name in args.target if name.lower() not in CROSS_TARGETS]
    for name in rest:  # before a misspelled processor is taken for an NPU
        hint = did_you_mean(name, CROSS_TARGETS, limit=3) if name.lower() not in all_targets() else ""
        if hint:
            rule = "must be a processor that object files are written for, or an NPU beside one"
            raise UsageError("target", rule, value=name, remedy=hint)
        find_target(name)
    if args.cpu is None and not named:
        raise UsageError(
            "--emit object", "needs a processor", remedy="Add --target cortex-m55, or --cpu beside an NPU."
        )
    if named and rest:
        remedy = "For the processor beside an NPU, say --cpu. For both, call the command twice."
        raise UsageError("--target", "must not name processors and other devices", value=rest[0], remedy=remedy)
    args.target = rest or ([CPU_BACKEND] if named else [])
    return list(dict.fromkeys(named)) or [find_cross_target(args.cpu).name]


def output_path(args: argparse.Namespace) -> Path:
    """``-o``, by default ``model.o`` in the working directory; a program must be named."""
    if args.output is None and args.emit != "object":
        raise UsageError("-o", "must name the output file", remedy="Add -o model.pte.")
    path = Path(args.output or "model.o")
    if args.emit == "object" and path.suffix not in (".o", ".pte"):
        raise UsageError("-o", "must end in .o, or in .pte to write the program, too", value=str(path))
    return path


def check_targets(args: argparse.Namespace, targets: Iterable[Target]) -> None:
    """Reject targets whose delegates are neither code for a processor nor commands for an NPU beside one."""
    for target in targets:
        if target.backend != CPU_BACKEND and not find_backend(target.backend).device_commands:
            rule = "is for processors, such as cortex-m55, and NPUs beside one, such as ethos-u55-128"
            raise UsageError("--emit object", rule, value=target.name)


def write_objects(args: argparse.Namespace, program: str | Path, output: Path) -> list[Written]:
    """Write a program as an object file beside ``output`` for each processor, in folders if there are several."""
    from edgewright.bare_metal.export import name_of
    from edgewright.bare_metal.object_export import export_object  # imports the engine

    written = []
    for cpu in args.cpus:
        folder = output.parent if len(args.cpus) == 1 else output.parent / cpu
        about, files = export_object(program, folder, cpu, name=name_of(output), flash=args.flash, sram=args.sram)
        written.append((cpu, about, files))
    return written


def show_objects(written: Iterable[Written]) -> None:
    """Print the files and what they take of the processors' memory."""
    out, rows = console(), []
    for cpu, about, files in written:
        for path, count in files:
            out.print(f"wrote {clean(path)} ({size(count)})", style="green", soft_wrap=True)
        made = about.object
        rows.append((cpu, *map(size, (made.code_size, made.rodata_size, made.arena_size))))
    out.print(table("", ("processor", ">code", ">constants", ">arena"), rows))
