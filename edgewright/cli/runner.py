"""``executor_runner``, ``xnn_executor_runner`` and ``qnn_executor_runner``, with the flags of ExecuTorch's programs.

Scripts and tutorials written for those programs work unchanged; ``edgewright run`` does the work.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from edgewright.cli import configure_logging, guard
from edgewright.cli.exit_codes import epilog
from edgewright.cli.outputs import raw_bytes
from edgewright.cli.parser import Parser
from edgewright.cli.run import both
from edgewright.cli.run_method import Job, execute, output_rows
from edgewright.console import clean
from edgewright.errors import UsageError
from edgewright.files import write_file
from edgewright.units import duration


def main(argv: Sequence[str] | None = None, name: str = "") -> int:
    """Run a program like the device runner of the same name (default: this command's) and return the exit code."""
    name = name or os.path.basename(sys.argv[0]).removesuffix(".exe")
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
    add(*both("method_name"), help="the method by its name")
    add("--inputs", help="raw input files, one for each input, with commas between them (default: ones)")
    add(*both("input_shapes"), default="", metavar="1x98,1x50", help="sizes of inputs with dynamic shapes")
    add(*both("input_list_path"), help="raw input files, one line per inference")
    add(*both("output_folder_path"), help="write output_<inference>_<index>.raw here")
    add(*both("output_file"), metavar="BASE", help="write the outputs of the last inference to BASE-<index>.bin")
    add(*both("print_output"), choices=("none", "summary", "all"), default="summary", help="what to print of outputs")
    add(*both("print_all_output"), **_flag(), help="the same as --print_output all")
    add(*both("etdump_path"), default="etdump.etdp", help="where to write the profile (default: etdump.etdp)")
    add(*both("num_executions"), "--iteration", type=int, default=1, metavar="N", help="run N times")
    add(*both("warm_up"), type=int, default=0, metavar="N", help="run N times before that, without measuring")
    add(*both("cpu_threads"), type=int, default=-1, metavar="N", help="threads (default: -1, one per physical core)")
    for name, (_, text) in _DEVICE_ONLY.items():
        add(*both(name), **_flag(), help=text)
    return parser


def _flag() -> dict[str, Any]:
    """A switch as gflags has it: ``--name`` or ``--name=true``."""
    return {"nargs": "?", "const": "true", "default": "false", "choices": ("true", "false")}


# Flags of device runners that have no meaning on this machine: what they are for, and the text of --help.
_DEVICE_ONLY = {
    "shared_buffer": ("memory that a phone's processors share", "for phones only"),
    "server_mode": ("a runner that waits for lines of input", "not supported"),
    "dump_intermediate_outputs": ("results inside of a delegate on a phone", "for phones only"),
}


def _reject(args: argparse.Namespace) -> None:
    for name, (meaning, _) in _DEVICE_ONLY.items():
        if getattr(args, name) == "true":
            raise UsageError(f"--{name}", f"is about {meaning}, and this is a computer", remedy="Leave it out.")
    if args.inputs and args.input_list_path:
        raise UsageError("--inputs", "cannot be used together with --input_list_path")


def _run(args: argparse.Namespace, prog: str) -> int:
    configure_logging("warning")
    _reject(args)
    start = time.perf_counter()

    def print_stage(message: str) -> None:
        seconds = time.perf_counter() - start
        clock = f"{int(seconds) // 3600:02}:{int(seconds) // 60 % 60:02}:{seconds % 60:09.6f}"
        print(f"I {clock} edgewright:{prog}] {clean(message)}", flush=True)

    job = Job(
        model=args.model_path,
        data=args.data_path,
        method=args.method_name or args.method_index,
        files=args.inputs.split(",") if args.inputs else (),
        shapes=args.input_shapes,
        input_list=args.input_list_path,
        output_folder=args.output_folder_path,
        repeat=args.num_executions,
        warm_up=args.warm_up,
        threads=None if args.cpu_threads == -1 else args.cpu_threads,
        profile=True,
        keep_all=False,
    )
    result = execute(job, print_stage)
    assert result.profile is not None
    print_stage(f"{len(result.times)} inference(s), {duration(result.median_ms / 1e3)} each (median).")
    written = result.profile.save_etdump(args.etdump_path)
    print_stage(f"Write etdump to {args.etdump_path}, Size = {written}")
    if args.output_file:
        for index, value in enumerate(result.outputs[-1]):
            write_file(f"{args.output_file}-{index}.bin", [raw_bytes(value)])
    _print_outputs(result.outputs[-1], "all" if args.print_all_output == "true" else args.print_output, print_stage)
    return 0


def _print_outputs(outputs: Sequence[Any], mode: str, print_stage: Callable[[str], None]) -> None:
    rows = output_rows(outputs) if mode != "none" else []
    for (name, dtype, shape, low, high), value in zip(rows, outputs if rows else (), strict=True):
        print_stage(f"Output {name.removeprefix('out')}: {dtype}{shape}, {low} .. {high}")
        if mode == "all":
            print(np.array2string(np.asarray(value), threshold=sys.maxsize), flush=True)
