"""What ``to_edge`` and ``to_executorch`` hand out: methods, tables, constant methods, shared weights, delegates."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from edgewright.backends.xnnpack import XnnpackPartitioner
from edgewright.errors import UsageError
from edgewright.formats import read_program, schema
from edgewright.ir.graph import Graph, Op, Value
from edgewright.program import edge as program_edge
from edgewright.program.config import ExecutorchBackendConfig
from edgewright.program.edge import to_edge, to_edge_transform_and_lower
from edgewright.runtime import Runtime
from tests.support.stock import stock


class Scale(nn.Module):
    def __init__(self, weight: torch.Tensor, by: float) -> None:
        super().__init__()
        self.weight, self.by = nn.Parameter(weight), by

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight * self.by


def exported(by: float = 2.0) -> torch.export.ExportedProgram:
    return torch.export.export(Scale(torch.arange(100.0), by), (torch.ones(100),))


# --------------------------------------------------------------------------------------------------------- methods


def test_several_methods_share_their_constants() -> None:
    one = to_edge(exported()).to_executorch().buffer
    made = to_edge({"twice": exported(), "thrice": exported(3.0)}).to_executorch()
    program = read_program(made.buffer)
    assert [p.name for p in program.execution_plan] == ["thrice", "twice"]
    assert made.methods == {"thrice", "twice"}
    assert len(program.constant_segment.offsets) == 2  # type: ignore[union-attr]
    assert len(made.buffer) < len(one) + 2000
    ones = np.ones(100, np.float32)
    for name, by in (("twice", 2), ("thrice", 3)):
        np.testing.assert_array_equal(stock().run(made.buffer, name, [ones])[0], np.arange(100) * by)
        np.testing.assert_array_equal(
            Runtime.get().load_program(made.buffer).load_method(name).execute([ones])[0], np.arange(100) * by
        )


def test_torch_does_not_warn_of_what_lowering_does() -> None:
    def unchanged(module: nn.Module) -> nn.Module:
        return module

    program = exported()
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)
        edge = to_edge_transform_and_lower(program, [unchanged], partitioner=[XnnpackPartitioner()])
    assert edge.to_executorch().executorch_program.execution_plan[0].delegates


def test_programs_are_found_by_name() -> None:
    edge = to_edge(exported())
    assert edge.methods == {"forward"}
    assert edge.exported_program() is edge.exported_program("forward")
    assert edge.to_executorch().exported_program().graph is edge.exported_program().graph
    with pytest.raises(UsageError, match="must be one of forward"):
        edge.exported_program("backward")


def test_what_is_not_a_program_is_refused() -> None:
    model: Any = Scale(torch.ones(2), 1)
    for given in (model, {"forward": model}, [exported()], None):
        with pytest.raises(UsageError, match="must be an ExportedProgram"):
            to_edge(given)
    with pytest.raises(UsageError, match="at least one method"):
        to_edge({})


def test_graphs_print_as_a_table() -> None:
    text = str(to_edge({"a": exported(), "b": exported()}))
    lines = text.splitlines()
    assert lines[0] == "a"
    assert lines[1].split() == ["opcode", "name", "target", "args", "kwargs"]
    assert set(lines[2]) == {"-", " "}
    assert any(line.startswith("placeholder") and "p_weight" in line for line in lines)
    assert any(line.startswith("call_function") and "aten.mul.Tensor" in line for line in lines)
    assert "\n\nb\n" in text


# ---------------------------------------------------------------------------------------------------------- passes


def to_sub(module: torch.fx.GraphModule) -> None:
    for node in module.graph.nodes:
        if node.target is torch.ops.aten.mul.Tensor:
            node.target = torch.ops.aten.sub.Tensor


def run(program: bytes, method: str = "forward") -> list[float]:
    return [float(v) for v in stock().run(program, method, [np.ones(100, np.float32)])[0][:3]]


def test_passes_transform_every_method_or_one() -> None:
    edge = to_edge({"a": exported(), "b": exported()})
    every, one = edge.transform([to_sub]).to_executorch().buffer, edge.transform({"b": [to_sub]}).to_executorch().buffer
    assert run(every, "a") == run(every, "b") == run(one, "b") == [2, 0, -2]
    assert run(one, "a") == [0, 2, 4]
    assert run(edge.to_executorch().buffer, "a") == [0, 2, 4], "transform leaves the manager it was called on alone"
    with pytest.raises(UsageError, match="must name methods of the program: a, b"):
        edge.transform({"c": [to_sub]})


def test_transform_passes_run_before_lowering() -> None:
    made = to_edge_transform_and_lower(exported(), transform_passes=[to_sub], partitioner=[XnnpackPartitioner()])
    assert [v.operator for v in made.partition_reports["forward"].delegated] == ["sub", "mul"]
    assert run(made.to_executorch().buffer) == [2, 0, -2]


@pytest.mark.parametrize("partitioner", [object(), [object()], {"forward": object()}])
def test_what_is_not_a_partitioner_is_refused(partitioner: Any) -> None:
    with pytest.raises(UsageError, match="partitioner"):
        to_edge_transform_and_lower(exported(), partitioner=partitioner)
    with pytest.raises(UsageError, match="partitioner"):
        to_edge(exported()).to_backend(partitioner)


# ------------------------------------------------------------------------------------------------ constant methods

CONSTANTS: dict[str, tuple[Any, list[Any]]] = {
    "get_int": (3, [3]),
    "get_negative": (-(2**40), [-(2**40)]),
    "get_float": (0.5, [0.5]),
    "get_bool": (True, [True]),
    "get_text": ("grüße", ["grüße"]),
    "get_list": ([1, 2.5, "x"], [1, 2.5, "x"]),
    "get_none": (None, [None]),
    "get_nested": ({"a": (1, 2), "b": [False]}, [1, 2, False]),
}


def test_constant_methods_return_what_they_were_given() -> None:
    table = torch.arange(6.0).reshape(2, 3)
    methods = {name: value for name, (value, _) in CONSTANTS.items()} | {"get_table": table}
    made = to_edge(exported(), constant_methods=methods).to_executorch()
    assert made.config_methods == set(methods)
    loaded = Runtime.get().load_program(made.buffer)
    for name, (_, wanted) in CONSTANTS.items():
        assert list(loaded.load_method(name).execute([])) == wanted
        assert stock().run(made.buffer, name, []) == wanted
    np.testing.assert_array_equal(stock().run(made.buffer, "get_table", [])[0], table.numpy())
    np.testing.assert_array_equal(loaded.load_method("get_table").execute([])[0], table.numpy())


def test_constant_methods_must_not_hide_methods() -> None:
    with pytest.raises(UsageError, match="must not repeat names of methods; got forward"):
        to_edge(exported(), constant_methods={"forward": 1})
    with pytest.raises(UsageError, match="returns numbers, text"):
        to_edge(exported(), constant_methods={"get": object()}).to_executorch()
    with pytest.raises(UsageError, match="64 bits"):
        to_edge(exported(), constant_methods={"get": 2**63}).to_executorch()


def test_constant_methods_have_names() -> None:
    with pytest.raises(UsageError, match=r"must be values by name; got \[1\]"):
        to_edge(exported(), constant_methods=[1])  # type: ignore[arg-type]


# ---------------------------------------------------------------------------------------------------------- writing


def test_all_ways_to_write_give_the_same_bytes(tmp_path: Path) -> None:
    made = to_edge(exported()).to_executorch()
    with open(tmp_path / "a.bin", "wb") as opened:
        made.write_to_file(opened)
    assert made.save(tmp_path / "b.pte") == len(made.buffer)
    assert (tmp_path / "a.bin").read_bytes() == (tmp_path / "b.pte").read_bytes() == made.buffer
    assert made.write_tensor_data_to_file(tmp_path) == []
    with pytest.raises(UsageError, match=r"must end in \.pte"):
        made.save(tmp_path / "c.bin")


# --------------------------------------------------------------------------------------------------------- delegates


def delegated(monkeypatch: pytest.MonkeyPatch, **options: Any) -> schema.Program:
    """A program whose method calls two delegates with the same blob and one with another."""

    def graph(*args: Any) -> Graph:
        values = [Value(f"v{i}", np.dtype(np.float32), (4,), (0,)) for i in range(4)]
        made = Graph("forward", values[:1], values[-1:])
        for source, out, blob in zip(values, values[1:], (b"blob" * 9, b"blob" * 9, b"other"), strict=False):
            args = {"id": "DemoBackend", "blob": blob, "specs": {"mode": b"fast"}, "inputs": [source]}
            made.ops.append(Op("delegate", args, [out]))
        return made

    monkeypatch.setattr(program_edge, "import_graph", graph)
    config = ExecutorchBackendConfig(manifest=False, **options)
    return read_program(to_edge(exported()).to_executorch(config).buffer)


def test_delegates_are_calls_and_blobs_are_stored_once(monkeypatch: pytest.MonkeyPatch) -> None:
    program = delegated(monkeypatch)
    plan = program.execution_plan[0]
    assert [d.id for d in plan.delegates] == ["DemoBackend"] * 3
    assert [bytes(program.blob(d)) for d in plan.delegates] == [b"blob" * 9, b"blob" * 9, b"other"]
    assert {d.processed.location for d in plan.delegates} == {schema.DataLocation.SEGMENT}
    assert len(program.segments or ()) == 3  # constants, and two blobs
    calls = plan.chains[0].instructions
    assert [(c.delegate_index, len(c.args)) for c in calls] == [(0, 2), (1, 2), (2, 2)]  # type: ignore[union-attr]
    assert [(s.key, bytes(s.value)) for s in plan.delegates[0].compile_specs or ()] == [("mode", b"fast")]


def test_extract_delegate_segments_false_keeps_blobs_in_the_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    program = delegated(monkeypatch, extract_delegate_segments=False)
    plan = program.execution_plan[0]
    assert [bytes(program.blob(d)) for d in plan.delegates] == [b"blob" * 9, b"blob" * 9, b"other"]
    assert {d.processed.location for d in plan.delegates} == {schema.DataLocation.INLINE}
    assert len(program.backend_delegate_data or ()) == 2
    assert len(program.segments or ()) == 1


def test_delegate_alignment(monkeypatch: pytest.MonkeyPatch) -> None:
    starts = [s.offset for s in (delegated(monkeypatch).segments or ())[1:]]
    assert starts == [0, 128]
    aligned = [s.offset for s in (delegated(monkeypatch, delegate_alignment=1024).segments or ())[1:]]
    assert aligned == [0, 1024]
