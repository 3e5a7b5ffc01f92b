"""``edgewright targets``: what there is to compile for, how it can be held, and what it needs."""

from __future__ import annotations

import argparse
import json
from functools import cache
from typing import Any

from edgewright.backends import find_quantizer
from edgewright.backends.targets import all_targets
from edgewright.cli.console import console, table
from edgewright.cli.doctor_checks import NEEDS, found_version
from edgewright.errors import UsageError

EXAMPLES = """examples:
  edgewright targets
  edgewright targets ethos --json
  edgewright targets sm8550 --presets
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("name", nargs="?", default="", help="only targets whose name or backend contains this")
    parser.add_argument("--presets", action="store_true", help="show what --quantize may be for each; needs torch")
    parser.add_argument("--json", action="store_true", help="the same, as JSON")


def run(args: argparse.Namespace) -> int:
    wanted = args.name.lower()
    states = {b: _state(b) for b in {t.backend for t in all_targets().values()}}
    found: list[dict[str, Any]] = [
        {"target": t.name, "backend": t.backend, "about": t.summary, "compiles": states[t.backend]}
        for t in all_targets().values()
        if wanted in t.name or wanted in t.backend
    ]
    if not found:
        raise UsageError(args.name, "is in no target's name", remedy="`edgewright targets` lists them all.")
    if args.presets:
        for facts in found:
            facts["presets"] = _presets(facts["backend"])
    if args.json:
        print(json.dumps(found, indent=2))
        return 0
    heads = ["target", "backend", "device", "files made here", *(["presets"] if args.presets else [])]
    rows = [
        (f["target"], f["backend"], f["about"], f["compiles"], *([", ".join(f["presets"])] if args.presets else []))
        for f in found
    ]
    console().print(table("", heads, rows, flexible="device"))
    return 0


@cache
def _presets(backend: str) -> list[str]:
    from edgewright.cli.bench_options import need_torch, quiet_imports

    with quiet_imports():
        need_torch()
        return [*find_quantizer(backend).presets, "float"]


def _state(backend: str) -> str:
    """Whether files for the device can be made here, or for this machine only."""
    missing = [need for need in NEEDS.get(backend, ()) if found_version(need) is None]
    if not missing:
        return "for the device"
    simulated = all(need.simulates for need in missing)
    names = ", ".join(need.title for need in missing)
    return f"for this machine only ({names} is missing)" if simulated else f"none ({names} is missing)"
