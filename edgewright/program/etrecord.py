"""ETRecord: the exported graph that goes with a program, so that ExecuTorch's Inspector maps profiles to source lines.

The file is a zip with what the Inspector reads: each method's exported graph with numbered nodes (debug handles), and
for each instruction of the program the handles of its nodes.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Union

import torch
from torch._export.serde.serialize import serialize
from torch.export import ExportedProgram

from edgewright.errors import UsageError
from edgewright.files import write_file
from edgewright.formats import schema
from edgewright.formats.etrecord import GRAPHS, IDENTIFIER

_TIMESTAMP = (1980, 1, 1, 0, 0, 0)  # reproducible bytes
# The Inspector reads an older version of torch's format, without these fields.
_VERSION = {"major": 5, "minor": 4}
_NEWER_FIELDS = {
    "forward_arg_names", "guards_code", "is_hop_single_tensor_return", "kind", "sym_float_values", "torch_version",
    "treespec_namedtuple_fields",
}  # fmt: skip


@dataclass
class ETRecord:
    """Graphs by method; by method and instruction, the debug handles (from 1), the delegate, and the outputs."""

    programs: Mapping[str, ExportedProgram]
    debug_handle_map: dict[str, dict[int, Union[int, list[int]]]] = field(default_factory=dict)
    delegate_map: dict[str, dict[int, dict[str, Any]]] = field(default_factory=dict)
    instruction_id_to_num_outs_map: dict[str, dict[int, int]] = field(default_factory=dict)
    representative_inputs: Any = None
    reference_outputs: dict[str, Any] | None = None

    def update_representative_inputs(self, inputs: Any) -> None:
        """Set inputs that the Inspector may run the graph on."""
        self.representative_inputs = list(inputs)

    def update_reference_outputs(self, outputs: Any) -> None:
        """Set the expected outputs for them: of ``forward``, or by method."""
        self.reference_outputs = dict(outputs) if isinstance(outputs, Mapping) else {"forward": list(outputs)}

    def save(self, path: str | os.PathLike[str] | BinaryIO) -> None:
        """Write to a path atomically, or to an open file."""
        data = self.to_bytes()
        if isinstance(path, str | os.PathLike):
            write_file(path, [data])
        else:
            path.write(data)

    def to_bytes(self) -> bytes:
        """The file's bytes."""
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as file:
            _write_entry(file, IDENTIFIER, "")
            for method, program in self.programs.items():
                for suffix, data in _serialize_program(program).items():
                    _write_entry(file, f"{GRAPHS}{method}{suffix}", data)
            for name in ("debug_handle_map", "delegate_map", "instruction_id_to_num_outs_map"):
                _write_entry(file, name, json.dumps(getattr(self, name)))
            for name in ("representative_inputs", "reference_outputs"):
                if getattr(self, name) is not None:
                    _write_entry(file, name, _torch_save(getattr(self, name)))
        return buffer.getvalue()


def make_etrecord(
    programs: Mapping[str, ExportedProgram], program: schema.Program, sources: Mapping[str, Sequence[tuple[str, ...]]]
) -> ETRecord:
    """The record of a program. ``sources``: by method and instruction, the nodes it implements."""
    etrecord = ETRecord(dict(programs))
    for plan in program.execution_plan:
        if plan.name not in programs:
            continue  # a method that returns constants has no graph
        handles = _handles(programs[plan.name])
        for index, names in enumerate(sources[plan.name]):
            handle_list = sorted({handles[name] for name in names if name in handles})
            if handle_list:
                by_instruction = etrecord.debug_handle_map.setdefault(plan.name, {})
                by_instruction[index] = handle_list[0] if len(handle_list) == 1 else handle_list
        etrecord.debug_handle_map.setdefault(plan.name, {})
        etrecord.delegate_map[plan.name], etrecord.instruction_id_to_num_outs_map[plan.name] = {}, {}
        for index, instruction in enumerate(plan.chains[0].instructions):
            if isinstance(instruction, schema.DelegateCall):
                delegate = plan.delegates[instruction.delegate_index]
                etrecord.delegate_map[plan.name][index] = {"name": delegate.id, "delegate_map": {}}
    return etrecord


def generate_etrecord(
    et_record: str | os.PathLike[str] | BinaryIO, edge_dialect_program: Any, executorch_program: Any,
    extra_recorded_export_modules: Mapping[str, Any] | None = None,
) -> None:  # fmt: skip
    """Write the record of a program compiled by Edgewright; the graph is the one that was compiled."""
    if extra_recorded_export_modules:
        raise UsageError("extra_recorded_export_modules", "are not recorded", remedy="Leave them out.")
    if not hasattr(executorch_program, "get_etrecord"):
        kind = type(executorch_program).__name__
        raise UsageError("executorch_program", "must be the result of to_executorch", value=kind)
    executorch_program.get_etrecord().save(et_record)


def _handles(program: ExportedProgram) -> dict[str, int]:
    """Debug handles of a graph's calls, by node name."""
    calls = [node.name for node in program.graph.nodes if node.op == "call_function"]
    return {name: number for number, name in enumerate(calls, 1)}


def _serialize_program(program: ExportedProgram) -> dict[str, bytes]:
    """A program in the Inspector's format: contents by suffix of the file name."""
    serialized = serialize(program)
    tree = _drop_newer_fields(json.loads(serialized.exported_program))
    tree.update(dialect="ATEN", schema_version=_VERSION)
    tree["graph_module"].pop("metadata", None)
    handles = _handles(program)
    for node in tree["graph_module"]["graph"]["nodes"]:
        name = node.get("name") or _first_output(node)
        if name in handles:
            node["metadata"]["debug_handle"] = str(handles[name])
    parts = {
        "_state_dict": serialized.state_dict,
        "_constants": serialized.constants,
        "_example_inputs": serialized.example_inputs,
    }
    return {"": json.dumps(tree).encode(), **{suffix: bytes(data) for suffix, data in parts.items()}}


def _drop_newer_fields(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: _drop_newer_fields(value) for key, value in tree.items() if key not in _NEWER_FIELDS}
    return [_drop_newer_fields(item) for item in tree] if isinstance(tree, list) else tree


def _first_output(node: dict[str, Any]) -> str:
    outputs = node.get("outputs") or [{}]
    return str(outputs[0].get("as_tensor", {}).get("name", ""))


def _torch_save(value: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def _write_entry(file: zipfile.ZipFile, name: str, data: str | bytes) -> None:
    file.writestr(zipfile.ZipInfo(name, _TIMESTAMP), data)
