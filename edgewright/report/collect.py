"""Collects the report of a ``.pte``: what the file, its manifest, its host twin and a run on this machine say."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgewright.backends.registry import find_provider
from edgewright.errors import EdgewrightError
from edgewright.files import Source, open_source
from edgewright.formats import schema
from edgewright.formats.layer_table import delegate_layers
from edgewright.formats.ptd import PtdEntry, read_data
from edgewright.formats.pte_reader import read_program
from edgewright.lowering.estimates import describe, time_range
from edgewright.report import timing
from edgewright.report.file_facts import program_facts
from edgewright.report.graphs import Contents, file_graph
from edgewright.report.layer_sizes import delegate_bytes
from edgewright.report.memory import memory_of
from edgewright.report.model import DeviceLayer, Fact, FileReport, Measures, Pass, Passes
from edgewright.report.npu_passes import group_passes
from edgewright.runtime.disassembly import DelegateContents
from edgewright.runtime.metadata import MethodMetadata
from edgewright.runtime.metadata import describe as describe_method
from edgewright.runtime.program import Runtime
from edgewright.runtime.twin_delegate import Twins, find_twin_file
from edgewright.units import duration, share, size

_MEMORY = 4 << 30  # limit for the graph of a host twin
MakeInputs = Callable[[MethodMetadata], Sequence[Any]]
_TIME_BASIS = "measured on this machine, while profiling"


@dataclass
class Options:
    """What to collect besides the file. ``inputs``: makes inputs from a method's metadata, to profile it on this host;
    None: no profile. ``repeat``: runs of the profile. ``flash``, ``ram``: the user's limits in bytes."""

    inputs: MakeInputs | None = None
    inputs_basis: str = "every input filled with ones"
    repeat: int = 5
    method: str = "forward"
    flash: int | None = None
    ram: int | None = None


def collect(
    source: Source, name: str, options: Options, data: Sequence[Source] = (), twin: Source | None = None
) -> FileReport:
    """The report of a program from a path or from its bytes."""
    program = read_program(source)
    view, _ = open_source(source, "program")
    external = {key: entry for item in data for key, entry in read_data(item).items()}
    facts = {**program_facts(program, external or None), "bytes": len(view)}
    contents = delegate_contents(program, find_twin_file(source) if twin is None else twin, external)
    report = FileReport(name, manifest=facts["manifest"] or {})
    report.target = ", ".join(_targets(facts))
    report.graphs.append(file_graph(program, contents))
    report.memory = memory_of(program, facts, delegate_bytes(program, contents))
    report.memory.flash, report.memory.ram = options.flash, options.ram
    report.measures = Measures(len(view), report.memory.planned)
    report.signature = [
        (plan.name, side, str(info))
        for plan in program.execution_plan
        for side, infos in (("input", describe_method(plan).inputs), ("output", describe_method(plan).outputs))
        for info in infos
    ]
    _add_streams(report, program, contents)
    _add_facts(report, facts)
    _add_estimates(report, report.manifest.get("estimates"))
    report.properties = _properties(facts, hashlib.sha256(view).hexdigest())
    if options.inputs is not None:
        _run(report, options.inputs, source, data, twin, options)
    return report


def delegate_contents(program: schema.Program, twin: Source | None, external: dict[str, PtdEntry]) -> Contents:
    """A function that collects a delegate's data: program, external data and host twin."""
    named_data = {item.key: program.segment(item.segment_index) for item in program.named_data or ()}
    twins = Twins(named_data, twin, _MEMORY)
    named_data.update({key: entry.data for key, entry in external.items()})
    layers = delegate_layers(program)

    def of(delegate: schema.BackendDelegate) -> DelegateContents:
        specs = {spec.key: bytes(spec.value) for spec in delegate.compile_specs or ()}
        return DelegateContents(delegate.id, program.blob(delegate), specs, named_data, twins, False, layers(delegate))

    return of


def _targets(facts: dict[str, Any]) -> list[str]:
    targets = (facts["manifest"] or {}).get("targets")
    if isinstance(targets, list) and all(isinstance(t, str) for t in targets):
        devices = [t for t in targets if t != "portable"]
        return devices or targets
    return sorted({d["id"] for m in facts["methods"] for d in m["delegates"]}) or ["portable"]


def _add_facts(report: FileReport, facts: dict[str, Any]) -> None:
    methods, memory = facts["methods"], report.memory
    delegates = sum(d["calls"] for m in methods for d in m["delegates"])
    instructions = sum(m["instruction_count"] for m in methods)
    report.facts += [
        Fact("target", report.target, "the manifest in the file" if report.manifest else "ids of the delegates"),
        Fact("file", size(memory.file_bytes), *_limit(memory.file_bytes, memory.flash)),
        Fact(
            "planned memory",
            size(memory.planned),
            *("the file", "") if memory.scratch else _limit(memory.planned, memory.ram),
        ),
        Fact("delegate calls", f"{delegates} of {instructions} instructions", "the file"),
    ]
    if memory.scratch:
        text = f"{size(memory.planned)} planned and {size(memory.scratch)} of the NPU's scratch"
        basis, status = _limit(memory.ram_used, memory.ram)
        report.facts.append(Fact("RAM", size(memory.ram_used), f"{text}; {basis}", status))
    missing = sorted({o["name"] for m in methods for o in m["operators"] if not o["kernel"]})
    if missing:
        report.facts.append(Fact("kernels missing here", ", ".join(missing), "the application provides them", "warn"))
    unavailable = sorted({d["id"] for m in methods for d in m["delegates"] if not d["available"]})
    if unavailable:
        report.facts.append(
            Fact("delegates missing here", ", ".join(unavailable), "cannot run on this machine", "warn")
        )
    if not report.manifest:
        report.notes.append("the file has no manifest: its target, versions and estimates are not known")
    outside = next((m["name"] for m in methods if m["delegates"] and m["operators"]), None)
    if not delegates:
        report.next_steps.append("nothing is delegated: compile with a target, `edgewright compile --target ...`")
    elif outside is not None:
        report.next_steps.append(
            "some instructions run on the CPU: a report with --model says which rules rejected their operators"
        )


def _limit(used: int, limit: int | None) -> tuple[str, str]:
    """The basis and the status of a size under a limit of the user."""
    if limit is None:
        return "the file", ""
    inside = used <= limit
    return f"limit {size(limit)}: {share(used / limit) if limit else 'none'} used", "good" if inside else "bad"


def _add_estimates(report: FileReport, estimates: Any) -> None:
    """The vendor's estimates that a manifest has: untrusted."""
    for estimate in estimates if isinstance(estimates, list) else ():
        line = describe(estimate)
        if line:
            report.facts.append(Fact("estimate", line, "the manifest in the file"))
            speed = estimate.get("inferences_per_second")
            if time_range(estimate) is None and isinstance(speed, int | float) and speed > 0:
                report.measures.milliseconds = (report.measures.milliseconds or 0) + 1e3 / speed
                report.measures.time_basis = f"by {str(estimate['basis'])[:60]}"
            memory = estimate.get("memory")
            if isinstance(memory, dict):
                report.memory.npu = {str(k): int(v) for k, v in memory.items() if isinstance(v, int) and v >= 0}
                report.memory.npu_basis = str(estimate.get("basis", ""))


def _add_streams(report: FileReport, program: schema.Program, contents: Contents) -> None:
    """The NPU passes of delegates whose backend's disassembler lists them."""
    for plan in program.execution_plan:
        for index, delegate in enumerate(plan.delegates):
            info = find_provider(delegate.id, lambda info: info.disassemble)
            if info is None:
                continue
            try:
                found = info.load_function(info.disassemble)(contents(delegate))
            except EdgewrightError as error:
                report.notes.append(f"{plan.name}, delegate {index}: {error}")
                continue
            report.memory.scratch = max(report.memory.scratch, found.get("scratch_bytes", 0))
            passes = [Pass(p["text"], p["traffic"], p["layer"]) for p in found.get("passes", ())]
            if passes:
                groups = group_passes(found["passes"], contents(delegate).layers.cycles)
                report.layers.device += [
                    DeviceLayer(g.layer, g.operator, g.cycles, g.macs, None) for g in groups if g.cycles is not None
                ]
                report.layers.device_basis = f"{_basis(report.manifest)} for {found['target']}, in the file"
                title = f"{plan.name}, delegate {index}, {found['target']}"
                report.layers.streams.append(Passes(title, found.get("traffic_basis", ""), passes))


def _basis(manifest: Mapping[str, Any]) -> str:
    """Whose word estimates in a file are, as its manifest says; it is not trusted."""
    listed = manifest.get("estimates")
    named = [e.get("basis") for e in listed if isinstance(e, dict)] if isinstance(listed, list) else []
    return next((str(name)[:60] for name in named if isinstance(name, str)), "The vendor's estimate")


def _run(
    report: FileReport, make_inputs: MakeInputs, source: Source, data: Sequence[Source], twin: Source | None,
    options: Options,
) -> None:  # fmt: skip
    """Profile a method on this machine. A program that cannot run here has a note instead."""
    try:
        method = Runtime.get().load_program(source, list(data) or None, twin=twin).load_method(options.method)
        try:
            profile = timing.profile_method(method, make_inputs(method.metadata), options.repeat)
        finally:
            method.close()
    except EdgewrightError as error:
        report.notes.append(timing.run_error(error))
        return
    basis = f"this machine, {options.repeat} runs, {options.inputs_basis}"
    timing.add_profile(report, profile, basis)
    milliseconds = timing.median_ms(profile)
    if report.measures.milliseconds is None:  # a vendor's estimate is about the device, and wins
        report.measures.milliseconds, report.measures.time_basis = milliseconds, _TIME_BASIS
    report.facts.append(
        Fact("time here", duration(milliseconds / 1e3), f"median of {options.repeat} profiled runs; {basis}")
    )


def _properties(facts: dict[str, Any], digest: str) -> dict[str, str]:
    """Properties that files are compared by."""
    manifest = facts["manifest"] or {}
    found = {"SHA-256": digest[:16], "schema version": str(facts["schema_version"])}
    found |= {
        f"manifest: {key}": str(manifest[key])
        for key in ("edgewright", "torch", "targets", "runtime")
        if key in manifest
    }
    for method in facts["methods"]:
        prefix = f"{method['name']}: "
        found |= {
            f"{prefix}instructions": str(method["instruction_count"]),
            f"{prefix}planned memory": size(method["planned_bytes"]),
            f"{prefix}constants": size(method["constant_bytes"]),
            f"{prefix}inputs": ", ".join(map(_edge, method["inputs"])),
            f"{prefix}outputs": ", ".join(map(_edge, method["outputs"])),
        }
        found |= {f"{prefix}operator {o['name']}": f"{o['calls']} calls" for o in method["operators"]}
        blobs = [(f"{prefix}delegate {d['id']}", d) for d in method["delegates"]]
        for name in dict.fromkeys(name for name, _ in blobs):
            own = [d for n, d in blobs if n == name]
            found[name] = f"{sum(d['calls'] for d in own)} calls, {size(sum(d['bytes'] for d in own))}"
    return found


def _edge(edge: dict[str, Any]) -> str:
    return f"{edge['type']}{edge['shape']}" if edge["kind"] == "tensor" else str(edge.get("value"))
