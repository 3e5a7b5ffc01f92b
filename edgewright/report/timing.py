"""Time of a program: a profile on this machine or of a device (ETDump), as steps, a flame chart and a roofline."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from edgewright.console import plural
from edgewright.engine.isa import host_isa
from edgewright.engine.jit.thread_count import thread_count
from edgewright.engine.profile import Profile, RunTime, StepTime
from edgewright.engine.roofline import measure, measure_read_bandwidth
from edgewright.engine.runner import native_available
from edgewright.errors import EdgewrightError
from edgewright.files import Source
from edgewright.formats.etdump import read_etdump
from edgewright.report.file_facts import profile_facts
from edgewright.report.model import FileReport, GraphView, Node, Roofs, Span, Step, Timeline
from edgewright.units import duration, size

MAX_SPANS = 3_000  # rectangles of a flame chart in a page
MAX_STEPS = 5_000
_LASTS = 1.0  # seconds that all runs without a profile take together, within _RUNS
_RUNS = (5, 50)
_DEPTH = {"run": 0, "instruction": 1, "step": 2}


@dataclass(frozen=True)
class Run:
    """A method's profile on this machine, and the median milliseconds of a call without one."""

    profile: Profile
    milliseconds: float


def profile_method(method: Any, inputs: Sequence[Any], repeat: int | None) -> Run:
    """Run a loaded method ``repeat`` times without and with a profile, after two runs in which everything is compiled.
    By default, as often as fits in a second."""
    for _ in range(2):  # command streams of Ethos-U are compiled at the second call
        method.execute(inputs, profile=Profile())
    method.reset()
    first = _seconds(lambda: method.execute(inputs))
    count = repeat or min(max(round(_LASTS / first), _RUNS[0]), _RUNS[1])
    times, profile = [], Profile()
    for _ in range(count):  # in turns: what else the machine does disturbs both alike
        method.reset()
        times.append(_seconds(lambda: method.execute(inputs)))
        method.reset()
        method.execute(inputs, profile=profile)
    return Run(profile, statistics.median(times) * 1e3)


def add_profile(report: FileReport, profile: Profile, basis: str) -> None:
    """Add a profile of this machine to a report: timeline, steps, roofline, times of operators."""
    if not profile.runs:
        return
    report.timelines.append(_timeline(typical_run(profile), f"{basis}; the most typical run, while profiling"))
    report.layers.steps, report.layers.step_basis = _steps(profile), basis
    report.layers.roofs = measure_roofs()
    for graph in report.graphs:
        _add_times(graph, profile)


def typical_run(profile: Profile) -> RunTime:
    """The run whose instructions and parts are nearest to the medians of all runs. Where most runs are disturbed, each
    somewhere else, the run of median length is one of them."""
    medians, _ = _medians(profile)

    def distance(run: RunTime) -> float:
        times = {(s.chain, s.instruction, -1): s.end - s.start for s in run.steps}
        times |= {(s.chain, s.instruction, at): p.end - p.start for s in run.steps for at, p in enumerate(s.parts)}
        return sum(abs(time / 1e6 - medians[key]) for key, time in times.items())

    return min(profile.runs, key=distance)


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
    report.timelines.append(_limit(Timeline(title, f"the median of {plural(len(executed), 'run')} in {name}", spans)))


# ------------------------------------------------------------------------------------------------------------- steps


_Key = tuple[int, int, int]  # chain, instruction and part; -1 for the instruction


def _medians(profile: Profile) -> tuple[dict[_Key, float], dict[_Key, float]]:
    """The median milliseconds of a call of every instruction and of every part, and their shares of a run. A mean would
    count whatever else the machine did once."""
    times: dict[_Key, list[int]] = {}
    for run in profile.runs:
        for step in run.steps:
            times.setdefault((step.chain, step.instruction, -1), []).append(step.end - step.start)
            for at, part in enumerate(step.parts):
                times.setdefault((step.chain, step.instruction, at), []).append(part.end - part.start)
    medians = {key: statistics.median(values) / 1e6 for key, values in times.items()}
    in_run = {key: medians[key] * len(values) / len(profile.runs) for key, values in times.items()}
    total = sum(ms for key, ms in in_run.items() if key[2] < 0) or 1.0
    return medians, {key: min(ms / total, 1.0) for key, ms in in_run.items()}


def _steps(profile: Profile) -> list[Step]:
    """Instructions that have no parts, and the parts of the others, in execution order."""
    medians, shares = _medians(profile)
    known: dict[_Key, StepTime] = {}
    for step in (step for run in profile.runs for step in run.steps):
        known.setdefault((step.chain, step.instruction, -1), step)
        for at, part in enumerate(step.parts):
            known.setdefault((step.chain, step.instruction, at), part)
    divided = {key[:2] for key in known if key[2] >= 0}
    keys = sorted(key for key in known if key[2] >= 0 or key[:2] not in divided)
    steps = []
    for key in keys[:MAX_STEPS]:
        one = known[key]
        number = _number(*key[:2]) + (f".{key[2]}" if key[2] >= 0 else "")
        steps.append(Step(number, one.name, medians[key], shares[key], one.macs, one.bytes, one.layer))
    return steps


def _number(chain: int, instruction: int) -> str:
    return f"#{instruction}" if not chain else f"#{chain}.{instruction}"


def _add_times(graph: GraphView, profile: Profile) -> None:
    """Add times to the nodes of the file's graph that have one of their own.

    An instruction's time is its node's. The steps of a compiled graph are matched with its products, in order: if their
    multiply-accumulates agree, one by one, the time is the product's. The steps of a command stream are its passes by
    layer, as in the graph. Otherwise nothing is shown.
    """
    medians, _ = _medians(profile)
    for node in graph.nodes:
        if node.name.startswith("#"):
            chain, _, index = node.name[1:].rpartition(".")
            steps = [s for s in profile.runs[0].steps if (s.chain, s.instruction) == (int(chain or 0), int(index))]
            if steps and not steps[0].parts:
                node.ms = medians[int(chain or 0), int(index), -1]
    _add_pass_times(graph, profile, medians)
    parts = [p for step in profile.runs[0].steps for p in step.parts if p.macs]
    part_times = _median_parts(profile)
    products = [node for node in graph.nodes if node.macs]
    matched = match_products(products, parts)
    for node, indices in zip(products, matched or (), strict=bool(matched)):
        if indices:
            node.ms = sum(part_times[i] for i in indices)


def _add_pass_times(graph: GraphView, profile: Profile, medians: Mapping[_Key, float]) -> None:
    """Add the times of a command stream's passes, if the graph and the profile have the same ones in the same order."""
    for step in profile.runs[0].steps:
        names = [(p.layer, p.name.removesuffix(" (interpreted)")) for p in step.parts]
        for start in range(len(graph.nodes) - len(names) + 1) if names else ():
            nodes = graph.nodes[start : start + len(names)]
            if [(n.name, n.operator) for n in nodes] == names:
                for at, node in enumerate(nodes):
                    node.ms = medians[step.chain, step.instruction, at]
                break


def _median_parts(profile: Profile) -> list[float]:
    """Median milliseconds of the steps with multiply-accumulates, in the order of a run."""
    runs = [[p for step in run.steps for p in step.parts if p.macs] for run in profile.runs]
    same = [run for run in runs if len(run) == len(runs[0])]
    return [statistics.median(p.end - p.start for p in group) / 1e6 for group in zip(*same, strict=True)]


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


@cache
def measure_roofs() -> Roofs | None:
    """Measure what this machine reaches; None without the engine, whose steps a roofline is about."""
    if not native_available():
        return None
    threads, isa = thread_count(), host_isa()
    peaks = measure(threads, isa)
    macs = {"float32": peaks.float_gmacs * 1e9, "int8": peaks.byte_gmacs * 1e9}
    reads = {"cache": measure_read_bandwidth(_CACHED, threads, isa) * 1e9, "memory": peaks.memory_gbytes * 1e9}
    basis = f"products in registers, and reads of {size(_CACHED)} and of more than the caches hold"
    return Roofs(macs, reads, f"{basis}, on {plural(threads, 'thread')}")


_CACHED = 1 << 20  # bytes that the cache of a core holds


def _seconds(action: Any) -> float:
    start = time.perf_counter()
    action()
    return max(time.perf_counter() - start, 1e-9)


def run_error(error: EdgewrightError) -> str:
    """Why there is no profile of this machine."""
    return f"not run on this machine: {error}"
