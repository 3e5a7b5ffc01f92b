"""The tables of ``docs/soundness.md``, from the state of a search."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from edgewright.quantize.methods import METHODS
from tests.compose.campaign import State, Unit
from tests.compose.coverage import IMPROVEMENT, PLACEMENT, all_kernels, all_lowerings

PAGE = Path(__file__).parents[2] / "docs" / "soundness.md"
BEGIN, END = "<!-- tables: begin -->", "<!-- tables: end -->"
# What no composition reaches, and why.
UNREACHED = {
    "lowering conv.Bf16Gemm": "only with `EDGEWRIGHT_BF16`, which rounds operands (`test_bf16_gemm.py`)",
    "kernel gemm_bf16": "the kernel of `conv.Bf16Gemm`",
    "lowering fallback.CoreDispatch": "chooses among others, and is never a node's lowering itself",
    "lowering fallback.ForeignDispatch": "the same, for operators of other dialects",
}


def write_page(states: Sequence[State]) -> None:
    """Replace what is between the page's markers."""
    text = PAGE.read_text()
    head, rest = text.split(BEGIN)
    tail = rest.split(END)[1]
    PAGE.write_text(f"{head}{BEGIN}\n{tables(states)}\n{END}{tail}")


def tables(states: Sequence[State]) -> str:
    """A line for each search, and what all of them did together."""
    merged = _merge(states)
    graphs, models = (_select(merged.units, model) for model in (False, True))
    parts = [_searches(states), _units("Device graphs", graphs), _units("Models", models), _failures(merged)]
    return "\n\n".join([*parts, _skips(merged), _reached(merged)])


def _searches(states: Sequence[State]) -> str:
    rows = []
    for state in states:
        graphs, models = (sum(u.next for u in _select(state.units, model)) for model in (False, True))
        seeds = f"{state.base} to {state.base + max(u.total for u in state.units) - 1}"
        days = " to ".join(dict.fromkeys((state.started, state.ended)))
        complete = "" if all(u.done for u in state.units) else " (not complete)"
        rows.append((seeds, state.commit, days, f"{graphs:,}", f"{models:,}{complete}", len(state.failures)))
    return _table(("seeds", "commit", "date", "device graphs", "models", "differ"), rows)


def _merge(states: Sequence[State]) -> State:
    names = dict.fromkeys(u.name for state in states for u in state.units)
    units = []
    for name in names:
        found = [u for state in states for u in state.units if u.name == name]
        counts = {f: sum(getattr(u, f) for u in found) for f in ("total", "next", "passed", "failed", "skipped")}
        units.append(Unit(name, **counts))
    coverage, skips = (_total(getattr(s, field) for s in states) for field in ("coverage", "skips"))
    return State(states[0].base, units, [f for s in states for f in s.failures], coverage, skips)


def _total(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for one in counts:
        total.update(one)
    return dict(total)


def _select(units: Iterable[Unit], model: bool) -> list[Unit]:
    return [u for u in units if u.name.startswith("model:") is model]


def _table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    return "\n".join([*lines, *(f"| {' | '.join(str(c) for c in row)} |" for row in rows)])


def _units(title: str, units: Sequence[Unit]) -> str:
    rows = [(f"`{u.name.removeprefix('model:')}`", u.passed, u.failed, u.skipped) for u in units]
    total = ("all", *(sum(getattr(u, n) for u in units) for n in ("passed", "failed", "skipped")))
    return f"### {title}\n\n" + _table(("unit", "agree", "differ", "not compared"), [*rows, total])


def _failures(state: State) -> str:
    if not state.failures:
        return "### What differs\n\nNothing."
    kinds = Counter((f["unit"], f["failure"]) for f in state.failures)
    rows = [(f"`{unit}`", kind, count) for (unit, kind), count in sorted(kinds.items())]
    return "### What differs\n\n" + _table(("unit", "how", "times"), rows)


def _skips(state: State) -> str:
    if not state.skips:
        return ""
    rows = sorted(state.skips.items(), key=lambda pair: -pair[1])
    return "### What was not compared, and why\n\n" + _table(("reason", "times"), rows)


def _reached(state: State) -> str:
    counts = state.coverage
    names = [f"lowering {n}" for n in all_lowerings()] + [f"kernel {n}" for n in all_kernels()]
    names += [f"placement {n}" for n in PLACEMENT]
    names += [f"{IMPROVEMENT} {n}" for n in (*METHODS, "train")]
    names += sorted(n for n in counts if n.startswith(("kernel ", "fusion ")) and n not in names)
    rows = [(n, f"{counts[n]:,}" if n in counts else f"never: {UNREACHED.get(n, 'not reached')}") for n in names]
    numpy = sorted(n.removeprefix("python ") for n in counts if n.startswith("python "))
    left = f"Operators that numpy ran in some graph: {', '.join(f'`{n}`' for n in numpy)}." if numpy else ""
    return "### What was reached\n\n" + _table(("path", "graphs"), rows) + f"\n\n{left}"
