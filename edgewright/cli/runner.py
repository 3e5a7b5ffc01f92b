"""``xnn_executor_runner`` and ``qnn_executor_runner``: drop-in replacements with the device runners' flags.

Scripts and tutorials written for those programs work unchanged; ``edgewright run`` does the work.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence

from edgewright.cli import configure_logging, guard
from edgewright.cli.exit_codes import epilog
from edgewright.cli.parser import Parser
from edgewright.cli.run import both
from edgewright.cli.run_method import Job, execute, output_rows
from edgewright.console import clean
from edgewright.units import duration


def main(argv: Sequence[str] | None = None) -> int:
    """Run a program like the device runner of the same name and return the exit code."""
    name = os.path.basename(sys.argv[0]).removesuffix(".exe")
    prog = name if name.endswith("_runner") else "executor_runner"
    return guard(lambda: _run(_parser(prog).parse_args(argv), prog))


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = Parser(
        prog=prog,
        description="Runs a .pte on this machine. `edgewright run` does the same with more options.",
        epilog=epilog(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add(*both("model_path"), default="model.pte", help="the program (default: model.pte)")
    add(*both("data_path"), action="append", default=[], help="external weights (.ptd)")
    add(*both("method_index"), type=int, default=0, help="which method of the file (default: the first)")
    add(*both("input_list_path"), help="raw input files, one line per inference (default: ones)")
    add(*both("output_folder_path"), help="write output_<inference>_<index>.raw here")
    add(*both("etdump_path"), default="etdump.etdp", help="where to write the profile (default: etdump.etdp)")
    add(*both("num_executions"), "--iteration", type=int, default=1, metavar="N", help="run N times")
    return parser


def _run(args: argparse.Namespace, prog: str) -> int:
    configure_logging("warning")
    start = time.perf_counter()

    def print_stage(message: str) -> None:
        seconds = time.perf_counter() - start
        clock = f"{int(seconds) // 3600:02}:{int(seconds) // 60 % 60:02}:{seconds % 60:09.6f}"
        print(f"I {clock} edgewright:{prog}] {clean(message)}", flush=True)

    job = Job(
        model=args.model_path,
        data=args.data_path,
        method=args.method_index,
        input_list=args.input_list_path,
        output_folder=args.output_folder_path,
        repeat=args.num_executions,
        profile=True,
        keep_all=False,
    )
    result = execute(job, print_stage)
    assert result.profile is not None
    print_stage(f"{len(result.times)} inference(s), {duration(result.median_ms / 1e3)} each (median).")
    written = result.profile.save_etdump(args.etdump_path)
    print_stage(f"Write etdump to {args.etdump_path}, Size = {written}")
    for name, dtype, shape, low, high in output_rows(result.outputs[-1]):
        print_stage(f"Output {name.removeprefix('out')}: {dtype}{shape}, {low} .. {high}")
    return 0
