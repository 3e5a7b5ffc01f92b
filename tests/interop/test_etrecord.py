"""ETRecord and ETDump: ExecuTorch's own Inspector joins our profiles to lines of the model's source."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from edgewright import to_edge, to_edge_transform_and_lower
from edgewright.backends.xnnpack import XnnpackPartitioner
from edgewright.errors import UsageError
from edgewright.program.etrecord import generate_etrecord
from edgewright.runtime import Profile, Runtime

INSPECT = """
import json, sys
from executorch.devtools import Inspector
events = []
inspector = Inspector(etdump_path=sys.argv[1], etrecord=sys.argv[2])
assert inspector._etrecord._representative_inputs[0].shape == (1, 3, 8, 8)
assert len(inspector._etrecord._reference_outputs["forward"][0]) == 2
for block in inspector.event_blocks:
    for e in block.events:
        events.append([e.name, e.op_types, list(e.stack_traces.values()), list(map(str, e.module_hierarchy.values()))])
print(json.dumps(events))
"""


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3)
        self.head = torch.nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.conv(x).relu()
        y = torch.cumsum(y, 2)
        first, second = torch.split(y, 2, 1)
        return self.head(y.mean((2, 3))).softmax(1), first + second


def line(code: str) -> int:
    """The number of a line of the model's source."""
    lines, start = inspect.getsourcelines(Net)
    return start + next(i for i, text in enumerate(lines) if code in text)


def inspected(program: Any, folder: Path, x: torch.Tensor) -> list[Any]:
    record = program.get_etrecord()
    record.update_representative_inputs([x])
    record.update_reference_outputs([[torch.zeros(1, 3), torch.zeros(1)]])
    record.save(folder / "net.etrecord")
    profile = Profile()
    Runtime.get().load_program(program.buffer).load_method("forward").execute([x.numpy()], profile=profile)
    profile.save_etdump(folder / "net.etdp")
    command = [sys.executable, "-c", INSPECT, str(folder / "net.etdp"), str(folder / "net.etrecord")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.slow
def test_the_inspector_joins_instructions_and_delegates_to_source_lines(tmp_path: Path) -> None:
    x = torch.randn(1, 3, 8, 8)
    exported = torch.export.export(Net().eval(), (x,))
    program = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()]).to_executorch()
    events = inspected(program, tmp_path, x)
    called = [e for e in events if e[0] == "OPERATOR_CALL" and "cumsum.default" in e[1]]
    assert called
    assert f'{Path(__file__).name}", line {line("cumsum")}, in forward' in called[0][2][0]
    delegates = [e for e in events if e[0] == "DELEGATE_CALL"]
    assert {"conv2d.default", "relu.default"} <= set(delegates[0][1])
    assert any(f"line {line('self.conv(x)')}, in forward" in trace for trace in delegates[0][2])
    assert any("'conv'" in module for module in delegates[0][3])
    taken = {op for e in delegates for op in e[1]}
    assert {"mean.dim", "linear.default", "softmax.int", "add.Tensor"} <= taken


def test_a_record_is_the_same_every_time_and_numbers_what_was_decomposed(tmp_path: Path) -> None:
    x = torch.randn(1, 3, 8, 8)
    exported = torch.export.export(Net().eval(), (x,))
    made = to_edge(exported).to_executorch()
    record = made.get_etrecord()
    assert record.to_bytes() == made.get_etrecord().to_bytes()
    calls = [n.name for n in exported.graph.nodes if n.op == "call_function"]
    numbers = record.debug_handle_map["forward"].values()
    named = {calls[h - 1] for found in numbers for h in ([found] if isinstance(found, int) else found)}
    assert {"conv2d", "relu", "cumsum", "linear", "softmax"} <= named
    generate_etrecord(tmp_path / "r.etrecord", None, made)
    assert (tmp_path / "r.etrecord").read_bytes() == record.to_bytes()
    with pytest.raises(UsageError, match="to_executorch"):
        generate_etrecord(tmp_path / "r.etrecord", None, exported)
