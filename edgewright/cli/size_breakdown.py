"""File size by tensor and by segment."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from edgewright.formats import schema
from edgewright.formats.checked_int import tensor_bytes
from edgewright.formats.operator_signatures import OPERATORS
from edgewright.formats.ptd import PtdEntry
from edgewright.ir.dtypes import ScalarType

Facts = dict[str, Any]


def tensor_facts(program: schema.Program, data: Mapping[str, PtdEntry] | None) -> list[Facts]:
    """Every stored tensor, listed once even if several methods use it, largest first."""
    facts_by_tensor: dict[tuple[str, object], Facts] = {}
    for plan in program.execution_plan:
        uses = _uses(plan)
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


def _uses(plan: schema.ExecutionPlan) -> dict[int, Facts]:
    """For each value, its first reader and argument name: the file rarely has tensor names."""
    uses: dict[int, Facts] = {}
    for chain in plan.chains:
        for instruction in chain.instructions:
            if isinstance(instruction, schema.KernelCall):
                key = (plan.operators or [])[instruction.op_index].key
                signature = OPERATORS.get(key)
                names = [a.name for a in signature.inputs] if signature else []
                for index, name in zip(instruction.args, names, strict=False):
                    uses.setdefault(index, {"operator": key, "argument": name})
            elif isinstance(instruction, schema.DelegateCall):
                for index in instruction.args:
                    delegate = plan.delegates[instruction.delegate_index].id
                    uses.setdefault(index, {"operator": delegate, "argument": "input"})
    return uses


def segment_facts(program: schema.Program) -> list[Facts]:
    """Every segment with its offset and contents."""
    contents: defaultdict[int, list[str]] = defaultdict(list)
    for index, content in _contents(program):
        if content not in contents[index]:
            contents[index].append(content)
    base = program.layout.segment_base if program.layout else 0
    return [
        {"index": index, "offset": base + segment.offset, "bytes": segment.size, "holds": contents[index]}
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
