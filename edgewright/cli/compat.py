"""``edgewright compat``: run an unmodified ExecuTorch script on Edgewright."""

from __future__ import annotations

import argparse

from edgewright.compat.run import run as run_script


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("-m", dest="module", action="store_true", help="treat the next argument as a module name, like python -m")
    add("--simulate-only", action="store_true",
        help="compile programs that run on this machine only, where a vendor's compiler would be needed")  # fmt: skip
    add("--checkout", action="store_true",
        help="make a folder with ExecuTorch's runners and scripts, which call Edgewright")  # fmt: skip
    add("script", help="the script; with -m the module, with --checkout the folder")
    add("arguments", nargs=argparse.REMAINDER, help="arguments of the script")
    parser.epilog = (
        "examples:\n"
        "  edgewright compat export.py --model mv2\n"
        "  edgewright compat --simulate-only samsung.py    # without Samsung's SDK\n"
        "  edgewright compat -m executorch.examples.xnnpack.aot_compiler --model_name add\n"
        "  edgewright compat --checkout executorch         # then executorch/backends/arm/scripts/run_fvp.sh ..."
    )


def run(args: argparse.Namespace) -> int:
    if args.checkout:
        from edgewright.cli.checkout import write

        return write(args.script, for_simulation=args.simulate_only)
    return run_script(args.script, args.arguments, module=args.module, for_simulation=args.simulate_only)
