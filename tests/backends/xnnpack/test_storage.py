"""Where a delegated program keeps things: room behind tensors, weights once, weights in a file of their own."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from edgewright.backends.xnnpack.partitioner import XnnpackPartitioner
from edgewright.formats import read_program
from edgewright.formats.ptd import read_data
from edgewright.program.config import ExecutorchBackendConfig
from edgewright.program.edge import ExecutorchProgramManager, to_edge_transform_and_lower
from edgewright.runtime import Runtime
from tests.backends.lowered import relative
from tests.support.stock import stock


class Twice(nn.Module):
    """Two delegates with one weight between them: XNNPACK does not sort."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.layer = nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(torch.sort(self.layer(x))[0])


INPUT = torch.randn(3, 64, generator=torch.Generator().manual_seed(2))


def lowered(methods: int = 1, *, external: bool = False, delegated: bool = True) -> ExecutorchProgramManager:
    module = Twice().eval().requires_grad_(False)
    names = ["forward", "again"][:methods]
    programs = {name: torch.export.export(module, (INPUT,)) for name in names}
    partitioners = [XnnpackPartitioner()] if delegated else []
    edge = to_edge_transform_and_lower(programs, partitioner=partitioners)
    return edge.to_executorch(ExecutorchBackendConfig(external_constants=external))


def room(plan: Any) -> int:
    """Bytes of the arena behind the last tensor."""
    placed = [v for v in plan.values if getattr(v, "allocation_info", None) is not None]
    ends = [v.allocation_info.memory_offset_low + math.prod(v.sizes) * (8 if v.scalar_type == 4 else 4) for v in placed]
    return int(plan.non_const_buffer_sizes[1]) - max(ends)


def test_arenas_of_delegates_have_room_behind_them() -> None:
    with_delegate, without = (read_program(lowered(delegated=d).buffer).execution_plan[0] for d in (True, False))
    assert room(with_delegate) >= 64
    assert room(without) < 16


def test_weights_are_stored_once_across_delegates_and_methods() -> None:
    data = lowered(methods=2).buffer
    program = read_program(data)
    assert [len(plan.delegates) for plan in program.execution_plan] == [2, 2]
    weight = Twice().layer.weight.detach().numpy().tobytes()
    assert data.count(weight) == 1
    assert len(data) < 2 * len(weight)
    wanted = Twice()(INPUT).detach().numpy()
    for name in ("forward", "again"):
        assert relative(stock().run(data, name, [INPUT.numpy()])[0], wanted) < 1e-5


def test_weights_may_live_in_a_file_of_their_own(tmp_path: Path) -> None:
    made = lowered(external=True)
    (path,) = made.write_tensor_data_to_file(tmp_path)
    weight = Twice().layer.weight.detach().numpy().tobytes()
    assert weight not in made.buffer
    entries = read_data(path)
    assert weight in [bytes(e.data) for e in entries.values()]
    assert all(e.layout is None for e in entries.values())
    wanted = Twice()(INPUT).detach().numpy()
    assert relative(stock().run(made.buffer, "forward", [INPUT.numpy()], path)[0], wanted) < 1e-5
    ours = Runtime.get().load_program(made.buffer, path).load_method("forward").execute([INPUT.numpy()])
    assert relative(np.asarray(ours[0]), wanted) < 1e-5
