"""``edgewright diff A.pte B.pte``: list the differences between two programs."""

from __future__ import annotations

import argparse
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from edgewright.console import console, table
from edgewright.files import open_source
from edgewright.formats.pte_reader import read_program
from edgewright.report.file_facts import file_parts, program_facts
from edgewright.units import size

EXAMPLES = """examples:
  edgewright diff before.pte after.pte
  edgewright diff a.pte b.pte --exit-code     # 9 if they differ: for scripts
"""
DIFFERENT = 9  # the exit code of MismatchError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add = parser.add_argument
    add("first", metavar="A.pte", help="the old program")
    add("second", metavar="B.pte", help="the new program")
    add("--exit-code", action="store_true", help=f"exit with code {DIFFERENT} if the files differ")
    add("--json", action="store_true", help="print the result as JSON")


def run(args: argparse.Namespace) -> int:
    sides = [_facts(path) for path in (args.first, args.second)]
    changes = compare(*sides)
    same = sides[0]["digest"] == sides[1]["digest"]
    if args.json:
        print(json.dumps({"identical": same, "changes": changes}, indent=2))
    elif same:
        console().print("the files are identical", style="green")
    elif not changes:
        console().print("the files differ only in bytes that no listed field describes", style="yellow")
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
    """All differences in named fields."""
    changes: list[dict[str, str]] = []

    def record(where: str, what: str, before: object, after: object) -> None:
        if before != after:
            changes.append({"where": where, "what": what, "before": str(before), "after": str(after)})

    record("file", "size", size(first["bytes"]), size(second["bytes"]))
    record("file", "schema version", first["schema_version"], second["schema_version"])
    for name, before, after in _pairs(file_parts(first), file_parts(second), 0):
        record("file", name, size(before), size(after))
    for name, before, after in _pairs(_flat(first["manifest"]), _flat(second["manifest"]), "none"):
        record("manifest", name, before, after)
    methods = [{m["name"]: m for m in side["methods"]} for side in (first, second)]
    for name, old, new in _pairs(methods[0], methods[1], None):
        if old is None or new is None:
            record(name, "method", "none" if old is None else "present", "none" if new is None else "present")
            continue
        for key, label in (("planned_bytes", "planned memory"), ("constant_bytes", "constants")):
            record(name, label, size(old[key]), size(new[key]))
        record(name, "instructions", old["instruction_count"], new["instruction_count"])
        for key in ("inputs", "outputs"):
            record(name, key, _edges(old[key]), _edges(new[key]))
        for key, what in (("operators", "operator"), ("delegates", "delegate")):
            for op, before, after in _pairs(_calls(old[key]), _calls(new[key]), 0):
                record(name, f"{what} {op}", _times(before), _times(after))
    if not changes and first["contents"] != second["contents"]:
        record("file", "contents of segments", "weights or blobs", "different data of the same size")
    return changes


def _pairs(first: Mapping[str, Any], second: Mapping[str, Any], missing: Any) -> Iterable[tuple[str, Any, Any]]:
    for name in dict.fromkeys([*first, *second]):
        yield name, first.get(name, missing), second.get(name, missing)


def _flat(manifest: Mapping[str, Any] | None) -> dict[str, str]:
    """The manifest without fields that are compared elsewhere."""
    compared = ("methods", "operators", "delegates", "segments", "estimates")
    return {k: json.dumps(v, sort_keys=True) for k, v in (manifest or {}).items() if k not in compared}


def _edges(edges: list[dict[str, Any]]) -> str:
    return ", ".join(f"{e['type']}{e['shape']}" if e["kind"] == "tensor" else str(e.get("value")) for e in edges)


def _calls(rows: list[dict[str, Any]]) -> Counter[str]:
    calls: Counter[str] = Counter()
    for row in rows:
        calls[row.get("name") or row["id"]] += row["calls"]
    return calls


def _times(count: int) -> str:
    return "none" if not count else "once" if count == 1 else f"{count} times"
