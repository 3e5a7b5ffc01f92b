"""Graphs with quantize and dequantize operators, as torchao's PT2E makes them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import fx, nn
from torchao.quantization.pt2e import HistogramObserver, MinMaxObserver, PerChannelMinMaxObserver
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
from torchao.quantization.pt2e.quantizer import QuantizationAnnotation, QuantizationSpec, Quantizer

from tests.program.case import Case

aten = torch.ops.aten
_ACTIVATION = QuantizationSpec(
    dtype=torch.int8, observer_or_fake_quant_ctr=HistogramObserver.with_args(eps=2**-12), quant_min=-128,
    quant_max=127, qscheme=torch.per_tensor_affine,
)  # fmt: skip
_TENSOR = QuantizationSpec(
    dtype=torch.int8, observer_or_fake_quant_ctr=MinMaxObserver.with_args(eps=2**-12), quant_min=-127, quant_max=127,
    qscheme=torch.per_tensor_symmetric,
)  # fmt: skip
_CHANNEL = QuantizationSpec(
    dtype=torch.int8, observer_or_fake_quant_ctr=PerChannelMinMaxObserver.with_args(eps=2**-12), quant_min=-127,
    quant_max=127, qscheme=torch.per_channel_symmetric, ch_axis=0,
)  # fmt: skip


class Simple(Quantizer):
    """Activations of convolutions, linear layers and sums, and the weights of the former two."""

    def __init__(self, weight: QuantizationSpec) -> None:
        self.weight = weight

    def annotate(self, model: fx.GraphModule) -> fx.GraphModule:
        for node in model.graph.nodes:
            if node.target in (aten.conv2d.default, aten.linear.default):
                specs = {node.args[0]: _ACTIVATION, node.args[1]: self.weight}
            elif node.target in (aten.add.Tensor, aten.relu.default):
                specs = {a: _ACTIVATION for a in node.args if isinstance(a, fx.Node)}
            else:
                continue
            node.meta["quantization_annotation"] = QuantizationAnnotation(
                input_qspec_map=specs, output_qspec=_ACTIVATION, _annotated=True
            )
        return model

    def validate(self, model: fx.GraphModule) -> None:
        return None


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3, padding=1)
        self.second = nn.Conv2d(4, 4, 1)
        self.head = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.first(x))
        return self.head((self.second(y) + y).mean((2, 3)))


def inputs(**_: int) -> tuple[torch.Tensor]:
    return (torch.randn(1, 3, 6, 6),)


def converted(weight: QuantizationSpec) -> Callable[[], Any]:
    @cache
    def make() -> Any:
        torch.manual_seed(0)
        exported = torch.export.export(Block().eval(), inputs()).module()
        prepared = prepare_pt2e(exported, Simple(weight))
        for _ in range(3):
            prepared(*inputs())
        return convert_pt2e(prepared)

    return make


# A value between two steps may be rounded either way: outputs may differ by a step.
CASES = [
    Case("quantized_per_tensor", converted(_TENSOR), inputs, factory=True, atol=0.02),
    Case("quantized_per_channel", converted(_CHANNEL), inputs, factory=True, atol=0.02),
]
