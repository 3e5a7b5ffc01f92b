"""What a file alone says: graph, memory, times, properties; without torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from edgewright.engine.profile import Profile, RunTime, StepTime
from edgewright.errors import FormatError
from edgewright.formats.bpte import BundledProgram, write_bundled
from edgewright.formats.bpte import TestCase as Case
from edgewright.report.collect import Options, collect
from edgewright.report.histogram import histogram
from edgewright.report.model import FileReport
from edgewright.report.sections import overview
from edgewright.report.timing import add_etdump, add_profile
from edgewright.runtime.example_inputs import ones
from edgewright.runtime.program import Runtime
from tests.report.programs import CIFARNET, portable


@pytest.fixture(scope="module")
def report() -> FileReport:
    return portable(flash=1 << 20, ram=1 << 10)


def test_the_graph_has_every_instruction_with_its_edges(report: FileReport) -> None:
    nodes = report.graphs[0].nodes
    assert [n.operator for n in nodes][:3] == [
        "aten::convolution.out", "aten::relu.out", "aten::max_pool2d_with_indices.out",
    ]  # fmt: skip
    assert [tuple(n.inputs) for n in nodes] == [(), *((i,) for i in range(9))]  # the last one reads through a view
    assert nodes[0].outputs == ["float32[1, 32, 32, 32]"] and nodes[0].macs == 32 * 32 * 32 * 3 * 25
    assert sum(n.weights for n in nodes) == sum(w.bytes for w in report.memory.weights) == 358_312


def test_times_of_products_are_those_of_their_steps(report: FileReport) -> None:
    products = [n for n in report.graphs[0].nodes if n.macs]
    measured = sum(s.ms for s in report.layers.steps if s.macs)
    assert len(products) == 4 and all(n.ms for n in products)
    assert sum(n.ms or 0 for n in products) == pytest.approx(measured)


def test_blocks_that_live_at_the_same_time_do_not_overlap(report: FileReport) -> None:
    (arena,) = report.memory.arenas
    blocks = arena.blocks
    assert arena.peak <= arena.bytes and len(blocks) == arena.total > 5
    for i, a in enumerate(blocks):
        assert a.offset + a.bytes <= arena.bytes and a.start <= a.end < arena.instructions
        for b in blocks[i + 1 :]:
            together = a.start < b.end and b.start < a.end  # an in-place result may start where its input ends
            assert not together or a.offset + a.bytes <= b.offset or b.offset + b.bytes <= a.offset, (a, b)


def test_limits_of_the_user_are_judged(report: FileReport) -> None:
    status = {f.label: f.status for f in report.facts}
    assert (status["file"], status["planned memory"]) == ("good", "bad")


def test_histograms_count_every_sampled_weight(report: FileReport) -> None:
    (shown,) = report.graphs[0].nodes[0].histograms
    assert sum(shown.counts) == shown.sampled == shown.values == 32 * 3 * 25
    assert histogram("none", np.full(3, np.nan)) is None


def test_parts_add_up_to_the_file(report: FileReport) -> None:
    assert sum(report.memory.parts.values()) == CIFARNET.stat().st_size == report.measures.file_bytes


def test_nothing_runs_unless_asked() -> None:
    report = collect(CIFARNET, "m", Options())
    assert not report.timelines and not report.layers.steps and report.measures.milliseconds is None


def test_a_bundle_shows_its_program_and_runs_its_test_cases(tmp_path: Path) -> None:
    image = np.random.default_rng(0).standard_normal((1, 3, 32, 32)).astype(np.float32)
    right = Runtime.get().load_program(CIFARNET).load_method("forward").execute([image])
    cases = [Case([image], right), Case([image], [right[0] + 1])]
    write_bundled(BundledProgram(CIFARNET.read_bytes(), {"forward": cases}), tmp_path / "m.bpte")
    report = collect(tmp_path / "m.bpte", "m.bpte", Options(inputs=ones, repeat=1))
    assert [t.passed for t in report.tests] == [True, False] and report.tests[1].error == pytest.approx(1)
    facts = {f.label: (f.value, f.status) for f in report.facts}
    assert facts["test cases"] == ("1 of 2 fail", "bad") and "inputs of its first test case" in report.layers.step_basis
    assert report.measures.file_bytes == CIFARNET.stat().st_size and len(report.graphs[0].nodes) == 10
    assert "largest difference" in overview(report)
    assert not collect(tmp_path / "m.bpte", "m.bpte", Options()).tests


def test_one_disturbed_run_changes_no_figure() -> None:
    profile = Profile()
    for slow, end in ((0, 10), (1, 900), (2, 10), (0, 12)):
        parts = tuple(StepTime(0, 0, f"s{i}", 0, end * 10**6 if i == slow else (i + 1) * 10**6) for i in range(3))
        profile.runs.append(RunTime("forward", 0, 10**9, [StepTime(0, 0, "npu", 0, 10**9, parts)]))
    report = FileReport("m")
    add_profile(report, profile, "this machine")
    assert [s.ms for s in report.layers.steps] == [5.5, 2, 3]
    assert max(s.length for s in report.timelines[0].spans if s.name == "s1") == 2000


def test_an_etdump_becomes_a_timeline(tmp_path: Path) -> None:
    profile = Profile()
    profile.begin("forward")
    with profile.step(0, 0, "conv"):
        pass
    profile.end()
    profile.save_etdump(tmp_path / "p.etdp")
    report = FileReport("m")
    add_etdump(report, tmp_path / "p.etdp", "p.etdp")
    (timeline,) = report.timelines
    assert timeline.basis == "the median of 1 run in p.etdp"
    assert {s.name for s in timeline.spans} == {"Method::execute", "DELEGATE_CALL"}
    assert {s.name: s.depth for s in timeline.spans} == {"Method::execute": 0, "DELEGATE_CALL": 1}


def test_a_damaged_file_is_a_typed_error() -> None:
    with pytest.raises(FormatError):
        collect(CIFARNET.read_bytes()[:2000], "m", Options())


def test_the_command_imports_no_torch(tmp_path: Path) -> None:
    code = (
        "import sys; from edgewright.cli import main; "
        "code = main(['report', sys.argv[1], '-q', '-o', sys.argv[2]]); sys.exit(code or 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, CIFARNET, tmp_path / "r.html"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "r.html").read_text().startswith("<!doctype html>")
