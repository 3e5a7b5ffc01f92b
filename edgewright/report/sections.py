"""The sections of the page: tables that say everything, with charts above them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from edgewright.report.charts import arena_chart, budget_bar, flame_chart, pareto_chart, roofline
from edgewright.report.markup import MAX_ROWS, Cell, decibels, escape, fold, paragraph, prose, table
from edgewright.report.model import (
    Arena,
    DeviceLayer,
    Fact,
    FileReport,
    GraphView,
    Layers,
    Memory,
    Node,
    Pass,
    Passes,
    Report,
    TestCase,
)  # fmt: skip
from edgewright.report.side_by_side import layers_side_by_side
from edgewright.units import duration, number, share, size

_COMPLETE = 0.95  # of a run: what is left is explained
FRONTIER = "Dots of another color are the Pareto frontier: no other dot is better in both."
_MANY = 100  # rows of an estimate that are more than layers
_NO_ERRORS = "Errors of layers: run `edgewright report` on this file with --model, --inputs and --quantize."
_LOCATION = re.compile(r"(.*?:\d+): ")  # of a source line, before its text
_STATUS = {"good": "✓ ", "warn": "! ", "bad": "✗ "}


# ---------------------------------------------------------------------------------------------------------- overview


# What a reader looks for first; the rest follows in the order in which it was collected.
_ORDER = (
    "target", "precision", "delegated", "SQNR", "indices and bools", "metric", "time", "time here", "simulation here",
    "file", "bundle", "RAM", "planned memory", "test cases", "self-check",
)  # fmt: skip


def overview(file: FileReport) -> str:
    facts = sorted(file.facts, key=lambda f: _ORDER.index(f.label) if f.label in _ORDER else len(_ORDER))
    parts = [f'<dl class="facts">{"".join(map(_fact, facts))}</dl>']
    if file.estimates:
        listed = "".join(f"<li>{escape(line)}</li>" for line in file.estimates)
        parts.append(f'<h3>Estimates</h3><ul class="notes">{listed}</ul>')
    if file.next_steps:
        parts.append(f"<h3>What to do next</h3><ul>{''.join(f'<li>{prose(s)}</li>' for s in file.next_steps)}</ul>")
    if file.notes:
        parts.append(f'<h3>Notes</h3><ul class="notes">{"".join(f"<li>{prose(n)}</li>" for n in file.notes)}</ul>')
    if file.tests:
        parts.append(_tests(file.tests))
    if file.signature:
        parts.append(table("Inputs and outputs", ("method", "side", "type"), file.signature))
    if file.manifest:
        rows = [(key, _plain(value)) for key, value in sorted(file.manifest.items())]
        parts.append(fold("Manifest: versions and build", table("Manifest of the file", ("key", "value"), rows)))
    return "".join(parts)


def _tests(tests: Sequence[TestCase]) -> str:
    rows = [
        (t.method, Cell(str(t.index), t.index), Cell(str(t.outputs), t.outputs), Cell(f"{t.error:.3g}", t.error),
         Cell(("passed" if t.outputs else "ran") if t.passed else "failed", style="" if t.passed else "bad"))
        for t in tests
    ]  # fmt: skip
    heads = ("method", ">case", ">outputs compared", ">largest difference", "verdict")
    return table("Test cases of the bundle, run on this machine", heads, rows)


def _fact(fact: Fact) -> str:
    status = f' class="{fact.status}"' if fact.status else ""
    basis = f"<small>{prose(fact.basis)}</small>" if fact.basis else ""
    mark = _STATUS.get(fact.status, "")
    return f"<div><dt>{escape(fact.label)}</dt><dd{status}>{mark}{escape(fact.value)}{basis}</dd></div>"


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


# ------------------------------------------------------------------------------------------------------------- graph


def graph(view: GraphView, key: str) -> str:
    """A place for the drawing, which a script fills, and the operators as a table."""
    limit = f" The page has the first {len(view.nodes):,} of {view.total:,}." if view.omitted else ""
    head = f"<h3>{escape(view.title.capitalize())}: {view.total:,} operators</h3>" + paragraph(
        view.about + limit, "about"
    )
    place = f'<div class="graph" data-key="{escape(key)}"></div>'
    return f'<div class="view">{head}{place}{_legend(view)}{_operators(view)}</div>'


def _legend(view: GraphView) -> str:
    counts: dict[str, list[int]] = {}
    for node in view.nodes:
        line = counts.setdefault(node.placement, [0, 0])
        line[0] += 1
        line[1] += node.macs
    total = sum(macs for _, macs in counts.values()) or 1
    rows = [
        (name, Cell(f"{count:,}", count), Cell(share(macs / total), macs, macs / total))
        for name, (count, macs) in counts.items()
    ]
    return table("Where operators run", ("placement", ">operators", ">MACs"), rows)


def _operators(view: GraphView) -> str:
    heads = ("module", "operator", "name", "runs on", "why not delegated", "result", "quantization", "source",
             ">MACs", ">result bytes", ">weights", ">time here", ">cycles", ">error adds, dB")  # fmt: skip
    shown, rows = _filled_columns(heads, [_row(node) for node in view.nodes[:MAX_ROWS]])
    content = table(f"Operators of the {view.title}", shown, rows, view.total)
    return fold(f"All operators as a table ({min(len(view.nodes), MAX_ROWS):,} rows)", content, opened=len(rows) <= 40)


def _row(node: Node) -> tuple[Cell | str, ...]:
    return (
        node.module, node.operator, node.name, node.placement, _text(node.rules), _text(node.outputs),
        _text(node.quantization), _text([_location(node.source)] if node.source else []), _count(node.macs),
        _size(node.bytes), _size(node.weights), Cell("") if node.ms is None else Cell(duration(node.ms / 1e3), node.ms),
        _count(node.cycles or 0), decibels(node.error),
    )  # fmt: skip


def _location(source: str) -> str:
    """The file and the line of a source line, whose text has no room in a table.

    >>> _location("net.py:12: return self.conv(x)")
    'net.py:12'
    """
    match = _LOCATION.match(source)
    return match[1] if match else source


def _text(lines: Sequence[str]) -> Cell | str:
    """A cell that is not squeezed by its neighbors."""
    return Cell("; ".join(lines), style="text") if lines else ""


def _count(value: int) -> Cell:
    return Cell(f"{value:,}", value) if value else Cell("")


def _size(value: int) -> Cell:
    return Cell(size(value), value) if value else Cell("")


# ------------------------------------------------------------------------------------------------------------ layers


def layers(found: Layers) -> str:
    on_device, here = [*_device(found), *_streams(found)], _steps(found)
    parts = [*_errors(found), *on_device, *here]  # of the device first
    if parts and not found.errors:
        parts.append(paragraph(_NO_ERRORS, "about"))
    empty = "Nothing was measured: run the report without --no-run, or with --model and --inputs for errors by layer."
    return "".join(parts) or paragraph(empty, "about")


def _errors(found: Layers) -> list[str]:
    if not found.errors:
        return []
    worst = max(e.share for e in found.errors) or 1.0
    on_device = any(e.device is not None for e in found.errors)
    rows: list[Sequence[Cell | str]] = [
        (e.module or e.name, Cell(share(e.share), e.share, e.share / worst), decibels(e.introduced),
         decibels(e.effect), decibels(e.fake), *([decibels(e.device)] if on_device else []), e.operator)
        for e in found.errors
    ]  # fmt: skip
    heads = ("layer", ">share of error", ">own result, dB", ">model's output, dB", ">all quantized, dB",
             *([">on device, dB"] if on_device else []), "operators")  # fmt: skip
    about = (
        "SQNR against the float model: less is worse. With only this layer quantized: of its own result and of the"
        " model's output, and its share of the error there. With all layers quantized: of its result"
        f"{', computed by torch and as the device computes it' if on_device else ''}. {found.error_basis}"
    )
    return ["<h3>Error by layer</h3>", paragraph(about, "about"), table("Layers by the error they add", heads, rows)]


def _steps(found: Layers) -> list[str]:
    if not found.steps:
        return []
    longest = max(s.ms for s in found.steps) or 1.0
    largest = max(s.bytes for s in found.steps) or 1
    rows: list[Sequence[Cell | str]] = [
        (s.instruction, s.layer, Cell(duration(s.ms / 1e3), s.ms, s.ms / longest), Cell(share(s.share), s.share),
         s.name, _count(s.macs),
         Cell(size(s.bytes), s.bytes, s.bytes / largest) if s.bytes else Cell(""),
         Cell(f"{number(s.macs / s.ms / 1e6)}", s.macs / s.ms) if s.macs and s.ms else Cell(""))
        for s in found.steps
    ]  # fmt: skip
    heads = ("step", "layer", ">time", ">share", "name", ">MACs", ">bytes", ">GMAC/s")
    basis = f"Medians on {found.step_basis}."
    total = sum(s.share for s in found.steps)
    if total < _COMPLETE:
        basis += (
            f" The steps are {share(total)} of a run; the rest is spent between them, or on other work of this machine."
        )
    if found.simulated:
        basis = f"The time of the simulation ({found.simulated}), not of the device. {basis}"
    parts = ["<h3>Time by step on this machine</h3>", paragraph(basis, "about")]
    parts.append(table("Steps on this machine", *_filled_columns(heads, rows)))
    chart = roofline(found.steps, found.roofs) if found.roofs is not None else ""
    if chart and found.roofs is not None:
        reached = [f"{name} {number(n / 1e9)} GMAC/s" for name, n in found.roofs.macs.items()]
        reached += [f"{name} {number(n / 1e9)} GB/s" for name, n in found.roofs.bytes.items()]
        basis = f"A dot is a step; the lines are what this machine reached: {', '.join(reached)} ({found.roofs.basis})."
        parts += ["<h3>Roofline</h3>", paragraph(basis, "about"), chart]
    return parts


def _filled_columns(
    heads: Sequence[str], rows: Sequence[Sequence[Cell | str]]
) -> tuple[list[str], list[list[Cell | str]]]:
    """The columns in which a row has something."""
    texts = [[cell.text if isinstance(cell, Cell) else cell for cell in row] for row in rows]
    keep = [i for i in range(len(heads)) if not rows or any(row[i] for row in texts)]
    return [heads[i] for i in keep], [[row[i] for i in keep] for row in rows]


def _device(found: Layers) -> list[str]:
    if not found.device:
        return []
    most = max(d.cycles for d in found.device) or 1
    rows = [
        (
            d.name,
            Cell(f"{d.cycles:,}", d.cycles, d.cycles / most),
            Cell("") if d.seconds is None else Cell(duration(d.seconds), d.seconds),
            Cell(share(d.utilization), d.utilization) if d.utilization and d.macs else Cell(""),
            _count(d.macs),
            d.operator,
        )
        for d in found.device
    ]
    heads = ("layer", ">cycles", ">time", ">MACs used", ">MACs", "operator")
    listed = table("Layers on the NPU", *_filled_columns(heads, rows))
    if len(rows) > _MANY and found.streams:  # whose traffic is listed by layer, with the cycles
        listed = fold(f"All {len(rows):,} rows of the estimate", listed)
    return ["<h3>Cycles on the device</h3>", paragraph(f"{found.device_basis}.", "about"), listed]


def _streams(found: Layers) -> list[str]:
    parts = []
    for stream in found.streams:
        memories = sorted({m for p in stream.passes for m in p.traffic})
        named = any(p.layer for p in stream.passes)
        rows: list[Sequence[Cell | str]] = [
            (Cell(str(i), i), *([p.layer] if named else []), p.text, *(_size(p.traffic.get(m, 0)) for m in memories))
            for i, p in enumerate(stream.passes)
        ]
        totals = ", ".join(f"{m} {size(sum(p.traffic.get(m, 0) for p in stream.passes))}" for m in memories)
        heads = (">pass", *(["layer"] if named else []), "operation", *(f">{m}" for m in memories))
        about = f"{stream.title}: {len(stream.passes):,} passes; {totals}. {stream.basis}"
        parts += [
            "<h3>Cycles and traffic of the NPU by layer</h3>"
            if named and found.device
            else "<h3>Traffic of the NPU</h3>",
            paragraph(about, "about"),
        ]
        if named:
            parts.append(_traffic_by_layer(stream, memories, found.device if len(found.streams) == 1 else ()))
        listed = table(f"Passes of {stream.title}", heads, rows)
        parts.append(fold(f"All {len(rows):,} passes", listed, opened=not named and len(rows) <= 60))
    return parts


def _traffic_by_layer(stream: Passes, memories: Sequence[str], device: Sequence[DeviceLayer]) -> str:
    """Passes and estimated cycles of a layer together, in the order in which the layers begin, with bars."""
    layers: dict[str, list[Pass]] = {}
    for one in stream.passes:
        layers.setdefault(one.layer, []).append(one)
    moved = {name: [sum(p.traffic.get(m, 0) for p in passes) for m in memories] for name, passes in layers.items()}
    most = max((count for counts in moved.values() for count in counts), default=0) or 1
    cycles = {name: sum(d.cycles for d in device if d.name == name) for name in layers}
    longest = max(cycles.values(), default=0) or 1
    rows: list[Sequence[Cell | str]] = [
        (name, Cell(f"{cycles[name]:,}", cycles[name], cycles[name] / longest) if cycles[name] else "",
         Cell(str(len(layers[name])), len(layers[name])),
         *(Cell(size(count), count, count / most) if count else Cell("") for count in counts))
        for name, counts in moved.items()
    ]  # fmt: skip
    heads = ("layer", ">cycles", ">passes", *(f">{m}" for m in memories))
    return table(f"Cycles and traffic by layer of {stream.title}", *_filled_columns(heads, rows))


# ------------------------------------------------------------------------------------------------------------ memory


def memory(found: Memory) -> str:
    parts = []
    if found.flash is not None:
        parts.append(budget_bar("flash", found.file_bytes, found.flash))
    if found.ram is not None:
        parts.append(budget_bar("RAM", found.ram_used, found.ram))
    for arena in found.arenas:
        parts += [_arena(arena, None if found.scratch else found.ram)]  # the arena is not all that the limit is about
    if found.npu:
        used_by = [(name, Cell(size(used), used)) for name, used in found.npu.items()]
        parts += [
            "<h3>Memory of the NPU</h3>",
            paragraph(f"{found.npu_basis}.", "about"),
            table("By memory", ("memory", ">bytes"), used_by),
        ]
    total = found.file_bytes or 1
    rows = [
        (name, Cell(size(used), used, used / total), Cell(share(used / total), used))
        for name, used in found.parts.items()
        if used
    ]
    parts += ["<h3>The file</h3>", table("Parts of the file", ("part", ">bytes", ">share"), rows)]
    if found.weights:
        most = max(w.bytes for w in found.weights) or 1
        lines = [
            (w.owner, Cell(str(w.tensors), w.tensors), Cell(size(w.bytes), w.bytes, w.bytes / most))
            for w in found.weights
        ]
        parts += ["<h3>Weights</h3>", table("Weights by owner", ("owner", ">tensors", ">bytes"), lines)]
    return "".join(parts)


def _arena(arena: Arena, limit: int | None) -> str:
    more = (
        f" The chart has the {len(arena.blocks):,} largest of {arena.total:,} tensors."
        if arena.total > len(arena.blocks)
        else ""
    )
    peak = f"; {size(arena.peak)} are live at once at most, at instruction {arena.peak_at}" if arena.peak else ""
    about = f"{size(arena.bytes)} planned{peak}. A rectangle is a tensor: when it lives, and where.{more}"
    rows = [
        (
            b.name,
            Cell(size(b.bytes), b.bytes),
            Cell(str(b.offset), b.offset),
            Cell(str(b.start), b.start),
            Cell(str(b.end), b.end),
        )
        for b in arena.blocks
    ]
    heads = ("tensor", ">bytes", ">offset", ">first", ">last")
    return (
        f"<h3>Arena {arena.index} of {escape(arena.method)}</h3>{paragraph(about, 'about')}{arena_chart(arena, limit)}"
        + fold("Tensors of the arena", table(f"Tensors of arena {arena.index} of {arena.method}", heads, rows))
    )


# ---------------------------------------------------------------------------------------------------------- timeline


def timeline(file: FileReport) -> str:
    parts = []
    for found in file.timelines:
        more = f" The {len(found.spans):,} longest of {found.total:,} spans." if found.total > len(found.spans) else ""
        more += " Select a span to zoom into it, and again to zoom out; drag to pan."
        longest = max((s.length for s in found.spans), default=0.0) or 1.0
        rows = [
            (
                s.name,
                Cell(str(s.depth), s.depth),
                Cell(duration(s.start / 1e6), s.start),
                Cell(duration(s.length / 1e6), s.length, s.length / longest),
            )
            for s in found.spans
        ]
        heads = ("span", ">depth", ">start", ">time")
        parts += [
            f"<h3>{escape(found.title)}</h3>",
            paragraph(f"{found.basis[:1].upper()}{found.basis[1:]}.{more}", "about"),
            flame_chart(found),
        ]
        parts.append(fold("Spans as a table", table(f"Spans of {found.title}", heads, rows)))
    return "".join(parts) or paragraph(
        "No profile: run the report without --no-run, or pass one with --etdump.", "about"
    )


# ----------------------------------------------------------------------------------------------------------- compare


def compare(report: Report) -> str:
    """Files side by side, differences first, and Pareto plots where several have the figures."""
    parts = [_measures(report.files), *_plots(report.files), layers_side_by_side(report.files)]
    for name, error in report.failures.items():
        parts.append(f"<p class='bad'>✗ {escape(name)} failed: {escape(error)}</p>")
    names = list(dict.fromkeys(key for file in report.files for key in file.properties))
    rows = [[key, *(file.properties.get(key, "–") for file in report.files)] for key in names]  # noqa: RUF001
    different = [row for row in rows if len(set(row[1:])) > 1]
    same = [row for row in rows if len(set(row[1:])) == 1]
    heads = ["property", *(file.name for file in report.files)]
    parts.append("<h3>Differences</h3>")
    parts.append(
        table("Properties that differ", heads, different)
        if different
        else paragraph("All properties are the same.", "about")
    )
    if same:
        title = "1 property that is the same" if len(same) == 1 else f"{len(same)} properties that are the same"
        parts.append(fold(title, table("Properties that are the same", heads, same)))
    return "".join(parts)


def _measures(files: Sequence[FileReport]) -> str:
    rows = []
    for file in files:
        m = file.measures
        rows.append((
            file.name, file.target, file.precision, Cell(size(m.file_bytes), m.file_bytes),
            Cell(size(m.planned), m.planned), decibels(m.sqnr),
            Cell("") if m.coverage is None else Cell(share(m.coverage), m.coverage),
            _time(m.milliseconds), m.time_basis, _time(m.here_ms if file.layers.simulated else None),
        ))  # fmt: skip
    heads = ("file", "target", "precision", ">size", ">planned", ">SQNR, dB", ">delegated MACs", ">time", "time from",
             ">simulated here in")  # fmt: skip
    return table("Files side by side", *_filled_columns(heads, rows))


def _time(milliseconds: float | None) -> Cell:
    return Cell("") if milliseconds is None else Cell(duration(milliseconds / 1e3), milliseconds)


def _plots(files: Sequence[FileReport]) -> list[str]:
    parts = []
    timed = [(f.name, f.measures.milliseconds, f.measures.sqnr) for f in files]
    bases = {f.measures.time_basis for f in files if f.measures.milliseconds}
    for title, points, text in (
        ("time", [(n, t, q) for n, t, q in timed if t and q is not None], lambda ms: duration(ms / 1e3)),
        ("file size", [(f.name, float(f.measures.file_bytes), f.measures.sqnr) for f in files
                       if f.measures.sqnr is not None and f.measures.file_bytes], size),
    ):  # fmt: skip
        if len(points) > 1:
            mixed = title == "time" and len(bases) > 1
            about = f"The times have different sources ({'; '.join(sorted(bases))}): compare only those of one source."
            note = paragraph(about, "warn") if mixed else paragraph(FRONTIER, "about")
            chart = pareto_chart(points, (title, "SQNR, dB"), text, line=not mixed)
            parts += [f"<h3>Accuracy and {title}</h3>", note, chart]
    return parts
