"""Contents of ``.pte``, ``.ptd``, ``.bpte`` and ``.etdp`` files as plain data, with the keys of ``inspect --json``.

Only tables are read; weights are not touched and delegates are not loaded.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from edgewright.backends.registry import available_delegates, describe_backend
from edgewright.formats import schema
from edgewright.formats.bpte import BundledProgram, Data
from edgewright.formats.checked_int import tensor_bytes
from edgewright.formats.etdump import ETDump, Event
from edgewright.formats.layer_table import MethodLayers, read_layers
from edgewright.formats.operator_signatures import OPERATORS
from edgewright.formats.ptd import PtdEntry
from edgewright.formats.pte_reader import read_program
from edgewright.ir.dtypes import ScalarType
from edgewright.ir.layer_names import summarize_layers
from edgewright.program import manifest
from edgewright.program.listing import Listing
from edgewright.runtime.metadata import describe
from edgewright.runtime.registry import KERNELS

Facts = dict[str, Any]


def tensor_facts(program: schema.Program, data: Mapping[str, PtdEntry] | None) -> list[Facts]:
    """Every stored tensor, listed once even if several methods use it, largest first."""
    facts_by_tensor: dict[tuple[str, object], Facts] = {}
    layers = read_layers(program)
    for plan in program.execution_plan:
        uses = _uses(plan, layers.get(plan.name or "", MethodLayers()))
        for index, value in enumerate(plan.values):
            kind = _kind(value)
            if kind is None:
                continue
            assert isinstance(value, schema.Tensor)
            key = (kind, _name(value) if value.external else value.data_buffer_idx)
            facts = facts_by_tensor.get(key) or facts_by_tensor.setdefault(key, _tensor(program, value, kind, data))
            facts["used_by"] = facts["used_by"] or uses.get(index)
            if plan.name not in facts["methods"]:
                facts["methods"].append(plan.name)
    return sorted(facts_by_tensor.values(), key=lambda facts: -int(facts["bytes"]))


def _kind(value: schema.Value) -> str | None:
    """The kind of a value's stored bytes: constant or initial state, in the program or in a ``.ptd``."""
    if not isinstance(value, schema.Tensor) or not (value.external or value.data_buffer_idx):
        return None
    kind = "constant" if value.allocation_info is None else "state"
    return f"external {kind}" if value.external else kind


def _name(tensor: schema.Tensor) -> str | None:
    return tensor.extra_tensor_info.fully_qualified_name if tensor.extra_tensor_info else None


def _tensor(program: schema.Program, tensor: schema.Tensor, kind: str, data: Mapping[str, PtdEntry] | None) -> Facts:
    segment, offset = None, None
    if not tensor.external:
        states = program.mutable_data_segments or []
        source = states[0] if kind == "state" else program.constant_segment
        assert source is not None
        segment, offset = source.segment_index, (source.offsets or ())[tensor.data_buffer_idx]
    name = _name(tensor)
    return {
        "name": name,
        "kind": kind,
        "type": ScalarType(tensor.scalar_type).name.lower(),
        "shape": list(tensor.sizes),
        "bytes": tensor_bytes(tensor.scalar_type, tensor.sizes),
        "index": None if tensor.external else tensor.data_buffer_idx,
        "segment": segment,
        "offset": offset,
        "found": None if data is None or not tensor.external else name in data,
        "used_by": None,
        "methods": [],
    }


def _uses(plan: schema.ExecutionPlan, layers: MethodLayers) -> dict[int, Facts]:
    """For each value, its first reader with its layer, and the argument's name: the file rarely has tensor names."""
    uses: dict[int, Facts] = {}
    for number, chain in enumerate(plan.chains):
        for position, instruction in enumerate(chain.instructions):
            if isinstance(instruction, schema.KernelCall):
                key = (plan.operators or [])[instruction.op_index].key
                signature = OPERATORS.get(key)
                names = [a.name for a in signature.inputs] if signature else []
                layer = summarize_layers([layers.instruction(number, position)])
                for index, name in zip(instruction.args, names, strict=False):
                    uses.setdefault(index, {"operator": key, "argument": name, "layer": layer})
            elif isinstance(instruction, schema.DelegateCall):
                delegate = plan.delegates[instruction.delegate_index].id
                for index in instruction.args:
                    uses.setdefault(index, {"operator": delegate, "argument": "input", "layer": ""})
    return uses


def segment_facts(program: schema.Program) -> list[Facts]:
    """Every segment with its offset and contents, and whether its bytes are another one's, too."""
    contents: defaultdict[int, list[str]] = defaultdict(list)
    for index, content in _contents(program):
        if content not in contents[index]:
            contents[index].append(content)
    base = program.layout.segment_base if program.layout else 0
    return [
        {
            "index": index,
            "offset": base + segment.offset,
            "bytes": segment.size,
            "holds": contents[index],
            "shared": segment.outer is not None,
        }
        for index, segment in enumerate(program.segments or ())
    ]


def _contents(program: schema.Program) -> Iterator[tuple[int, str]]:
    constants = program.constant_segment
    if constants is not None and program.segments:
        count = len(constants.offsets or ()) - 1
        yield constants.segment_index, f"{count} constants" if count != 1 else "1 constant"
    for state in program.mutable_data_segments or ():
        yield state.segment_index, "initial state"
    for plan in program.execution_plan:
        for index, delegate in enumerate(plan.delegates):
            if delegate.processed.location == schema.DataLocation.SEGMENT:
                yield delegate.processed.index, f"{delegate.id} blob ({plan.name} delegate {index})"
    for named in program.named_data or ():
        yield named.segment_index, f"named data {named.key}"


_DEVICES = ("cpu", "cuda")


def program_facts(
    program: schema.Program, data: Mapping[str, PtdEntry] | None, *, values: bool = False, instructions: bool = False
) -> Facts:
    """Layout, methods, tensors and segments of a verified program. ``data``: the contents of its ``.ptd`` files."""
    layout = program.layout
    return {
        "schema_version": program.version,
        "layout": {
            "header_bytes": 40 if layout and layout.segment_base else 8,
            "flatbuffer_bytes": layout.flatbuffer_size if layout else 0,
            "segment_base": layout.segment_base if layout else 0,
            "segment_bytes": sum(s.size for s in program.segments or () if s.outer is None),
        },
        "manifest": manifest.read(program),
        "methods": [_method(program, p, values=values, instructions=instructions) for p in program.execution_plan],
        "tensors": tensor_facts(program, data),
        "segments": segment_facts(program),
        "named_data": [
            {"key": n.key, "segment": n.segment_index, "bytes": len(program.segment(n.segment_index))}
            for n in program.named_data or ()
        ],
    }


def _method(program: schema.Program, plan: schema.ExecutionPlan, *, values: bool, instructions: bool) -> Facts:
    metadata = describe(plan)
    facts: Facts = {
        "name": plan.name,
        "inputs": [edge_facts(f"in{n}", plan.values[i]) for n, i in enumerate(plan.inputs)],
        "outputs": [edge_facts(f"out{n}", plan.values[i]) for n, i in enumerate(plan.outputs)],
        "instruction_count": metadata.instructions,
        "value_count": len(plan.values),
        "operators": _operators(plan),
        "delegates": _delegates(program, plan),
        "memory": _memory(plan),
        "planned_bytes": metadata.planned_bytes,
        "constant_bytes": metadata.constant_bytes,
    }
    listing = Listing(plan)
    if values:
        facts["values"] = listing.values()
    if instructions:
        facts["instructions"] = listing.instructions()
    return facts


def edge_facts(name: str, value: schema.Value) -> Facts:
    """An input or output of a method."""
    if isinstance(value, schema.Tensor):
        dynamic = value.shape_dynamism != schema.Dynamism.STATIC
        return {
            "name": name,
            "kind": "tensor",
            "type": ScalarType(value.scalar_type).name.lower(),
            "shape": list(value.sizes),
            "dim_order": list(value.dim_order),
            "dynamic": dynamic,
            "planned": value.allocation_info is not None or value.data_buffer_idx != 0,
            "bytes": None if dynamic and value.allocation_info is None else _bytes(value),
        }
    content = schema.scalar(value)
    if isinstance(content, float) and not math.isfinite(content):
        content = str(content)  # JSON cannot represent it
    return {"name": name, "kind": type(value).__name__.lower(), "value": content}


def _bytes(tensor: schema.Tensor) -> int:
    return tensor_bytes(tensor.scalar_type, tensor.sizes)


def _calls(plan: schema.ExecutionPlan, kind: type, index: str) -> Counter[int]:
    instructions = (i for chain in plan.chains for i in chain.instructions if isinstance(i, kind))
    return Counter(getattr(instruction, index) for instruction in instructions)


def _operators(plan: schema.ExecutionPlan) -> list[Facts]:
    calls = _calls(plan, schema.KernelCall, "op_index")
    totals: Counter[str] = Counter()
    for index, operator in enumerate(plan.operators or ()):
        totals[operator.key] += calls[index]
    rows = [{"name": name, "calls": count, "kernel": name in KERNELS} for name, count in totals.items()]
    return sorted(rows, key=lambda row: (-int(row["calls"]), str(row["name"])))


def _delegates(program: schema.Program, plan: schema.ExecutionPlan) -> list[Facts]:
    available = set(available_delegates())
    calls = _calls(plan, schema.DelegateCall, "delegate_index")
    return [
        {
            "index": index,
            "id": delegate.id,
            "description": describe_backend(delegate.id),
            "available": delegate.id in available,
            "calls": calls[index],
            "bytes": len(program.blob(delegate)),
            "location": schema.DataLocation(delegate.processed.location).name.lower(),
            "data_index": delegate.processed.index,
            "compile_specs": [_spec(spec) for spec in delegate.compile_specs or ()],
        }
        for index, delegate in enumerate(plan.delegates)
    ]


def _spec(spec: schema.CompileSpec) -> Facts:
    raw = bytes(spec.value[:64])
    try:
        text: str | None = raw.decode("utf-8").rstrip("\0")
    except UnicodeDecodeError:
        text = None
    printable = text if text is not None and text.isprintable() else None
    return {"key": spec.key, "bytes": len(spec.value), "text": printable, "hex": raw.hex()}


def _memory(plan: schema.ExecutionPlan) -> list[Facts]:
    devices = {d.buffer_idx: _DEVICES[d.device_type] for d in plan.non_const_buffer_device or ()}
    return [
        {"arena": index, "bytes": count, "device": devices.get(index, "cpu")}
        for index, count in enumerate(plan.non_const_buffer_sizes)
        if index
    ]


def data_facts(entries: Mapping[str, PtdEntry]) -> Facts:
    """The tensors and blobs of a ``.ptd``, largest first."""
    rows: list[Facts] = []
    for key, entry in entries.items():
        layout = entry.layout
        rows.append(
            {
                "name": key,
                "kind": "blob" if layout is None else "tensor",
                "type": None if layout is None else ScalarType(layout.scalar_type).name.lower(),
                "shape": None if layout is None else list(layout.sizes),
                "bytes": len(entry.data),
            }
        )
    return {"entries": sorted(rows, key=lambda row: -int(row["bytes"]))}


def bundle_facts(bundle: BundledProgram, **options: Any) -> Facts:
    """The test cases of a ``.bpte``, and the program in it."""
    program = read_program(memoryview(bundle.program))
    suites = [
        {
            "method": name,
            "cases": [
                {
                    "inputs": [_describe(v) for v in case.inputs],
                    "expected": [_describe(v) for v in case.expected],
                }
                for case in cases
            ],
        }
        for name, cases in bundle.suites.items()
    ]
    return {"suites": suites, "program_bytes": len(bundle.program), "program": program_facts(program, None, **options)}


def _describe(value: Data) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    return f"{type(value).__name__} {value!r}"


def profile_facts(dump: ETDump) -> Facts:
    """The runs of a profile and their events; times are milliseconds since the run's first event."""
    return {"runs": [_run(run.name, run.events or []) for run in dump.run_data or ()]}


def _run(name: str | None, events: Sequence[Event]) -> Facts:
    timed = [e.profile_event for e in events if e.profile_event is not None]
    first = min((e.start_time for e in timed), default=0)
    rows = [
        {
            "name": event.name or event.delegate_debug_id_str or f"delegate event {event.delegate_debug_id_int}",
            "chain": event.chain_index,
            "instruction": event.instruction_id,
            "start_ms": (event.start_time - first) / 1e6,
            "ms": (event.end_time - event.start_time) / 1e6,
        }
        for event in timed
    ]
    return {
        "name": name or "",
        "events": rows,
        "allocations": sum(e.allocation_event is not None for e in events),
        "debug_events": sum(e.debug_event is not None for e in events),
    }


def file_parts(facts: Mapping[str, Any]) -> dict[str, int]:
    """File size by part; the parts add up to the file."""
    sizes = {"tables (program, values, instructions)": facts["layout"]["flatbuffer_bytes"]}
    for segment in facts["segments"]:
        if segment["shared"]:
            continue
        name = _part_name(segment["holds"])
        sizes[name] = sizes.get(name, 0) + segment["bytes"]
    rest = facts["bytes"] - sum(sizes.values())
    sizes["alignment and headers"] = rest
    return dict(sorted(sizes.items(), key=lambda item: -item[1]))


def _part_name(contents: list[str]) -> str:
    """The kind of a segment's contents."""
    first = contents[0] if contents else "unused"
    if "blob" in first:
        return f"delegates: {first.partition(' blob')[0]}"
    if first.startswith("named data "):
        key = first.removeprefix("named data ")
        return key if key.startswith("edgewright.") else "data that delegates look up by name"
    if "constant" in first:
        return "constants"
    return first
