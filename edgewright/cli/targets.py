"""``edgewright targets``: devices, their quantization presets and requirements."""

from __future__ import annotations

import argparse
import json
import re
from functools import cache
from typing import Any

from edgewright.backends import find_quantizer
from edgewright.backends.registry import find_backend
from edgewright.backends.targets import Target, all_targets, search_targets
from edgewright.cli.doctor import detected_version, required_packages
from edgewright.console import console, table
from edgewright.engine.cross_target import CROSS_TARGETS
from edgewright.errors import UsageError
from edgewright.hints import did_you_mean

EXAMPLES = """examples:
  edgewright targets
  edgewright targets snapdragon
  edgewright targets ethos --json
  edgewright targets sm8550 --presets
"""
_FILES = {"simulated": "programs run on this machine only", "none": "cannot be compiled on this machine"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("name", nargs="?", default="", help="only targets whose name, backend or product contains this")
    parser.add_argument("--presets", action="store_true", help="show the presets for --quantize; needs torch")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(args: argparse.Namespace) -> int:
    targets = [
        {"target": t.name, "backend": t.backend, "about": t.summary, **_state(t.backend)}
        for t in sorted(search_targets(args.name), key=_order)
    ]
    processors = [name for name, cpu in CROSS_TARGETS.items() if args.name.lower() in f"{name} {cpu.summary}".lower()]
    if not targets and (args.json or not processors):
        remedy = f"{did_you_mean(args.name, all_targets(), limit=3)} `edgewright targets` lists them all.".lstrip()
        raise UsageError(args.name, "matches no target", remedy=remedy)
    if args.presets:
        for facts in targets:
            facts["presets"] = _presets(facts["backend"])
    if args.json:
        print(json.dumps(targets, indent=2))
    else:
        if targets:
            _show(args, targets)
        if processors and not args.quiet:
            line = f"processors, for object files (`edgewright compile --emit object`): {', '.join(processors)}"
            console().print(f"\n{line}" if targets else line, style="dim" if targets else "", soft_wrap=True)
    return 0


def _show(args: argparse.Namespace, targets: list[dict[str, Any]]) -> None:
    heads = ["target", "backend", "device", "files", *(["presets"] if args.presets else [])]
    rows = [
        (f["target"], f["backend"], f["about"], f["files"], *([", ".join(f["presets"])] if args.presets else []))
        for f in targets
    ]
    out = console()
    out.print(table("", heads, rows, flexible="device", tight=True))
    if args.quiet:
        return
    for files, about in _FILES.items():
        missing = sorted({m for f in targets if f["files"] == files for m in f["missing"]})
        if missing:
            line = f"\n{files}: {about}; missing: {', '.join(missing)} (`edgewright doctor` shows how to install it)"
            out.print(line, style="dim", soft_wrap=True)


def _order(target: Target) -> tuple[str, list[tuple[str, int]]]:
    """Backends by name; their targets by name, with numbers in it by value."""
    return target.backend, [(text, int(digits or 0)) for text, digits in re.findall(r"(\D+)(\d*)", target.name)]


@cache
def _presets(backend: str) -> list[str]:
    from edgewright.cli.model_options import need_torch, quiet_imports

    with quiet_imports():
        need_torch()
        return [*find_quantizer(backend).presets, "float"]


@cache
def _state(backend: str) -> dict[str, Any]:
    """Whether this machine can compile for the device, for simulation only, or not at all; and what is missing."""
    needs = required_packages(find_backend(backend))
    missing = [need for info, need in needs if detected_version(info, need) is None]
    files = "device" if not missing else "simulated" if all(need.simulates for need in missing) else "none"
    return {"files": files, "missing": [need.title for need in missing]}
