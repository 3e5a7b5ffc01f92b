"""Precision search, beside programs in one precision: ``python -m benchmarks.search [MODEL ...] [--target NAME ...]``.

For each model and target: accuracy, time and size of the programs that no other beats, with what the search finds
within ``--max-drop`` (of the metric) or ``--min-sqnr`` marked; and how long the search takes, in compilations: both in
this process, on one thread.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import torch

import edgewright as ew
from benchmarks import search_models
from edgewright.units import duration, size

TARGETS = ("xnnpack", "ethos-u55-128", "sm8550", "e9955", "imxrt700")
MODELS: dict[str, dict[str, Any]] = {
    "cifarnet": {"calibration": "cifarnet_calibration", "metric": "demo_accuracy"},
    "mobilenet": {"calibration": "mobilenet_calibration", "metric": "accuracy"},
    "efficientnet": {"calibration": "photo_calibration", "evaluate": "photo_evaluation", "metric": "photo_accuracy"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=["cifarnet"], choices=list(MODELS), metavar="MODEL")
    parser.add_argument("--target", action="append", choices=TARGETS)
    parser.add_argument("--max-drop", default="1%")
    parser.add_argument("--min-sqnr", type=float, help="instead of the metric")
    parser.add_argument("--trials", type=int, default=16)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    for model in args.models:
        for target in args.target or TARGETS:
            report(measure(model, target, args), args.json)


def measure(model: str, target: str, args: argparse.Namespace) -> dict[str, Any]:
    names = MODELS[model]
    network = getattr(search_models, model)()
    inputs = network.example_inputs()
    options = {"calibration": getattr(search_models, names["calibration"])(), "quiet": True}
    if "evaluate" in names:
        options["evaluate"] = getattr(search_models, names["evaluate"])()
    metric = getattr(search_models, names["metric"])
    start = time.perf_counter()
    ew.compile(network, inputs, target, quantize="int8", **options)
    compiled = time.perf_counter()
    goal = {"min_sqnr": args.min_sqnr} if args.min_sqnr else {"metric": metric, "max_drop": args.max_drop}
    result = ew.search(network, inputs, target, trials=args.trials, **goal, **options)  # type: ignore[arg-type]
    ended = time.perf_counter()
    return {
        "model": model, "target": target, "programs": len(result.points), "compile_s": compiled - start,
        "search_s": ended - compiled, "original": result.task.goal.original, **result.to_dict(),
    }  # fmt: skip


def report(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(found), flush=True)
        return
    ratio = found["search_s"] / found["compile_s"]
    head = f"{found['model']} on {found['target']}: {found['programs']} programs in {ratio:.1f} compilations"
    print(f"{head} ({duration(found['search_s'])}); time {found['time_basis']}")
    for point in sorted(found["points"], key=lambda p: p["milliseconds"] or 0.0):
        if point["pareto"] or point["best"]:
            score = f"{point['sqnr']:6.1f} dB" + ("" if point["metric"] is None else f"  {point['metric']:.4f}")
            milliseconds = duration((point["milliseconds"] or 0.0) / 1e3)
            mark = "*" if point["best"] else " "
            print(f"  {mark} {point['name']:44} {milliseconds:>10} {size(point['bytes']):>10} {score}", flush=True)
    for line in found["unmet"]:
        print(f"    not met: {line}")


if __name__ == "__main__":
    main()
