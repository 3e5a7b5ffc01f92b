"""Compiled graphs: every unit once, in order, from checked arrays; steps in Python; profiles."""

from __future__ import annotations

import dataclasses
import gc
import itertools
import json
import random
import time

import numpy as np
import pytest

from edgewright.engine.jit import driver_ir, threads
from edgewright.engine.jit.build import compile_all, target_machine
from edgewright.engine.jit.driver import CompiledGraph
from edgewright.engine.jit.elf import CodegenError
from edgewright.engine.jit.threads import ThreadPolicy
from edgewright.engine.plan import Address, PythonCall, Step, TensorView
from edgewright.engine.profile import Profile
from edgewright.errors import InputError
from edgewright.formats.etdump import read_etdump, write_etdump
from tests.engine.example_plans import ADD, COUNT, FLOAT, LANES, MANY, adding, tallying

X = np.arange(32 * LANES, dtype=np.float32)


@pytest.fixture(autouse=True)
def share_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the workers from the first call on, however the machine is loaded."""
    monkeypatch.setattr(ThreadPolicy, "decide", lambda self: True)


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_steps_run_in_order(count: int) -> None:
    graph = CompiledGraph(adding(steps=40), threads=count)
    for _ in range(50):
        assert np.array_equal(graph.run([X])[0], X + 40)


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("seed", range(6))
def test_every_unit_is_done_once(count: int, seed: int) -> None:
    pick = random.Random(seed)
    layers = [(pick.choice((1, 2, 3, 7, 64, 1000)), pick.choice((1, 2, 5, 64)), pick.random() < 0.6) for _ in range(30)]
    graph = CompiledGraph(tallying(layers), threads=count)
    for _ in range(10):
        outputs = [np.zeros(units, COUNT) for units, _, _ in layers]
        graph.run([], outputs)
        assert all((tally == 1).all() for tally in outputs)


def test_more_chunks_than_a_word_counts() -> None:
    units = 3 * driver_ir.MAX_CHUNKS
    tally = np.zeros(units, COUNT)
    CompiledGraph(tallying([(units, 1, True)], rounds=1), threads=2).run([], [tally])
    assert (tally == 1).all()


def test_outputs_are_the_callers() -> None:
    graph, y = CompiledGraph(adding(), threads=2), np.empty_like(X)
    assert graph.run([X], [y])[0] is y
    assert np.array_equal(y, X + 5)


def test_input_and_output_may_be_one_array() -> None:
    x = X.copy()
    CompiledGraph(adding(steps=1), threads=2).run([x], [x])
    assert np.array_equal(x, X + 1)


def test_strided_and_misaligned_inputs_are_copied() -> None:
    graph = CompiledGraph(adding(), threads=1)
    bytes_ = np.zeros(X.nbytes + 1, np.uint8)
    odd = bytes_[1:].view(np.float32)
    odd[:] = X
    assert np.array_equal(graph.run([np.repeat(X, 2)[::2]])[0], X + 5)
    assert np.array_equal(graph.run([odd])[0], X + 5)


@pytest.mark.parametrize(
    ("inputs", "outputs", "message"),
    [
        ([], None, "must be 1 arrays; got 0"),
        ([list(X)], None, "must be a numpy array; got list"),
        ([X.astype(np.float64)], None, "must be of type float32; got float64"),
        ([X.astype(">f4")], None, "must be of type float32; got >f4"),
        ([X[:-1]], None, "must have shape"),
        ([X], [], "outputs: must be 1 arrays; got 0"),
        ([X], [np.empty(3, np.float32)], "output 0 (y): must have shape [128]; got [3]"),
        ([X], [np.empty(256, np.float32)[::2]], "must be contiguous, aligned and writable"),
        ([X], [np.broadcast_to(np.float32(0), X.shape)], "must be contiguous, aligned and writable"),
    ],
)
def test_arrays_that_do_not_fit(inputs: list, outputs: list | None, message: str) -> None:
    graph = CompiledGraph(adding(), threads=1)
    with pytest.raises(InputError) as caught:
        graph.run(inputs, outputs)
    assert message in str(caught.value)


def test_outputs_must_not_overlap() -> None:
    whole = np.zeros(12, COUNT)
    with pytest.raises(InputError, match="share memory"):
        CompiledGraph(tallying([(8, 1, True), (8, 1, True)]), threads=1).run([], [whole[:8], whole[4:]])


@pytest.mark.parametrize(
    "place", [Address("arena", -1), Address("arena", 10_000), Address("input", 513), Address("weights", 1)]
)
def test_addresses_outside_their_buffer_are_refused(place: Address) -> None:
    good = adding()
    first = dataclasses.replace(good.steps[0], args=(place, *good.steps[0].args[1:]))
    with pytest.raises(CodegenError, match="must lie in"):
        CompiledGraph(dataclasses.replace(good, steps=(first, *good.steps[1:])), threads=1)


def test_steps_without_units_are_refused() -> None:
    good = adding()
    with pytest.raises(CodegenError, match="at least 1"):
        CompiledGraph(dataclasses.replace(good, steps=(dataclasses.replace(good.steps[0], units=0),)), threads=1)


def python_between() -> tuple[Step, Step, Step]:
    """Add one, double in Python, add one."""
    size = X.nbytes
    view = {k: TensorView(Address("arena", k * size), FLOAT, (32, LANES), (16, 4)) for k in (0, 1)}

    def double(reads: list[np.ndarray], writes: list[np.ndarray]) -> None:
        writes[0][...] = 2 * reads[0]

    return (
        Step("add", (Address("input", 0), Address("arena", 0), 1.0), 32, 4, label="before", macs=MANY),
        Step("", (), 1, 1, label="double", python=PythonCall(double, (view[0],), (view[1],))),
        Step("add", (Address("arena", size), Address("output", 0), 1.0), 32, 4, label="after", macs=MANY),
    )


@pytest.mark.parametrize("count", [1, 2])
def test_python_steps_run_between_native_ones(count: int) -> None:
    whole = dataclasses.replace(adding(), steps=python_between())
    assert np.array_equal(CompiledGraph(whole, threads=count).run([X])[0], 2 * (X + 1) + 1)


def test_a_python_step_that_fails_leaves_the_graph_usable() -> None:
    before, middle, after = python_between()
    failing = iter([True, False])

    def run(reads: list[np.ndarray], writes: list[np.ndarray]) -> None:
        if next(failing):
            raise RuntimeError("once")
        writes[0][...] = reads[0]

    assert middle.python is not None
    middle = dataclasses.replace(middle, python=dataclasses.replace(middle.python, run=run))
    graph = CompiledGraph(dataclasses.replace(adding(), steps=(before, middle, after)), threads=2)
    with pytest.raises(RuntimeError, match="once"):
        graph.run([X])
    assert np.array_equal(graph.run([X])[0], X + 2)


def test_weights_are_copied_and_not_for_python_to_write() -> None:
    weights = X.view(np.uint8).copy()
    seen = []

    def look(reads: list[np.ndarray], writes: list[np.ndarray]) -> None:
        seen.append(reads[0].flags.writeable)
        writes[0][...] = reads[0]

    call = PythonCall(
        look,
        (TensorView(Address("weights", 0), FLOAT, X.shape, (4,)),),
        (TensorView(Address("output", 0), FLOAT, X.shape, (4,)),),
    )
    whole = dataclasses.replace(adding(), weights=weights, steps=(Step("", (), 1, 1, python=call),))
    graph = CompiledGraph(whole, threads=1)
    weights[:] = 0
    assert np.array_equal(graph.run([X])[0], X)
    assert seen == [False]


@pytest.mark.parametrize("count", [1, 2])
def test_profile_has_every_step(count: int, tmp_path) -> None:
    graph, profile = (
        CompiledGraph(dataclasses.replace(adding(), steps=python_between()), threads=count),
        Profile(),
    )
    for _ in range(3):
        assert np.array_equal(graph.run([X], profile=profile)[0], 2 * (X + 1) + 1)
    rows = profile.part_rows()
    assert [(r.name, r.calls) for r in rows] == [("before", 3), ("double (in numpy)", 3), ("after", 3)]
    assert 0 < sum(r.share for r in rows) <= 1.01  # of the time of the run
    for run in profile.runs:
        marks = [run.start, *(t for entry in run.steps[0].parts for t in (entry.start, entry.end)), run.end]
        assert all(a <= b + 2000 for a, b in itertools.pairwise(marks))  # two clocks agree to microseconds
    assert "in numpy" in str(profile) and "3 runs" in str(profile)
    dump = read_etdump(write_etdump(profile.etdump()))
    events = [e.profile_event for e in dump.run_data[0].events]
    assert [e.name for e in events if e.delegate_debug_id_str] == ["before", "double (in numpy)", "after"]
    profile.save_chrome_trace(tmp_path / "trace.json")
    names = [e["name"] for e in json.loads((tmp_path / "trace.json").read_text())["traceEvents"]]
    assert names == 3 * ["inference", "inference", "before", "double (in numpy)", "after"]


@pytest.mark.slow
def test_graphs_come_and_go() -> None:
    for at in range(30):
        graph = CompiledGraph(adding(steps=3 + at % 4), threads=2)
        assert np.array_equal(graph.run([X])[0], X + 3 + at % 4)
        del graph
        gc.collect()
    pool, until = threads.thread_pool(), time.monotonic() + 60
    while pool._retired and time.monotonic() < until:
        time.sleep(0.01)
        pool.retire(None)
    assert not pool._retired, "memory is released when no worker reads it"


def test_a_kernel_that_is_not_there() -> None:
    wrong = dataclasses.replace(adding(), kernels={"add": ADD.replace("@add", "@other")})
    with pytest.raises(CodegenError, match="must be defined"):
        CompiledGraph(wrong, threads=1)


def test_text_llvm_does_not_take() -> None:
    with pytest.raises(CodegenError, match="LLVM must accept"):
        compile_all(["define void @broken( {"], "", "")


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_driver_compiles_for(machine: str) -> None:
    import llvmlite.binding as llvm

    target_machine("", "")
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    module = llvm.parse_assembly(driver_ir.driver_text(machine))
    module.verify()
    assert llvm.Target.from_triple(f"{machine}-unknown-linux-gnu").create_target_machine(opt=2).emit_object(module)
