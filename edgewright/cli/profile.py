"""``edgewright profile``: time per instruction of a program on this machine."""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import asdict

from edgewright.cli.npu_layers import npu_layers, show_npu_layers
from edgewright.cli.run import show_profile
from edgewright.cli.run_method import Job, add_measurement_arguments, load, measured_inputs
from edgewright.console import console, progress
from edgewright.engine.profile import Profile
from edgewright.errors import UsageError
from edgewright.units import duration, size

EXAMPLES = """examples:
  edgewright profile m.pte
  edgewright profile m.pte --repeat 50 --chrome-trace t.json     # open it in Perfetto
  edgewright profile m.pte --etdump p.etdp                       # for ExecuTorch's Inspector
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add_measurement_arguments(parser)
    add = parser.add_argument
    add("--repeat", type=int, default=10, metavar="N", help="run N times and show medians (default: 10)")
    add("--chrome-trace", metavar="t.json", help="write the profile for chrome://tracing or Perfetto")
    add("--etdump", metavar="p.etdp", help="write the profile as ETDump")
    add("--json", action="store_true", help="print the result as JSON")


def run(args: argparse.Namespace) -> int:
    if args.repeat < 1:
        raise UsageError("--repeat", "must be 1 or more", value=args.repeat)
    method = load(Job(args.model, args.data, args.method, twin=args.twin))
    inputs = measured_inputs(args, method.metadata)
    for _ in range(2):  # compiles; command streams of Ethos-U are compiled at the second call
        method.execute(inputs, profile=Profile())
    profile, times = Profile(), []
    with progress("profiling", args.repeat, quiet=args.quiet) as step:
        for _ in range(args.repeat):
            method.reset()
            start = time.perf_counter()
            method.execute(inputs, profile=profile)
            times.append(time.perf_counter() - start)
            step()
    method.close()
    median = statistics.median(times)
    files = []
    if args.chrome_trace:
        files.append(f"{args.chrome_trace} ({size(profile.save_chrome_trace(args.chrome_trace))})")
    if args.etdump:
        files.append(f"{args.etdump} ({size(profile.save_etdump(args.etdump))})")
    if args.json:
        result = {
            "method": args.method,
            "median_ms": median * 1e3,
            "runs": len(times),
            "instructions": [asdict(row) for row in profile.rows()],
            "parts": [asdict(row) for row in profile.part_rows()],
            "npu_layers": npu_layers(args.model),
        }
        print(json.dumps(result, indent=2))
        return 0
    if not args.quiet:
        out = console()
        summary = f"{args.method}: {duration(median)} per run (median of {len(times)}), on this machine"
        out.print(summary, style="bold", soft_wrap=True)
        show_profile(profile, everything=args.verbose)
        show_npu_layers(npu_layers(args.model))
        for line in files:
            out.print(f"wrote {line}", soft_wrap=True)
    return 0
