"""``edgewright diff A.pte B.pte``: what changed between two programs, in words and numbers."""

from __future__ import annotations

import argparse
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from edgewright.cli.program_facts import program_facts
from edgewright.cli.size import parts
from edgewright.console import console, table
from edgewright.files import open_source
from edgewright.formats.pte_reader import read_program
from edgewright.units import size

EXAMPLES = """examples:
  edgewright diff before.pte after.pte
  edgewright diff a.pte b.pte --exit-code     # 9 if they differ: for scripts
"""
DIFFERENT = 9  # as outputs that differ


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add = parser.add_argument
    add("first", metavar="A.pte", help="the program as it was")
    add("second", metavar="B.pte", help="the program as it is now")
    add("--exit-code", action="store_true", help=f"end with {DIFFERENT} if the files differ")
    add("--json", action="store_true", help="the same, as JSON")


def run(args: argparse.Namespace) -> int:
    sides = [_facts(path) for path in (args.first, args.second)]
    changes = compare(*sides)
    same = sides[0]["digest"] == sides[1]["digest"]
    if args.json:
        print(json.dumps({"identical": same, "changes": changes}, indent=2))
    elif same:
        console().print("the files are the same, byte for byte", style="green")
    elif not changes:
        console().print("the files differ in their bytes only: nothing in them that can be told apart", style="yellow")
    else:
        rows = [(c["where"], c["what"], c["before"], c["after"]) for c in changes]
        console().print(table("", ("where", "what", args.first, args.second), rows, flexible="what"))
    return DIFFERENT if args.exit_code and not same else 0


def _facts(path: str) -> dict[str, Any]:
    program = read_program(path)
    view, _ = open_source(path, "program")
    facts = program_facts(program, None)
    facts["bytes"] = len(view)
    facts["digest"] = hashlib.sha256(view).hexdigest()
    facts["contents"] = [hashlib.sha256(bytes(program.segment(s["index"]))).hexdigest() for s in facts["segments"]]
    return facts


def compare(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[dict[str, str]]:
    """Every difference that has a name."""
    found: list[dict[str, str]] = []

    def tell(where: str, what: str, before: object, after: object) -> None:
        if before != after:
            found.append({"where": where, "what": what, "before": str(before), "after": str(after)})

    tell("file", "size", size(first["bytes"]), size(second["bytes"]))
    tell("file", "schema version", first["schema_version"], second["schema_version"])
    for name, before, after in _pairs(parts(dict(first)), parts(dict(second)), 0):
        tell("file", name, size(before), size(after))
    for name, before, after in _pairs(_flat(first["manifest"]), _flat(second["manifest"]), "none"):
        tell("manifest", name, before, after)
    methods = [{m["name"]: m for m in side["methods"]} for side in (first, second)]
    for name, one, two in _pairs(methods[0], methods[1], None):
        if one is None or two is None:
            tell(name, "method", "none" if one is None else "there", "none" if two is None else "there")
            continue
        for key, shown in (("planned_bytes", "planned memory"), ("constant_bytes", "constants")):
            tell(name, shown, size(one[key]), size(two[key]))
        tell(name, "instructions", one["instruction_count"], two["instruction_count"])
        for key in ("inputs", "outputs"):
            tell(name, key, _edges(one[key]), _edges(two[key]))
        for key, what in (("operators", "operator"), ("delegates", "delegate")):
            for op, before, after in _pairs(_calls(one[key]), _calls(two[key]), 0):
                tell(name, f"{what} {op}", _times(before), _times(after))
    if not found and first["contents"] != second["contents"]:
        tell("file", "contents of segments", "weights or blobs", "others of the same size")
    return found


def _pairs(first: Mapping[str, Any], second: Mapping[str, Any], missing: Any) -> Iterable[tuple[str, Any, Any]]:
    for name in dict.fromkeys([*first, *second]):
        yield name, first.get(name, missing), second.get(name, missing)


def _flat(manifest: Mapping[str, Any] | None) -> dict[str, str]:
    """A manifest without what is told elsewhere."""
    told = ("methods", "operators", "delegates", "segments", "estimates")
    return {k: json.dumps(v, sort_keys=True) for k, v in (manifest or {}).items() if k not in told}


def _edges(edges: list[dict[str, Any]]) -> str:
    return ", ".join(f"{e['type']}{e['shape']}" if e["kind"] == "tensor" else str(e.get("value")) for e in edges)


def _calls(rows: list[dict[str, Any]]) -> Counter[str]:
    found: Counter[str] = Counter()
    for row in rows:
        found[row.get("name") or row["id"]] += row["calls"]
    return found


def _times(count: int) -> str:
    return "none" if not count else "once" if count == 1 else f"{count} times"
