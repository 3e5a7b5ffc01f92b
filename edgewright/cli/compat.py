"""``edgewright compat``: run an unmodified ExecuTorch script on Edgewright."""

from __future__ import annotations

import argparse

from edgewright.compat.run import run as run_script


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("-m", dest="module", action="store_true", help="treat the next argument as a module name, like python -m")
    add("script", help="the script, or with -m the module")
    add("arguments", nargs=argparse.REMAINDER, help="arguments of the script")
    parser.epilog = (
        "examples:\n"
        "  edgewright compat export.py --model mv2\n"
        "  edgewright compat -m executorch.examples.xnnpack.aot_compiler --model_name add"
    )


def run(args: argparse.Namespace) -> int:
    return run_script(args.script, args.arguments, module=args.module)
