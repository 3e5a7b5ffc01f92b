"""Branches and loops: eager == our runtime == stock, call after call on one loaded method."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from edgewright.frontend.importer import to_array
from edgewright.program.lower import EdgeProgramManager, to_edge_transform_and_lower
from edgewright.runtime import Runtime
from tests.compile.loops import FLOWS, Flow
from tests.support.stock import stock


def lowered(flow: Flow) -> EdgeProgramManager:
    return to_edge_transform_and_lower(torch.export.export(flow.make(), flow.calls[0], dynamic_shapes=flow.shapes))


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


@pytest.mark.parametrize("flow", FLOWS, ids=lambda f: f.name)
def test_control_flow(flow: Flow) -> None:
    manager = lowered(flow)
    program = manager.to_executorch().buffer
    wanted = eager(flow.make(), flow.calls)
    method = Runtime().load_program(program).load_method("forward")
    agree([method.execute(call) for call in arrays(flow.calls)], wanted, flow.rtol)
    agree(stock().run_many(program, "forward", arrays(flow.calls)), wanted, flow.rtol)
    agree(eager(manager.exported_program().module(), flow.calls), wanted, flow.rtol)
