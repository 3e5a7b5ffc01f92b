"""ETRecord reader: maps instructions to nodes of the user's graph and their source lines.

The zip file is untrusted: entries have a size limit, and pickles in it are never loaded.
"""

from __future__ import annotations

import io
import json
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from edgewright.errors import FormatError, LimitError
from edgewright.files import Source, open_source

IDENTIFIER = "ETRECORD_V0"  # an empty entry that identifies an ETRecord
GRAPHS = "edge_dialect_exported_program/"
_PARTS = ("_state_dict", "_constants", "_example_inputs")  # weights and pickles: never read
# What zipfile raises for malformed archives.
_ARCHIVE_ERRORS = (
    zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError, OSError, EOFError, struct.error, zlib.error,
)  # fmt: skip
_MAX_ENTRY_BYTES = 1 << 28  # bytes of one text inside the record


@dataclass(frozen=True)
class ETRecordNode:
    """A node of the user's graph: its operator, stack trace and module stack."""

    name: str
    operator: str
    stack_trace: str
    modules: dict[str, tuple[str, str]]


@dataclass
class ETRecord:
    """The record of one method: node numbers and delegate name per instruction, and the node of each number."""

    handles: dict[int, tuple[int, ...]] = field(default_factory=dict)
    delegates: dict[int, str] = field(default_factory=dict)
    nodes: dict[int, ETRecordNode] = field(default_factory=dict)

    def at(self, instruction: int) -> list[ETRecordNode]:
        """The nodes of an instruction."""
        return [self.nodes[h] for h in self.handles.get(instruction, ()) if h in self.nodes]


def read_record(source: Source, method: str = "forward") -> ETRecord:
    """Read the record of a method; if the file has only one method, its name does not matter."""
    view, name = open_source(source, "ETRecord")
    try:
        with zipfile.ZipFile(io.BytesIO(view)) as file:
            return _record(file, method)
    except _ARCHIVE_ERRORS as error:
        raise FormatError("an ETRecord is a zip file", value=str(error), file=name) from error
    except FormatError as error:
        error.file = name
        raise


def _record(file: zipfile.ZipFile, method: str) -> ETRecord:
    if IDENTIFIER not in file.namelist():
        raise FormatError(f"an ETRecord holds {IDENTIFIER}", value=", ".join(file.namelist()[:3]))
    handles = _by_method(_text(file, "debug_handle_map"), method)
    delegates = _by_method(_text(file, "delegate_map"), method)
    record = ETRecord()
    for key, value in handles.items():
        numbers = value if isinstance(value, list) else [value]
        record.handles[_number(key)] = tuple(_number(v) for v in numbers)
    for key, value in delegates.items():
        record.delegates[_number(key)] = str(value.get("name", "")) if isinstance(value, dict) else ""
    names = [n for n in file.namelist() if n.startswith(GRAPHS) and not n.endswith(_PARTS)]
    graph_name = f"{GRAPHS}{method}"
    if graph_name in names or len(names) == 1:
        record.nodes = dict(_nodes(_text(file, graph_name if graph_name in names else names[0])))
    return record


def _text(file: zipfile.ZipFile, name: str) -> Any:
    """A JSON entry of the record; empty if there is no such entry."""
    try:
        entry = file.getinfo(name)
    except KeyError:
        return {}
    if entry.file_size > _MAX_ENTRY_BYTES:
        raise LimitError(name, f"must have at most {_MAX_ENTRY_BYTES} bytes", value=entry.file_size)
    try:
        with file.open(entry) as stream:
            return json.loads(stream.read(_MAX_ENTRY_BYTES))
    except _ARCHIVE_ERRORS as error:  # JSON that is nested too deeply raises RuntimeError
        raise FormatError("must be JSON", where=name, value=str(error)) from error


def _by_method(table: Any, method: str) -> Mapping[str, Any]:
    """The part of a table that belongs to a method. Records of older releases have one method, without a name."""
    if not isinstance(table, dict):
        raise FormatError("must be a map", value=type(table).__name__)
    inner = table.get(method, next(iter(table.values())) if len(table) == 1 else table)
    return inner if isinstance(inner, dict) else table


def _number(value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError) as error:  # JSON's numbers may be infinite here
        raise FormatError("must be a number", value=value) from error


def _nodes(tree: Any) -> Iterator[tuple[int, ETRecordNode]]:
    try:
        calls = tree["graph_module"]["graph"]["nodes"]
        for call in calls:
            metadata = call["metadata"]
            if "debug_handle" in metadata:
                yield _number(metadata["debug_handle"]), _node(call, metadata)
    except (KeyError, TypeError, AttributeError) as error:
        raise FormatError("must be a graph of torch.export", where=GRAPHS.strip("/"), value=repr(error)) from error


def _node(call: Mapping[str, Any], metadata: Mapping[str, str]) -> ETRecordNode:
    outputs = call.get("outputs") or [{}]
    name = call.get("name") or outputs[0].get("as_tensor", {}).get("name", "")
    modules = {}
    for level in metadata.get("nn_module_stack", "").split(";"):
        key, path, kind = (*level.split(",", 2), "", "")[:3]
        if key:
            modules[key] = (path, kind)
    return ETRecordNode(
        str(name), ".".join(str(call["target"]).split(".")[-2:]), str(metadata.get("stack_trace", "")), modules
    )
