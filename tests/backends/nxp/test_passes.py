"""Passes for graphs of other quantizers: what each changes, and that the program still computes the same."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram

from edgewright.backends.nxp import NeutronEdgePassManager, NeutronPartitioner, generate_neutron_compile_spec, passes
from edgewright.errors import UsageError
from edgewright.program.edge import EdgeProgramManager, to_edge_transform_and_lower
from edgewright.runtime import Runtime
from tests.backends.nxp.lowered import Lowered

QUANTIZE = torch.ops.quantized_decomposed.quantize_per_tensor.default
DEQUANTIZE = torch.ops.quantized_decomposed.dequantize_per_tensor.default
X = torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(0))


class Net(nn.Module):
    """Movement before a matrix product, and behind a pool."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.last = nn.Linear(4 * 9, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.avg_pool2d(torch.relu(self.conv(x)), 2)
        return self.last(x.permute(0, 2, 3, 1).flatten(1))


@cache
def lowered() -> Lowered:
    torch.manual_seed(0)
    return Lowered(Net(), (X,))


def _edited(edit: Callable[[fx.Graph], None]) -> ExportedProgram:
    """The quantized program with its graph changed."""
    import copy

    made = copy.deepcopy(lowered().exported)
    edit(made.graph)
    made.graph.eliminate_dead_code()
    made.graph_module.recompile()
    return made


def _target(node: Any) -> str:
    return str(node.target)


def _bare_moves(graph: fx.Graph) -> None:
    """No conversions behind movement: what it gives is read as it is."""
    for node in [n for n in graph.nodes if n.target == DEQUANTIZE and isinstance(n.args[0], fx.Node)]:
        stored = node.args[0]
        if stored.target == QUANTIZE and any(w in _target(stored.args[0]) for w in ("permute", "flatten", "view")):
            node.replace_all_uses_with(stored.args[0])


def _bare_pool(graph: fx.Graph) -> None:
    """No conversions between a pool and the movement behind it, which has one."""
    for node in [n for n in graph.nodes if n.target == DEQUANTIZE and isinstance(n.args[0], fx.Node)]:
        if node.args[0].target == QUANTIZE and "avg_pool2d" in _target(node.args[0].args[0]):
            node.replace_all_uses_with(node.args[0].args[0])


def _lower(exported: ExportedProgram, manager: Any = None) -> tuple[EdgeProgramManager, NeutronPartitioner]:
    partitioner = NeutronPartitioner(generate_neutron_compile_spec("imxrt700", simulate_only=True))
    made = to_edge_transform_and_lower(exported, transform_passes=manager, partitioner=[partitioner])
    return made, partitioner


def _run(edge: EdgeProgramManager, x: Any = X) -> Any:
    given = x.numpy() if isinstance(x, Tensor) else x
    return np.asarray(
        Runtime.get().load_program(edge.to_executorch().buffer).load_method("forward").execute([given])[0]
    )


@pytest.mark.parametrize("edit", [_bare_moves, _bare_pool])
def test_movement_without_conversions_is_delegated_behind_the_default_passes(
    edit: Callable[[fx.Graph], None],
) -> None:
    exported = _edited(edit)
    _, apart = _lower(exported)
    edge, together = _lower(exported, NeutronEdgePassManager())
    assert any(v.operator not in ("quantize", "dequantize") for v in apart.reports["forward"].rejected)
    left = {v.operator for v in together.reports["forward"].rejected}
    assert left == {"quantize", "dequantize"} and len(together.files) == 1
    assert np.array_equal(_run(edge), lowered().host(X))


def test_what_is_quantized_by_our_quantizer_is_left_alone() -> None:
    module = _edited(lambda graph: None).graph_module
    names = [n.name for n in module.graph.nodes]
    for change in (
        passes.quantize_after_leading_movement,
        passes.quantize_before_trailing_movement,
        passes.fold_qdq_pairs,
    ):
        assert change(module) is False
    assert [n.name for n in module.graph.nodes] == names


class _Shapes(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        strided = torch.as_strided(x, (2, 3), (3, 1))
        turned = torch.as_strided(x, (3, 2), (1, 3))
        return strided.unsqueeze(0).squeeze(0) + 1, turned


def test_shapes_become_views_and_idle_strides_go() -> None:
    x = torch.randn(2, 3)
    exported = torch.export.export(_Shapes(), (x,))
    module = NeutronEdgePassManager()(exported.graph_module)
    kinds = [_target(n) for n in module.graph.nodes if n.op == "call_function"]
    assert kinds.count("aten.as_strided.default") == 1 and kinds.count("aten.view.default") == 2
    assert not any("squeeze" in kind for kind in kinds)
    for made, wanted in zip(exported.module()(x), _Shapes()(x), strict=True):
        assert torch.equal(made, wanted)


def test_conversions_back_and_forth_are_folded() -> None:
    def doubled(graph: fx.Graph) -> None:
        node = next(n for n in graph.nodes if n.target == QUANTIZE and "relu" in _target(n.args[0]))
        with graph.inserting_after(node):
            real = graph.call_function(DEQUANTIZE, (node, *node.args[1:]))
        with graph.inserting_after(real):
            again = graph.call_function(QUANTIZE, (real, *node.args[1:]))
        node.replace_all_uses_with(again, delete_user_cb=lambda user: user is not real)

    module = _edited(doubled).graph_module
    before = len(module.graph.nodes)
    assert passes.fold_qdq_pairs(module) is True
    assert before - len(module.graph.nodes) == 2


def test_passes_run_until_nothing_changes() -> None:
    calls = []

    class Result:
        def __init__(self, module: fx.GraphModule) -> None:
            self.graph_module, self.modified = module, len(calls) < 4

    def counted(module: fx.GraphModule) -> Result:
        calls.append(module)
        return Result(module)

    module = _edited(lambda graph: None).graph_module
    assert NeutronEdgePassManager([counted])(module) is module and len(calls) == 4
    ever = []
    NeutronEdgePassManager([lambda m: ever.append(m) or True])(module)
    assert len(ever) == 10
    assert NeutronEdgePassManager([lambda m: None])(module) is module


def test_movement_left_to_the_cpu_moves_integers() -> None:
    spec = generate_neutron_compile_spec("imxrt700", simulate_only=True, operators_not_to_delegate=["permute"])
    edge = to_edge_transform_and_lower(lowered().exported, partitioner=[NeutronPartitioner(spec)])
    made = edge.transform(NeutronEdgePassManager([passes.RemoveAdditionalQDQClustersPass()]))
    counts = [
        sum(n.target in (QUANTIZE, DEQUANTIZE) for n in each.exported_program().graph.nodes) for each in (edge, made)
    ]
    assert counts[1] == counts[0] - 2 == 2  # those at the ends
    assert np.array_equal(_run(made), lowered().host(X))


def test_integer_ends_after_lowering() -> None:
    edge, _ = _lower(lowered().exported)
    ends = passes.RemoveIOQuantOpsPass(edge_program_manager=edge)
    made = edge.transform([ends])
    q, out = ends.ends["input0"], ends.ends["output0"]
    stored = np.clip(np.rint(X.numpy() / np.float32(q.scale)) + q.zero_point, q.qmin, q.qmax).astype(np.int8)
    found = _run(made, stored)
    assert found.dtype == np.int8
    real = (found.astype(np.int32) - out.zero_point).astype(np.float32) * np.float32(out.scale)
    assert np.array_equal(real, lowered().host(X))
    with pytest.raises(UsageError, match="must be quantized once"):
        made.transform([passes.RemoveIOQuantOpsPass()])


def test_passes_keep_the_number_of_results() -> None:
    def fewer(module: fx.GraphModule) -> None:
        module.graph.output_node().args = ((),)

    with pytest.raises(UsageError, match="must keep the 1 results"):
        to_edge_transform_and_lower(lowered().exported, transform_passes=[fewer])


class _Named(nn.Module):
    def forward(self, input: Tensor) -> Tensor:
        return torch.relu(input)


def test_inputs_keep_names_that_are_pythons_own() -> None:
    x = torch.randn(2, 3)
    edge = to_edge_transform_and_lower(torch.export.export(_Named(), (x,)), transform_passes=NeutronEdgePassManager())
    assert [n.name for n in edge.exported_program().graph.nodes if n.op == "placeholder"] == ["input"]
    assert np.array_equal(_run(edge, x), torch.relu(x).numpy())
