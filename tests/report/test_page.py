"""The page: complete without scripts, closed to the network, and safe whatever names a file has."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from itertools import pairwise

import pytest

from edgewright.report.charts import Tight, arena_chart, flame_chart, pareto_chart, roofline
from edgewright.report.export import model_explorer, perfetto_trace
from edgewright.report.model import Arena, Block, FileReport, Report, Roofs, Span, Step, Timeline, Weights
from edgewright.report.page import page
from edgewright.report.side_by_side import layers_side_by_side
from edgewright.units import size
from tests.report.programs import HOSTILE, hostile, large, portable, text_of

VOID = {"meta", "img", "br", "wbr", "input", "rect", "line", "circle", "polyline"}


class Checker(HTMLParser):
    """Collects elements, and checks that they are nested."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID or (tag == "rect" and not self.get_starttag_text().endswith("/>")):  # type: ignore[union-attr]
            if not (self.get_starttag_text() or "").endswith("/>"):
                self.open.append(tag)
        elif tag == "circle" and not (self.get_starttag_text() or "").endswith("/>"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def parse(text: str) -> Checker:
    checker = Checker()
    checker.feed(text)
    assert checker.open == []
    return checker


@pytest.fixture(scope="module")
def text() -> str:
    return page(Report("cifarnet.pte", [portable(ram=1 << 18)]))


def test_elements_are_nested_and_sections_complete(text: str) -> None:
    found = parse(text)
    ids = [a["id"] for tag, a in found.tags if tag == "section"]
    assert ids == ["overview", "graph", "layers", "memory", "timeline"]
    assert len({a.get("id") for _, a in found.tags if "id" in a}) == len([a for _, a in found.tags if "id" in a])


def test_tables_say_it_without_scripts(text: str) -> None:
    plain = text_of(text[: text.index('<script type="application/json"')])
    for words in ("aten::convolution.out", "float32[1, 32, 32, 32]", "2,457,600", "planned memory", "limit 256 KiB"):
        assert words in plain


def test_the_policy_allows_only_what_is_in_the_page(text: str) -> None:
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1]  # type: ignore[index]
    assert policy.startswith("default-src 'none'") and "http" not in policy and "unsafe" not in policy
    for tag in ("style", "script"):
        inline = re.search(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)[1]  # type: ignore[index]
        digest = base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    attributes = [name for _, found in parse(text).tags for name in found]
    assert not {"src", "style", "onclick", "srcset"} & set(attributes)
    assert not re.search(r'(href|action)="(?!#)', text)


def test_hostile_names_are_text(text: str) -> None:
    shown = page(hostile())
    found = parse(shown)
    assert not [tag for tag, _ in found.tags if tag == "img"]
    assert shown.count("<script") == 2 and "\u202e" not in shown
    data = json.loads(shown.split('id="data">')[1].split("</script>")[0])
    assert HOSTILE.replace("\u202e", "\\u202e") in data["0.0"]["texts"]


@pytest.mark.parametrize("count", [5_000, 100_000])
def test_large_graphs_are_limited_and_the_page_says_so(count: int) -> None:
    shown = page(Report("large", [large(count)]))
    data = json.loads(shown.split('id="data">')[1].split("</script>")[0])
    assert len(data["0.0"]["nodes"]) == min(count, 20_000)
    assert f"The first 1,000 of {count:,}." in shown
    assert (f"The page has the first 20,000 of {count:,}." in shown) == (count > 20_000)
    assert len(shown) < 12_000_000


def test_several_files_are_compared_differences_first() -> None:
    one, other = portable(), portable()
    one.name, other.name = "one.pte", "other.pte"
    other.properties["schema version"] = "1"
    other.properties["only here"] = "yes"
    one.measures.sqnr, other.measures.sqnr = 40.0, 30.0
    shown = page(Report("both", [one, other]))
    compared = shown[shown.index('<section id="compare"') :]
    differ, same = compared.split("Differences")[1].split("that are the same", 1)
    assert "schema version" in differ and "only here" in differ and "SHA-256" not in differ
    assert "SHA-256" in same and "Accuracy and time" in compared


def test_a_page_of_a_small_network_is_small(text: str) -> None:
    assert len(text) < 200_000


def test_charts_have_a_title_for_every_shape() -> None:
    report = portable()
    assert arena_chart(report.memory.arenas[0], None).count("<title>") == report.memory.arenas[0].total
    assert flame_chart(report.timelines[0]).count("<title>") == len(report.timelines[0].spans)


def test_names_of_tensors_end_where_another_is_written_in_place() -> None:
    blocks = [Block("conv", 0, 1, 0, 1024), Block("relu", 1, 2, 0, 1024), Block("tiny", 0, 3, 1024, 8)]
    shown = arena_chart(Arena("forward", 1, 1032, blocks, 4), None)
    names = re.findall(r'<svg class="cut" x="([^"]*)" y="[^"]*" width="([^"]*)"[^>]*><text [^>]*>(\w+)<', shown)
    assert names == [("0.00%", "25.00%", "conv"), ("25.00%", "50.00%", "relu")]


def test_labels_of_a_plot_do_not_overlap_and_stay_inside() -> None:
    points = [(f"mobilenet.target-{i}.pte", 1.0 + i % 3 / 50, 30.0 + i % 5 / 9) for i in range(12)]
    wide, narrow = pareto_chart(points, ("time", "SQNR, dB"), str, line=True).split('<div class="narrow">')
    assert narrow.count("mobilenet.target-3.pte</span>") == 1  # what a number is
    for part, width, names in ((wide, 1120, r"mob[^<]*"), (narrow, 300, r"\d+")):
        boxes = []
        for x, y, anchor, name in re.findall(
            rf'<text x="([\d.]+)%" y="([\d.]+)" text-anchor="(\w+)">({names})</text>', part
        ):
            right = float(x) / 100 * width + (6.6 * len(name) if anchor == "start" else 0)
            boxes.append((right - 6.6 * len(name), right, float(y)))
        assert boxes and all(left >= -0.1 and right <= width + 0.1 for left, right, _ in boxes)
        for i, (left, right, y) in enumerate(boxes):
            assert all(right < a or b < left or abs(y - c) >= 12 for a, b, c in boxes[i + 1 :])
    assert wide.count("<circle") == narrow.count("<circle") == 12


def test_names_of_roofs_cover_no_dot() -> None:
    """Steps are near the roofs: at the right end of the ceilings, and all along the slopes."""
    steps = [Step(f"#{i}", "conv2d", 1.0, 0.1, macs=10**8, bytes=10**6 // (i + 1)) for i in range(12)]
    steps += [Step(f"#{i}", "linear", 1.0, 0.1, macs=(i + 1) * 10**6, bytes=10**6) for i in range(12)]
    roofs = Roofs({"float32": 1e11, "int8": 4e11}, {"cache": 5e10, "memory": 9e9}, "made up")
    wide, narrow = roofline(steps, roofs).split('<div class="narrow">')
    for part, width in ((wide, 1120), (narrow, 300)):
        dots = [
            (float(x) / 100 * width, float(y)) for x, y in re.findall(r'<circle cx="([\d.]+)%" cy="([\d.]+)"', part)
        ]
        names = re.findall(r'<text x="([\d.]+)%" y="([\d.]+)" text-anchor="(\w+)" class="halo">([^<]*)</text>', part)
        assert len(dots) == 24 and len(names) >= 2
        for x, y, anchor, name in names:
            right = float(x) / 100 * width + (6.6 * len(name) if anchor == "start" else 0)
            left, top, bottom = right - 6.6 * len(name), float(y) - 10, float(y) + 3
            assert not [d for d in dots if left - 6 < d[0] < right + 6 and top - 6 < d[1] < bottom + 6]
    assert {"int8 400 GMAC/s", "cache 50.0 GB/s"} <= set(re.findall(r'class="halo">([^<]*)<', wide))


@pytest.mark.parametrize(("low", "high"), [(3.41, 3.77), (0.9, 120.0), (3.0, 3.0)])
def test_ticks_of_a_plot_have_room_and_equal_digits(low: float, high: float) -> None:
    points = [("a", low * 2**20, 14.18), ("b", high * 2**20, 14.28), ("c", (low + high) / 2 * 2**20, 14.2)]
    parts = pareto_chart(points, ("file size", "SQNR, dB"), size, line=True).split('<div class="narrow">')
    for part, width in zip(parts, (1120, 300), strict=True):
        found = re.findall(r'<text x="([\d.]+)%" y="318.0" text-anchor="middle">([^<]*)</text>', part)
        ticks = [(float(x) / 100 * width, 6.6 * len(text) / 2) for x, text in found]
        assert ticks and all(b - a >= w + v for (a, w), (b, v) in pairwise(ticks))
        levels = re.findall(r'<text x="62" y="[\d.]+" text-anchor="end">([^<]*)</text>', part)
        assert len({len(level.partition(".")[2]) for level in levels}) == 1 and len(levels) > 2


@pytest.mark.parametrize(
    ("low", "high", "binary"), [(2.2, 2.6, False), (2.1e6, 2.7e6, True), (1, 3e5, False), (5, 5, True)]
)
def test_an_axis_has_some_ticks_and_not_many(low: float, high: float, binary: bool) -> None:
    ticks = Tight([low, high], 0, 100).ticks(9, binary=binary)
    assert 2 <= len(ticks) <= 9 and all(-0.1 <= Tight([low, high], 0, 100).at(t) <= 100.1 for t in ticks)


def test_other_tools_get_their_formats() -> None:
    report = portable()
    events = perfetto_trace([report])["traceEvents"]
    assert len([e for e in events if e["ph"] == "X"]) == len(report.timelines[0].spans)
    overlays = model_explorer(report)
    assert set(overlays) == {"time", "macs", "weights"}
    assert overlays["macs"]["graph"]["results"]["#0"] == {"value": 2_457_600}


def test_layers_of_two_files_are_side_by_side_the_largest_difference_first() -> None:
    one, other = FileReport("one.pte"), FileReport("other.pte")
    one.layers.steps = [Step("#0", "conv2d", 1.0, 0.1, layer="stem"), Step("#1", "conv2d", 9.0, 0.9, layer="head")]
    other.layers.steps = [Step("#0", "conv2d", 2.0, 0.5, layer="stem"), Step("#1", "conv2d", 1.0, 0.2, layer="head"),
                          Step("#2", "add", 1.0, 0.3, layer="head")]  # fmt: skip
    one.memory.weights = [Weights("head", 1, 2048), Weights("delegates: commands", 1, 9)]
    other.memory.weights = [Weights("head", 1, 1024)]
    shown = text_of(layers_side_by_side([one, other]))
    assert "time, one.pte" in shown and "time, other.pte" in shown and "times as long" in shown
    rows = shown.partition("weights, other.pte")[2].split()
    assert " ".join(rows).startswith("head 9.00 ms 2.00 ms 0.222 2.00 KiB 1.00 KiB stem 1.00 ms 2.00 ms 2.00")
    assert "commands" not in shown


def test_simulated_times_are_not_side_by_side_with_those_of_a_device() -> None:
    one, other = FileReport("one.pte"), FileReport("other.pte")
    one.layers.steps = other.layers.steps = [Step("#0", "conv2d", 1.0, 1.0, layer="stem")]
    other.layers.simulated = "sm8550 simulated"
    assert layers_side_by_side([one, other]) == ""


def test_spans_have_the_color_of_what_they_compute() -> None:
    spans = [Span("forward", 0, 9, 0), Span("XnnpackBackend", 0, 8, 1), Span("stem: conv2d+add", 0, 5, 2),
             Span("head: conv2d", 5, 2, 2), Span("head: linear", 7, 1, 2), Span("aten::mean.out", 8, 1, 1)]  # fmt: skip
    chart = flame_chart(Timeline("forward", "made up", spans, len(spans)))
    colors = re.findall(r'class="span (c\d)"', chart)
    assert colors[0] == colors[1] == "c4"  # what other spans are in
    assert colors[2] == colors[3] != colors[4] and colors[5] not in colors[:5]
    assert [name in chart.partition('class="key"')[2] for name in ("conv2d", "linear", "mean", "forward")] == [
        True, True, True, False]  # fmt: skip


@pytest.mark.parametrize("lower", [False, True])
def test_files_of_one_name_are_on_the_frontier_each_for_itself(lower: bool) -> None:
    points = [("m.pte", 1.0, 5.0), ("n.pte", 2.0, 1.0 if lower else 9.0), ("m.pte", 3.0, 6.0 if lower else 4.0)]
    chart = pareto_chart(points, ("time", "dB"), str, line=True, lower=lower)
    assert chart.count('class="dot c1"') == 4 and chart.count('class="dot c0"') == 2  # wide and narrow
