"""``executorch.devtools.Inspector``: an ETDump profile (``.etdp``) as blocks of events, linked to the model's source.

ExecuTorch's Inspector reads the same files; this one needs no torch, and pandas only for a ``DataFrame``.
"""

from __future__ import annotations

import csv
import enum
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import IO, Any, Union

from edgewright.errors import FormatError, MissingError, UsageError
from edgewright.files import write_file
from edgewright.formats.etdump import ProfileEvent, RunData, read_etdump
from edgewright.formats.etrecord import ETRecord, read_record

_WRAP = 1 << 32  # clocks of small devices wrap around
_OVERHEAD_EVENT = "OPERATOR_CALL"  # the operator's own event precedes it
_HIDDEN_COLUMNS = ("raw", "delegate_debug_identifier", "stack_traces", "module_hierarchy", "debug_data", "start_time")


class TimeScale(enum.Enum):
    """Units of time in profiles."""

    NS = "ns"
    US = "us"
    MS = "ms"
    S = "s"
    CYCLES = "cycles"


_PER_SECOND = {TimeScale.NS: 1e9, TimeScale.US: 1e6, TimeScale.MS: 1e3, TimeScale.S: 1.0, TimeScale.CYCLES: 1.0}


@dataclass(frozen=True)
class PerfData:
    """Times of an event over all runs.

    >>> PerfData([1.0, 2.0, 4.0]).p50
    2.0
    """

    raw: list[float]

    def _at(self, share: float) -> float:
        ordered = sorted(self.raw)
        position = share * (len(ordered) - 1)
        low = int(position)
        high = min(low + 1, len(ordered) - 1)
        return ordered[low] + (ordered[high] - ordered[low]) * (position - low)

    p10 = property(lambda self: self._at(0.1))
    p50 = property(lambda self: self._at(0.5))
    p90 = property(lambda self: self._at(0.9))
    avg = property(lambda self: statistics.fmean(self.raw))
    min = property(lambda self: min(self.raw))
    max = property(lambda self: max(self.raw))


@dataclass
class Event:
    """An instruction, or a step inside a delegate: times and source location."""

    name: str
    perf_data: PerfData | None = None
    op_types: list[str] = field(default_factory=list)
    delegate_debug_identifier: Union[int, str, None] = None
    debug_handles: tuple[int, ...] = ()
    stack_traces: dict[str, str] = field(default_factory=dict)
    module_hierarchy: dict[str, dict[str, tuple[str, str]]] = field(default_factory=dict)
    is_delegated_op: bool | None = None
    delegate_backend_name: str | None = None
    delegate_debug_metadatas: Any = field(default_factory=list)
    start_time: list[int] | None = None
    debug_data: list[Any] = field(default_factory=list)

    def row(self, units: str = "") -> dict[str, Any]:
        """The event as a table row."""
        kinds = ("p10", "p50", "p90", "avg", "min", "max")
        return {
            "event_name": self.name,
            "raw": self.perf_data.raw if self.perf_data else None,
            **{kind + units: getattr(self.perf_data, kind) if self.perf_data else None for kind in kinds},
            "op_types": self.op_types,
            "delegate_debug_identifier": self.delegate_debug_identifier,
            "stack_traces": self.stack_traces,
            "module_hierarchy": self.module_hierarchy,
            "is_delegated_op": self.is_delegated_op,
            "delegate_backend_name": self.delegate_backend_name,
            "debug_data": self.debug_data,
            "start_time": self.start_time,
        }


@dataclass
class EventBlock:
    """Runs with the same sequence of events."""

    name: str
    events: list[Event] = field(default_factory=list)
    bundled_input_index: int | None = None


Key = tuple[str, int, int, Union[int, str, None]]


class Inspector:
    """Contents of a profile and, with an ETRecord, the source of each event."""

    def __init__(
        self, etdump_path: str | None = None, etdump_data: bytes | None = None, etrecord: Any = None,
        source_time_scale: TimeScale = TimeScale.NS, target_time_scale: TimeScale = TimeScale.MS,
        debug_buffer_path: str | None = None,
        delegate_metadata_parser: Callable[[list[bytes]], Any] | None = None,
        delegate_time_scale_converter: Callable[[Any, float], float] | None = None,
        enable_module_hierarchy: bool = False,
    ) -> None:  # fmt: skip
        if (etdump_path is None) == (etdump_data is None):
            raise UsageError("Inspector", "takes the path of a profile or its bytes")
        if (source_time_scale is TimeScale.CYCLES) != (target_time_scale is TimeScale.CYCLES):
            raise UsageError("target_time_scale", "must be cycles if the source's is, and only then")
        if debug_buffer_path is not None:
            remedy = "`edgewright compare` compares a model's layers."
            raise UsageError("debug_buffer_path", "is not read: profiles of Edgewright hold no tensors", remedy=remedy)
        self.target_time_scale = target_time_scale
        self._scale = _PER_SECOND[target_time_scale] / _PER_SECOND[source_time_scale]
        self._parser = delegate_metadata_parser
        self._convert = delegate_time_scale_converter
        self._record = _load_record(etrecord)
        dump = read_etdump(etdump_data or b"" if etdump_path is None else etdump_path)
        self.event_blocks = self._blocks(dump.run_data or [])

    def _blocks(self, runs: Sequence[RunData]) -> list[EventBlock]:
        """Group runs of one name with the same events."""
        groups: dict[tuple[Any, ...], dict[Key, list[ProfileEvent]]] = {}
        for run in runs:
            events_by_key: dict[Key, list[ProfileEvent]] = {}
            for event in run.events or ():
                if event.profile_event is not None:
                    events_by_key.setdefault(_key(event.profile_event), []).append(event.profile_event)
            if events_by_key:
                merged = groups.setdefault((run.name or "", run.bundled_input_index, tuple(events_by_key)), {})
                for key, events in events_by_key.items():
                    merged.setdefault(key, []).extend(events)
        return [
            EventBlock(name, [self._event(key, seen) for key, seen in merged.items()], None if index < 0 else index)
            for (name, index, _), merged in groups.items()
        ]

    def _event(self, key: Key, seen: list[ProfileEvent]) -> Event:
        name, chain, instruction, inside = key
        times = [float(_duration(event)) for event in seen]
        metadata = [bytes(e.delegate_debug_metadata) for e in seen if e.delegate_debug_metadata]
        if inside is not None and self._convert is not None:
            times = [self._convert(inside, t) for t in times]
        else:
            times = [t * self._scale for t in times]
        joined_event = Event(
            name, PerfData(times), delegate_debug_identifier=inside, is_delegated_op=inside is not None
        )
        joined_event.start_time = [event.start_time for event in seen]
        joined_event.delegate_debug_metadatas = (
            self._parser(metadata) if metadata and self._parser is not None else metadata
        )
        if chain >= 0:
            self._join(joined_event, instruction)
        return joined_event

    def _join(self, event: Event, instruction: int) -> None:
        event.debug_handles = self._record.handles.get(instruction, ())
        for node in self._record.at(instruction):
            event.op_types.append(node.operator)
            event.stack_traces[node.name] = node.stack_trace
            event.module_hierarchy[node.name] = node.modules
        event.delegate_backend_name = self._record.delegates.get(instruction)

    def rows(self, include_units: bool = True, include_delegate_debug_data: bool = False) -> list[dict[str, Any]]:
        """One row per event of each block."""
        units = f" ({self.target_time_scale.value})" if include_units else ""
        table_rows = []
        for block in self.event_blocks:
            for event in block.events:
                row = {"event_block_name": block.name, **event.row(units)}
                if include_delegate_debug_data:
                    row["delegate_debug_metadata"] = event.delegate_debug_metadatas
                table_rows.append(row)
        return table_rows

    def to_dataframe(self, include_units: bool = True, include_delegate_debug_data: bool = False) -> Any:
        """The rows as a pandas DataFrame."""
        try:
            pandas = import_module("pandas")
        except ModuleNotFoundError as error:
            raise MissingError("to_dataframe", "needs pandas", remedy="pip install pandas") from error
        return pandas.DataFrame(self.rows(include_units, include_delegate_debug_data))

    def print_data_tabular(
        self, file: IO[str] | None = None, include_units: bool = True, include_delegate_debug_data: bool = False
    ) -> None:
        """Print the table without its widest columns."""
        rows = [[_format_cell(v) for v in row] for row in self._visible(include_units, include_delegate_debug_data)]
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))] if rows else []
        for row in rows:
            line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            print(line.rstrip(), file=file or sys.stdout)

    def save_data_to_tsv(
        self, file: Union[str, IO[str]], include_units: bool = True, include_delegate_debug_data: bool = False
    ) -> None:
        """Write the table as TSV to a path or an open file."""
        lines = self._visible(include_units, include_delegate_debug_data)
        rows = [["" if i == 0 else i - 1, *line] for i, line in enumerate(lines)]
        if isinstance(file, str):
            write_file(file, ["".join("\t".join(map(str, line)) + "\n" for line in rows).encode()])
        else:
            csv.writer(file, delimiter="\t", lineterminator="\n").writerows(rows)

    def _visible(self, include_units: bool, include_delegate_debug_data: bool) -> list[list[Any]]:
        rows = [r for r in self.rows(include_units, include_delegate_debug_data) if r["event_name"] != _OVERHEAD_EVENT]
        columns = [name for name in (rows[0] if rows else {}) if name not in _HIDDEN_COLUMNS]
        return [columns, *([row[name] for name in columns] for row in rows)] if rows else []

    def find_total_for_module(self, module_name: str) -> float:
        """Sum of the mean times of all operators in a module; a delegate that contains part of it counts fully."""
        total = 0.0
        for event in (e for block in self.event_blocks for e in block.events if e.name != _OVERHEAD_EVENT):
            inside = (key for levels in event.module_hierarchy.values() for key, _ in levels.values())
            if event.perf_data is not None and event.is_delegated_op is False and module_name in inside:
                total += event.perf_data.avg
        return total


def _load_record(etrecord: Any) -> ETRecord:
    if etrecord is None:
        return ETRecord()
    return read_record(etrecord.to_bytes() if hasattr(etrecord, "to_bytes") else etrecord)


def _key(event: ProfileEvent) -> Key:
    number = event.delegate_debug_id_int
    inside = event.delegate_debug_id_str or (number if number >= 0 else None)
    return event.name or "", event.chain_index, event.instruction_id, inside


def _duration(event: ProfileEvent) -> int:
    elapsed = event.end_time - event.start_time
    if elapsed < 0 and event.start_time < _WRAP:
        elapsed += _WRAP
    if elapsed < 0:
        raise FormatError("an event must not end before it starts", where=event.name or "", value=event.end_time)
    return elapsed


def _format_cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list) and len(value) > 4:
        return f"[{value[0]!r}, {value[1]!r} ... {value[-1]!r}] ({len(value)} total)"
    return str(value)
