"""Checks of the runtime that no other test's files reach: delegates, calls of theirs, the fast path, interruptions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from edgewright.backends import registry as backend_registry
from edgewright.backends.info import BackendInfo
from edgewright.backends.registry import InstalledBackend
from edgewright.errors import (
    ExecutionError,
    FormatError,
    InputError,
    LimitError,
    MissingDataError,
    MissingDelegateError,
    UsageError,
)
from edgewright.formats import schema
from edgewright.formats.ptd import read_data, write_data
from edgewright.formats.pte_reader import read_program
from edgewright.formats.pte_writer import write_program
from edgewright.formats.twin_writer import write_twin
from edgewright.ir.graph import Graph, GraphError, Op, Value
from edgewright.ir.numerics import FLOAT32
from edgewright.runtime import (
    DelegateBase,
    Limits,
    Method,
    Profile,
    Runtime,
    input_aliasing,
    register_delegate,
    registry,
)
from edgewright.runtime.delegates import DelegateBlob, ResultSpec, invoke, make_delegate
from edgewright.runtime.registry import register_kernel
from edgewright.runtime.tensor import TensorSlot
from edgewright.runtime.twin_delegate import TwinDelegate, embedded_twin, find_twin, fit_inputs
from tests.support import golden
from tests.support.build import PlanBuilder

RUNTIME = Runtime.get()
FLOAT = np.dtype(np.float32)
X = np.array([[1, 2, 3], [4, 5, 6]], np.float32)


@pytest.fixture(autouse=True)
def registries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_KERNELS", dict(registry.all_kernels()))
    monkeypatch.setattr(backend_registry, "_REGISTERED", dict(backend_registry._REGISTERED))


def load(builder: PlanBuilder, limits: Limits | None = None) -> Method:
    return RUNTIME.load_program(write_program(builder.program()), limits=limits).load_method()


# -------------------------------------------------------------------------------------------- delegates and their calls


class Fake(DelegateBase):
    """A delegate of one input: ``results`` makes its outputs."""

    input_count = 1

    def __init__(self, results: Callable[[Any], list[Any]], **attributes: Any) -> None:
        self.results = results
        for name, value in attributes.items():
            setattr(self, name, value)

    def execute(self, inputs: Sequence[Any]) -> list[Any]:
        return self.results(inputs[0])


class Filler(Fake):
    """A delegate that writes to its targets."""

    def execute_into(self, inputs: Sequence[Any], targets: Sequence[Any], profile: Any) -> list[Any]:
        made = self.results(inputs[0])
        for target, result in zip(targets, made, strict=False):
            target[...] = result
        return [*targets[: len(made)], *made[len(targets) :]]


def delegated(delegate: Any, outputs: int = 1, order: Sequence[int] | None = None) -> Method:
    """A program that is one call of a delegate, with a tensor of floats in and ``outputs`` out."""
    register_delegate("FakeBackend", lambda blob: delegate)
    builder = PlanBuilder()
    x = builder.input("float32", X.shape)
    builder.outputs = [builder.tensor("float32", X.shape, order) for _ in range(outputs)]
    reference = schema.BackendDelegateDataReference(location=1, index=0)
    builder.delegates = [schema.BackendDelegate(id="FakeBackend", processed=reference)]
    builder.instructions = [schema.DelegateCall(delegate_index=0, args=[x, *builder.outputs])]
    return load(builder)


def test_a_delegate_takes_no_more_inputs_than_its_call_has_arguments() -> None:
    for count in (-1, 3):
        with pytest.raises(FormatError, match=f"the delegate takes {count} inputs; got 2 arguments"):
            delegated(Fake(lambda x: [x], input_count=count))


def test_inputs_of_a_delegate_are_tensors() -> None:
    register_delegate("FakeBackend", lambda blob: Fake(lambda x: [x]))
    builder = PlanBuilder()
    reference = schema.BackendDelegateDataReference(location=1, index=0)
    builder.delegates = [schema.BackendDelegate(id="FakeBackend", processed=reference)]
    number = builder.value(schema.Int(int_val=1))
    builder.instructions = [schema.DelegateCall(delegate_index=0, args=[number])]
    with pytest.raises(FormatError, match="a delegate's inputs are tensors; got int"):
        load(builder)


@pytest.mark.parametrize("kind", [Fake, Filler])
def test_a_delegate_gives_as_many_outputs_as_its_call_has(kind: type[Fake]) -> None:
    for given, wanted in ((2, 1), (1, 2)):
        method = delegated(kind(lambda x, given=given: [x] * given), wanted)
        with pytest.raises(ExecutionError, match=f"must return {wanted} outputs; got {given}"):
            method.execute([X])


@pytest.mark.parametrize("kind", [Fake, Filler])
@pytest.mark.parametrize("stored", [True, False])
def test_outputs_are_arrays_as_everyone_sees_them(kind: type[Fake], stored: bool) -> None:
    """A delegate with ``storage_order`` sees tensors as they are in memory; its output here has columns first."""
    method = delegated(kind(lambda x: [x.T * 2] if stored else [x * 2], storage_order=stored), order=(1, 0))
    assert np.array_equal(method.execute([X])[0], X * 2)


def test_raw_outputs_are_elements_of_the_right_size() -> None:
    good = delegated(Fake(lambda x: [x.view(np.int32).ravel()], raw_outputs=True))
    assert np.array_equal(good.execute([X])[0], X)
    for made in (X.view(np.int32)[:1], X.astype(np.int16)):
        method = delegated(Fake(lambda x, made=made: [made], raw_outputs=True))
        rule = rf"must return \[2, 3\] of float32; got {made.size} elements of {made.itemsize} bytes"
        with pytest.raises(ExecutionError, match=rule):
            method.execute([X])


def test_what_a_delegate_wrote_in_place_of_a_moved_tensor_is_found_there() -> None:
    """A value that an instruction before the call fills may be of any kind when the file is loaded."""
    register_delegate("FakeBackend", lambda blob: Fake(lambda x: [x * 2]))
    builder = PlanBuilder()
    x, out = builder.input("float32", X.shape), builder.tensor("float32", X.shape)
    place = builder.value(schema.Null())
    reference = schema.BackendDelegateDataReference(location=1, index=0)
    builder.delegates = [schema.BackendDelegate(id="FakeBackend", processed=reference)]
    call = schema.DelegateCall(delegate_index=0, args=[x, place])
    builder.instructions = [schema.MoveCall(move_from=out, move_to=place), call]
    builder.outputs = [out]
    assert np.array_equal(load(builder).execute([X])[0], X * 2)


def test_a_failing_delegate_is_named_with_how_it_runs() -> None:
    def broken(x: Any) -> Any:
        raise ValueError("no such shape")

    for attributes, label in (({}, "FakeBackend"), ({"how": "numpy"}, r"FakeBackend \(numpy\)")):
        method = delegated(Fake(broken, **attributes))
        with pytest.raises(ExecutionError, match=rf"instruction 0 \({label}\): no such shape"):
            method.execute([X])


def test_memory_that_a_call_does_not_get_is_reported_in_words() -> None:
    def full(x: Any) -> Any:
        raise MemoryError

    with pytest.raises(ExecutionError, match=r"instruction 0 \(FakeBackend\): does not fit in memory"):
        delegated(Fake(full)).execute([X])


def test_profiles_have_the_steps_of_a_compiled_delegate(monkeypatch: pytest.MonkeyPatch) -> None:
    case = next(golden.cases("linear_fp32_xnnpack"))
    for engine, numpy in (("compiled", False), ("reference", True)):
        monkeypatch.setenv("EDGEWRIGHT_ENGINE", engine) if numpy else monkeypatch.delenv("EDGEWRIGHT_ENGINE", False)
        method = RUNTIME.load_program(golden.path("linear_fp32_xnnpack")).load_method()
        profile = Profile()
        (found,) = method.execute(case.inputs, profile=profile)
        np.testing.assert_allclose(found, case.outputs[0], rtol=1e-5, atol=1e-6)
        (step,) = profile.runs[0].steps
        assert step.name.startswith("XnnpackBackend (") and ("numpy" in step.name) == numpy, step.name
        assert bool(step.parts) != numpy


def test_delegates_of_installed_packages_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    info = BackendInfo("other", id="OtherBackend", delegate=Fake)
    installed = (InstalledBackend("other", "1.0", info),)
    monkeypatch.setattr(backend_registry, "installed_backends", lambda: installed)
    assert backend_registry.find_delegate("OtherBackend") is Fake and "OtherBackend" in RUNTIME.delegates
    with pytest.raises(MissingDelegateError, match=r"CoreMLBackend \(Apple Core ML\): is not installed"):
        make_delegate(DelegateBlob("CoreMLBackend", b"", {}, {}))
    assert "aten::relu.out" in RUNTIME.operators


# ------------------------------------------------------------------------------------------------------------- kernels


@pytest.mark.parametrize(
    ("signature", "rule"),
    [
        ("test::a.out(x: Tensor", "must read 'ns::op.overload"),
        ("test::a.out(x: Tensors, out: Tensor!)", "argument types are .*; got x: Tensors"),
        ("test::a.out(x)", "argument types are .*; got x"),
    ],
)
def test_signatures_that_cannot_be_read_are_refused(signature: str, rule: str) -> None:
    with pytest.raises(UsageError, match=rule):
        register_kernel(signature, lambda x: x)


def test_an_output_that_a_call_does_not_ask_for_stays_as_it_is() -> None:
    register_kernel("test::two.out(x: Tensor, a: Tensor!, b: Tensor!)", lambda x: (x * 2, None),
                    shape=lambda x: [x.shape, None])  # fmt: skip
    builder = PlanBuilder()
    x, a, b = builder.input("float32", X.shape), builder.tensor("float32", X.shape), builder.tensor("float32", [1])
    builder.call("test::two.out", [x, a, b, builder.value(schema.TensorList(items=[a, b]))])
    builder.outputs = [a, b]
    first, second = load(builder).execute([X])
    assert np.array_equal(first, X * 2) and second.tolist() == [0]


# ----------------------------------------------------------------------------------------------------- inputs on loan


def concatenation(count: int) -> PlanBuilder:
    builder = PlanBuilder()
    items = [builder.input("float32", [1]) for _ in range(count)]
    out = builder.tensor("float32", [count])
    zero = builder.value(schema.Int(int_val=0))
    builder.call("aten::cat.out", [builder.value(schema.TensorList(items=items)), zero, out, out])
    builder.outputs = [out]
    return builder


def test_inputs_of_a_method_with_very_many_are_copied() -> None:
    """Comparing each with each would take longer than copying them."""
    few, many = 10, 320
    assert few**2 <= input_aliasing._MAX_PAIRS < many**2
    for count in (few, many):
        method = load(concatenation(count))
        inputs = [np.full(1, n, np.float32) for n in range(count)]
        assert method.execute(inputs)[0].tolist() == list(range(count))
        slots = [v for v in method._table.values if isinstance(v, TensorSlot)]
        assert sum(slot.aliasable for slot in slots) == (count if count == few else 0)


# --------------------------------------------------------------------------------------------------------- fast path


def changed(change: Callable[[schema.ExecutionPlan], object], name: str = "linear_fp32_xnnpack") -> Method:
    made = read_program(golden.path(name))
    change(made.execution_plan[0])
    return RUNTIME.load_program(write_program(made)).load_method()


def stored_elsewhere(x: np.ndarray[Any, Any]) -> list[Any]:
    """The same elements, not as planned: columns first, and at an odd address."""
    odd = np.frombuffer(b"\0" + x.tobytes(), x.dtype, offset=1).reshape(x.shape)
    return [np.asfortranarray(x), odd]


def test_inputs_that_are_not_as_planned_give_the_same() -> None:
    case = next(golden.cases("linear_fp32_xnnpack"))
    method = changed(lambda plan: None)
    assert method._fast_path is not None
    wanted = method.execute(case.inputs)[0]
    np.testing.assert_allclose(wanted, case.outputs[0], rtol=1e-5, atol=1e-6)
    for other in stored_elsewhere(case.inputs[0]):
        assert np.array_equal(method.execute([other])[0], wanted)
    with pytest.raises(Exception, match="takes 1 input"):
        method.execute([*case.inputs, *case.inputs])
    with pytest.raises(Exception, match="float64"):
        method.execute([case.inputs[0].astype(np.float64)])


def repeat_output(plan: schema.ExecutionPlan) -> None:
    plan.outputs = [*plan.outputs, *plan.outputs]


def vary_input(plan: schema.ExecutionPlan) -> None:
    plan.values[plan.inputs[0]].shape_dynamism = 1  # up to these sizes


def share_memory(plan: schema.ExecutionPlan) -> None:
    """An output that nothing writes, over the input's memory: the input's bytes must be there."""
    source = plan.values[plan.inputs[0]]
    values = [*plan.values, schema.Tensor(scalar_type=source.scalar_type, sizes=source.sizes,
              dim_order=source.dim_order, allocation_info=source.allocation_info)]  # fmt: skip
    plan.values, plan.outputs = values, [*plan.outputs, len(values) - 1]


def add_number(plan: schema.ExecutionPlan) -> None:
    plan.values = [*plan.values, schema.Int(int_val=7)]
    plan.inputs = [*plan.inputs, len(plan.values) - 1]


@pytest.mark.parametrize("change", [repeat_output, vary_input, share_memory, add_number])
def test_methods_that_are_more_than_one_graph_have_no_fast_path(change: Callable[[Any], None]) -> None:
    case = next(golden.cases("linear_fp32_xnnpack"))
    method = changed(change)
    assert method._fast_path is None
    found = method.execute([*case.inputs, *([7] if change is add_number else [])])
    np.testing.assert_allclose(found[0], case.outputs[0], rtol=1e-5, atol=1e-6)
    for extra in found[1:]:
        assert np.array_equal(extra, case.inputs[0] if change is share_memory else found[0])


def test_a_call_with_more_outputs_than_its_graph_makes_is_an_error() -> None:
    def more(plan: schema.ExecutionPlan) -> None:
        call = plan.chains[0].instructions[0]
        plan.values = [*plan.values, plan.values[plan.outputs[0]]]
        call.args = [*call.args, len(plan.values) - 1]
        plan.outputs = call.args[1:]

    case = next(golden.cases("linear_fp32_xnnpack"))
    method = changed(more)
    assert method._fast_path is None
    with pytest.raises(ExecutionError, match="device graph: has 1 outputs; got 2"):
        method.execute(case.inputs)


def test_outputs_beyond_the_limit_of_memory_are_not_made() -> None:
    path, case = golden.path("linear_fp32_xnnpack"), next(golden.cases("linear_fp32_xnnpack"))
    made = read_program(path)
    plan = made.execution_plan[0]
    plan.outputs = [*plan.outputs] * 400
    method = RUNTIME.load_program(write_program(made), limits=Limits(memory=5000)).load_method()
    with pytest.raises(LimitError, match="may return 5000 bytes; got 9600"):
        method.execute(case.inputs)


def test_a_portable_program_that_is_one_compiled_graph_has_the_fast_path() -> None:
    shape = [128, 128]
    builder = PlanBuilder()
    x, y = builder.input("float32", shape), builder.input("float32", shape)
    a, b = builder.tensor("float32", shape), builder.tensor("float32", shape)
    builder.call("aten::mm.out", [x, y, a, a])
    builder.call("aten::relu.out", [a, b, b])
    builder.outputs = [b]
    method = load(builder)
    assert method._fast_path is not None
    given = [np.random.default_rng(n).standard_normal(shape).astype(np.float32) for n in range(2)]
    wanted, profile = np.maximum(given[0] @ given[1], 0), Profile()
    np.testing.assert_allclose(method.execute(given)[0], wanted, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(method.execute(given, profile=profile)[0], wanted, rtol=1e-4, atol=1e-4)
    assert profile.runs[0].steps[0].name.startswith("2 calls (")


# ------------------------------------------------------------------------------------------------------------- twins


def addition(name: str) -> Graph:
    x, y = (Value(n, FLOAT, (2, 3), (0, 1)) for n in "xy")
    return Graph(name, [x], [y], [Op("add", {"a": x, "b": x}, [y])])


def test_a_blob_for_this_machine_holds_one_graph() -> None:
    for count in (1, 2):
        blob = write_twin({f"g{n}": addition(f"g{n}") for n in range(count)})
        twin = embedded_twin(DelegateBlob("FakeBackend", blob, {}, {}), "Fake")
        if count == 1:
            assert [op.kind for op in twin.graph.ops] == ["add"]
            continue
        with pytest.raises(FormatError, match="Fake blob: must hold one graph; got 2"):
            _ = twin.graph


def test_inputs_of_a_twin_are_as_its_graph_has_them() -> None:
    wanted = addition("g").inputs
    assert np.array_equal(fit_inputs([X.ravel()], wanted, "Fake")[0], X)
    with pytest.raises(ExecutionError, match="Fake delegate: takes 1 inputs; got 2"):
        fit_inputs([X, X], wanted, "Fake")
    for other in (X[:1], X.astype(np.int32)):
        with pytest.raises(ExecutionError, match=r"input 0 of the Fake delegate: must be \[2, 3\] of float32"):
            fit_inputs([other], wanted, "Fake")
    (integer,) = fit_inputs([np.zeros((2, 3), np.uint8)], [Value("x", np.dtype(np.int8), (2, 3), (0, 1))], "Fake", True)
    assert integer.dtype == np.int8


class Runner:
    """Runs nothing: raises what it is given, or doubles its input."""

    how = "fake"

    def __init__(self, error: Exception | None) -> None:
        graph = addition("g")
        self.error, self.io = error, (graph.inputs, graph.outputs)

    def run(self, inputs: Sequence[Any], outputs: Sequence[Any], profile: Any) -> list[Any]:
        if self.error is not None:
            raise self.error
        return [inputs[0] * 2]


class FakeTwin(TwinDelegate):
    device = "Fake"


@pytest.mark.parametrize("error", [None, GraphError("g", "kind unknown"), ValueError("kind unknown")])
def test_a_twin_whose_graph_does_not_run_is_a_typed_error(error: Exception | None) -> None:
    twin: Any = FakeTwin()
    twin.runs(Runner(error))
    if error is None:
        assert np.array_equal(twin.execute([X])[0], X * 2)
        return
    with pytest.raises(ExecutionError, match=r"Fake delegate: the host twin's graph does not run: .*kind unknown"):
        twin.execute([X])


# ------------------------------------------------------------------------------------------- programs, interruptions


def test_data_must_not_repeat_the_names_of_the_program() -> None:
    builder = PlanBuilder()
    made = builder.program()
    made.named_data = [schema.NamedData(key="a.bias", segment_index=made.add_segment(b"data"))]
    entries = read_data(golden.data("mlp_ptd_portable"))
    assert "a.bias" in entries
    with pytest.raises(MissingDataError, match=r"must not repeat names of the program's own data; got a\.bias"):
        RUNTIME.load_program(write_program(made), write_data(entries))


def test_programs_are_shown_in_notebooks() -> None:
    shown = RUNTIME.load_program(golden.path("linear_fp32_portable"))._repr_html_()
    assert "forward" in shown and "float32" in shown


def accumulator() -> Method:
    builder = PlanBuilder()
    x, state = builder.input("float32", X.shape), builder.tensor("float32", X.shape)
    one = builder.value(schema.Int(int_val=1))
    builder.call("aten::add.out", [state, x, one, state, state])
    builder.outputs = [state]
    return load(builder)


def torn(method: Method) -> Method:
    """As in a child that was forked while another thread executed the method."""
    with method._guard.lock:
        method._guard._renew()
    assert method._guard.torn
    return method


def test_an_interrupted_execution_matters_where_there_is_state() -> None:
    method = torn(accumulator())
    with pytest.raises(ExecutionError, match=r"its state may be half written\n  Call reset\(\)"):
        method.execute([X])
    method.reset()
    assert np.array_equal(method.execute([X])[0], X)
    case = next(golden.cases("linear_fp32_portable"))
    stateless = torn(RUNTIME.load_program(golden.path("linear_fp32_portable")).load_method())
    np.testing.assert_allclose(stateless.execute(case.inputs)[0], case.outputs[0], rtol=1e-5, atol=1e-6)
    assert not stateless._guard.torn


def test_a_forked_child_may_load_methods_whatever_its_parent_did() -> None:
    program = RUNTIME.load_program(golden.path("linear_fp32_portable"))
    with program._loading:
        program._renew()
        assert isinstance(program._loading, type(threading.Lock())) and not program._loading.locked()


def test_a_delegate_is_called_without_a_program() -> None:
    spec = ResultSpec(FLOAT, X.shape, (0, 1))
    delegate = Fake(lambda x: [x * 2])
    (made,) = invoke(delegate, [X], [(0, 1)], [spec])
    assert np.array_equal(made, X * 2)
    assert delegate.device_graph is None and delegate.numerics is FLOAT32


def test_what_a_method_shows_of_its_file() -> None:
    method = delegated(Fake(lambda x: [x]), outputs=1)
    assert method.plan.name == "forward" and len(method.bound_steps) == 1
    assert len(method.values) == len(method.plan.values)
    assert method.memory_limit == Limits().memory
    assert list(method.delegate_indices.values()) == [0]
    assert [backend for backend, _ in method.delegate_runners()] == ["FakeBackend"]


def test_inputs_whose_batch_is_missing_or_doubled_get_the_remedy() -> None:
    method = RUNTIME.load_program(write_program(copier((1, 3)))).load_method()
    with pytest.raises(InputError, match=r"(?s)must be .*Add the dimension of the batch: x\[None\]"):
        method.execute([np.zeros(3, np.float32)])
    with pytest.raises(InputError, match=r"(?s)must be .*Take an element of the batch: x\[0\]"):
        method.execute([np.zeros((1, 1, 3), np.float32)])
    with pytest.raises(InputError) as error:
        method.execute([np.zeros(4, np.float32)])
    assert "batch" not in str(error.value)


def test_images_with_channels_on_the_other_side_get_the_remedy() -> None:
    method = RUNTIME.load_program(write_program(copier((1, 3, 4, 5)))).load_method()
    with pytest.raises(InputError, match=r"(?s)must be .*in another order: x.transpose\(0, 3, 1, 2\)"):
        method.execute([np.zeros((1, 4, 5, 3), np.float32)])


def copier(shape: Sequence[int]) -> schema.Program:
    """A program that returns its input, and frees another tensor."""
    builder = PlanBuilder()
    x = builder.input("float32", shape)
    unused = builder.tensor("float32", shape)
    builder.outputs = [x]
    builder.instructions = [schema.FreeCall(value_index=unused)]
    return builder.program()


def test_a_twin_that_is_found_is_the_graph() -> None:
    graph = Graph("toy")
    blob = DelegateBlob("ToyBackend", b"blob", {}, {}, twin=lambda digest: graph)
    assert find_twin(blob, "ToyBackend", "there is no simulator").graph is graph
