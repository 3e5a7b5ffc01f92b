"""``edgewright export``: a program as C sources, with the sizes of the pools that firmware must provide."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path

from edgewright.bare_metal.c_source import SECTION
from edgewright.bare_metal.describe import Description
from edgewright.bare_metal.export import export_c, name_of
from edgewright.bare_metal.projects import PROJECTS
from edgewright.cli.run import parse_memory
from edgewright.console import clean, console, table
from edgewright.engine.cross_target import CROSS_TARGETS
from edgewright.errors import UsageError
from edgewright.files import check_writable
from edgewright.units import size

EXAMPLES = """examples:
  edgewright export kws.pte --c firmware/model
  edgewright export kws.pte --c firmware/model --name keyword --section .model_flash
  edgewright export kws.pte --object firmware/model --cpu cortex-m55 --flash 512K --sram 128K
  edgewright export kws.pte --c out --json | jq '.pools'
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add = parser.add_argument
    add("model", metavar="m.pte", help="a program for Ethos-U, or without delegates")
    add("--c", dest="folder", metavar="FOLDER", help="write C sources, operators and a manifest here")
    add("--object", metavar="FOLDER", help="write one object file that needs no runtime, and its header, here")
    add("--cpu", metavar="cortex-m55", help=f"with --object: the processor, one of {', '.join(CROSS_TARGETS)}")
    add("--flash", type=parse_memory, metavar="512K", help="with --object: fail if code and constants take more")
    add("--sram", type=parse_memory, metavar="256K", help="with --object: fail if arena, inputs and outputs take more")
    add("--name", metavar="model", help="the prefix of C names and files (default: the program's name)")
    add("--method", metavar="forward", help="the method to describe, if the file has several")
    add("--section", default=SECTION, metavar="NAME", help=f"the linker section of the bytes (default: {SECTION})")
    add(
        "--project", metavar="cmake",
        help=f"also write a runner on ExecuTorch's runtime and build files: {', '.join(PROJECTS)}",
    )  # fmt: skip
    add("--json", action="store_true", help="print the manifest")


def run(args: argparse.Namespace) -> int:
    _check_options(args)
    if args.object is not None:
        return _write_object(args)
    check_writable(args.folder, folder=True)
    name = args.name if args.name is not None else name_of(args.model)
    options = {"method": args.method, "section": args.section, "project": args.project}
    about, files = export_c(args.model, args.folder, name=name, **options)
    if args.json:
        print(json.dumps(about.to_dict(), indent=2, allow_nan=False))
        return 0
    if args.quiet:
        return 0
    show_sources(about, files)
    return 0


def _check_options(args: argparse.Namespace) -> None:
    if (args.folder is None) == (args.object is None):
        raise UsageError("export", "must be told one of --c FOLDER and --object FOLDER")
    if args.object is not None and args.cpu is None:
        raise UsageError("--object", "needs a --cpu", remedy="Name the processor: --cpu cortex-m55.")
    for option in ("cpu", "flash", "sram") if args.object is None else ("project",):
        if getattr(args, option) is not None:
            raise UsageError(f"--{option}", "goes with --object" if args.object is None else "goes with --c")
    if args.object is not None and args.section != SECTION:
        raise UsageError("--section", "goes with --c")


def _write_object(args: argparse.Namespace) -> int:
    from edgewright.bare_metal.object_export import export_object  # imports the engine

    check_writable(args.object, folder=True)
    name = args.name if args.name is not None else name_of(args.model)
    limits = {"flash": args.flash, "sram": args.sram}
    about, files = export_object(args.model, args.object, args.cpu, name=name, method=args.method, **limits)
    made = about.object
    rows = {"code": made.code_size, "constants": made.rodata_size, "arena": made.arena_size}
    if args.json:
        print(json.dumps({"cpu": args.cpu, **rows, "macs": about.macs, "npu_calls": about.npu.calls,
                          "external_symbols": list(made.external)}, indent=2))  # fmt: skip
    elif not args.quiet:
        out = console()
        for path, count in files:
            out.print(f"wrote {clean(path)} ({size(count)})", style="green", soft_wrap=True)
        out.print(table("", ("part", ">bytes"), [(part, size(count)) for part, count in rows.items()]))
    return 0


def show_sources(about: Description, files: Iterable[tuple[Path, int]]) -> None:
    """Print the files, and the memory that firmware must provide, for 32-bit pointers."""
    pools, out = about.pools, console()
    for path, count in files:
        out.print(f"wrote {clean(path)} ({size(count)})", style="green", soft_wrap=True)
    rows = [(f"planned memory {n}", size(count), "exact") for n, count in enumerate(pools.planned)]
    bound = "exact" if pools.method_exact else "upper bound: 32 words for each delegate's handle"
    rows.append(("method allocator", size(pools.method[32]), bound))
    scratch = f", of it {size(pools.scratch)} for the NPU" if pools.scratch else ""
    rows.append(("temp allocator", size(pools.temp[32]), f"exact{scratch}"))
    if pools.fast_scratch:
        kind = "exact" if pools.fast_scratch_exact else "upper bound: the limit of the memory mode"
        rows.append(("fast scratch", size(pools.fast_scratch), kind))
    out.print(table("memory to provide (32-bit pointers)", ("pool", ">bytes", "size is"), rows))
