"""Time of a program: a profile on this machine or of a device (ETDump), as steps, a flame chart and a roofline."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.engine.profile import Profile, RunTime, StepTime
from edgewright.errors import EdgewrightError
from edgewright.files import Source
from edgewright.formats.etdump import read_etdump
from edgewright.report.file_facts import profile_facts
from edgewright.report.model import FileReport, GraphView, Node, Roofs, Span, Step, Timeline
from edgewright.units import duration

MAX_SPANS = 3_000  # rectangles of a flame chart in a page
MAX_STEPS = 5_000
_DEPTH = {"run": 0, "instruction": 1, "step": 2}


def profile_method(method: Any, inputs: Sequence[Any], repeat: int) -> Profile:
    """Run a loaded method ``repeat`` times, after two runs in which everything is compiled."""
    for _ in range(2):  # command streams of Ethos-U are compiled at the second call
        method.execute(inputs, profile=Profile())
    profile = Profile()
    for _ in range(repeat):
        method.reset()
        method.execute(inputs, profile=profile)
    return profile


def add_profile(report: FileReport, profile: Profile, basis: str) -> None:
    """Add a profile of this machine to a report: timeline, steps, roofline, times of operators."""
    if not profile.runs:
        return
    runs = sorted(profile.runs, key=lambda run: run.end - run.start)
    median = runs[len(runs) // 2]
    report.timelines.append(_timeline(median, basis))
    report.layers.steps, report.layers.step_basis = _steps(profile), basis
    report.layers.roofs = measure_roofs()
    for graph in report.graphs:
        _add_times(graph, profile)


def median_ms(profile: Profile) -> float:
    times = sorted(run.end - run.start for run in profile.runs)
    return times[len(times) // 2] / 1e6


def _timeline(run: RunTime, basis: str) -> Timeline:
    spans = [_span(run.method, run.start, run.end, run.start, _DEPTH["run"])]
    for step in run.steps:
        spans.append(_span(_title(step), step.start, step.end, run.start, _DEPTH["instruction"]))
        spans += [_span(_title(p), p.start, p.end, run.start, _DEPTH["step"]) for p in step.parts]
    return _limit(Timeline(f"{run.method}: {duration((run.end - run.start) / 1e9)}", basis, spans))


def _title(step: StepTime) -> str:
    return f"{step.layer}: {step.name}" if step.layer else step.name


def _span(name: str, start: int, end: int, origin: int, depth: int) -> Span:
    return Span(name, (start - origin) / 1e3, max(end - start, 0) / 1e3, depth)


def _limit(timeline: Timeline) -> Timeline:
    """Leave out the shortest spans beyond the limit of a page."""
    timeline.total = len(timeline.spans)
    longest = sorted(range(timeline.total), key=lambda i: -timeline.spans[i].length)[:MAX_SPANS]
    timeline.spans = [timeline.spans[i] for i in sorted(longest)]
    return timeline


def add_etdump(report: FileReport, source: Source, name: str) -> None:
    """Add the runs of an ETDump: one timeline, of the median run of those that executed a method."""
    runs = [run for run in profile_facts(read_etdump(source))["runs"] if run["events"]]
    executed = [run for run in runs if run["name"] == "Execute"] or runs
    if not executed:
        report.notes.append(f"{name} has no timed events")
        return

    def length(run: dict[str, Any]) -> float:
        return float(max(e["start_ms"] + e["ms"] for e in run["events"]))

    run = sorted(executed, key=length)[len(executed) // 2]
    spans: list[Span] = []
    around: list[Span] = []  # those that the current one is inside of
    for event in sorted(run["events"], key=lambda e: (e["start_ms"], -e["ms"])):
        start, taken = event["start_ms"] * 1e3, event["ms"] * 1e3
        while around and around[-1].start + around[-1].length < start + taken - 1e-6:
            around.pop()
        spans.append(Span(str(event["name"]), start, taken, len(around)))
        around.append(spans[-1])
    title = f"{run['name']}: {duration(length(run) / 1e3)}"
    report.timelines.append(_limit(Timeline(title, f"{name}: the median of {len(executed)} runs in the file", spans)))


# ------------------------------------------------------------------------------------------------------------- steps


def _steps(profile: Profile) -> list[Step]:
    """Instructions that have no parts, and the parts of the others, in execution order."""
    costs = {(s.chain, s.instruction, i): (p.macs, p.bytes)
             for s in profile.runs[0].steps for i, p in enumerate(s.parts)}  # fmt: skip
    parts = profile.part_rows()
    divided = {(p.chain, p.instruction) for p in parts}
    rows = [
        ((r.chain, r.instruction, -1), Step(_number(r.chain, r.instruction), r.name, r.mean_ms, r.share, layer=r.layer))
        for r in profile.rows()
        if (r.chain, r.instruction) not in divided
    ]
    rows += [
        ((p.chain, p.instruction, p.part),
         Step(f"{_number(p.chain, p.instruction)}.{p.part}", p.name, p.mean_ms, p.share,
              *costs.get((p.chain, p.instruction, p.part), (0, 0)), p.layer))
        for p in parts
    ]  # fmt: skip
    return [step for _, step in sorted(rows, key=lambda row: row[0])][:MAX_STEPS]


def _number(chain: int, instruction: int) -> str:
    return f"#{instruction}" if not chain else f"#{chain}.{instruction}"


def _add_times(graph: GraphView, profile: Profile) -> None:
    """Add times to the nodes of the file's graph that have one of their own.

    An instruction's time is its node's. The steps of a compiled graph are matched with its products, in order: if their
    multiply-accumulates agree, one by one, the time is the product's. The steps of a command stream are its passes by
    layer, as in the graph. Otherwise nothing is shown.
    """
    means = {(r.chain, r.instruction): r.mean_ms for r in profile.rows()}
    for node in graph.nodes:
        if node.name.startswith("#"):
            chain, _, index = node.name[1:].rpartition(".")
            steps = [s for s in profile.runs[0].steps if (s.chain, s.instruction) == (int(chain or 0), int(index))]
            if steps and not steps[0].parts:
                node.ms = means[int(chain or 0), int(index)]
    _add_pass_times(graph, profile)
    parts = [p for step in profile.runs[0].steps for p in step.parts if p.macs]
    part_means = _mean_parts(profile)
    products = [node for node in graph.nodes if node.macs]
    matched = match_products(products, parts)
    for node, indices in zip(products, matched or (), strict=bool(matched)):
        if indices:
            node.ms = sum(part_means[i] for i in indices)


def _add_pass_times(graph: GraphView, profile: Profile) -> None:
    """Add the times of a command stream's passes, if the graph and the profile have the same ones in the same order."""
    rows = profile.part_rows()
    for step in profile.runs[0].steps:
        own = [r for r in rows if (r.chain, r.instruction) == (step.chain, step.instruction)]
        names = [(r.layer, r.name.removesuffix(" (interpreted)")) for r in own]
        for start in range(len(graph.nodes) - len(own) + 1) if own else ():
            nodes = graph.nodes[start : start + len(own)]
            if [(n.name, n.operator) for n in nodes] == names:
                for node, row in zip(nodes, own, strict=True):
                    node.ms = row.mean_ms
                break


def _mean_parts(profile: Profile) -> list[float]:
    """Mean milliseconds of the steps with multiply-accumulates, in the order of a run."""
    runs = [[p for step in run.steps for p in step.parts if p.macs] for run in profile.runs]
    same = [run for run in runs if len(run) == len(runs[0])]
    return [sum(p.end - p.start for p in group) / len(group) / 1e6 for group in zip(*same, strict=True)]


def match_products(products: Sequence[Node], parts: Sequence[StepTime]) -> list[list[int]] | None:
    """For each product the steps that compute it, or None unless the multiply-accumulates of all agree. A step that
    computes several products of one module, such as an attention, is the first one's.

    >>> steps = [StepTime(0, 0, "conv2d", 0, 1, macs=n) for n in (3, 3, 4)]
    >>> match_products([Node("a", "conv2d", macs=6), Node("b", "conv2d", macs=4)], steps)
    [[0, 1], [2]]
    >>> match_products([Node("a", "conv2d", macs=5), Node("b", "conv2d", macs=5)], steps) is None
    True
    >>> attention = [Node("a", "bmm", "attn", macs=2), Node("b", "bmm", "attn", macs=1), Node("c", "bmm", macs=7)]
    >>> match_products(attention, steps)
    [[0], [], [1, 2]]
    """
    result: list[list[int]] = []
    at = 0
    while len(result) < len(products):
        product = products[len(result)]
        count = _products_of_step(products[len(result) :], parts[at].macs) if at < len(parts) else 0
        taken, group = 0, []
        while taken < product.macs and at < len(parts):
            taken += parts[at].macs
            group.append(at)
            at += 1
        if taken != product.macs and not count:
            return None
        result += [group, *([] for _ in range(count - 1))]
    return result if at == len(parts) else None


def _products_of_step(products: Sequence[Node], macs: int) -> int:
    """How many products of one module have the multiply-accumulates of one step together; 0 if it is not two or
    more."""
    total = 0
    for count, product in enumerate(products):
        total += product.macs
        if product.module != products[0].module or total > macs:
            break
        if total == macs:
            return count + 1 if count else 0
    return 0


# ---------------------------------------------------------------------------------------------------------- roofline


def measure_roofs() -> Roofs:
    """Measure what this machine reaches: numpy's float32 matrix product, and a copy of 64 MiB."""
    matrix = np.ones((512, 512), np.float32)
    product = min(_seconds(lambda: matrix @ matrix) for _ in range(5))
    source = np.ones(1 << 24, np.float32)
    target = np.empty_like(source)
    copy = min(_seconds(lambda: np.copyto(target, source)) for _ in range(3))
    basis = "numpy's float32 product of 512 by 512 matrices, and a copy of 64 MiB, on this machine"
    return Roofs(512**3 / product, 2 * source.nbytes / copy, basis)


def _seconds(action: Any) -> float:
    start = time.perf_counter()
    action()
    return max(time.perf_counter() - start, 1e-9)


def run_error(error: EdgewrightError) -> str:
    """Why there is no profile of this machine."""
    return f"not run on this machine: {error}"
