"""The runtime: memory, state, control flow, data, inputs and outputs, threads."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from edgewright.engine.profile import RunTime, StepTime
from edgewright.errors import (
    ExecutionError,
    FormatError,
    InputError,
    LimitError,
    MissingDataError,
    MissingDelegateError,
    MissingOperatorError,
    UsageError,
)
from edgewright.formats import read_program, schema, write_program
from edgewright.formats.ptd import PtdEntry, read_data, write_data
from edgewright.runtime import DelegateBase, Limits, Profile, Runtime, register_delegate, register_kernel
from edgewright.runtime.registry import KERNELS
from tests.support import golden
from tests.support.build import PlanBuilder, program

RUNTIME = Runtime.get()
DELEGATED = [n for n in golden.PROGRAMS if any(plan.delegates for plan in read_program(golden.path(n)).execution_plan)]
PORTABLE = [n for n in golden.RECORDED if n not in DELEGATED]


@pytest.mark.parametrize("name", PORTABLE)
def test_portable_golden_files_give_stocks_outputs(name: str) -> None:
    loaded = RUNTIME.load_program(golden.path(name), golden.data(name))
    methods = {}
    for case in golden.cases(name):
        method = methods.setdefault(case.method, loaded.load_method(case.method))
        outputs = method.execute(case.inputs)
        assert len(outputs) == len(case.outputs)
        for ours, stock in zip(outputs, case.outputs, strict=True):
            assert ours.dtype == stock.dtype
            np.testing.assert_allclose(ours, stock, rtol=1e-5, atol=1e-6)


def test_there_are_portable_golden_files() -> None:
    assert len(PORTABLE) >= 9
    assert len(DELEGATED) >= 10


@pytest.mark.parametrize("name", DELEGATED)
def test_delegated_files_describe_themselves_and_name_a_missing_delegate(name: str) -> None:
    made = read_program(golden.path(name))
    for plan in made.execution_plan:
        for delegate in plan.delegates:
            delegate.id = "CoreMLBackend"
    loaded = RUNTIME.load_program(write_program(made), golden.data(name))
    assert "CoreMLBackend" in loaded.metadata().delegates
    with pytest.raises(MissingDelegateError, match="Core ML") as caught:
        loaded.load_method()
    assert caught.value.backends == ("CoreMLBackend",)
    assert "edgewright.backends" in str(caught.value)


def test_constant_methods_run_beside_delegated_ones() -> None:
    loaded = RUNTIME.load_program(golden.path("multi_method"))
    cases = {c.method: c.outputs for c in golden.cases("multi_method")}
    names = [n for n in loaded.method_names if not loaded.metadata(n).delegates]
    assert len(names) == 7
    for name in names:
        if name != "encode":
            outputs = loaded.load_method(name).execute([])
            for ours, stock in zip(outputs, cases.get(name, outputs), strict=True):
                np.testing.assert_array_equal(ours, stock)
    values = {n: loaded.load_method(n).execute() for n in names if n != "encode"}
    assert {type(v[0]) for v in values.values()} >= {int, float, str, bool, np.ndarray}


def test_outputs_are_safe_to_keep() -> None:
    method = RUNTIME.load_program(golden.path("linear_fp32_portable")).load_method()
    first = method.execute([np.ones((2, 4), np.float32)])[0]
    kept = first.copy()
    method.execute([np.full((2, 4), 5, np.float32)])
    np.testing.assert_array_equal(first, kept)


def test_state_is_kept_between_calls_and_reset() -> None:
    method = RUNTIME.load_program(golden.path("mutable_buffer")).load_method()
    info = method.metadata.inputs[0]
    x = np.ones(info.shape, info.dtype)
    runs = [method.execute([x])[0].copy() for _ in range(3)]
    assert not np.array_equal(runs[0], runs[2])
    method.reset()
    np.testing.assert_array_equal(method.execute([x])[0], runs[0])
    again = RUNTIME.load_program(golden.path("mutable_buffer")).load_method()
    np.testing.assert_array_equal(again.execute([x])[0], runs[0])


def test_initial_state_comes_from_the_file() -> None:
    builder = PlanBuilder()
    state = builder.tensor("float32", (2,), data_buffer_idx=1)
    step = builder.input("float32", (2,))
    alpha = builder.value(schema.Int(int_val=1))
    new = builder.tensor("float32", (2,))
    flag = builder.value(schema.Bool(bool_val=False))
    builder.call("aten::add.out", [state, step, alpha, new, new])
    builder.call("aten::copy_", [state, new, flag, state])
    builder.outputs = [new]
    made = builder.program()
    segment = made.add_segment(np.array([10, 20], np.float32).tobytes())
    made.mutable_data_segments = [schema.SubsegmentOffsets(segment_index=segment, offsets=[0, 0])]
    method = RUNTIME.load_program(write_program(made)).load_method()
    one = np.ones(2, np.float32)
    assert method.execute([one])[0].tolist() == [11, 21]
    assert method.execute([one])[0].tolist() == [12, 22]
    method.reset()
    assert method.execute([one])[0].tolist() == [11, 21]


def test_torch_tensors_come_back_as_torch_tensors() -> None:
    method = RUNTIME.load_program(golden.path("linear_fp32_portable")).load_method()
    x = torch.ones(2, 4)
    ours = method.execute([x])[0]
    assert isinstance(ours, torch.Tensor)
    np.testing.assert_array_equal(ours.numpy(), method.execute([x.numpy()])[0])


def test_bfloat16_goes_through_torch_and_back() -> None:
    builder = PlanBuilder()
    from edgewright.ir.dtypes import bfloat16

    x = builder.input(bfloat16, (3,))
    out = builder.tensor(bfloat16, (3,))
    builder.call("aten::neg.out", [x, out, out])
    builder.outputs = [out]
    method = RUNTIME.load_program(write_program(builder.program())).load_method()
    result = method.execute([torch.tensor([1.5, -2, 0], dtype=torch.bfloat16)])[0]
    assert result.dtype == torch.bfloat16
    assert result.tolist() == [-1.5, 2, 0]


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([], "takes 1 inputs"),
        ([np.ones((2, 4)), np.ones(1)], "takes 1 inputs"),
        ([np.ones((2, 4))], "float64"),
        ([np.ones((2, 5), np.float32)], r"float32\[2, 5\]"),
        ([np.ones(8, np.float32)], r"float32\[8\]"),
        ([[1, 2]], "list"),
        (["text"], "str"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(inputs: list[object], message: str) -> None:
    method = RUNTIME.load_program(golden.path("linear_fp32_portable")).load_method()
    with pytest.raises(InputError, match=message):
        method.execute(inputs)


def test_a_bare_array_is_refused_with_the_way_to_write_it() -> None:
    method = RUNTIME.load_program(golden.path("linear_fp32_portable")).load_method()
    with pytest.raises(InputError, match=r"execute\(\[x\]\)"):
        method.execute(np.ones((2, 4), np.float32))


def test_dynamic_inputs_are_checked_against_their_bounds() -> None:
    method = RUNTIME.load_program(golden.path("mlp_dynshape_portable")).load_method()
    info = method.metadata.inputs[0]
    assert info.dynamic
    features = info.shape[1]
    for rows in (1, 7, info.shape[0]):
        assert method.execute([np.zeros((rows, features), np.float32)])[0].shape[0] == rows
    with pytest.raises(InputError, match="<=16"):
        method.execute([np.zeros((info.shape[0] + 1, features), np.float32)])


def test_baked_in_numbers_must_be_the_same() -> None:
    builder = PlanBuilder()
    builder.inputs = [builder.value(schema.Int(int_val=3)), builder.value(schema.Double(double_val=0.5))]
    builder.outputs = list(builder.inputs)
    method = RUNTIME.load_program(write_program(builder.program())).load_method()
    assert method.execute([3, 0.5]) == [3, 0.5]
    with pytest.raises(InputError, match="int 3"):
        method.execute([4, 0.5])
    with pytest.raises(InputError, match=r"double 0\.5"):
        method.execute([3, 0.6])


def test_unplanned_inputs_are_borrowed_and_mutated_ones_copied() -> None:
    builder = PlanBuilder()
    x = builder.input("float32", (2,), allocation_info=None)
    y = builder.input("float32", (2,))
    z = builder.input("float32", (2,), allocation_info=None)
    flag = builder.value(schema.Bool(bool_val=False))
    out = builder.tensor("float32", (2,))
    builder.call("aten::copy_", [x, y, flag, x])
    builder.call("test::seen.out", [z, out, out])
    builder.outputs = [x, out]
    seen: list[np.ndarray] = []
    register_kernel("test::seen.out", lambda array: seen.append(array) or array * 2)
    try:
        method = RUNTIME.load_program(write_program(builder.program())).load_method()
        mine, read = np.zeros(2, np.float32), np.full(2, 3, np.float32)
        found = method.execute([mine, np.ones(2, np.float32), read])
    finally:
        del KERNELS["test::seen.out"]
    assert [array.tolist() for array in found] == [[1, 1], [6, 6]]
    assert mine.tolist() == [0, 0]
    assert np.shares_memory(seen[0], read)


def test_missing_operators_are_named_all_at_once() -> None:
    builder = PlanBuilder()
    x = builder.input("float32", (2,))
    builder.call("none::such.out", [x, x])
    builder.call("nor::this.out", [x, x])
    with pytest.raises(MissingOperatorError, match=r"none::such.out, nor::this.out") as caught:
        RUNTIME.load_program(write_program(builder.program())).load_method()
    assert caught.value.operators == ("none::such.out", "nor::this.out")


@pytest.mark.parametrize("signature", ["test::scale.out", "test::scale.out(x: Tensor, by: float, out: Tensor!)"])
def test_a_kernel_of_ones_own(signature: str) -> None:
    register_kernel(signature, lambda x, by: x * by)
    try:
        builder = PlanBuilder()
        x = builder.input("float32", (2,))
        by = builder.value(schema.Double(double_val=2.5))
        out = builder.tensor("float32", (2,))
        builder.call("test::scale.out", [x, by, out, out])
        builder.outputs = [out]
        method = RUNTIME.load_program(write_program(builder.program())).load_method()
        assert method.execute([np.array([2, 4], np.float32)])[0].tolist() == [5, 10]
    finally:
        del KERNELS["test::scale.out"]
    with pytest.raises(UsageError, match="namespace::op"):
        register_kernel("scale", lambda x: x)


class Doubler(DelegateBase):
    """A delegate that multiplies its one input by a number in its blob."""

    closed = 0

    def __init__(self, blob) -> None:  # type: ignore[no-untyped-def]
        self.factor = blob.blob[0]
        self.specs = blob.compile_specs
        assert bytes(blob.named_data["scale"]) == b"named"

    input_count = 1

    def execute(self, inputs):  # type: ignore[no-untyped-def]
        return [inputs[0] * self.factor]

    def close(self) -> None:
        Doubler.closed += 1


@pytest.mark.parametrize("inline", [True, False])
def test_a_registered_delegate_runs_its_blob(inline: bool) -> None:
    register_delegate("DoublerBackend", Doubler)
    builder = PlanBuilder()
    x, out = builder.input("float32", (2,)), builder.tensor("float32", (2,))
    reference = schema.BackendDelegateDataReference(location=0 if inline else 1, index=0 if inline else 1)
    spec = schema.CompileSpec(key="mode", value=b"fast")
    builder.delegates = [schema.BackendDelegate(id="DoublerBackend", processed=reference, compile_specs=[spec])]
    builder.instructions = [schema.DelegateCall(delegate_index=0, args=[x, out])]
    builder.outputs = [out]
    made = builder.program()
    made.add_segment(b"\3")
    named = made.add_segment(b"named")
    made.named_data = [schema.NamedData(key="scale", segment_index=named)]
    made.backend_delegate_data = [schema.BackendDelegateInlineData(data=b"\3")]
    method = RUNTIME.load_program(write_program(made)).load_method()
    assert method.execute([np.array([1, 2], np.float32)])[0].tolist() == [3, 6]
    before = Doubler.closed
    method.close()
    assert Doubler.closed == before + 1


def test_external_data_is_required_and_checked(tmp_path: Path) -> None:
    name = "mlp_ptd_portable"
    with pytest.raises(MissingDataError, match=r"a\.weight[\s\S]*\.ptd") as caught:
        RUNTIME.load_program(golden.path(name)).load_method()
    assert "a.bias" in str(caught.value)
    stored = read_data(golden.data(name))
    bare = write_data({key: PtdEntry(entry.data) for key, entry in stored.items()})
    with pytest.raises(MissingDataError, match="layout"):
        RUNTIME.load_program(golden.path(name), bare).load_method()
    swapped = dict(stored)
    swapped["a.bias"] = stored["a.weight"]
    with pytest.raises(MissingDataError, match=r"a\.bias"):
        RUNTIME.load_program(golden.path(name), write_data(swapped)).load_method()
    with pytest.raises(MissingDataError, match="repeat"):
        RUNTIME.load_program(golden.path(name), [golden.data(name), golden.data(name)])
    halves = [dict(list(stored.items())[:2]), dict(list(stored.items())[2:])]
    method = RUNTIME.load_program(golden.path(name), [write_data(h) for h in halves]).load_method()
    case = next(golden.cases(name))
    np.testing.assert_allclose(method.execute(case.inputs)[0], case.outputs[0], rtol=1e-5, atol=1e-6)


def test_methods_run_in_parallel_and_one_method_in_turn() -> None:
    builder = PlanBuilder()
    x, out = builder.input("float32", (2,)), builder.tensor("float32", (2,))
    builder.call("test::meet.out", [x, out, out])
    builder.outputs = [out]
    inside: list[int] = []
    counts: list[int] = []
    meeting = threading.Barrier(2, timeout=60)

    def meet(array: np.ndarray) -> np.ndarray:
        inside.append(1)
        if not meeting.broken:
            meeting.wait()
        time.sleep(0.02)
        counts.append(len(inside))
        inside.pop()
        return array

    def call(*methods: Any) -> list[int]:
        counts.clear()
        threads = [threading.Thread(target=m.execute, args=([np.ones(2, np.float32)],)) for m in methods]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return counts

    register_kernel("test::meet.out", meet)
    try:
        loaded = RUNTIME.load_program(write_program(builder.program()))
        first, second = loaded.load_method(), loaded.load_method()
        assert max(call(first, second)) == 2
        meeting.abort()
        assert call(first, first, first) == [1, 1, 1]
    finally:
        del KERNELS["test::meet.out"]


def test_methods_may_be_called_by_many_threads() -> None:
    loaded = RUNTIME.load_program(golden.path("conv_relu_fp32_portable"))
    case = next(golden.cases("conv_relu_fp32_portable"))
    shared, failures = loaded.load_method(), []

    def work() -> None:
        own = loaded.load_method()
        for _ in range(10):
            for method in (own, shared):
                try:
                    np.testing.assert_allclose(method.execute(case.inputs)[0], case.outputs[0], rtol=1e-5, atol=1e-5)
                except Exception as error:
                    failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_loops_and_growing_tensors() -> None:
    """The way ``map`` is lowered: a counter, a slice per turn, a backwards jump."""
    builder = PlanBuilder()
    x = builder.input("float32", (3, 2))
    row, doubled = builder.tensor("float32", (2,)), builder.tensor("float32", (2,))
    stacked = builder.tensor("float32", (3, 2), shape_dynamism=1)
    zero, one, three = (builder.value(schema.Int(int_val=i)) for i in (0, 1, 3))
    turn, done = builder.value(schema.Int(int_val=0)), builder.value(schema.Bool(bool_val=False))
    two = builder.value(schema.Double(double_val=2.0))
    builder.call("aten::select_copy.int_out", [x, zero, turn, row, row])
    builder.call("aten::mul.Scalar_out", [row, two, doubled, doubled])
    builder.call("executorch_prim::et_copy_index.tensor", [stacked, doubled, turn])
    builder.call("executorch_prim::add.Scalar", [turn, one, turn])
    builder.call("executorch_prim::eq.Scalar", [turn, three, done])
    builder.instructions.append(schema.JumpFalseCall(cond_value_index=done, destination_instruction=0))
    builder.outputs = [stacked]
    method = RUNTIME.load_program(write_program(builder.program())).load_method()
    value = np.arange(6, dtype=np.float32).reshape(3, 2)
    for _ in range(2):  # counters start afresh
        np.testing.assert_array_equal(method.execute([value])[0], value * 2)


def test_lists_come_out_as_lists() -> None:
    builder = PlanBuilder()
    x = builder.input("float32", (2,))
    builder.outputs = [builder.ints([3, 4]), builder.value(schema.OptionalTensorList(items=[x, -1]))]
    method = RUNTIME.load_program(write_program(builder.program())).load_method()
    numbers, tensors = method.execute([np.ones(2, np.float32)])
    assert numbers == [3, 4]
    assert tensors[0].tolist() == [1, 1]
    assert tensors[1] is None


def test_a_view_shares_memory_with_its_base() -> None:
    builder = PlanBuilder()
    x = builder.input("float32", (2, 3))
    size = builder.ints([3, -1])
    view = builder.tensor("float32", (3, 2), allocation_info=None)
    out = builder.tensor("float32", (3, 2))
    builder.call("executorch_prim::et_view.default", [x, size, view])
    builder.call("aten::neg.out", [view, out, out])
    builder.outputs = [out, view]
    method = RUNTIME.load_program(write_program(builder.program())).load_method()
    value = np.arange(6, dtype=np.float32).reshape(2, 3)
    negated, viewed = method.execute([value])
    base, shown = (method._table.values[index] for index in (x, view))
    assert np.shares_memory(base.array, shown.array)
    np.testing.assert_array_equal(negated, -value.reshape(3, 2))
    np.testing.assert_array_equal(viewed, value.reshape(3, 2))


def test_limits_are_enforced_and_can_be_raised() -> None:
    source = golden.path("conv_relu_fp32_portable")
    with pytest.raises(LimitError, match="Limits"):
        RUNTIME.load_program(source, limits=Limits(memory=100)).load_method()
    builder = PlanBuilder()
    never = builder.value(schema.Bool(bool_val=False))
    builder.instructions = [schema.JumpFalseCall(cond_value_index=never, destination_instruction=0)]
    method = RUNTIME.load_program(write_program(builder.program()), limits=Limits(instructions=1000)).load_method()
    with pytest.raises(ExecutionError, match="1000 instructions"):
        method.execute()


def test_a_failing_instruction_is_named_with_its_source_line() -> None:
    builder = PlanBuilder()
    x, index = builder.input("float32", (2,)), builder.input("int64", (1,))
    dim, flag = builder.value(schema.Int(int_val=0)), builder.value(schema.Bool(bool_val=False))
    out = builder.tensor("float32", (1,))
    builder.call("aten::gather.out", [x, dim, index, flag, out, out])
    plan = builder.plan()
    frame = schema.Frame(filename="model.py", lineno=12, name="forward", context="x.gather(0, i)")
    plan.chains[0].stacktrace = [schema.FrameList(items=[frame])]
    method = RUNTIME.load_program(write_program(program(plan))).load_method()
    with pytest.raises(ExecutionError, match=r"instruction 0 \(aten::gather.out\)[\s\S]*model.py:12") as caught:
        method.execute([np.ones(2, np.float32), np.array([9])])
    assert isinstance(caught.value.__cause__, IndexError)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([0, 1, 2, 2], "takes 5 values"),
        ([0, 1, 1, 2, 2], "alpha"),
        ([0, 3, 3, 2, 2], "other"),
        ([0, 1, 3, 3, 3], "result"),
    ],
)
def test_calls_that_do_not_fit_the_operator_are_refused_at_load(args: list[int], message: str) -> None:
    builder = PlanBuilder()
    for _ in range(3):
        builder.tensor("float32", (2,))
    builder.value(schema.Int(int_val=1))
    builder.call("aten::add.out", args)
    with pytest.raises(FormatError, match=message):
        RUNTIME.load_program(write_program(builder.program())).load_method()


def test_a_constant_cannot_be_written() -> None:
    made = read_program(golden.path("linear_fp32_portable"))
    plan = made.execution_plan[0]
    call = plan.chains[0].instructions[0]
    assert isinstance(call, schema.KernelCall)
    call.args = [3, 6, 0, 0]
    with pytest.raises(FormatError, match="constant"):
        RUNTIME.load_program(write_program(made)).load_method()


def test_a_profile_shows_medians() -> None:
    """Of instructions, of their steps and of runs: the first compiles, and one in between was interrupted."""
    profile = Profile()
    for run in (9_000_000, 2_000_000, 1_000_000, 3_000_000, 50_000_000):
        part = StepTime(0, 0, "conv2d", 0, run // 2)
        steps = [StepTime(0, 0, "Backend", 0, run, (part,)), StepTime(0, 1, "aten::add.out", 0, 1_000_000)]
        profile.runs.append(RunTime("forward", 0, run + 1_000_000, steps))
    first, second = profile.rows()
    assert (first.calls, first.median_ms, second.median_ms) == (5, 3.0, 1.0)
    assert (first.share, second.share) == (0.75, 0.25)
    (inside,) = profile.part_rows()
    assert (inside.median_ms, inside.share) == (1.5, 0.375)
    assert "5 runs, 4.00 ms each (median)" in str(profile)


def test_profiles_count_every_instruction(tmp_path: Path) -> None:
    method = RUNTIME.load_program(golden.path("linear_fp32_portable")).load_method()
    profile, x = Profile(), np.ones((2, 4), np.float32)
    for _ in range(3):
        method.execute([x], profile=profile)
    rows = profile.rows()
    assert [(r.name, r.calls) for r in rows] == [("aten::permute_copy.out", 3), ("aten::addmm.out", 3)]
    assert sum(r.share for r in rows) == pytest.approx(1)
    assert "3 runs" in str(profile)
    trace = profile.chrome_trace()["traceEvents"]
    assert len(trace) == 9
    assert all(e["ph"] == "X" and e["dur"] >= 0 for e in trace)
    profile.save_chrome_trace(tmp_path / "trace.json")
    assert (tmp_path / "trace.json").stat().st_size > 100


def test_metadata_tells_names_shapes_dtypes_and_memory() -> None:
    metadata = RUNTIME.load_program(golden.path("linear_fp32_portable")).metadata("forward")
    assert [str(i) for i in metadata.inputs] == ["float32[2, 4]"]
    assert [str(o) for o in metadata.outputs] == ["float32[2, 3]"]
    assert (metadata.planned_bytes, metadata.constant_bytes, metadata.instructions) == (112, 60, 2)
    assert metadata.operators == ("aten::permute_copy.out", "aten::addmm.out")
    with pytest.raises(UsageError, match="forward"):
        RUNTIME.load_program(golden.path("linear_fp32_portable")).load_method("backward")
