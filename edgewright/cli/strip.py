"""``edgewright strip``: remove the parts of a program that execution does not need."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from edgewright.console import clean, console
from edgewright.errors import UsageError
from edgewright.files import open_source
from edgewright.formats import layer_table, schema
from edgewright.formats.pte_reader import read_program
from edgewright.formats.pte_writer import write_program
from edgewright.formats.twin_writer import TWIN_KEY
from edgewright.program import manifest
from edgewright.units import size

EXAMPLES = """examples:
  edgewright strip m.pte -o small.pte               # without manifest, layer names, host twin and source lines
  edgewright strip m.pte -o small.pte --keep-manifest
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add = parser.add_argument
    add("model", metavar="m.pte", help="the program")
    add("-o", "--output", required=True, metavar="small.pte", help="where to write the stripped program")
    add("--keep-manifest", action="store_true", help="keep the description of the build")
    add("--keep-layer-names", action="store_true", help="keep the names of the model's modules")
    add("--json", action="store_true", help="print what was removed as JSON")


def run(args: argparse.Namespace) -> int:
    if Path(args.output).suffix != ".pte":
        raise UsageError(args.output, "must end in .pte")
    program = read_program(args.model)
    before = len(open_source(args.model, "program")[0])
    kept = {manifest.KEY: args.keep_manifest, layer_table.KEY: args.keep_layer_names}
    keys = {TWIN_KEY, *(key for key, keep in kept.items() if not keep)}
    removed = strip(program, keys)
    count = write_program(program, args.output)
    if args.json:
        print(json.dumps({"file": args.output, "before": before, "after": count, "removed": removed}))
    elif not args.quiet:
        removed_text = ", ".join(removed) or "nothing"
        summary = f"wrote {clean(args.output)} ({size(count)}, was {size(before)}); removed: {removed_text}"
        console().print(summary, soft_wrap=True)
    return 0


def strip(program: schema.Program, keys: set[str]) -> list[str]:
    """Remove the named data in ``keys`` and all source lines; returns what was removed."""
    removed = [item.key for item in program.named_data or () if item.key in keys]
    program.named_data = [item for item in program.named_data or () if item.key not in keys] or None
    for plan in program.execution_plan:
        for chain in plan.chains:
            if chain.stacktrace:
                removed.append(f"source lines of {plan.name}")
                chain.stacktrace = None
    _drop_unused(program)
    return removed


def _drop_unused(program: schema.Program) -> None:
    """Remove unreferenced segments; the others move up and keep their alignment."""
    old = program.segments or []
    references = _references(program)
    used = sorted({getattr(owner, field) for owner, field in references})
    if len(used) == len(old):
        return
    alignment = _alignment([segment.offset for segment in old if segment.outer is None])
    program.segments = None
    new_indices = {index: program.add_segment(old[index].data, alignment) for index in used if not old[index].outer}
    positions = {id(segment): index for index, segment in enumerate(old)}
    for index in (i for i in used if old[i].outer):
        segment, outer = old[index], old[index].outer
        new_outer = new_indices.get(positions[id(outer)])
        if outer is None or new_outer is None:
            new_indices[index] = program.add_segment(segment.data, alignment)
        else:
            new_indices[index] = program.add_part(new_outer, segment.offset - outer.offset, segment.data)
    for owner, field in references:
        setattr(owner, field, new_indices[getattr(owner, field)])


def _references(program: schema.Program) -> list[tuple[object, str]]:
    """Every (object, field) pair that holds a segment index."""
    references: list[tuple[object, str]] = [(item, "segment_index") for item in program.named_data or ()]
    blobs = {id(d.processed): d.processed for plan in program.execution_plan for d in plan.delegates}
    references += [(b, "index") for b in blobs.values() if b.location == schema.DataLocation.SEGMENT]
    sources = [program.constant_segment, *(program.mutable_data_segments or ())]
    # An empty constant table refers to segment 0 even if there is none.
    references += [(s, "segment_index") for s in sources if s is not None and s.offsets]
    return references


def _alignment(offsets: list[int]) -> int:
    """The largest power of two up to 4096 that divides every segment offset."""
    return next(a for a in (4096, 2048, 1024, 512, 256, 128, 64, 32, 16) if a == 16 or all(o % a == 0 for o in offsets))
