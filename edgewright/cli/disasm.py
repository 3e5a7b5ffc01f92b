"""``edgewright disasm``: print the contents of delegates, with one reader per backend."""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgewright.api.graph_text import graph_lines
from edgewright.console import clean, console, plural
from edgewright.errors import MissingError, UsageError
from edgewright.files import write_file
from edgewright.formats import schema
from edgewright.formats.flatbuffer import Buffer
from edgewright.formats.ptd import read_data
from edgewright.formats.pte_reader import read_program
from edgewright.formats.twin_reader import read_twin
from edgewright.formats.twin_writer import MAGIC
from edgewright.ir.graph import Graph
from edgewright.runtime.delegates import DelegateBlob
from edgewright.runtime.twin_delegate import Twins, find_twin_file
from edgewright.units import size

Facts = dict[str, Any]


@dataclass(frozen=True)
class DelegateContents:
    """A delegate of a file: its blob and the data it refers to."""

    blob: Buffer
    specs: Mapping[str, bytes]
    named_data: Mapping[str, Buffer]
    twins: Twins
    full: bool

    def graph(self) -> Graph | None:
        """The graph that this machine runs in place of the blob, from the blob itself or from its host twin."""
        if bytes(memoryview(self.blob).cast("B")[: len(MAGIC)]) == MAGIC:
            return next(iter(read_twin(bytes(self.blob)).values()))
        return self.twins.find(hashlib.sha256(self.blob).hexdigest())

    @property
    def is_simulated(self) -> bool:
        return bytes(memoryview(self.blob).cast("B")[: len(MAGIC)]) == MAGIC


def ethos_u(contents: DelegateContents) -> Facts:
    """The NPU's commands."""
    from edgewright.backends.ethos_u.blob import read_blob
    from edgewright.backends.ethos_u.npu.disasm import disassemble
    from edgewright.backends.ethos_u.npu.stream import decode

    blob = read_blob(contents.blob, contents.named_data)
    stream = decode(bytes(blob.cmd_data))
    return {
        "target": stream.accelerator,
        "command_bytes": len(blob.cmd_data),
        "weight_bytes": len(blob.weight_data),
        "scratch_bytes": blob.scratch_size,
        "inputs": [vars(t) for t in blob.inputs],
        "outputs": [vars(t) for t in blob.outputs],
        "text": disassemble(stream, full=contents.full),
    }


def xnnpack(contents: DelegateContents) -> Facts:
    """XNNPACK's graph, with operator names of the op table."""
    from edgewright.backends.xnnpack.delegate import XnnpackDelegate

    blob = DelegateBlob("XnnpackBackend", contents.blob, contents.specs, contents.named_data, deferred=True)
    return _facts(XnnpackDelegate(blob).device_graph, contents, "xnnpack")


def neutron(contents: DelegateContents) -> Facts:
    """The TFLite graph passed to NXP's converter, and the sizes of the microcode."""
    from edgewright.backends.nxp.blob import read_blob

    target = _text(contents.specs.get("target", b""))
    facts = _facts(contents.graph(), contents, target, "the TFLite graph passed to NXP's converter")
    if not contents.is_simulated:
        blob = read_blob(memoryview(contents.blob).cast("B"))
        facts |= {"command_bytes": len(blob.microcode), "weight_bytes": len(blob.weights)}
    return facts


def enn(contents: DelegateContents) -> Facts:
    """The graph passed to Samsung's compiler, whose output format is not documented."""
    return _facts(contents.graph(), contents, "exynos", "the graph passed to AI LiteCore")


def qnn(contents: DelegateContents) -> Facts:
    """The metadata of a context binary, and the graph passed to Qualcomm's compiler."""
    from edgewright.backends.qualcomm.blob import read_blob
    from edgewright.backends.qualcomm.libraries import find_build_id
    from edgewright.backends.qualcomm.qnn.info import compiler_settings

    if contents.is_simulated:
        return _facts(contents.graph(), contents, "hexagon", "the graph")
    context = read_blob(contents.blob).context
    # Metadata is located by its layout, which weights may imitate: drop values that are not printable ASCII.
    metadata = {
        name: ", ".join(sorted(filter(_is_text, values))) for name, values in sorted(compiler_settings(context).items())
    }
    facts = _facts(contents.graph(), contents, metadata.get("soc_type", "hexagon"), "the graph passed to QNN")
    lines = [f"context {len(context):,} bytes, QNN {find_build_id(context) or 'of an unknown release'}"]
    lines += [f"  {name} = {value}" for name, value in metadata.items()]
    for graph in _graphs(context):
        lines.append(f"  graph {graph.name!r}")
        lines += [f"    in  {end.name} {end.dtype}{list(end.dims)}" for end in graph.inputs]
        lines += [f"    out {end.name} {end.dtype}{list(end.dims)}" for end in graph.outputs]
        facts["inputs"] = facts["inputs"] or [end.name for end in graph.inputs]
        facts["outputs"] = facts["outputs"] or [end.name for end in graph.outputs]
    facts["context"] = {"bytes": len(context), "build": find_build_id(context), **metadata}
    facts["text"] = "\n".join([*lines, facts["text"]])
    return facts


def _is_text(text: str) -> bool:
    return text.isascii() and text.isprintable()


def _graphs(context: bytes) -> Sequence[Any]:
    """A context's graphs; empty unless Qualcomm's libraries are installed."""
    from edgewright.backends.qualcomm.qnn.info import BinaryReader

    try:
        reader = BinaryReader(context)
    except MissingError:
        return ()
    try:
        return reader.info.graphs
    finally:
        reader.close()


def _facts(graph: Graph | None, contents: DelegateContents, target: str, title: str = "") -> Facts:
    facts: Facts = {"target": target, "blob_bytes": len(contents.blob)}
    if graph is None:
        text = f"{title} is in the host twin (m.twin), which is missing next to the file"
        return {**facts, "operators": None, "inputs": [], "outputs": [], "text": text}
    lines = graph_lines(graph, full=contents.full)
    names = {side: [v.name for v in getattr(graph, side)] for side in ("inputs", "outputs")}
    return {
        **facts,
        "operators": len(graph.ops),
        **names,
        "text": "\n".join([*([f"{title}:"] if title else []), *lines]),
    }


def _text(data: bytes) -> str:
    return bytes(data).decode("utf-8", "replace")


READERS: dict[str, Callable[[DelegateContents], Facts]] = {
    "EthosUBackend": ethos_u,
    "XnnpackBackend": xnnpack,
    "NeutronBackend": neutron,
    "EnnBackend": enn,
    "QnnBackend": qnn,
}


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
        if delegate.id not in READERS:
            remedy = f"Known backends: {', '.join(READERS)}."
            raise UsageError(f"delegate {index}", "must be of a known backend", value=delegate.id, remedy=remedy)
        yield {"delegate": index, "method": method, "backend": delegate.id, **READERS[delegate.id](of(delegate))}


def _contents_of(args: argparse.Namespace, program: schema.Program) -> Collect:
    """A function that collects a delegate's data: program, external data and host twin."""
    named_data = {item.key: program.segment(item.segment_index) for item in program.named_data or ()}
    twins = Twins(named_data, find_twin_file(args.model), _MEMORY)
    named_data.update({key: entry.data for path in args.data for key, entry in read_data(path).items()})

    def of(delegate: schema.BackendDelegate) -> DelegateContents:
        specs = {spec.key: bytes(spec.value) for spec in delegate.compile_specs or ()}
        return DelegateContents(program.blob(delegate), specs, named_data, twins, args.full)

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
