"""``edgewright run``: run a method on inputs from files and write its outputs."""

from __future__ import annotations

import argparse
import json
from typing import Any

from edgewright.backends.registry import describe_backend
from edgewright.cli import inputs
from edgewright.cli.outputs import save_arrays
from edgewright.cli.run_method import Job, MethodResult, execute, output_rows
from edgewright.console import clean, console, plural, table
from edgewright.engine.profile import PartRow, Profile, Row
from edgewright.runtime.metadata import MethodMetadata
from edgewright.units import duration, parse_size, share, size

_SLOWEST = 15
_VISIBLE_SHARE, _MOSTLY = 0.01, 0.5  # of the time of instructions that is outside of their steps


def both(name: str) -> tuple[str, str]:
    """An option in the device runners' spelling, and with dashes."""
    return f"--{name}", f"--{name.replace('_', '-')}"


EXAMPLES = """examples:
  edgewright run m.pte
  edgewright run m.pte --inputs x.npz --output y.npz
  edgewright run m.pte --inputs cat.jpg --mean 127 --std 128
  edgewright run m.pte --data weights.ptd --repeat 20 --profile
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add = parser.add_argument
    add("model", metavar="m.pte", help="the program")
    inputs.add_arguments(
        parser, "arrays in0, in1, ... (or any names, in order); an .npy or an image for a single input"
    )
    add("--output", metavar="y.npz", help="where to write out0, out1, ...")
    add("--method", default="forward", help="the method to run (default: forward)")
    add("--data", action="append", default=[], metavar="w.ptd", help="external weights; repeatable")
    add("--twin", metavar="m.twin", help="the host twin (default: the one next to the program)")
    add("--repeat", type=int, default=1, metavar="N", help="run N times and show the median")
    add("--max-memory", type=parse_memory, metavar="512M", help="fail if the method plans more memory than this")
    add("--json", action="store_true", help="print outputs and timing as JSON")
    add("--profile", action="store_true", help="show the time of each instruction")
    add("--chrome-trace", metavar="t.json", help="write the profile for chrome://tracing or Perfetto")
    add(*both("etdump_path"), metavar="p.etdp", help="write the profile as ETDump")
    add(*both("input_list_path"), metavar="list.txt", help="raw input files, one line per inference")
    add(*both("output_folder_path"), metavar="out/", help="write output_<inference>_<index>.raw here")


def parse_memory(text: str) -> int:
    """An amount of memory as an option's value."""
    try:
        return parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def run(args: argparse.Namespace) -> int:
    profiled = bool(args.profile or args.etdump_path or args.chrome_trace)
    result = execute(
        Job(
            model=args.model,
            data=args.data,
            twin=args.twin,
            method=args.method,
            inputs=args.inputs,
            images=inputs.image_options(args),
            input_list=args.input_list_path,
            output_folder=args.output_folder_path,
            repeat=args.repeat,
            memory=args.max_memory,
            profile=profiled,
            keep_all=bool(args.output),
            quiet=args.quiet,
        )
    )
    files = _write(args, result)
    if args.json:
        print(json.dumps(_facts(result, files), indent=2))
    elif not args.quiet:
        _show(result, files, args)
    return 0


def _write(args: argparse.Namespace, result: MethodResult) -> list[str]:
    """Write the requested files; returns a description of each."""
    files = []
    if args.output:
        files.append(f"{args.output} ({size(save_arrays(args.output, result.outputs))})")
    if args.output_folder_path:
        count = result.inferences * len(result.metadata.outputs)
        files.append(f"{count} files in {args.output_folder_path}")
    if result.profile is not None:
        if args.etdump_path:
            files.append(f"{args.etdump_path} ({size(result.profile.save_etdump(args.etdump_path))})")
        if args.chrome_trace:
            files.append(f"{args.chrome_trace} ({size(result.profile.save_chrome_trace(args.chrome_trace))})")
    return files


def _facts(result: MethodResult, files: list[str]) -> dict[str, Any]:
    heads = ("name", "type", "shape", "min", "max")
    return {
        "method": result.metadata.name,
        "median_ms": result.median_ms,
        "runs": len(result.times),
        "inferences": result.inferences,
        "coverage": coverage(result.metadata),
        "outputs": [dict(zip(heads, row, strict=True)) for row in output_rows(result.outputs[-1])],
        "written": files,
    }


def coverage(metadata: MethodMetadata) -> str:
    """Summary of delegated and CPU operators, so that slow CPU kernels do not go unnoticed."""
    calls = len(metadata.delegates)
    if not calls:
        return "no delegates: every operator runs on this machine's kernels"
    names = sorted({key.rpartition("::")[2].removesuffix(".out") for key in metadata.operators})
    by = ", ".join(sorted({describe_backend(name) for name in metadata.delegates}))
    rest = f"; on the CPU: {', '.join(names[:6])}{' and others' if len(names) > 6 else ''}" if names else ""
    return f"{by}: {calls} of {plural(metadata.instructions, 'instruction')}{rest}"


def _show(result: MethodResult, files: list[str], args: argparse.Namespace) -> None:
    out = console()
    runs = len(result.times)
    counted = f"per run (median of {runs})" if runs > 1 else "for the first run (--repeat 20 shows steady state)"
    timing = f"{duration(result.median_ms / 1e3)} {counted}"
    if result.inferences > 1:
        timing += f", {result.inferences} inferences"
    out.print(f"{result.metadata.name}: {timing}", style="bold")
    if result.metadata.delegates:
        out.print(clean(coverage(result.metadata)), soft_wrap=True)
    last = "" if result.inferences < 2 else "of the last inference"
    columns = ("output", "type", "shape", ">min", ">max")
    out.print(table(last, columns, output_rows(result.outputs[-1]), flexible="shape"))
    if args.profile and result.profile is not None:
        show_profile(result.profile, everything=args.verbose)
    if files:
        out.print()
    for line in files:
        out.print(f"wrote {line}", soft_wrap=True)


def show_profile(profile: Profile, *, everything: bool) -> None:
    """Print the slowest instructions, or all of them in program order."""
    rows = profile.rows()
    visible = rows if everything else sorted(rows, key=lambda row: -row.share)[:_SLOWEST]
    cells = [(r.instruction, r.layer, r.name, r.calls, duration(r.median_ms / 1e3), share(r.share)) for r in visible]
    rest = len(rows) - len(visible)
    if rest:
        left = sum(r.share for r in rows) - sum(r.share for r in visible)
        cells.append(("", "", f"{rest} more (--verbose shows them)", "", "", share(left)))  # type: ignore[arg-type]
    title = "instructions" if everything else "slowest instructions"
    _print_times(title, "instruction", cells)
    parts = profile.part_rows()
    if parts:
        visible_parts = parts if everything else sorted(parts, key=lambda p: -p.share)[:_SLOWEST]
        show_parts(visible_parts, outside_parts(rows, parts))


def outside_parts(rows: list[Row], parts: list[PartRow]) -> tuple[float, float]:
    """The time in milliseconds, and its share, that instructions with parts spend outside of them. Of a small program
    most is the profile's own: a clock is read before and after each step, and its times are collected in Python."""
    divided = {(p.chain, p.instruction) for p in parts}
    whole = [row for row in rows if (row.chain, row.instruction) in divided]
    milliseconds = sum(row.median_ms for row in whole) - sum(p.median_ms for p in parts)
    return max(0.0, milliseconds), max(0.0, sum(row.share for row in whole) - sum(p.share for p in parts))


def show_parts(parts: list[PartRow], outside: tuple[float, float]) -> None:
    """Print the engine's steps inside the instructions, and the rest of their time."""
    cells: list[tuple[Any, ...]] = [
        (f"{p.instruction}.{p.part}", p.layer, p.name, p.calls, duration(p.median_ms / 1e3), share(p.share))
        for p in parts
    ]
    milliseconds, rest = outside
    if rest >= _VISIBLE_SHARE:
        cells.append(("", "", "outside of steps: calls, and the profile itself", "", duration(milliseconds / 1e3),
                      share(rest)))  # fmt: skip
    _print_times("inside", "step", cells)
    if rest >= _MOSTLY:
        line = "most of the time is not that of steps: `edgewright bench` measures without a profile"
        console().print(line, style="dim", soft_wrap=True)


def _print_times(title: str, kind: str, cells: list[tuple[Any, ...]]) -> None:
    """Print a table of times; the column of layers only if the file names them."""
    columns: tuple[str, ...] = (">#", "layer", kind, ">calls", ">median", ">share")
    if not any(row[1] for row in cells):
        columns, cells = (columns[0], *columns[2:]), [(row[0], *row[2:]) for row in cells]
    console().print(table(title, columns, cells, flexible=kind))
