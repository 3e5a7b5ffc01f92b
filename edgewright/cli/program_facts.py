"""Contents of a ``.pte`` as plain data, with the keys of ``edgewright inspect --json``.

Only the file's tables are read; weights are not touched and delegates are not loaded.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import edgewright.runtime.kernels  # noqa: F401  (fills the registry)
from edgewright.backends.registry import available_delegates, describe_backend
from edgewright.cli.size_breakdown import segment_facts, tensor_facts
from edgewright.formats import schema
from edgewright.formats.checked_int import tensor_bytes
from edgewright.formats.ptd import PtdEntry
from edgewright.ir.dtypes import ScalarType
from edgewright.program import manifest
from edgewright.program.listing import Listing
from edgewright.runtime.metadata import describe
from edgewright.runtime.registry import KERNELS

Facts = dict[str, Any]
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
            "segment_bytes": sum(s.size for s in program.segments or ()),
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
    fields = ("int_val", "bool_val", "double_val", "string_val")
    content = next((getattr(value, f) for f in fields if hasattr(value, f)), None)
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
