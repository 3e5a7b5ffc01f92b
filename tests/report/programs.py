"""Programs for the tests of reports."""

from __future__ import annotations

import html
import re
from pathlib import Path

import numpy as np

from edgewright.report.collect import Options, collect
from edgewright.report.model import Arena, Block, FileReport, GraphView, Node, Report, Span, Timeline
from edgewright.runtime.example_inputs import ones

CIFARNET = Path(__file__).parents[2] / "edgewright" / "demo" / "cifarnet.pte"
HOSTILE = "</script><img src=x onerror=alert(1)>\"'&\u202e--><!--"


def portable(**options: object) -> FileReport:
    """The demo's program, a list of kernel calls, after a run here."""
    return collect(CIFARNET, "cifarnet.pte", Options(inputs=ones, repeat=2, **options))  # type: ignore[arg-type]


def large(count: int, name: str = "net") -> FileReport:
    """A report of a made-up graph with residual connections, in modules of twenty operators."""
    nodes = [
        Node(
            f"n{i}", ("conv2d", "relu", "add")[i % 3], f"{name}.block{i // 20 % 40}.layer{i // 5 % 4}",
            ("xnnpack", "cpu")[i % 7 == 0], tuple(j for j in (i - 1, i - 4) if j >= 0), [f"int8[1, {i % 64}, 8, 8]"],
            ["scale 0.5 zero 0"], "n.py:12", ["must be static"] if i % 7 == 0 else [], i, 64 * i, 8 * i, i / 1e3, 40.0,
        )
        for i in range(count)
    ]  # fmt: skip
    report = FileReport(name, graphs=[GraphView("model", "made up", nodes[:20_000], count)])
    blocks = [Block(f"t{i}", i, i + 2, 64 * (i % 9), 64) for i in range(min(count, 2_000))]
    report.memory.arenas = [Arena("forward", 1, 1024, blocks, count, 192, 3, count)]
    report.timelines = [Timeline("forward", "made up", [Span(f"s{i}", float(i), 1.0, 1) for i in range(200)], 200)]
    return report


def hostile() -> Report:
    """A report in which every text of a file is hostile."""
    report = portable()
    report.name = report.target = HOSTILE
    report.notes, report.next_steps = [HOSTILE], [HOSTILE]
    report.manifest = {HOSTILE: HOSTILE}
    report.properties = {HOSTILE: HOSTILE}
    for node in report.graphs[0].nodes:
        node.name = node.operator = node.module = node.placement = node.source = HOSTILE
        node.outputs, node.quantization, node.rules = [HOSTILE], [HOSTILE], [HOSTILE]
    report.timelines[0] = Timeline(HOSTILE, HOSTILE, [Span(HOSTILE, 0.0, 1.0, 0)], 1)
    report.memory.arenas[0].blocks = [Block(HOSTILE, 0, 1, 0, 64)]
    return Report(HOSTILE, [report, portable()])


def text_of(page: str) -> str:
    """The text of a page without tags."""
    return html.unescape(re.sub(r"<[^>]*>", " ", page))


def rng() -> np.random.Generator:
    return np.random.default_rng(0)
