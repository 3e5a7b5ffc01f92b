"""Layers with 16-bit activations between layers with 8 bits, against Arm's reference model, and in machine code."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from edgewright.backends.ethos_u import get_symmetric_a16w8_quantization_config
from edgewright.backends.ethos_u.dialect.numerics import TOSA_NUMERICS
from edgewright.engine.compiler import make_plan
from tests.backends.ethos_u.lowered import lower, quantize
from tests.backends.ethos_u.test_models import assert_same_as_reference


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.first, self.depthwise = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.transposed, self.pointwise = nn.ConvTranspose2d(8, 6, 2, 2), nn.Conv2d(6, 8, 1)
        self.linear = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.transposed(self.depthwise(self.first(x).relu()))
        return self.linear(self.pointwise(x).relu().mean((2, 3)))  # type: ignore[no-any-return]


class Volumes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.first, self.second, self.third = (nn.Conv3d(c, 4, 3) for c in (2, 4, 4))

    def forward(self, x: Tensor) -> Tensor:
        return self.third(self.second(self.first(x).relu()))  # type: ignore[no-any-return]


CASES = [(Layers, name) for name in ("first", "depthwise", "transposed", "pointwise", "linear")]


@pytest.mark.sample(3)
@pytest.mark.parametrize("target", ["ethos-u85-256", "ethos-u55-128"])
@pytest.mark.parametrize(("kind", "raised"), [*CASES, (Volumes, "second")])
def test_a_raised_layer(kind: type[nn.Module], raised: str, target: str) -> None:
    """Its accumulators become 16 bits, and the next layer's 8 bits."""
    inputs = (torch.randn(1, 2, 8, 8, 8) if kind is Volumes else torch.randn(1, 3, 8, 8),)
    settings = (raised, get_symmetric_a16w8_quantization_config())
    made = lower(quantize((kind().eval(), inputs), "a8w8", target, module_name=settings), target)
    assert [v.operator for v in made.report.rejected] == ["quantize", "dequantize"]
    assert_same_as_reference(made)
    ((device, _, _),) = made.groups
    assert {str(v.dtype) for op in device.ops for v in op.outputs if v is not None} >= {"int8", "int16"}
    assert not [step.label for step in make_plan(device, numerics=TOSA_NUMERICS).steps if step.python is not None]
