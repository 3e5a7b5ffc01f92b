"""State that methods share (``share_mutable_buffers``): one tensor, whichever method reads or writes it."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from edgewright import ExecutorchBackendConfig, Runtime, to_edge, to_edge_transform_and_lower
from edgewright.backends.xnnpack import XnnpackPartitioner
from edgewright.errors import UsageError
from edgewright.formats import schema
from edgewright.formats.pte_reader import read_program
from edgewright.formats.pte_writer import write_program
from edgewright.program.memory import MemoryPlanningPass
from tests.runtime.jit.test_segments import segments
from tests.support import golden
from tests.support.build import PlanBuilder
from tests.support.build import program as program_of
from tests.support.stock import stock

SHARED = ExecutorchBackendConfig(memory_planning_pass=MemoryPlanningPass(share_mutable_buffers=True))
ONES = np.ones(2, np.float32)


class Counter(nn.Module):
    """Two buffers; ``forward`` is replaced by one of the methods, as exporters of several methods do."""

    other: torch.Tensor
    state: torch.Tensor

    def __init__(self, start: float = 0.0) -> None:
        super().__init__()
        self.register_buffer("other", torch.zeros(3))
        self.register_buffer("state", torch.full((2,), start))

    def step(self, x: torch.Tensor) -> torch.Tensor:
        self.state.add_(x)
        self.other.add_(1)
        return self.state * 2 + self.other.sum()

    def set_state(self, x: torch.Tensor) -> torch.Tensor:
        self.state.copy_(x)
        return x + 0

    def get_state(self) -> torch.Tensor:
        return self.state.clone()

    def scaled(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.state + 1


def exported(module: nn.Module, *names: str) -> dict[str, Any]:
    programs = {}
    for name in names:
        module.forward = getattr(module, name)
        programs[name] = torch.export.export(module, () if name == "get_state" else (torch.ones(2),))
    return programs


def build(module: nn.Module, *names: str, partitioner: Any = None, config: Any = SHARED) -> bytes:
    return bytes(
        to_edge_transform_and_lower(exported(module, *names), partitioner=partitioner).to_executorch(config).buffer
    )


def run(program: bytes, calls: list[tuple[str, list[Any]]]) -> list[list[float]]:
    """Each call's first result; methods are loaded when they are first called."""
    loaded = Runtime.get().load_program(program)
    methods: dict[str, Any] = {}
    found = []
    for name, inputs in calls:
        if name not in methods:
            methods[name] = loaded.load_method(name)
        found.append(np.asarray(methods[name].execute(inputs)[0]).tolist())
    return found


CALLS: list[tuple[str, list[Any]]] = [
    ("get_state", []),
    ("set_state", [np.array([5, 6], np.float32)]),
    ("get_state", []),
    ("step", [ONES]),
    ("get_state", []),
]
RESULTS = [[0, 0], [5, 6], [5, 6], [15, 17], [6, 7]]


def test_files_of_stock_share_their_state() -> None:
    program = golden.path("shared_state").read_bytes()
    assert run(program, CALLS) == RESULTS
    assert [out[0].tolist() for out in stock().run_methods(program, CALLS)] == RESULTS


@pytest.mark.parametrize("partitioner", [None, [XnnpackPartitioner()]], ids=["portable", "xnnpack"])
def test_methods_share_their_state_here_and_in_stock(partitioner: Any) -> None:
    program = build(Counter(), "step", "set_state", "get_state", partitioner=partitioner)
    assert run(program, CALLS) == RESULTS
    assert [out[0].tolist() for out in stock().run_methods(program, CALLS)] == RESULTS


@pytest.mark.parametrize("partitioner", [None, [XnnpackPartitioner()]], ids=["portable", "xnnpack"])
def test_a_method_that_only_reads_state_reads_what_others_wrote(partitioner: Any) -> None:
    program = build(Counter(3.0), "set_state", "scaled", partitioner=partitioner)
    calls: list[tuple[str, list[Any]]] = [
        ("scaled", [ONES]), ("set_state", [np.array([5, 6], np.float32)]), ("scaled", [ONES])
    ]  # fmt: skip
    assert run(program, calls) == [[4, 4], [5, 6], [6, 7]]
    assert [out[0].tolist() for out in stock().run_methods(program, calls)] == [[4, 4], [5, 6], [6, 7]]


def test_state_has_one_offset_in_methods_of_different_state() -> None:
    program = read_program(build(Counter(), "step", "set_state", "get_state"))
    places = {}
    for plan in program.execution_plan:
        assert list(plan.non_const_buffer_sizes)[2:] == [32]  # as large in every method
        found = [v for v in plan.values if isinstance(v, schema.Tensor) and v.allocation_info is not None]
        infos = [(tuple(v.sizes), v.allocation_info) for v in found]
        places[plan.name] = {sizes: info.offset for sizes, info in infos if info is not None and info.memory_id == 2}
    assert places == {"step": {(3,): 0, (2,): 16}, "set_state": {(2,): 16}, "get_state": {(2,): 16}}


def test_methods_without_the_option_have_state_of_their_own() -> None:
    program = build(Counter(3.0), "step", "set_state", "get_state", config=ExecutorchBackendConfig())
    assert run(program, CALLS)[2:] == [[3, 3], [11, 11], [3, 3]]


def test_loading_a_method_later_does_not_put_state_back_and_reset_does_for_all() -> None:
    loaded = Runtime.get().load_program(build(Counter(3.0), "step", "get_state"))
    step = loaded.load_method("step")
    step.execute([ONES])
    get = loaded.load_method("get_state")
    assert get.execute([])[0].tolist() == [4, 4]
    get.reset()
    assert step.execute([ONES])[0].tolist() == [11, 11]  # 2 * (3 + 1) and 3 * 1
    assert loaded.load_method("get_state").execute([])[0].tolist() == [4, 4]


def test_methods_that_share_state_take_turns() -> None:
    loaded = Runtime.get().load_program(build(Counter(), "step", "set_state", "get_state"))
    methods = [loaded.load_method("step") for _ in range(4)]

    def count(method: Any) -> None:
        for _ in range(200):
            method.execute([ONES])

    threads = [threading.Thread(target=count, args=(method,)) for method in methods]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert loaded.load_method("get_state").execute([])[0].tolist() == [800, 800]


class Larger(Counter):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("state", torch.zeros(4)[:1])


@pytest.mark.parametrize(
    ("second", "rule"),
    [(Larger(), r"\[1\] float32 in 'get_state', \[2\] float32 in 'step'"), (Counter(3.0), "other initial values")],
    ids=["sizes", "values"],
)
def test_state_of_one_name_must_be_one_tensor(second: nn.Module, rule: str) -> None:
    programs = {**exported(Counter(), "step"), **exported(second, "get_state")}
    with pytest.raises(UsageError, match=rf"state 'state': (.|\n)*{rule}"):
        to_edge(programs).to_executorch(SHARED)
    to_edge(programs).to_executorch()  # each has its own


def test_a_read_that_was_folded_away_is_refused() -> None:
    manager = to_edge(exported(Counter(), "set_state", "scaled"))
    folded = manager._programs["scaled"]
    folded.graph_signature.output_specs[:] = folded.graph_signature.output_specs[1:]  # as a pass of the user's might
    output: Any = folded.graph.output_node()
    output.args = (output.args[0][1:],)
    with pytest.raises(
        UsageError, match="state 'state': is written by another method, and became a constant of 'scaled'"
    ):
        manager.to_executorch(SHARED)


def test_what_is_written_for_others_only_is_written() -> None:
    """A product straight into shared state, and one more that the method returns: the engine does both at once."""
    size = 128

    def plan(name: str) -> schema.ExecutionPlan:
        builder = PlanBuilder(name)
        place = schema.AllocationDetails(memory_id=2, memory_offset_low=0)
        x = builder.input(np.float32, [size, size])
        state = builder.tensor(np.float32, [size, size], allocation_info=place)
        y = builder.tensor(np.float32, [size, size])
        if name == "write":
            builder.call("aten::mm.out", [x, x, state, state])
        builder.call("aten::mm.out", [x, x if name == "write" else state, y, y])
        builder.outputs = [y]
        made = builder.plan()
        made.non_const_buffer_sizes = [0, builder.arena, 4 * size * size]
        return made

    loaded = Runtime.get().load_program(bytes(write_program(program_of(plan("write"), plan("read")))))
    write, read = loaded.load_method("write"), loaded.load_method("read")
    assert [step.label.split(" (")[0] for step in segments(write)] == ["2 calls"]
    given, eye = (
        np.random.default_rng(0).standard_normal((size, size)).astype(np.float32),
        np.eye(size, dtype=np.float32),
    )
    write.execute([given])
    np.testing.assert_allclose(read.execute([eye])[0], given @ given, rtol=1e-4, atol=1e-4)


class Saving(Counter):
    """Copies state as it is: the source of a write is read, not written."""

    saved: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("saved", torch.zeros(2))

    def save(self, x: torch.Tensor) -> torch.Tensor:
        self.saved.copy_(self.state)
        return self.saved + x


def test_the_source_of_a_write_is_state_that_is_read() -> None:
    program = build(Saving(), "set_state", "save", partitioner=[XnnpackPartitioner()])
    calls: list[tuple[str, list[Any]]] = [("set_state", [np.array([5, 6], np.float32)]), ("save", [ONES])]
    assert run(program, calls) == [[5, 6], [6, 7]]
