"""Collects the report of a ``.pte``: what the file, its manifest, its host twin and a run on this machine say."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from edgewright.backends.registry import find_provider
from edgewright.backends.targets import device_of
from edgewright.console import plural
from edgewright.errors import EdgewrightError
from edgewright.files import Source, open_source
from edgewright.formats import schema
from edgewright.formats.bpte import is_bundled, read_bundled
from edgewright.formats.layer_table import delegate_layers
from edgewright.formats.ptd import PtdEntry, read_data
from edgewright.formats.pte_reader import read_program
from edgewright.lowering.estimates import MEMORIES, describe, seconds_per_cycle, time_range
from edgewright.report import timing
from edgewright.report.file_facts import program_facts
from edgewright.report.graphs import Contents, file_graph
from edgewright.report.layer_sizes import DelegateBytes, delegate_bytes
from edgewright.report.memory import memory_of
from edgewright.report.model import DeviceLayer, Fact, FileReport, Measures, Pass, Passes, TestCase
from edgewright.report.npu_passes import group_passes, memories_of
from edgewright.runtime.disassembly import DelegateContents
from edgewright.runtime.metadata import MethodMetadata
from edgewright.runtime.metadata import describe as describe_method
from edgewright.runtime.program import Runtime
from edgewright.runtime.twin_delegate import Twins, find_twin_file
from edgewright.runtime.verify_bundle import verify_bundle
from edgewright.units import duration, share, size

_MEMORY = 4 << 30  # limit for the graph of a host twin
MakeInputs = Callable[[MethodMetadata], Sequence[Any]]
_MEMORIES_UNKNOWN = " Constants are in flash and scratch is in SRAM, unless the memory mode says otherwise."
_TIME_BASIS = "measured on this machine"


@dataclass
class Options:
    """What to collect besides the file. ``inputs``: makes inputs from a method's metadata, to profile it on this host;
    None: no profile. ``repeat``: runs of the profile, by default as many as fit in a second. ``flash``, ``ram``: the
    user's limits in bytes."""

    inputs: MakeInputs | None = None
    inputs_basis: str = "every input filled with ones"
    repeat: int | None = None
    method: str = "forward"
    flash: int | None = None
    ram: int | None = None


def collect(
    source: Source, name: str, options: Options, data: Sequence[Source] = (), twin: Source | None = None
) -> FileReport:
    """The report of a program, or of a program with test cases, from a path or from its bytes."""
    twin = find_twin_file(source) if twin is None else twin
    view, _ = open_source(source, "program")
    if is_bundled(view):
        return _collect_bundle(source, name, options, data, twin)
    program = read_program(source)
    external = {key: entry for item in data for key, entry in read_data(item).items()}
    facts = {**program_facts(program, external or None), "bytes": len(view)}
    contents = delegate_contents(program, twin, external)
    report = FileReport(name, manifest=facts["manifest"] or {})
    report.target = ", ".join(_targets(program, facts["manifest"] or {}))
    report.graphs.append(file_graph(program, contents))
    delegates = delegate_bytes(program, contents)
    report.memory = memory_of(program, facts, delegates)
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
    report.properties = _properties(facts, hashlib.sha256(view).hexdigest(), delegates)
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


def _collect_bundle(
    source: Source, name: str, options: Options, data: Sequence[Source], twin: Source | None
) -> FileReport:
    """The report of a ``.bpte``: of its program, profiled on the inputs of its first test case, and of its tests."""
    bundle = read_bundled(source)
    cases = bundle.suites.get(options.method) or ()
    if options.inputs is not None and cases:
        options = replace(options, inputs=lambda _: list(cases[0].inputs), inputs_basis="inputs of its first test case")
    report = collect(memoryview(bundle.program), name, options, data, twin)
    total = sum(map(len, bundle.suites.values()))
    view, _ = open_source(source, "bundled program")
    report.facts.insert(1, Fact("bundle", size(len(view)), f"the program and {plural(total, 'test case')}"))
    if options.inputs is None or not total:
        return report
    try:
        results = verify_bundle(source, list(data) or None)
    except EdgewrightError as error:
        report.notes.append(f"test cases: {error}")
        return report
    report.tests = [TestCase(r.method, r.case, r.compared, r.max_error, r.passed) for r in results]
    failed = sum(not r.passed for r in results)
    text = f"{failed} of {total} fail" if failed else f"{total} of {total} pass"
    basis = "run on this machine, with the tolerances of `edgewright verify`"
    report.facts.insert(2, Fact("test cases", text, basis, "bad" if failed else "good"))
    return report


def _targets(program: schema.Program, manifest: Mapping[str, Any]) -> list[str]:
    """The devices that a file is for: those of its manifest; a delegate's compile specs, or its backend, instead of a
    bare id."""
    delegates = {d.id: d for plan in program.execution_plan for d in plan.delegates}
    listed = manifest.get("targets")
    if isinstance(listed, list) and listed and all(isinstance(t, str) for t in listed):
        names = [t for t in listed if t != "portable"] or listed
    else:
        names = sorted(delegates) or ["portable"]
    return list(dict.fromkeys(device_of(delegates[n]) if n in delegates else n for n in names))


def runs_on_cpu(program: schema.Program) -> bool:
    """Whether the program is for CPUs such as this one: what this machine measures is then more than a simulation."""
    infos = [find_provider(d.id, lambda _: True) for plan in program.execution_plan for d in plan.delegates]
    return all(info is not None and not info.targets for info in infos)


def _add_facts(report: FileReport, facts: dict[str, Any]) -> None:
    methods, memory = facts["methods"], report.memory
    delegates = sum(d["calls"] for m in methods for d in m["delegates"])
    instructions = sum(m["instruction_count"] for m in methods)
    report.facts += [
        Fact("target", report.target),
        Fact("file", size(memory.file_bytes), *_limit(memory.file_bytes, memory.flash)),
        Fact(
            "planned memory",
            size(memory.planned),
            *("", "") if memory.scratch else _limit(memory.planned, memory.ram),
        ),
        Fact("delegate calls", f"{delegates} of {plural(instructions, 'instruction')}"),
    ]
    if memory.scratch:
        text = f"{size(memory.planned)} planned and {size(memory.scratch)} of the NPU's scratch"
        basis, status = _limit(memory.ram_used, memory.ram)
        report.facts.append(Fact("RAM", size(memory.ram_used), "; ".join(filter(None, (text, basis))), status))
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
    outside = any(m["delegates"] and not all(map(_is_conversion, m["operators"])) for m in methods)
    if not delegates:
        report.next_steps.append("nothing is delegated: compile with a target, `edgewright compile --target ...`")
    elif outside:
        report.next_steps.append(
            "some instructions run on the CPU: a report with --model says which rules rejected their operators"
        )


def _is_conversion(operator: Mapping[str, Any]) -> bool:
    """Whether an operator quantizes inputs or dequantizes outputs of a delegate, which a user wants on the CPU."""
    return str(operator["name"]).startswith(("quantized_decomposed::quantize_", "quantized_decomposed::dequantize_"))


def _limit(used: int, limit: int | None) -> tuple[str, str]:
    """The basis and the status of a size under a limit of the user."""
    if limit is None:
        return "", ""
    inside = used <= limit
    return f"limit {size(limit)}: {share(used / limit) if limit else 'none'} used", "good" if inside else "bad"


def _add_estimates(report: FileReport, estimates: Any) -> None:
    """The vendor's estimates that a manifest has: untrusted."""
    for estimate in estimates if isinstance(estimates, list) else ():
        line = describe(estimate)
        if not line:
            continue
        report.estimates.append(line)
        speed, bounds, basis = estimate.get("inferences_per_second"), time_range(estimate), str(estimate["basis"])[:60]
        if bounds is not None:
            report.measures.time_basis = f"{duration(bounds[0])} to {duration(bounds[1])} by {basis}"
            report.facts.append(Fact("time", f"{duration(bounds[0])} to {duration(bounds[1])}", f"by {basis}"))
        elif isinstance(speed, int | float) and speed > 0:
            report.measures.milliseconds = (report.measures.milliseconds or 0) + 1e3 / speed
            report.measures.time_basis = f"by {basis}"
        memory = estimate.get("memory")
        if isinstance(memory, dict):
            report.memory.npu = {
                MEMORIES.get(str(k), str(k)): int(v) for k, v in memory.items() if isinstance(v, int) and v >= 0
            }
            report.memory.npu_basis = basis
    if report.measures.milliseconds is not None:
        report.facts.append(Fact("time", duration(report.measures.milliseconds / 1e3), report.measures.time_basis))


def _add_streams(report: FileReport, program: schema.Program, contents: Contents) -> None:
    """The NPU passes of delegates whose backend's disassembler lists them."""
    length = seconds_per_cycle(report.manifest.get("estimates"))
    memories = memories_of(report.manifest.get("estimates"))
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
            passes = [Pass(p["text"], _by_memory(p["traffic"], memories), p["layer"]) for p in found.get("passes", ())]
            if passes:
                for group in group_passes(found["passes"], contents(delegate).layers.cycles):
                    if group.cycles is not None:
                        seconds = None if length is None else length * group.cycles
                        row = DeviceLayer(group.layer, group.operator, group.cycles, group.macs, None, seconds)
                        report.layers.device.append(row)
                report.layers.device_basis = f"{_basis(report.manifest)} for {found['target']}, in the file"
                title = f"{plan.name}, delegate {index}, {found['target']}"
                basis = found.get("traffic_basis", "") + ("" if memories else _MEMORIES_UNKNOWN)
                report.layers.streams.append(Passes(title, basis, passes))


def _by_memory(traffic: Mapping[str, int], memories: Mapping[str, str]) -> dict[str, int]:
    """Traffic with the memory of each region, where that is known: ``{"scratch (SRAM)": 8}``."""
    return {f"{region} ({memories[region]})" if region in memories else region: n for region, n in traffic.items()}


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
        program = Runtime.get().load_program(source, list(data) or None, twin=twin)
        method = program.load_method(options.method)
        try:
            run = timing.profile_method(method, make_inputs(method.metadata), options.repeat)
            runners = [how for _, how in method.delegate_runners() if how]
        finally:
            method.close()
    except EdgewrightError as error:
        report.notes.append(timing.run_error(error))
        return
    on_cpu = runs_on_cpu(read_program(source))
    report.layers.simulated = "" if on_cpu else ", ".join(dict.fromkeys(runners)) or "simulated"
    timing.add_profile(report, run.profile, f"this machine, {len(run.profile.runs)} runs, {options.inputs_basis}")
    basis = f"median of {len(run.profile.runs)} runs, {options.inputs_basis}"
    report.measures.here_ms = run.milliseconds
    if on_cpu:
        report.measures.milliseconds, report.measures.time_basis = run.milliseconds, _TIME_BASIS
        report.facts.append(Fact("time here", duration(run.milliseconds / 1e3), f"this machine, {basis}"))
    else:
        basis = f"{report.layers.simulated} on this machine: not the time of the device; {basis}"
        report.facts.append(Fact("simulation here", duration(run.milliseconds / 1e3), basis))


def _properties(facts: dict[str, Any], digest: str, delegates: Sequence[DelegateBytes]) -> dict[str, str]:
    """Properties that files are compared by. ``delegates``: with the data that they look up by name."""
    manifest = facts["manifest"] or {}
    found = {"SHA-256": digest[:16], "schema version": str(facts["schema_version"])}
    found |= {
        f"manifest: {key}": _listed(manifest[key])
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
        found |= {f"{prefix}operator {o['name']}": plural(o["calls"], "call") for o in method["operators"]}
        blobs = [(f"{prefix}delegate {d['id']}", d) for d in method["delegates"]]
        for name in dict.fromkeys(name for name, _ in blobs):
            calls = sum(d["calls"] for n, d in blobs if n == name)
            total = sum(d.total for d in delegates if f"{d.method}: delegate {d.backend}" == name)
            found[name] = f"{plural(calls, 'call')}, {size(total)}"
    return found


def _listed(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _edge(edge: dict[str, Any]) -> str:
    return f"{edge['type']}{edge['shape']}" if edge["kind"] == "tensor" else str(edge.get("value"))
