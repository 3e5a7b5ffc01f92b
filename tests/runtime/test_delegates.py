"""Delegates run through the engine, or say why they do not."""

from __future__ import annotations

import gc
import logging
import threading
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from edgewright.backends import registry
from edgewright.backends.ethos_u.delegate import EthosUDelegate
from edgewright.backends.nxp.delegate import NeutronDelegate
from edgewright.backends.qualcomm.delegate import QnnDelegate
from edgewright.backends.samsung.delegate import EnnDelegate
from edgewright.backends.xnnpack.delegate import XnnpackDelegate
from edgewright.engine import runner
from edgewright.errors import EdgewrightError, MissingError, UsageError
from edgewright.formats import schema, write_program
from edgewright.ir.graph import Array
from edgewright.runtime import Delegate, DelegateBase, DelegateBlob, Limits, Profile, Runtime, register_delegate
from edgewright.runtime.delegates import make_delegate
from edgewright.runtime.method import Method
from edgewright.runtime.tensor import TensorSlot
from tests.backends.device import program
from tests.engine.jit.test_shape_cache import two_layers
from tests.engine.lower.test_conv import conv
from tests.support import golden
from tests.support.build import PlanBuilder


def method(name: str, threads: int | None = None) -> Method:
    made: Method = Runtime(threads=threads).load_program(golden.path(name)).load_method()
    return made


def how(made: Method) -> str:
    return made._delegates[0].how


def results(name: str) -> list[Array]:
    made = method(name)
    return [y for case in golden.cases(name) for y in made.execute(case.inputs)]


# ------------------------------------------------------------------------------------------------------ the contract


class Minimal(DelegateBase):
    """What a delegate must define."""

    input_count = 1

    def __init__(self, blob: DelegateBlob) -> None:
        self.blob = blob

    def execute(self, inputs: Sequence[Array]) -> list[Array]:
        return [x + 1 for x in inputs]


class Plain:
    """All that a delegate of our own would define, without the defaults."""

    input_count = 1

    def __init__(self, blob: DelegateBlob) -> None:
        self.blob = blob

    def execute(self, inputs: Sequence[Array]) -> list[Array]:
        return [x + 1 for x in inputs]

    def close(self) -> None: ...


def delegated(factory: Any) -> Method:
    """A method that is one call of a delegate."""
    register_delegate("ContractBackend", factory)
    builder = PlanBuilder()
    x, out = builder.input("float32", (2,)), builder.tensor("float32", (2,))
    reference = schema.BackendDelegateDataReference(location=1, index=0)
    builder.delegates = [schema.BackendDelegate(id="ContractBackend", processed=reference)]
    builder.instructions = [schema.DelegateCall(delegate_index=0, args=[x, out])]
    builder.outputs = [out]
    loaded: Method = Runtime.get().load_program(write_program(builder.program())).load_method()
    return loaded


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_REGISTERED", dict(registry._REGISTERED))


def test_the_base_class_has_every_member_but_two() -> None:
    members = {name for name in vars(Delegate) if not name.startswith("_")}
    assert members - {name for name in vars(DelegateBase) if not name.startswith("_")} == {"input_count"}
    for cls in (EnnDelegate, EthosUDelegate, NeutronDelegate, QnnDelegate, XnnpackDelegate):
        assert issubclass(cls, DelegateBase)


@pytest.mark.usefixtures("registered")
def test_two_members_are_enough() -> None:
    made = delegated(Minimal)
    profile = Profile()
    for options in ({}, {"profile": profile}):
        assert made.execute([np.array([1, 2], np.float32)], **options)[0].tolist() == [2, 3]
    assert [row.name for row in profile.rows()] == ["ContractBackend"]
    made.close()


@pytest.mark.usefixtures("registered")
def test_a_class_without_the_defaults_is_rejected_when_it_is_registered() -> None:
    with pytest.raises(UsageError, match=r"delegate Plain: must have prepare, execute_into\s+Inherit .*DelegateBase\."):
        register_delegate("ContractBackend", Plain)  # type: ignore[arg-type]

    class NoExecute(DelegateBase):
        input_count = 1

    with pytest.raises(
        UsageError, match=r"delegate NoExecute: must have execute\s+Define execute, which has no default"
    ):
        register_delegate("ContractBackend", NoExecute)  # type: ignore[arg-type,type-abstract]


@pytest.mark.usefixtures("registered")
def test_an_object_that_lacks_members_is_rejected_when_it_is_made() -> None:
    class NoCount(DelegateBase):
        def execute(self, inputs: Sequence[Array]) -> Sequence[Array]:
            return inputs

    lacking = "bound_inputs, how, storage_order, raw_outputs, deferred, device_graph, numerics, compiled, prepare, "
    lacking += "execute_into"
    for factory, rule in (
        (Plain, rf"delegate Plain of 'ContractBackend': must have {lacking}\s+Inherit from .*DelegateBase\."),
        (lambda blob: NoCount(), r"delegate NoCount of .*: must have input_count\s+Define input_count"),
        (
            lambda blob: None,
            r"delegate NoneType of .*: must have input_count, bound_inputs.*\s+Inherit .* Define execute",
        ),
    ):
        with pytest.raises(UsageError, match=rule):
            delegated(lambda blob, factory=factory: factory(blob))


@pytest.mark.usefixtures("registered")
def test_members_are_not_evaluated_when_a_delegate_is_made() -> None:
    """Reading the graph of a deferred delegate would compile it or parse its blob."""
    asked: list[str] = []

    class Watched(Minimal):
        @property
        def device_graph(self) -> None:
            asked.append("device_graph")

        @property
        def compiled(self) -> None:
            asked.append("compiled")

    register_delegate("ContractBackend", Watched)
    assert isinstance(make_delegate(DelegateBlob("ContractBackend", b"", {}, {})), Watched) and not asked


# --------------------------------------------------------------------------------------------------- which one runs


def test_the_engine_is_what_runs() -> None:
    assert how(method("conv_relu_fp32_xnnpack", 1)).startswith("engine, avx")


def test_the_reference_runs_if_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(runner.ENGINE_VARIABLE, "reference")
    assert how(method("conv_relu_fp32_xnnpack")) == "numpy reference, as requested"


def test_other_names_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(runner.ENGINE_VARIABLE, "fast")
    with pytest.raises(UsageError, match="must be one of native, reference"):
        method("conv_relu_fp32_xnnpack")


def test_without_machine_code_it_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    problem = "the engine needs llvmlite: it is not there"
    monkeypatch.setattr(runner, "unavailable_reason", lambda: problem)
    runner._warn.cache_clear()
    with caplog.at_level(logging.WARNING, "edgewright.engine"):
        assert problem in how(method("conv_relu_fp32_xnnpack"))
        made = method("conv_relu_fp32_xnnpack")
    assert [r.getMessage().startswith(problem) for r in caplog.records] == [True]
    profile = Profile()
    made.execute(next(golden.cases("conv_relu_fp32_xnnpack")).inputs, profile=profile)
    assert "numpy reference" in profile.rows()[0].name
    monkeypatch.setenv(runner.ENGINE_VARIABLE, "native")
    with pytest.raises(MissingError, match="llvmlite"):
        method("conv_relu_fp32_xnnpack")


@pytest.mark.parametrize("machine", ["riscv64", "ppc64le"])
def test_other_machines_are_named(monkeypatch: pytest.MonkeyPatch, machine: str) -> None:
    monkeypatch.setattr("edgewright.engine.host_arch.machine_name", lambda: machine)
    runner.unavailable_reason.cache_clear()
    try:
        assert machine in runner.unavailable_reason()
    finally:
        monkeypatch.undo()
        runner.unavailable_reason.cache_clear()
    assert runner.unavailable_reason() == ""


@pytest.mark.parametrize("name", ["conv_relu_int8_pc_xnnpack", "conv_relu_int8_pt_xnnpack", "linear_int8_pc_xnnpack"])
def test_int8_is_bit_exact_with_the_reference(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = results(name)
    monkeypatch.setenv(runner.ENGINE_VARIABLE, "reference")
    for a, b in zip(ours, results(name), strict=True):
        np.testing.assert_array_equal(a, b)


# --------------------------------------------------------------------------------------------------------- threads


def test_threads_are_as_many_as_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert how(method("conv_relu_fp32_xnnpack", 1)).endswith(", 1 thread")
    assert how(method("conv_relu_fp32_xnnpack", 3)).endswith(", 3 threads")
    monkeypatch.setenv("EDGEWRIGHT_THREADS", "2")
    assert how(method("conv_relu_fp32_xnnpack")).endswith(", 2 threads")
    with pytest.raises(UsageError, match="whole number"):
        Runtime(threads=0)


def test_methods_of_one_program_run_side_by_side() -> None:
    loaded = Runtime(threads=2).load_program(program(two_layers()))
    x = np.random.default_rng(0).standard_normal((4, 16, 16, 8)).astype(np.float32)
    (want,) = loaded.load_method().execute([x])
    wrong: list[float] = []

    def work() -> None:
        own = loaded.load_method()
        wrong.extend(float(np.abs(own.execute([x])[0] - want).max()) for _ in range(20))

    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(600)
    assert len(wrong) == 60 and max(wrong) == 0


# ---------------------------------------------------------------------------------------------------------- memory


def test_memory_is_limited() -> None:
    made = program(conv((1, 64, 64, 8), 64, (3, 3), padding=(1, 1, 1, 1)))
    Runtime.get().load_program(made, limits=Limits(memory=4 << 20)).load_method()
    with pytest.raises(EdgewrightError, match="bytes"):
        Runtime.get().load_program(made, limits=Limits(memory=1 << 20)).load_method()


def test_inputs_are_neither_changed_nor_kept() -> None:
    """An input is read where the caller has it; another that cannot be is copied, and not over the first."""
    made = Runtime(threads=1).load_program(program(conv((1, 8, 8, 6), 10, (3, 3)))).load_method()
    first = np.random.default_rng(1).standard_normal((1, 8, 8, 6)).astype(np.float32)
    second = np.asfortranarray(first * 2)
    before = first.copy()
    (one,) = made.execute([first])
    (two,) = made.execute([second])
    np.testing.assert_array_equal(first, before)
    np.testing.assert_array_equal(two, made.execute([np.ascontiguousarray(second)])[0])
    (again,) = made.execute([first])
    np.testing.assert_array_equal(again, one)
    assert not np.shares_memory(again, one)
    last = weakref.ref(first)
    del first
    gc.collect()
    assert last() is None, "nobody else refers to it"


def test_inputs_seen_under_another_name_are_copied() -> None:
    """The output is planned over the input's memory, and no instruction makes it."""
    builder = PlanBuilder()
    source = builder.values[builder.input(np.float32, (2, 3))]
    assert isinstance(source, schema.Tensor)
    builder.outputs = [builder.tensor(np.float32, (6,), allocation_info=source.allocation_info)]
    made = Runtime().load_program(write_program(builder.program())).load_method()
    given = np.arange(6, dtype=np.float32).reshape(2, 3)
    (got,) = made.execute([given])
    np.testing.assert_array_equal(got, np.arange(6))
    assert not any(isinstance(v, TensorSlot) and v.aliasable for v in made._table.values)
    assert not np.shares_memory(got, given)


# ------------------------------------------------------------------------------------------------------- the profile


def test_profiles_show_the_engines_steps() -> None:
    made = method("conv_relu_fp32_xnnpack", 1)
    given = next(golden.cases("conv_relu_fp32_xnnpack")).inputs
    profile = Profile()
    for _ in range(3):
        made.execute(given, profile=profile)
    (row,), parts = profile.rows(), profile.part_rows()
    assert "engine" in row.name
    assert any("conv2d" in p.name for p in parts) and all(p.calls == 3 for p in parts)
    assert 0 < sum(p.share for p in parts) <= 1
    assert all(f"{p.instruction}.{p.part}" in str(profile) for p in parts)
    events = [e.profile_event for e in profile.etdump().run_data[0].events]
    inner = [e for e in events if e is not None and e.delegate_debug_id_str]
    outer = next(e for e in events if e is not None and e.name == "DELEGATE_CALL")
    assert len(inner) == len(parts)
    assert all(outer.start_time <= e.start_time <= e.end_time <= outer.end_time for e in inner)
    slices = profile.chrome_trace()["traceEvents"]
    assert len(slices) == 3 * (2 + len(parts))


# -------------------------------------------------------------------------------------------------- shapes that vary


def test_shapes_may_vary_from_call_to_call() -> None:
    made = method("mlp_dynshape_xnnpack", 1)
    for case in golden.cases("mlp_dynshape_xnnpack"):
        for got, want in zip(made.execute(case.inputs), case.outputs, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    (x,) = next(golden.cases("mlp_dynshape_xnnpack")).inputs
    whole = np.concatenate([x] * 2)[:3]
    (together,) = made.execute([whole])
    for at in range(len(whole)):
        (alone,) = made.execute([whole[at : at + 1]])
        np.testing.assert_allclose(together[at : at + 1], alone, rtol=1e-5, atol=1e-6)
