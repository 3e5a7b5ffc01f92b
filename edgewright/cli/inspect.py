"""``edgewright inspect``: contents of a file as tables or JSON."""

from __future__ import annotations

import argparse
import json
import os

from edgewright.cli import render
from edgewright.errors import MissingDataError
from edgewright.files import open_source
from edgewright.formats.bpte import read_bundled
from edgewright.formats.etdump import read_etdump
from edgewright.formats.ptd import PtdEntry, read_data
from edgewright.formats.pte_reader import read_program
from edgewright.report.file_facts import Facts, bundle_facts, data_facts, profile_facts, program_facts

_IDENTIFIERS = {b"FT01": "ptd", b"BP08": "bpte"}

EXAMPLES = """examples:
  edgewright inspect m.pte
  edgewright inspect m.pte --instructions
  edgewright inspect m.pte --json | jq '.methods[].delegates'
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add = parser.add_argument
    add("file", metavar="m.pte", help="a .pte, .ptd, .bpte or .etdp, detected by content")
    add("--json", action="store_true", help="print everything as JSON; docs/cli.md documents the keys")
    add("--data", action="append", default=[], metavar="w.ptd", help="show which external tensors are in these files")
    add("--values", action="store_true", help="list every value of every method")
    add("--instructions", action="store_true", help="list every instruction of every method")


def kind_of(path: str) -> str:
    """The format of a file by its identifier; unknown files count as ``pte``, whose reader reports the error."""
    view, _ = open_source(path, "file")
    if bytes(view[8:12]) == b"ED00":
        return "etdp"
    return _IDENTIFIERS.get(bytes(view[4:8]), "pte")


def run(args: argparse.Namespace) -> int:
    facts = gather(args.file, args.data, values=args.values, instructions=args.instructions)
    if args.json:
        print(json.dumps(facts, indent=2, allow_nan=False))
    else:
        render.show(facts, everything=args.verbose)
    return 0


def gather(path: str, data: list[str], **options: bool) -> Facts:
    """Everything ``--json`` prints."""
    kind = kind_of(path)
    facts: Facts = {"format": kind, "file": os.path.basename(path)}
    if kind == "ptd":
        contents = data_facts(read_data(path))
    elif kind == "bpte":
        contents = bundle_facts(read_bundled(path), **options)
    elif kind == "etdp":
        contents = profile_facts(read_etdump(path))
    else:
        contents = program_facts(read_program(path), _merge(data) if data else None, **options)
    return {**facts, "bytes": os.path.getsize(path), **contents}


def _merge(paths: list[str]) -> dict[str, PtdEntry]:
    merged: dict[str, PtdEntry] = {}
    for path in paths:
        entries = read_data(path)
        clash = sorted(set(merged) & set(entries))
        if clash:
            raise MissingDataError(path, "must not repeat names of other data files", value=", ".join(clash))
        merged.update(entries)
    return merged
