"""Every option shows in the file, and stock still runs it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from edgewright.errors import EdgewrightError, UnsupportedOperatorError, UsageError
from edgewright.formats import layer_table, read_program, schema
from edgewright.formats.executorch_releases import RUNTIMES, split_runtime
from edgewright.formats.layer_table import read_layers
from edgewright.ir.layer_names import layer_of
from edgewright.program import manifest
from edgewright.program.config import EdgeCompileConfig, ExecutorchBackendConfig
from edgewright.program.edge import to_edge, to_edge_transform_and_lower
from edgewright.program.memory import MemoryPlanningPass
from edgewright.runtime import Runtime
from tests.program.case import Call
from tests.support.stock import StockError, stock

aten = torch.ops.aten


class Net(nn.Module):
    """Weights of odd sizes, a view, and two activations."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(5, 7), nn.Linear(7, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(torch.relu(self.a(x)).view(2, 1, 7)).sigmoid()


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.tensor([1.0, 2.0]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += x
        return self.count * 2


def net() -> tuple[Net, torch.Tensor]:
    torch.manual_seed(3)
    return Net().eval(), torch.randn(2, 5)


def compiled(model: nn.Module, x: torch.Tensor, config: EdgeCompileConfig | None = None, **options: Any) -> bytes:
    exported = torch.export.export(model, (x,))
    lowered = to_edge_transform_and_lower(exported, compile_config=config)
    return lowered.to_executorch(ExecutorchBackendConfig(**options)).buffer


def file(config: EdgeCompileConfig | None = None, **options: Any) -> schema.Program:
    """What is in the file of ``Net`` under these options, once both runtimes ran it and were right."""
    model, x = net()
    program = compiled(model, x, config, **options)
    check(program, model, x)
    return read_program(program)


def check(program: bytes, model: nn.Module, x: torch.Tensor, data: Path | None = None) -> None:
    wanted = model(x).detach().numpy()
    ours = Runtime.get().load_program(program, data=data).load_method().execute([x.numpy()])
    np.testing.assert_allclose(ours[0], wanted, 1e-5, 1e-6)
    np.testing.assert_allclose(stock().run(program, "forward", [x.numpy()], data)[0], wanted, 1e-5, 1e-6)


def tensors(program: schema.Program) -> list[schema.Tensor]:
    return [v for v in program.execution_plan[0].values if isinstance(v, schema.Tensor)]


def operators(program: schema.Program) -> list[str]:
    return [o.key for o in program.execution_plan[0].operators or ()]


# ------------------------------------------------------------------------------------------- how a file is laid out


@pytest.mark.parametrize("alignment", [16, 128, 4096])
def test_segment_alignment(alignment: int) -> None:
    program = file(segment_alignment=alignment)
    assert program.layout is not None
    assert program.layout.segment_base % alignment == 0
    starts = [program.layout.segment_base + s.offset for s in program.segments or ()]
    assert len(starts) == 3  # constants, manifest, layer names
    assert all(start % alignment == 0 for start in starts)


@pytest.mark.parametrize(
    ("alignment", "offsets"), [(None, (0, 0, 144, 176, 272)), (64, (0, 0, 192, 256, 384)), (4, None)]
)
def test_constant_tensor_alignment(alignment: int | None, offsets: tuple[int, ...] | None) -> None:
    found = file(constant_tensor_alignment=alignment).constant_segment
    assert found is not None
    if offsets is None:  # as tight as it gets
        assert list(found.offsets) == [0, 0, 140, 168, 252]
        return
    assert all(at % (alignment or 16) == 0 for at in found.offsets)
    assert tuple(found.offsets) == offsets


def test_the_manifest_can_be_left_out() -> None:
    with_it, without = file(), file(manifest=False)
    assert manifest.read(with_it)["operators"] == operators(with_it)  # type: ignore[index]
    assert manifest.read(without) is None
    assert not file(manifest=False, layer_names=False).named_data


def test_layer_names_can_be_left_out() -> None:
    with_them, without = file(), file(layer_names=False)
    names = [layer_of(o) for o in read_layers(with_them)["forward"].chains[0]]
    assert {"a", "b", "relu", "sigmoid"} <= set(names) and "" not in names
    assert len(names) == len(with_them.execution_plan[0].chains[0].instructions)
    assert layer_table.KEY not in [item.key for item in without.named_data or ()]
    assert compiled(*net()) == compiled(*net()), "the same bytes every time"


def test_emit_stacktrace() -> None:
    assert file().execution_plan[0].chains[0].stacktrace is None
    chain = file(emit_stacktrace=True).execution_plan[0].chains[0]
    assert chain.stacktrace is not None
    assert len(chain.stacktrace) == len(chain.instructions)
    frames = [frame for frames in chain.stacktrace for frame in frames.items]
    assert {Path(str(f.filename)).name for f in frames} >= {Path(__file__).name}
    assert any("torch.relu(self.a(x))" in str(f.context) for f in frames)


def test_remove_view_copy() -> None:
    assert "aten::view_copy.out" not in operators(file())
    assert "aten::view_copy.out" in operators(file(remove_view_copy=False))


def test_passes_change_the_program() -> None:
    def halve(module: torch.fx.GraphModule) -> None:
        for node in module.graph.nodes:
            if node.target is aten.relu.default:
                node.target = aten.neg.default

    model, x = net()
    program = compiled(model, x, passes=[halve])
    assert "aten::neg.out" in operators(read_program(program))
    assert "aten::relu.out" not in operators(read_program(program))
    wanted = model.b(-model.a(x).view(2, 1, 7)).sigmoid().detach().numpy()
    np.testing.assert_allclose(stock().run(program, "forward", [x.numpy()])[0], wanted, 1e-5, 1e-6)


# ------------------------------------------------------------------------------------------------------ data files


def external(tmp_path: Path, choice: Any) -> tuple[schema.Program, list[str]]:
    model, x = net()
    options = ExecutorchBackendConfig(external_constants=choice)
    made = to_edge(torch.export.export(model, (x,))).to_executorch(options)
    paths = made.write_tensor_data_to_file(tmp_path)
    assert {f"{tag}.ptd": data for tag, data in made.data_files.items()} == {p.name: p.read_bytes() for p in paths}
    if len(paths) < 2:  # stock takes one data file
        check(made.buffer, model, x, paths[0] if paths else None)
    program = read_program(made.buffer)
    infos = [t.extra_tensor_info for t in tensors(program) if t.extra_tensor_info is not None]
    return program, sorted(str(i.fully_qualified_name) for i in infos if i.location)


def test_external_constants_true(tmp_path: Path) -> None:
    program, names = external(tmp_path, True)
    assert names == ["a.bias", "a.weight", "b.bias", "b.weight"]
    assert list(program.constant_segment.offsets) == [0]  # type: ignore[union-attr]
    assert [p.name for p in tmp_path.iterdir()] == ["_default_external_constant.ptd"]


def test_external_constants_by_node(tmp_path: Path) -> None:
    program, names = external(tmp_path, lambda node: "big" if "weight" in node.name else None)
    assert names == ["a.weight", "b.weight"]
    assert len(program.constant_segment.offsets) == 3  # type: ignore[union-attr]
    assert [p.name for p in tmp_path.iterdir()] == ["big.ptd"]


def test_external_constants_in_several_files(tmp_path: Path) -> None:
    external(tmp_path, lambda node: "first" if "p_a" in node.name else "second")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["first.ptd", "second.ptd"]


@pytest.mark.parametrize("tag", ["", "..", "../up", "a/b", "a\\b", "c:d", 3, True])
def test_a_data_file_must_stay_in_its_folder(tag: Any) -> None:
    model, x = net()
    with pytest.raises(UsageError, match="name of a data file"):
        compiled(model, x, external_constants=lambda node: tag)


def test_external_constants_leave_state_in_the_program() -> None:
    x = torch.ones(2)
    program = compiled(Counter(), x, external_constants=True)
    assert read_program(program).mutable_data_segments
    assert stock().run(program, "forward", [x.numpy()])[0].tolist() == [4, 6]


# ---------------------------------------------------------------------------------------------------------- memory


@pytest.mark.parametrize("option", ["alloc_graph_input", "alloc_graph_output"])
def test_memory_of_inputs_and_outputs_can_be_the_callers(option: str) -> None:
    def planned(program: schema.Program) -> bool:
        plan = program.execution_plan[0]
        (index,) = plan.inputs if option == "alloc_graph_input" else plan.outputs
        return plan.values[index].allocation_info is not None

    usual = file()
    left = file(memory_planning_pass=MemoryPlanningPass(**{option: False}))
    assert planned(usual)
    assert not planned(left)
    assert sum(left.execution_plan[0].non_const_buffer_sizes) <= sum(usual.execution_plan[0].non_const_buffer_sizes)


def test_memory_planning_by_method() -> None:
    model, x = net()
    exported = torch.export.export(model, (x,))
    passes = {"b": MemoryPlanningPass(alloc_graph_input=False)}
    edge = to_edge({"a": exported, "b": exported})
    program = read_program(edge.to_executorch(ExecutorchBackendConfig(memory_planning_pass=passes)).buffer)
    inputs = {p.name: p.values[p.inputs[0]].allocation_info for p in program.execution_plan}
    assert inputs["a"] is not None
    assert inputs["b"] is None
    wrong = ExecutorchBackendConfig(memory_planning_pass={"c": MemoryPlanningPass()})
    with pytest.raises(UsageError, match="must name methods of the program: a, b"):
        edge.to_executorch(wrong)


def test_alignment_of_planned_memory() -> None:
    program = file(memory_planning_pass=MemoryPlanningPass(alignment=256))
    places = [t.allocation_info.memory_offset_low for t in tensors(program) if t.allocation_info]
    assert any(places)
    assert all(place % 256 == 0 for place in places)
    assert sum(program.execution_plan[0].non_const_buffer_sizes) > sum(file().execution_plan[0].non_const_buffer_sizes)


def test_shared_state_has_the_same_offset_in_every_method() -> None:
    x = torch.ones(2)
    exported = torch.export.export(Counter(), (x,))
    options = ExecutorchBackendConfig(memory_planning_pass=MemoryPlanningPass(share_mutable_buffers=True))
    program = to_edge({"a": exported, "b": exported}).to_executorch(options).buffer
    found = {}
    for plan in read_program(program).execution_plan:
        assert list(plan.non_const_buffer_sizes)[2:] == [16]
        found[plan.name] = [
            v.allocation_info for v in plan.values if isinstance(v, schema.Tensor) and v.allocation_info.memory_id == 2
        ]
    assert len(found["a"]) == 1
    assert found["a"] == found["b"]
    assert stock().run(program, "b", [x.numpy()])[0].tolist() == [4, 6]


def test_names_of_mutable_buffers() -> None:
    def names(**options: Any) -> list[str]:
        program = compiled(Counter(), torch.ones(2), **options)
        assert stock().run(program, "forward", [np.ones(2, np.float32)])[0].tolist() == [4, 6]
        infos = [t.extra_tensor_info for t in tensors(read_program(program))]
        return [str(i.fully_qualified_name) for i in infos if i is not None]

    assert names() == []
    assert names(emit_mutable_buffer_names=True) == ["count"]


# --------------------------------------------------------------------------------------------------- compile options


def test_skip_dim_order_uses_plain_copies() -> None:
    class Cast(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.to(torch.int32).clone() + 1

    def used(skip: bool) -> list[str]:
        x = torch.tensor([1.5, -2.5])
        program = compiled(Cast(), x, EdgeCompileConfig(_skip_dim_order=skip))
        check(program, Cast(), x)
        return operators(read_program(program))

    assert any(key.startswith("dim_order_ops::") for key in used(False))
    assert not any(key.startswith("dim_order_ops::") for key in used(True))
    assert "aten::_to_copy.out" in used(True)


class Silu(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.silu(x)


@pytest.mark.parametrize("option", ["preserve_ops", "_core_aten_ops_exception_list"])
def test_operators_can_be_kept(option: str) -> None:
    exported = torch.export.export(Silu(), (torch.ones(3),))
    usual = to_edge(exported)
    kept = to_edge(exported, compile_config=EdgeCompileConfig(**{option: [aten.silu.default]}))
    assert aten.silu.default not in {n.target for n in usual.exported_program().graph.nodes}
    assert aten.silu.default in {n.target for n in kept.exported_program().graph.nodes}
    with pytest.raises(UnsupportedOperatorError, match=r"aten\.silu\.default"):
        kept.to_executorch()  # no backend took it, and no kernel computes it


class Unsupported(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.qr(x)[0]


def _grouped(x: torch.Tensor) -> torch.Tensor:
    rows, experts = (x.reshape(3, 1) * torch.ones(1, 8)).bfloat16(), torch.ones(2, 8, 8, dtype=torch.bfloat16)
    return torch._grouped_mm(rows, experts, offs=torch.tensor([1, 3], dtype=torch.int32))


@pytest.mark.parametrize(
    ("function", "instead"),
    [
        (lambda x: torch.bincount(x.long(), minlength=4), "one_hot(x, bins).sum(0)"),
        (lambda x: torch.unique(x), "one_hot(x, values).sum(0) > 0"),
        (lambda x: torch.unique(x, dim=0), "leave it to the caller"),
        (lambda x: torch.histogram(x, 4, range=(0.0, 1.0)).hist, "torch.histc"),
        (lambda x: torch.view_as_real(torch.view_as_complex(torch.stack([x, x], -1)) ** 2), "a * cos - b * sin"),
        (lambda x: torch.fft.fft(torch.fft.fft(x)).real, "torch.fft.rfft"),
        (_grouped, "set_experts_implementation('batched_mm')"),
    ],
    ids=["bincount", "unique", "rows", "histogram", "complex", "fft", "experts"],
)
def test_operators_that_no_runtime_has_are_refused_with_what_to_write_instead(function: Any, instead: str) -> None:
    exported = torch.export.export(Call(function), (torch.ones(3),))
    with pytest.raises(UnsupportedOperatorError, match="no kernel in the target runtime") as caught:
        to_edge(exported)
    assert instead in caught.value.remedy
    assert caught.value.remedy.startswith("From ")


def test_check_ir_validity_says_when_an_operator_without_a_kernel_is_refused() -> None:
    exported = torch.export.export(Unsupported(), (torch.ones(3, 3),))
    with pytest.raises(UnsupportedOperatorError, match="linalg_qr"):
        to_edge(exported)
    late = to_edge(exported, compile_config=EdgeCompileConfig(_check_ir_validity=False))
    assert "linalg_qr" in str(late)
    with pytest.raises(UnsupportedOperatorError, match="linalg_qr"):
        late.to_executorch()


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_runtimes(runtime: str) -> None:
    program = file(EdgeCompileConfig(runtime=runtime))
    assert manifest.read(program)["runtime"] == "-".join(split_runtime(runtime))  # type: ignore[index]


def test_a_list_of_kernels_of_your_own() -> None:
    keys = operators(file())
    assert operators(file(EdgeCompileConfig(runtime=keys))) == keys
    with pytest.raises(UnsupportedOperatorError, match="sigmoid"):
        file(EdgeCompileConfig(runtime=[key for key in keys if "sigmoid" not in key]))
    with pytest.raises(UnsupportedOperatorError, match="view_copy"):  # only where it must be a copy
        file(EdgeCompileConfig(runtime=keys), remove_view_copy=False)
    with pytest.raises(UsageError, match=r"aten::no_such\.out"):
        file(EdgeCompileConfig(runtime=[*keys, "aten::no_such.out"]))
    with pytest.raises(UsageError, match="must be one of wheel"):
        file(EdgeCompileConfig(runtime="toaster"))


# -------------------------------------------------------------------------------------------------- what is refused

WRONG: list[tuple[Callable[..., Any], str, Any]] = [
    *((ExecutorchBackendConfig, name, value)
      for name in ("segment_alignment", "constant_tensor_alignment", "delegate_alignment")
      for value in (0, -16, 24, 16.0, True, "16")),
    *((ExecutorchBackendConfig, name, value)
      for name in ("emit_stacktrace", "extract_delegate_segments", "remove_view_copy", "external_mutable_weights",
                   "emit_mutable_buffer_names", "manifest", "layer_names")
      for value in (1, None, "yes")),
    (ExecutorchBackendConfig, "segment_alignment", None), (ExecutorchBackendConfig, "segment_alignment", 8),
    (ExecutorchBackendConfig, "external_constants", "weights"), (ExecutorchBackendConfig, "external_constants", None),
    (ExecutorchBackendConfig, "passes", 3), (ExecutorchBackendConfig, "memory_planning_pass", True),
    (ExecutorchBackendConfig, "memory_planning_pass", {"forward": None}),
    *((EdgeCompileConfig, name, 1) for name in ("_check_ir_validity", "_skip_dim_order", "preserve_ops", "runtime")),
    (EdgeCompileConfig, "preserve_ops", ["aten.add"]),
    (EdgeCompileConfig, "_core_aten_ops_exception_list", [torch.add]),
    (EdgeCompileConfig, "runtime", [1]),
    *((MemoryPlanningPass, "alignment", value) for value in (0, 3, -1, 16.0, True, None)),
    *((MemoryPlanningPass, name, 1) for name in ("alloc_graph_input", "alloc_graph_output", "share_mutable_buffers")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "name", "value"), WRONG, ids=[f"{o.__name__}-{name}-{i}" for i, (o, name, _) in enumerate(WRONG)]
)
def test_wrong_values_are_refused(options: Callable[..., Any], name: str, value: Any) -> None:
    with pytest.raises(UsageError, match=name):
        options(**{name: value})


@pytest.mark.parametrize("options", [ExecutorchBackendConfig, EdgeCompileConfig, MemoryPlanningPass])
def test_unknown_options_are_refused(options: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match="dynamic_memory"):
        options(dynamic_memory=True)


def test_every_option_has_a_test() -> None:
    text = Path(__file__).read_text() + (Path(__file__).parent / "test_training.py").read_text()
    text += (Path(__file__).parent / "test_program_manager.py").read_text()
    text += (Path(__file__).parent / "test_host_twin.py").read_text()
    for options in (ExecutorchBackendConfig, EdgeCompileConfig, MemoryPlanningPass):
        for field in dataclasses.fields(options):
            assert text.count(field.name) > 1, f"{options.__name__}.{field.name}"


def test_state_can_be_left_to_the_caller() -> None:
    """Without memory for state a program cannot run by itself; the file says so by the state's name."""
    planning = MemoryPlanningPass(alloc_mutable_buffers=False)
    program = compiled(Counter(), torch.ones(2), memory_planning_pass=planning)
    (state,) = [t for t in tensors(read_program(program)) if t.extra_tensor_info]
    assert state.allocation_info is None
    assert state.extra_tensor_info is not None and state.extra_tensor_info.fully_qualified_name == "count"
    with pytest.raises((StockError, EdgewrightError)):
        stock().run(program, "forward", [np.ones(2, np.float32)])
    with pytest.raises(UsageError, match="share_mutable_buffers"):
        MemoryPlanningPass(alloc_mutable_buffers=False, share_mutable_buffers=True)
