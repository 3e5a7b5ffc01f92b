"""``edgewright disasm``: what the NPU is told, command by command."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import Any

from edgewright.backends.ethos_u.blob import read_blob
from edgewright.backends.ethos_u.npu.disasm import disassemble
from edgewright.backends.ethos_u.npu.stream import decode
from edgewright.cli.console import clean, console, plural, size
from edgewright.errors import UsageError
from edgewright.pte import schema
from edgewright.pte.ptd import read_data
from edgewright.pte.reader import read_program

_BACKEND = "EthosUBackend"

EXAMPLES = """examples:
  edgewright disasm npu.pte
  edgewright disasm npu.pte --delegate 0 --full
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add = parser.add_argument
    add("model", metavar="m.pte", help="a program with Ethos-U delegates")
    add("--full", action="store_true", help="every command, not only what changes before each operation")
    add("--delegate", type=int, metavar="N", help="only the N-th Ethos-U delegate of the program, from 0")
    add("--data", action="append", default=[], metavar="w.ptd", help="external data that delegates look up")
    add("--json", action="store_true", help="the same, as JSON")


def run(args: argparse.Namespace) -> int:
    found = list(_delegates(read_program(args.model), args.data, args.full))
    if not found:
        raise UsageError(args.model, "has no Ethos-U delegate", remedy="`edgewright inspect` shows what it has.")
    if args.delegate is not None:
        if not 0 <= args.delegate < len(found):
            raise UsageError("--delegate", f"must be from 0 to {len(found) - 1}", value=args.delegate)
        found = [found[args.delegate]]
    if args.json:
        print(json.dumps(found, indent=2))
        return 0
    out = console()
    for facts in found:
        out.print(_title(facts), style="bold", soft_wrap=True)
        for line in facts["text"].splitlines():
            out.print(clean(line), soft_wrap=True)
    return 0


def _delegates(program: schema.Program, data: list[str], full: bool) -> Iterator[dict[str, Any]]:
    named = {item.key: program.segment(item.segment_index) for item in program.named_data or ()}
    named.update({key: entry.data for path in data for key, entry in read_data(path).items()})
    held = [(plan.name, d) for plan in program.execution_plan for d in plan.delegates if d.id == _BACKEND]
    for index, (method, delegate) in enumerate(held):
        blob = read_blob(program.blob(delegate), named)
        stream = decode(bytes(blob.cmd_data))
        yield {
            "delegate": index,
            "method": method,
            "target": stream.accelerator,
            "command_bytes": len(blob.cmd_data),
            "weight_bytes": len(blob.weight_data),
            "scratch_bytes": blob.scratch_size,
            "inputs": [vars(t) for t in blob.inputs],
            "outputs": [vars(t) for t in blob.outputs],
            "text": disassemble(stream, full=full),
        }


def _title(facts: dict[str, Any]) -> str:
    ends = f"{plural(len(facts['inputs']), 'input')}, {plural(len(facts['outputs']), 'output')}"
    sizes = ", ".join(f"{size(facts[f'{kind}_bytes'])} of {kind}s" for kind in ("command", "weight"))
    where = f"{clean(facts['method'])}, delegate {facts['delegate']}, {facts['target']}"
    return f"{where}: {ends}, {sizes}, {size(facts['scratch_bytes'])} of scratch"
