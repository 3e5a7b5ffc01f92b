"""``edgewright disasm``: what delegates are told, line by line."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from typing import Any

from edgewright.cli.disasm_graphs import READERS, Held
from edgewright.console import clean, console, plural
from edgewright.errors import UsageError
from edgewright.files import write_file
from edgewright.formats import schema
from edgewright.formats.ptd import read_data
from edgewright.formats.pte_reader import read_program
from edgewright.runtime.twin_delegate import Twins, beside
from edgewright.units import size

_MEMORY = 4 << 30  # that a twin's graph may take

EXAMPLES = """examples:
  edgewright disasm npu.pte                       # Ethos-U: the NPU's commands
  edgewright disasm m.pte                         # XNNPACK, Hexagon, Exynos, Neutron: the graph inside
  edgewright disasm npu.pte --delegate 0 --full
  edgewright disasm neutron.pte --tflite net.tflite && netron net.tflite
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add = parser.add_argument
    add("model", metavar="m.pte", help="a program with delegates")
    add("--full", action="store_true", help="every command, constant and parameter")
    add("--delegate", type=int, metavar="N", help="only the N-th delegate of the program, from 0")
    add("--data", action="append", default=[], metavar="w.ptd", help="external data that delegates look up")
    add(
        "--tflite", metavar="net.tflite",
        help="write the graph that NXP's converter was given as a TFLite file, which Netron and LiteRT open",
    )  # fmt: skip
    add("--json", action="store_true", help="the same, as JSON")


def run(args: argparse.Namespace) -> int:
    program = read_program(args.model)
    held = [(plan.name, d) for plan in program.execution_plan for d in plan.delegates]
    if not held:
        raise UsageError(args.model, "has no delegates", remedy="`edgewright inspect` shows what it has.")
    if args.delegate is not None and not 0 <= args.delegate < len(held):
        raise UsageError("--delegate", f"must be from 0 to {len(held) - 1}", value=args.delegate)
    chosen = range(len(held)) if args.delegate is None else [args.delegate]
    if args.tflite:
        return _write_tflite(args, _held(args, program), [held[i][1] for i in chosen])
    found = list(_delegates(args, program, [(i, *held[i]) for i in chosen]))
    if args.json:
        print(json.dumps(found, indent=2))
        return 0
    out = console()
    for facts in found:
        out.print(_title(facts), style="bold", soft_wrap=True)
        for line in facts["text"].splitlines():
            out.print(clean(line), soft_wrap=True)
    return 0


def _delegates(
    args: argparse.Namespace, program: schema.Program, chosen: list[tuple[int, str, schema.BackendDelegate]]
) -> Iterator[dict[str, Any]]:
    of = _held(args, program)
    for index, method, delegate in chosen:
        if delegate.id not in READERS:
            remedy = f"It knows {', '.join(READERS)}."
            raise UsageError(f"delegate {index}", "must be of a known backend", value=delegate.id, remedy=remedy)
        yield {"delegate": index, "method": method, "backend": delegate.id, **READERS[delegate.id](of(delegate))}


def _held(args: argparse.Namespace, program: schema.Program) -> Callable[[schema.BackendDelegate], Held]:
    """What there is of a delegate in the program, its external data and its host twin."""
    named = {item.key: program.segment(item.segment_index) for item in program.named_data or ()}
    twins = Twins(named, beside(args.model), _MEMORY)
    named.update({key: entry.data for path in args.data for key, entry in read_data(path).items()})

    def of(delegate: schema.BackendDelegate) -> Held:
        specs = {spec.key: bytes(spec.value) for spec in delegate.compile_specs or ()}
        return Held(program.blob(delegate), specs, named, twins, args.full)

    return of


def _write_tflite(
    args: argparse.Namespace, of: Callable[[schema.BackendDelegate], Held], chosen: list[schema.BackendDelegate]
) -> int:
    from edgewright.backends.nxp.tflite_file import write_tflite

    found = [of(d).graph() for d in chosen if d.id == "NeutronBackend"]
    if len(found) != 1:
        remedy = "Choose one with --delegate." if found else "`edgewright inspect` shows what it has."
        raise UsageError("--tflite", "is of one Neutron delegate", value=len(found), remedy=remedy)
    if found[0] is None:
        remedy = "Keep m.twin beside m.pte."
        raise UsageError("--tflite", "needs the host twin, where the graph is", remedy=remedy)
    write_file(args.tflite, [write_tflite(found[0])])
    console().print(f"wrote {clean(args.tflite)}", style="green", soft_wrap=True)
    return 0


def _title(facts: dict[str, Any]) -> str:
    parts = [f"{plural(len(facts['inputs']), 'input')}, {plural(len(facts['outputs']), 'output')}"]
    if facts.get("operators"):
        parts.append(plural(facts["operators"], "operator"))
    for kind in ("command", "weight", "blob"):
        if f"{kind}_bytes" in facts:
            parts.append(f"{size(facts[f'{kind}_bytes'])} of {kind}{'' if kind == 'blob' else 's'}")
    if "scratch_bytes" in facts:
        parts.append(f"{size(facts['scratch_bytes'])} of scratch")
    where = f"{clean(facts['method'])}, delegate {facts['delegate']}, {clean(facts['target'])}"
    return f"{where}: {', '.join(parts)}"
