"""Where the host twin goes: beside the file, into it, or nowhere; and only if a blob cannot be run here."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import Any

import pytest
import torch

from edgewright import ExecutorchBackendConfig, to_edge_transform_and_lower
from edgewright.backends.info import BackendInfo
from edgewright.backends.table import FLOAT, Backend, OpSpec
from edgewright.backends.xnnpack import XnnpackPartitioner
from edgewright.errors import UsageError
from edgewright.formats import read_program
from edgewright.formats.twin_reader import read_twin
from edgewright.formats.twin_writer import write_twin
from edgewright.frontend.delegate import LoweredBackendModule
from edgewright.ir.graph import Graph
from edgewright.lowering.partition import Partitioner


class Chip(Partitioner):
    """A backend whose blobs only its device can run."""

    backend = Backend(
        BackendInfo("chip", id="ChipBackend"), [OpSpec("linear", lambda lowering, op: None, precisions=(FLOAT,))]
    )

    def lower(self, group: Graph) -> LoweredBackendModule:
        return LoweredBackendModule(self.backend.id, f"secret {group.name}".encode(), {}, {}, write_twin({"": group}))


class Net(torch.nn.Module):
    """Two linear layers with one weight, parted by what the chip does not take."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(torch.cumsum(self.fc(x), 1))


def compiled(host_twin: str = "side", partitioner: Any = None) -> Any:
    program = torch.export.export(Net().eval(), (torch.ones(2, 8),))
    manager = to_edge_transform_and_lower(program, partitioner=[partitioner or Chip()])
    return manager.to_executorch(ExecutorchBackendConfig(host_twin=host_twin))


def embedded(path: Path) -> Any:
    program = read_program(path)
    return next((program.segment(n.segment_index) for n in program.named_data if n.key == "edgewright.twin"), None)


def check(data: Any) -> None:
    """A graph for every blob, by its hash, and the weight they share once."""
    graphs = read_twin(bytes(data))
    assert set(graphs) == {hashlib.sha256(f"secret chip_{i}".encode()).hexdigest() for i in range(2)}
    weights = [next(v for v in g.values() if v.constant and len(v.shape) == 2) for g in graphs.values()]
    assert bytes(data).count(weights[0].data.tobytes()) == 1
    assert (weights[0].data == weights[1].data).all()


def test_beside_the_file(tmp_path: Path) -> None:
    compiled().save(tmp_path / "m.pte")
    check((tmp_path / "m.twin").read_bytes())
    assert embedded(tmp_path / "m.pte") is None


def test_in_the_file(tmp_path: Path) -> None:
    compiled("embed").save(tmp_path / "m.pte")
    assert [p.name for p in tmp_path.iterdir()] == ["m.pte"]
    check(embedded(tmp_path / "m.pte"))


def test_nowhere(tmp_path: Path) -> None:
    program = compiled("none")
    program.save(tmp_path / "m.pte")
    assert program.twin is None
    assert [p.name for p in tmp_path.iterdir()] == ["m.pte"]
    assert embedded(tmp_path / "m.pte") is None


@pytest.mark.parametrize("host_twin", ["side", "embed"])
def test_blobs_that_run_here_need_none(tmp_path: Path, host_twin: str) -> None:
    program = compiled(host_twin, XnnpackPartitioner())
    program.save(tmp_path / "m.pte")
    assert [p.name for p in tmp_path.iterdir()] == ["m.pte"]
    assert embedded(tmp_path / "m.pte") is None


def test_other_words_are_refused() -> None:
    with pytest.raises(UsageError, match="host_twin: must be side or embed or none; got yes"):
        ExecutorchBackendConfig(host_twin="yes")


def test_an_open_file_gets_its_twin_beside_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    program = compiled()
    with open(tmp_path / "net.pte", "wb") as file:
        program.write_to_file(file)
    program.save(tmp_path / "saved.pte")
    assert (tmp_path / "net.pte").read_bytes() == (tmp_path / "saved.pte").read_bytes()
    assert (tmp_path / "net.twin").read_bytes() == (tmp_path / "saved.twin").read_bytes()
    assert "host twin" not in caplog.text
    buffer = io.BytesIO()
    program.write_to_file(buffer)
    assert buffer.getvalue() == program.buffer and "host twin is not written" in caplog.text
    caplog.clear()
    for host_twin in ("embed", "none"):
        compiled(host_twin).write_to_file(io.BytesIO())
    compiled(partitioner=XnnpackPartitioner()).write_to_file(io.BytesIO())
    assert "host twin" not in caplog.text
