"""A converted model becomes the program that ``torch.export`` would make of it, without being traced."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import fx, nn

from edgewright.api.state_writes import functionalize_buffer_writes
from edgewright.backends import find_quantizer
from edgewright.frontend.origin import module_path
from edgewright.quantize.lift import lift
from edgewright.quantize.pt2e import convert_pt2e, prepare_pt2e


class _Everything(nn.Module):
    """Weights, a folded norm, modules whose names are no identifiers or collide as such, tied weights, buffers that are
    written or not saved, a plain tensor, a view, an operator with several results, keyword inputs, outputs by name."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.add_module("block1-0", nn.Linear(8, 8))
        self.add_module("block1_0", nn.Linear(8, 8))
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
        self.second.weight = self.first.weight
        self.register_buffer("calls", torch.zeros(1))
        self.register_buffer("shift", torch.ones(8), persistent=False)
        self.gain = torch.full((4,), 2.0)

    def forward(self, x: torch.Tensor, *, scale: torch.Tensor) -> dict[str, torch.Tensor]:
        self.calls.add_(1)
        y = torch.relu(self.norm(self.convolution(x))).mean((2, 3))
        y = self.block1_0(self.get_submodule("block1-0")(y))
        low, high = (self.second(self.first(y)) + self.shift).chunk(2, 1)
        return {"sum": low * scale + high * self.gain, "calls": self.calls + 1}


class _Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y - 1, (self.linear(x),))
        return result


def _converted(model: nn.Module, args: Any, kwargs: Any, shapes: Any, backend: str, argument: str) -> tuple[Any, Any]:
    exported = torch.export.export(model.eval(), args, kwargs, dynamic_shapes=shapes)
    quantizer = find_quantizer(backend).for_target(argument)
    prepared = prepare_pt2e(functionalize_buffer_writes(exported.module()), quantizer)
    prepared(*args, **kwargs)
    return exported, convert_pt2e(prepared)


def _described(program: Any) -> list[str]:
    """Every node with its operands, type, layout and module; weights that nothing reads are left out."""
    lines = []
    for node in program.graph.nodes:
        value = node.meta.get("val")
        values = [value] if isinstance(value, torch.Tensor) else []
        layout = [f"{v.dtype} {list(v.shape)} {list(v.stride())}" for v in values]
        path = module_path(node) if node.op == "call_function" else ""
        if node.users or node.op == "output":
            lines.append(f"{node.op} {node.name} {node.target} {_operands(node)} {layout} {path}")
    return lines


def _operands(node: fx.Node) -> list[Any]:
    """All operands, with defaults of the operator's schema: tracing leaves them out."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return [node.args, node.kwargs]
    arguments = node.target._schema.arguments
    defaults = [node.kwargs.get(a.name, a.default_value) for a in arguments[len(node.args) :]]
    return [*node.args, *defaults]


@pytest.mark.parametrize(("backend", "argument"), [("xnnpack", ""), ("qualcomm", "sm8550")])
@pytest.mark.parametrize("is_dynamic", [False, True])
def test_program_is_that_of_tracing(backend: str, argument: str, is_dynamic: bool) -> None:
    args, kwargs = (torch.randn(2, 3, 8, 8),), {"scale": torch.ones(1)}
    batch = torch.export.Dim("batch", min=1, max=8)
    shapes = {"x": {0: batch}, "scale": None} if is_dynamic else None
    exported, converted = _converted(_Everything(), args, kwargs, shapes, backend, argument)
    traced = torch.export.export(converted, args, kwargs, dynamic_shapes=shapes)
    lifted = lift(converted, exported)
    assert lifted is not None
    assert _described(lifted) == _described(traced)
    kinds = {spec.arg.name: (spec.kind, spec.target, spec.persistent) for spec in traced.graph_signature.input_specs}
    assert all(kinds[s.arg.name] == (s.kind, s.target, s.persistent) for s in lifted.graph_signature.input_specs)
    assert lifted.graph_signature.user_outputs == traced.graph_signature.user_outputs
    assert lifted.range_constraints == traced.range_constraints
    inputs = torch.randn(5 if is_dynamic else 2, 3, 8, 8)
    calls = [program.module()(inputs, **kwargs) for program in (lifted, traced)]
    assert torch.equal(calls[0]["sum"], calls[1]["sum"])


def test_control_flow_is_traced() -> None:
    args = (torch.randn(2, 4),)
    exported, converted = _converted(_Branches(), args, {}, None, "xnnpack", "")
    assert lift(converted, exported) is None
