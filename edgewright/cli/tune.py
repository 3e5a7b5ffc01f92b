"""``edgewright tune``: autotune a program's kernels on this machine and cache the faster variants."""

from __future__ import annotations

import argparse
import json
from typing import Any

from edgewright.cli.inputs import load_inputs
from edgewright.cli.run_method import Job, add_measurement_arguments, load
from edgewright.console import console, note, progress, table
from edgewright.errors import UsageError
from edgewright.runtime.example_inputs import ones
from edgewright.units import duration

EXAMPLES = """examples:
  edgewright tune m.pte
  edgewright tune m.pte --threads 1 --json
  edgewright cache clear                    # discard tuning results and compiled code
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add_measurement_arguments(parser)
    add = parser.add_argument
    add("--threads", type=int, metavar="N", help="number of threads to tune for (default: the engine's)")
    add("--json", action="store_true", help="print the result as JSON")


def run(args: argparse.Namespace) -> int:
    if args.threads is not None and not 1 <= args.threads <= 256:
        raise UsageError("--threads", "must be 1 to 256", value=args.threads)
    graphs = _tune(args)
    if args.json:
        print(json.dumps(graphs, indent=2))
        return 0
    rows = [
        (f"{at}", *(c[key] for key in ("label", "kind", "rule", "chosen")),
         *(duration(c[key] / 1e6) for key in ("rule_us", "chosen_us")))
        for at, graph in enumerate(graphs, 1)
        for c in graph["changes"]
        if graph["kept"]
    ]  # fmt: skip
    if rows:
        heads = (">graph", "operator", "decision", "default", "chosen", ">time", ">now")
        console().print(table(f"{args.model}: {args.method}, on this machine", heads, rows))
    for at, graph in enumerate(graphs, 1):
        before = f"{duration(graph['rule_ms'] / 1e3)} by default"
        improvement = f", {duration(graph['chosen_ms'] / 1e3)} tuned: kept"
        end = improvement if graph["kept"] else ": no option was faster"
        console().print(f"graph {at}: {graph['measured']} options of {graph['decisions']} decisions; {before}{end}")
    return 0


def _tune(args: argparse.Namespace) -> list[dict[str, Any]]:
    from edgewright.engine import tune
    from edgewright.engine.graph.infer_shapes import specialize
    from edgewright.engine.runner import record_compilations

    with record_compilations() as seen:
        method = load(Job(args.model, args.data, args.method, twin=args.twin))
        inputs = load_inputs(args.inputs, method.metadata) if args.inputs else ones(method.metadata)
        method.execute(inputs)
        method.close()
    if not seen:
        note("This method has no compiled graphs: there is nothing to tune.")
    done = []
    with progress("measuring", len(seen), quiet=args.quiet or args.json) as step:
        for graph in seen:
            special = specialize(graph.graph, graph.shapes)
            tuned = tune(special, args.threads, graph.numerics, memory=graph.memory)
            done.append(tuned.data())
            step()
    return done
