"""``edgewright disasm``: print the contents of delegates."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from typing import Any

from edgewright.backends.registry import available_delegates, find_provider
from edgewright.console import clean, console, plural
from edgewright.errors import UsageError
from edgewright.files import write_file
from edgewright.formats import schema
from edgewright.formats.layer_table import delegate_layers
from edgewright.formats.ptd import read_data
from edgewright.formats.pte_reader import read_program
from edgewright.runtime.disassembly import DelegateContents, Disassembly, disassemble_graph
from edgewright.runtime.twin_delegate import Twins, find_twin_file
from edgewright.units import size

_MEMORY = 4 << 30  # limit for the graph of a host twin

EXAMPLES = """examples:
  edgewright disasm npu.pte                       # Ethos-U: the NPU's commands
  edgewright disasm m.pte                         # XNNPACK, Hexagon, Exynos, Neutron: the graph inside
  edgewright disasm npu.pte --delegate 0 --full
  edgewright disasm neutron.pte --tflite net.tflite && netron net.tflite
"""

Collect = Callable[[schema.BackendDelegate], DelegateContents]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add = parser.add_argument
    add("model", metavar="m.pte", help="a program with delegates")
    add("--full", action="store_true", help="print every command, constant and parameter")
    add("--delegate", type=int, metavar="N", help="only delegate N of the program, counted from 0")
    add("--data", action="append", default=[], metavar="w.ptd", help="external data of the delegates")
    add(
        "--tflite", metavar="net.tflite",
        help="write the input of NXP's converter as a TFLite file, for Netron and LiteRT",
    )  # fmt: skip
    add("--json", action="store_true", help="print the result as JSON")


def run(args: argparse.Namespace) -> int:
    program = read_program(args.model)
    delegates = [(plan.name, d) for plan in program.execution_plan for d in plan.delegates]
    if not delegates:
        raise UsageError(args.model, "has no delegates", remedy="`edgewright inspect` shows its contents.")
    if args.delegate is not None and not 0 <= args.delegate < len(delegates):
        raise UsageError("--delegate", f"must be from 0 to {len(delegates) - 1}", value=args.delegate)
    indices = range(len(delegates)) if args.delegate is None else [args.delegate]
    if args.tflite:
        return _write_tflite(args, _contents_of(args, program), [delegates[i][1] for i in indices])
    listings = list(_delegates(args, program, [(i, *delegates[i]) for i in indices]))
    if args.json:
        print(json.dumps(listings, indent=2))
        return 0
    out = console()
    for facts in listings:
        out.print(_title(facts), style="bold", soft_wrap=True)
        for line in facts["text"].splitlines():
            out.print(clean(line), soft_wrap=True)
    return 0


def _delegates(
    args: argparse.Namespace, program: schema.Program, delegates: list[tuple[int, str, schema.BackendDelegate]]
) -> Iterator[dict[str, Any]]:
    of = _contents_of(args, program)
    for index, method, delegate in delegates:
        contents = of(delegate)
        yield {"delegate": index, "method": method, "backend": delegate.id, **_disassemble(index, contents)}


def _disassemble(index: int, contents: DelegateContents) -> Disassembly:
    """The contents of a delegate, by its backend's disassembler, or else its graph."""
    own = find_provider(contents.backend, lambda info: info.disassemble)
    if own is not None:
        facts: Disassembly = own.load_function(own.disassemble)(contents)
        return facts
    known = find_provider(contents.backend, lambda info: True)
    if known is None:
        remedy = f"Known backends: {', '.join(available_delegates())}."
        raise UsageError(f"delegate {index}", "must be of a known backend", value=contents.backend, remedy=remedy)
    return disassemble_graph(contents, known.name)


def _contents_of(args: argparse.Namespace, program: schema.Program) -> Collect:
    """A function that collects a delegate's data: program, external data and host twin."""
    named_data = {item.key: program.segment(item.segment_index) for item in program.named_data or ()}
    twins = Twins(named_data, find_twin_file(args.model), _MEMORY)
    named_data.update({key: entry.data for path in args.data for key, entry in read_data(path).items()})
    layers = delegate_layers(program)

    def of(delegate: schema.BackendDelegate) -> DelegateContents:
        specs = {spec.key: bytes(spec.value) for spec in delegate.compile_specs or ()}
        own = layers(delegate)
        return DelegateContents(delegate.id, program.blob(delegate), specs, named_data, twins, args.full, own)

    return of


def _write_tflite(
    args: argparse.Namespace,
    of: Collect,
    delegates: list[schema.BackendDelegate],
) -> int:
    from edgewright.backends.nxp.tflite_file import write_tflite

    graphs = [of(d).graph() for d in delegates if d.id == "NeutronBackend"]
    if len(graphs) != 1:
        remedy = "Choose one with --delegate." if graphs else "`edgewright inspect` shows its contents."
        raise UsageError("--tflite", "needs exactly one Neutron delegate", value=len(graphs), remedy=remedy)
    if graphs[0] is None:
        remedy = "Keep m.twin next to m.pte."
        raise UsageError("--tflite", "needs the host twin, which holds the graph", remedy=remedy)
    write_file(args.tflite, [write_tflite(graphs[0])])
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
