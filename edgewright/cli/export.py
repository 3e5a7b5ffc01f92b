"""``edgewright export``: a program as C sources, with the sizes of the pools that firmware must provide."""

from __future__ import annotations

import argparse
import json

from edgewright.bare_metal.c_source import SECTION
from edgewright.bare_metal.describe import Description
from edgewright.bare_metal.export import export_c, name_of
from edgewright.bare_metal.projects import PROJECTS
from edgewright.console import clean, console, table
from edgewright.files import check_writable
from edgewright.units import size

EXAMPLES = """examples:
  edgewright export kws.pte --c firmware/model
  edgewright export kws.pte --c firmware/model --name keyword --section .model_flash
  edgewright export kws.pte --c out --json | jq '.pools'
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add = parser.add_argument
    add("model", metavar="m.pte", help="a program for Ethos-U, or without delegates")
    add("--c", required=True, dest="folder", metavar="FOLDER", help="write C sources, operators and a manifest here")
    add("--name", metavar="model", help="the prefix of C names and files (default: the program's name)")
    add("--method", metavar="forward", help="the method to describe, if the file has several")
    add("--section", default=SECTION, metavar="NAME", help=f"the linker section of the bytes (default: {SECTION})")
    add(
        "--project", metavar="cmake",
        help=f"also write a runner on ExecuTorch's runtime and build files: {', '.join(PROJECTS)}",
    )  # fmt: skip
    add("--json", action="store_true", help="print the manifest")


def run(args: argparse.Namespace) -> int:
    check_writable(args.folder, folder=True)
    name = args.name if args.name is not None else name_of(args.model)
    options = {"method": args.method, "section": args.section, "project": args.project}
    about, files = export_c(args.model, args.folder, name=name, **options)
    if args.json:
        print(json.dumps(about.to_dict(), indent=2, allow_nan=False))
        return 0
    if args.quiet:
        return 0
    out = console()
    for path, count in files:
        out.print(f"wrote {clean(path)} ({size(count)})", style="green", soft_wrap=True)
    show_pools(about)
    return 0


def show_pools(about: Description) -> None:
    """Print the memory that firmware must provide, for 32-bit pointers."""
    pools, out = about.pools, console()
    rows = [(f"planned memory {n}", size(count), "exact") for n, count in enumerate(pools.planned)]
    bound = "exact" if pools.method_exact else "upper bound: 32 words for each delegate's handle"
    rows.append(("method allocator", size(pools.method[32]), bound))
    scratch = f", of it {size(pools.scratch)} for the NPU" if pools.scratch else ""
    rows.append(("temp allocator", size(pools.temp[32]), f"exact{scratch}"))
    if pools.fast_scratch:
        kind = "exact" if pools.fast_scratch_exact else "upper bound: the limit of the memory mode"
        rows.append(("fast scratch", size(pools.fast_scratch), kind))
    out.print(table("memory to provide (32-bit pointers)", ("pool", ">bytes", "size is"), rows))
