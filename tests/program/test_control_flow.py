"""Branches and loops: eager == our runtime == stock, call after call on one loaded method."""

from __future__ import annotations

import copy
import inspect
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._higher_order_ops.map import map as map_over
from torch.export import Dim, ExportedProgram
from torch.utils import _pytree as pytree

from edgewright.errors import UnsupportedOperatorError
from edgewright.formats.operator_signatures import OPERATORS
from edgewright.frontend.tensors import to_array
from edgewright.program.config import EdgeCompileConfig, ExecutorchBackendConfig
from edgewright.program.edge import EdgeProgramManager, to_edge_transform_and_lower
from edgewright.program.memory import MemoryPlanningPass
from edgewright.runtime import Runtime
from tests.program import branches, loops
from tests.program.flow import Flow, seeded
from tests.program.random_flow import Writer
from tests.support.stock import stock

FLOWS: list[Flow] = [*branches.FLOWS, *loops.FLOWS]
SEEDS = (0, 2, 3, 4, 6, 7, 8, 9)  # torch.export refuses the programs of 1 and 5
BY_NAME = {flow.name: flow for flow in FLOWS}
SHARED = ("cond", "cond_views", "cond_weights", "while_cond", "map_cond", "scan_swap")  # tests below use them, too


def export(flow: Flow) -> ExportedProgram:
    torch._dynamo.reset()  # what it remembers of other modules changes what it takes
    return torch.export.export(flow.make(), flow.calls[0], dynamic_shapes=flow.shapes)


@cache
def exported(name: str) -> ExportedProgram:
    """The program of a flow, which lowering leaves as it is."""
    return export(BY_NAME[name])


def lowered(name: str) -> EdgeProgramManager:
    return to_edge_transform_and_lower(exported(name))


def eager(module: torch.nn.Module, calls: list[tuple[Any, ...]]) -> list[list[Any]]:
    """What torch gives for calls in a row."""
    results = []
    with torch.no_grad():
        for call in calls:
            outputs = pytree.tree_leaves(module(*copy.deepcopy(call)))
            results.append([to_array(o).copy() if isinstance(o, Tensor) else o for o in outputs])
    return results


def agree(given: list[list[Any]], wanted: list[list[Any]], rtol: float = 1e-5) -> None:
    for one, other in zip(given, wanted, strict=True):
        for a, b in zip(one, other, strict=True):
            assert np.shape(a) == np.shape(b)
            assert np.asarray(a).dtype == np.asarray(b).dtype
            np.testing.assert_allclose(np.asarray(a, np.float64), np.asarray(b, np.float64), rtol=rtol, atol=rtol)


def arrays(calls: list[tuple[Any, ...]]) -> list[list[Any]]:
    return [[to_array(a) if isinstance(a, Tensor) else a for a in call] for call in calls]


@pytest.mark.sample(*SHARED)
@pytest.mark.parametrize("name", BY_NAME)
def test_control_flow(name: str) -> None:
    flow, manager = BY_NAME[name], lowered(name)
    program = manager.to_executorch().buffer
    wanted = eager(flow.make(), flow.calls)
    method = Runtime().load_program(program).load_method("forward")
    agree([method.execute(call) for call in arrays(flow.calls)], wanted, flow.rtol)
    agree(stock().run_many(program, "forward", arrays(flow.calls)), wanted, flow.rtol)
    agree(eager(manager.exported_program().module(), flow.calls), wanted, flow.rtol)


@pytest.mark.sample("6")
@pytest.mark.parametrize("seed", SEEDS)
def test_random_programs(seed: int) -> None:
    calls = [(seeded(2, 3, seed=i), seeded(2, 3, seed=i + 9)) for i in range(3)]
    flow = Flow(f"random_{seed}", Writer(seed).function(), calls)
    program = to_edge_transform_and_lower(export(flow)).to_executorch().buffer
    wanted = eager(flow.make(), calls)
    method = Runtime().load_program(program).load_method("forward")
    agree([method.execute(call) for call in arrays(calls)], wanted, 1e-3)
    agree(stock().run_many(program, "forward", arrays(calls)), wanted, 1e-3)


OPTIONS = {
    "unplanned": ExecutorchBackendConfig(
        memory_planning_pass=MemoryPlanningPass(alloc_graph_input=False, alloc_graph_output=False)
    ),
    "copied_views": ExecutorchBackendConfig(remove_view_copy=False, emit_stacktrace=True),
}
CHOSEN = ("cond_views", "while_rotate", "map", "scan_swap", "map_cond", "cond_while")


@pytest.mark.sample("cond_views", "scan_swap")
@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("name", CHOSEN)
def test_options(name: str, option: str) -> None:
    flow, program = BY_NAME[name], lowered(name).to_executorch(OPTIONS[option]).buffer
    wanted = eager(flow.make(), flow.calls)
    method = Runtime().load_program(program).load_method("forward")
    agree([method.execute(call) for call in arrays(flow.calls)], wanted)
    agree(stock().run_many(program, "forward", arrays(flow.calls)), wanted)


def test_nothing_to_map() -> None:
    """torch refuses it; a file that says there may be no slices must cope, also when there are some again."""
    flow = BY_NAME["map"]
    shapes = (({0: Dim("n", min=0, max=8)}, None),)
    program = to_edge_transform_and_lower(torch.export.export(flow.make(), flow.calls[0], dynamic_shapes=shapes))
    buffer = program.to_executorch().buffer
    calls = [(torch.ones(n, 3), torch.ones(3)) for n in (0, 5, 0, 8, 1)]
    empty = [np.empty((0, 3), np.float32), np.empty(0, np.float32), np.empty((0, 3), np.bool_)]
    wanted = [eager(flow.make(), [call])[0] if len(call[0]) else empty for call in calls]
    method = Runtime().load_program(buffer).load_method("forward")
    agree([method.execute(call) for call in arrays(calls)], wanted)
    agree(stock().run_many(buffer, "forward", arrays(calls)), wanted)


def test_without_dim_order_operators() -> None:
    flow = BY_NAME["scan_swap"]
    manager = to_edge_transform_and_lower(exported("scan_swap"), compile_config=EdgeCompileConfig(_skip_dim_order=True))
    made = manager.to_executorch()
    assert not [o for o in made.executorch_program.execution_plan[0].operators if o.name.startswith("dim_order")]
    agree(stock().run_many(made.buffer, "forward", arrays(flow.calls)), eager(flow.make(), flow.calls))


@pytest.mark.parametrize("name", ["cond_operands", "while_swap", "scan_swap"])
def test_graphs_may_return_what_they_were_given(name: str) -> None:
    """torch.export asks for copies; graphs made by other means need not have them."""
    flow = BY_NAME[name]
    program = copy.deepcopy(exported(name))
    copies = 0
    for module in program.graph_module.children():
        for node in module.graph.find_nodes(op="call_function", target=torch.ops.aten.clone.default):
            node.replace_all_uses_with(node.args[0])
            copies += 1
    assert copies
    file = to_edge_transform_and_lower(program).to_executorch().buffer
    wanted = eager(flow.make(), flow.calls)
    method = Runtime().load_program(file).load_method("forward")
    agree([method.execute(call) for call in arrays(flow.calls)], wanted)
    agree(stock().run_many(file, "forward", arrays(flow.calls)), wanted)


def test_results_go_straight_to_their_place() -> None:
    """A branch that ends in kernels needs no copies, and no tensor is moved."""
    plan = lowered("cond").to_executorch().executorch_program.execution_plan[0]
    kinds = [type(i).__name__ for i in plan.chains[0].instructions]
    assert kinds.count("JumpFalseCall") == 2
    assert "MoveCall" not in kinds
    assert "dim_order_ops::_clone_dim_order" not in [o.name for o in plan.operators]


@pytest.mark.parametrize("name", ["map_cond", "while_cond", "scan_swap"])
def test_passes_over_control_flow(name: str) -> None:
    """What was prepared once can be prepared again, branches included."""
    manager = lowered(name)
    again = manager.transform([lambda module: module])
    assert again.to_executorch().buffer == manager.to_executorch().buffer


def test_exported_programs_are_left_alone() -> None:
    program = exported("cond_weights")
    before = str(program)
    first = to_edge_transform_and_lower(program).to_executorch().buffer
    assert str(program) == before
    assert to_edge_transform_and_lower(program).to_executorch().buffer == first


# ------------------------------------------------------------------------------------------------------ errors


class Singular(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: torch.linalg.svdvals(x), lambda x: x[0] * 1, (x,))  # here


class Mapped(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return map_over(lambda x: x + 1, x)  # here


class Outer(torch.nn.Module):
    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) * 2


def line_of(cls: type) -> str:
    lines, first = inspect.getsourcelines(cls)
    return f"{__file__}:{first + next(i for i, line in enumerate(lines) if '# here' in line)}"


def test_an_operator_without_kernel_in_a_branch() -> None:
    program = torch.export.export(Outer(Singular()), (torch.ones(3, 3),))
    with pytest.raises(UnsupportedOperatorError, match="_linalg_svd") as caught:
        to_edge_transform_and_lower(program)
    assert "in module 'inner'" in caught.value.subject
    assert line_of(Singular) in caught.value.remedy
    assert "as a custom operator: the application provides its kernel" in caught.value.remedy


def test_a_runtime_without_what_loops_need() -> None:
    program = torch.export.export(Outer(Mapped()), (torch.ones(3, 3),))
    keys = [k for k in OPERATORS if k != "executorch_prim::et_copy_index.tensor"]
    manager = to_edge_transform_and_lower(program, compile_config=EdgeCompileConfig(runtime=keys))
    with pytest.raises(UnsupportedOperatorError, match="et_copy_index") as caught:
        manager.to_executorch()
    assert caught.value.subject == "map_impl in module 'inner'"
    assert line_of(Mapped) in caught.value.remedy


def test_graphs_that_no_file_can_hold() -> None:
    program = torch.export.export(Outer(Mapped()), (torch.ones(3, 3),))
    (node,) = program.graph.find_nodes(op="call_function", target=torch.ops.higher_order.map_impl)
    node.target = torch.ops.higher_order.associative_scan
    with pytest.raises(UnsupportedOperatorError) as caught:
        to_edge_transform_and_lower(program)
    assert caught.value.subject == "associative_scan in module 'inner'"
    assert caught.value.rule == "cannot be represented in .pte files"
    assert line_of(Mapped) in caught.value.remedy


def test_branches_must_not_write_to_operands() -> None:
    program = copy.deepcopy(exported("cond"))
    graph = program.graph_module.true_graph_0.graph
    (x,) = graph.find_nodes(op="placeholder")
    with graph.inserting_after(x):
        graph.call_function(torch.ops.aten.mul_.Scalar, (x, 2)).meta["val"] = x.meta["val"]
    with pytest.raises(UnsupportedOperatorError, match="must not write to its operands"):
        to_edge_transform_and_lower(program)
