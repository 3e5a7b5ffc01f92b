"""Render the contents of a file as tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from statistics import median
from typing import Any

from rich.console import Console
from rich.text import Text

from edgewright.console import clean, console, dims, plural, table
from edgewright.lowering.estimates import describe
from edgewright.report.file_facts import Facts
from edgewright.units import duration, share, size

_TOP = 20  # rows shown of a long table without --verbose
_HASH = re.compile(r"(?<![0-9a-f])([0-9a-f]{12})[0-9a-f]{52}\b")
_NAMES = {"pte": "program", "ptd": "data", "bpte": "bundled program", "etdp": "profile"}


def show(facts: Facts, *, everything: bool) -> None:
    """Print ``facts`` as returned by ``inspect.gather``."""
    out = console()
    title = f"{clean(facts['file'])}: {_NAMES[facts['format']]}, {size(facts['bytes'])}"
    out.print(title, style="bold", soft_wrap=True)
    _SHOW[facts["format"]](out, facts, None if everything else _TOP)


def _truncate(rows: list[Any], top: int | None) -> tuple[list[Any], int]:
    return (rows, 0) if top is None or len(rows) <= top else (rows[:top], len(rows) - top)


def _print_hidden_count(out: Console, count: int) -> None:
    if count:
        out.print(f"{count} more: --verbose shows all of them", style="dim")


def _yes_or(value: bool, otherwise: str) -> Text:
    return Text("yes", style="green") if value else Text(otherwise, style="red")


# ------------------------------------------------------------------------------------------------------ programs


def _program(out: Console, facts: Facts, top: int | None) -> None:
    layout = facts["layout"]
    behind = f"{size(layout['segment_bytes'])} of segments from byte {layout['segment_base']}"
    flatbuffer = f"{size(layout['flatbuffer_bytes'])} of tables, {layout['header_bytes']} B of it header"
    out.print(f"{flatbuffer}; {behind if layout['segment_base'] else 'no segments'}")
    _manifest(out, facts["manifest"])
    constant = [m for m in facts["methods"] if not m["inputs"] and not m["instruction_count"]]
    for method in facts["methods"]:
        if method not in constant:
            _method(out, method, _scales(facts["manifest"]))
    _constant_methods(out, constant)
    _tensors(out, facts["tensors"], top)
    _segments(out, facts["segments"], top)


def _manifest(out: Console, manifest: Facts | None) -> None:
    """Print the manifest; its contents are untrusted."""
    if manifest is None:
        return
    fields = {key: _text(manifest.get(key)) for key in ("edgewright", "torch", "targets", "runtime")}
    line = f"compiled by Edgewright {fields['edgewright']} with torch {fields['torch']}"
    out.print(f"{line}; targets {fields['targets']}, kernels of {fields['runtime']!r}", soft_wrap=True)
    listed = manifest.get("estimates")
    for line in filter(None, map(describe, listed if isinstance(listed, list) else ())):
        out.print(clean(line), soft_wrap=True)


def _text(value: object) -> str:
    words = value if isinstance(value, list) else [value]
    text = clean(", ".join(str(word) for word in words if isinstance(word, str | int))) or "unknown"
    return text if len(text) <= 60 else text[:57] + "..."


def _scales(content: Facts | None) -> dict[str, str]:
    """What quantized inputs and outputs mean, by name, as the manifest has it; it is untrusted."""
    recorded = (content or {}).get("quantized_io")
    found = {}
    for name, entry in recorded.items() if isinstance(recorded, dict) else ():
        scale, zero_point = (entry.get(k) for k in ("scale", "zero_point")) if isinstance(entry, dict) else (None, None)
        if isinstance(scale, float) and isinstance(zero_point, int):
            short = name.replace("input", "in", 1).replace("output", "out", 1)
            found[short] = f"x = {scale:.9g} * (q {'-' if zero_point >= 0 else '+'} {abs(zero_point)})"
    return found


def _method(out: Console, method: Facts, scales: dict[str, str]) -> None:
    out.print()
    out.rule(Text(f"method {clean(method['name'])}"), align="left", style="dim")
    numbers = f"{plural(method['instruction_count'], 'instruction')}, {plural(method['value_count'], 'value')}"
    arenas = " + ".join(size(m["bytes"]) + _device(m) for m in method["memory"]) or "none"
    out.print(f"{numbers}; planned memory {arenas}; constants {size(method['constant_bytes'])}")
    edges = [_edge(e) for e in (*method["inputs"], *method["outputs"])]
    if edges:
        columns: tuple[str, ...] = ("", "type", "shape", ">size", "memory")
        if scales and method["name"] == "forward":  # the one method of a program with integer inputs and outputs
            columns, edges = (*columns, "real value"), [(*edge, scales.get(edge[0], "")) for edge in edges]
        out.print(table("inputs and outputs", columns, edges, flexible="shape"))
    if method["operators"]:
        rows = [(o["name"], o["calls"], _yes_or(o["kernel"], "missing")) for o in method["operators"]]
        out.print(table("operators", ("operator", ">calls", "kernel here"), rows, flexible="operator"))
    if method["delegates"]:
        delegates = [_delegate(d) for d in method["delegates"]]
        width = 6 if any(row[-1] for row in delegates) else 5
        headings = (">#", "delegate", ">blob", ">calls", "here", "compile specs")[:width]
        out.print(table("delegates", headings, [d[:width] for d in delegates], flexible="compile specs"))
    _listing(out, method)


def _device(memory: Facts) -> str:
    return "" if memory["device"] == "cpu" else f" on {memory['device']}"


def _edge(edge: Facts) -> tuple[str, ...]:
    if edge["kind"] != "tensor":
        return edge["name"], edge["kind"], repr(edge["value"]), "", "fixed at export"
    shape = dims(edge["shape"], edge["dynamic"])
    if edge["dim_order"] != sorted(edge["dim_order"]):
        shape += f" order {edge['dim_order']}"
    memory = "planned" if edge["planned"] else "the caller's"
    return edge["name"], edge["type"], shape, "" if edge["bytes"] is None else size(edge["bytes"]), memory


def _delegate(delegate: Facts) -> tuple[object, ...]:
    specs = ", ".join(
        f"{s['key']}={s['text']}" if s["text"] is not None else f"{s['key']} ({s['bytes']} B)"
        for s in delegate["compile_specs"]
    )
    available = _yes_or(delegate["available"], "no")
    return delegate["index"], delegate["id"], size(delegate["bytes"]), delegate["calls"], available, specs


def _listing(out: Console, method: Facts) -> None:
    if "values" in method:
        out.print()
        out.print("values", style="bold")
        for line in method["values"]:
            out.print(f"  {clean(line)}", soft_wrap=True)
    if "instructions" in method:
        out.print()
        out.print("instructions", style="bold")
        for row in method["instructions"]:
            source = f"   # {row['source']}" if row["source"] else ""
            out.print(f"  {row['index']:>4}  {clean(row['text'] + source)}", soft_wrap=True)


def _constant_methods(out: Console, methods: list[Facts]) -> None:
    if not methods:
        return
    rows = []
    for method in methods:
        outputs = [dims(e["shape"]) if e["kind"] == "tensor" else repr(e["value"]) for e in method["outputs"]]
        kinds = dict.fromkeys(e["type"] if e["kind"] == "tensor" else e["kind"] for e in method["outputs"])
        rows.append((method["name"], ", ".join(kinds), ", ".join(outputs)))
    out.print(table("constant methods", ("method", "type", "value"), rows, flexible="value"))


def _tensors(out: Console, tensors: list[Facts], top: int | None) -> None:
    if not tensors:
        return
    total = sum(t["bytes"] for t in tensors)
    visible, rest = _truncate(tensors, top)
    rows = [
        (_tensor_name(t), t["type"], dims(t["shape"]), size(t["bytes"]), share(t["bytes"] / max(total, 1)), _use(t))
        for t in visible
    ]
    title = f"{plural(len(tensors), 'stored tensor')}, {size(total)}"
    columns = ("tensor", "type", "shape", ">size", ">share", "used as")
    out.print(table(title, columns, rows, flexible="used as"))
    _print_hidden_count(out, rest)


def _tensor_name(tensor: Facts) -> str:
    name = tensor["name"] or f"#{tensor['index']}"
    return name if tensor["kind"] == "constant" else f"{name} ({tensor['kind'].removesuffix(' constant')})"


def _use(tensor: Facts) -> str | Text:
    if tensor["found"] is False:
        return Text("not in --data", style="red")
    use = tensor["used_by"]
    if not use:
        return ""
    return f"{use['argument']} of {use['layer'] or use['operator'].removeprefix('aten::').removesuffix('.out')}"


def _segments(out: Console, segments: list[Facts], top: int | None) -> None:
    if not segments:
        return
    visible, rest = _truncate(segments, top)
    rows = [(s["index"], s["offset"], size(s["bytes"]), _contents(s["holds"])) for s in visible]
    out.print(table("segments", (">#", ">at byte", ">size", "holds"), rows, flexible="holds"))
    _print_hidden_count(out, rest)


def _contents(contents: list[str]) -> str:
    """The contents of a segment, with hashes abbreviated."""
    return _HASH.sub(r"\1...", ", ".join(contents)) or "nothing known"


# --------------------------------------------------------------------------------------------------- other files


def _data(out: Console, facts: Facts, top: int | None) -> None:
    visible, rest = _truncate(facts["entries"], top)
    rows = [
        (e["name"], e["type"] or "blob", "" if e["shape"] is None else dims(e["shape"]), size(e["bytes"]))
        for e in visible
    ]
    title = plural(len(facts["entries"]), "named item")
    out.print(table(title, ("name", "type", "shape", ">size"), rows, flexible="name"))
    _print_hidden_count(out, rest)


def _bundle(out: Console, facts: Facts, top: int | None) -> None:
    rows = [
        (suite["method"], number, _join(case["inputs"]), _join(case["expected"]) or "anything")
        for suite in facts["suites"]
        for number, case in enumerate(suite["cases"])
    ]
    visible, rest = _truncate(rows, top)
    columns = ("method", ">case", "inputs", "expected")
    out.print(table(plural(len(rows), "test case"), columns, visible, flexible="inputs"))
    _print_hidden_count(out, rest)
    out.print(f"\nthe bundled program, {size(facts['program_bytes'])}", style="bold")
    _program(out, facts["program"], top)


def _join(items: Iterable[str]) -> str:
    return ", ".join(items)


def _profile(out: Console, facts: Facts, top: int | None) -> None:
    groups, hidden = _truncate(_group_equal_runs(facts["runs"]), top)
    for first, runs in groups:
        last = first + len(runs) - 1
        title = f"run {first}" if len(runs) == 1 else f"runs {first} to {last}"
        title += f" {runs[0]['name']!r}: {plural(len(runs[0]['events']), 'event')}"
        for key in ("allocations", "debug_events"):
            title += f", {runs[0][key]} {key.replace('_', ' ')}" if runs[0][key] else ""
        visible, rest = _truncate(_events(runs), top)
        heading = "time" if len(runs) == 1 else "median"
        columns = ("event", ">instruction", ">starts at", f">{heading}")
        out.print(table(title, columns, visible, flexible="event"))
        _print_hidden_count(out, rest)
    _print_hidden_count(out, hidden)


def _group_equal_runs(runs: list[Facts]) -> list[tuple[int, list[Facts]]]:
    """Group consecutive runs with the same events, so that a hundred runs print as one table."""
    groups: list[tuple[int, list[Facts]]] = []
    previous = None
    for number, run in enumerate(runs):
        signature = (run["name"], [(e["name"], e["chain"], e["instruction"]) for e in run["events"]])
        if signature == previous:
            groups[-1][1].append(run)
        else:
            groups.append((number, [run]))
        previous = signature
    return groups


def _events(runs: list[Facts]) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    for events in zip(*(run["events"] for run in runs), strict=True):
        start, elapsed = (median(e[key] for e in events) for key in ("start_ms", "ms"))
        at = "" if events[0]["instruction"] < 0 else events[0]["instruction"]
        rows.append((events[0]["name"], at, duration(start / 1e3), duration(elapsed / 1e3)))
    return rows


_SHOW: dict[str, Callable[[Console, Facts, int | None], None]] = {
    "pte": _program,
    "ptd": _data,
    "bpte": _bundle,
    "etdp": _profile,
}
