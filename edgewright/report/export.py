"""Reports for other tools: timelines for Perfetto, figures by node for Google's Model Explorer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edgewright.report.model import FileReport, GraphView


def perfetto_trace(files: Sequence[FileReport]) -> dict[str, Any]:
    """Timelines in the trace event format, which Perfetto and ``chrome://tracing`` read: a process per file, a thread
    per timeline."""
    events: list[dict[str, Any]] = []
    for process, file in enumerate(files, 1):
        events.append({"name": "process_name", "ph": "M", "pid": process, "tid": 0, "args": {"name": file.name}})
        for thread, timeline in enumerate(file.timelines, 1):
            name = {"name": f"{timeline.title} ({timeline.basis})"}
            events.append({"name": "thread_name", "ph": "M", "pid": process, "tid": thread, "args": name})
            events += [
                {"name": span.name, "ph": "X", "ts": span.start, "dur": span.length, "pid": process, "tid": thread}
                for span in timeline.spans
            ]
    return {"traceEvents": events, "displayTimeUnit": "ms"}


_MEASURES = {"time": "ms", "macs": "macs", "weights": "weights", "error": "error", "cycles": "cycles"}
_GRAPH = "graph"  # the id that Model Explorer gives the graph of a .pt2; data of other ids is not shown
_GRADIENT = [{"stop": 0, "bgColor": "#00224e"}, {"stop": 1, "bgColor": "#ffea46"}]


def model_explorer(file: FileReport) -> dict[str, Any]:
    """Custom node data of Model Explorer, by figure: the values by node id, for the graph of a ``.pt2``.

    The nodes are those of the exported model where it is known: Model Explorer shows the ``.pt2`` under the same names.
    """
    overlays = {}
    for name, measure in _MEASURES.items():
        values = _values(file.graphs[0], measure)
        if values:
            results = {node: {"value": value} for node, value in values.items()}
            overlays[name] = {_GRAPH: {"results": results, "gradient": _GRADIENT}}
    return overlays


def _values(view: GraphView, measure: str) -> dict[str, float]:
    """A figure by node; of nodes with the same name, the sum (of errors the worst)."""
    values: dict[str, float] = {}
    for node in view.nodes:
        value = getattr(node, measure)
        if value:
            known = values.get(node.name)
            values[node.name] = value if known is None else min(known, value) if measure == "error" else known + value
    return values
