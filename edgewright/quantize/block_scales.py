"""Weights of 4 bits in blocks: every block of input channels has a scale that is a multiple, 1 to 16, of its output
channel's. Observed so that the quantized model computes with the very scales that a Hexagon processor has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torchao.quantization.granularity import PerBlock
from torchao.quantization.pt2e.observer import AffineQuantizedObserverBase
from torchao.quantization.pt2e.quantizer import QuantizationSpec
from torchao.quantization.quant_primitives import MappingType, ZeroPointDomain

from edgewright.errors import UsageError
from edgewright.quantize.recipes import QuantizationConfig

LARGEST = 7  # of 4 bits, so that none has a zero point
STEPS = 16  # the largest multiple
Block = tuple[int, ...]


class BlockObserver(AffineQuantizedObserverBase):  # type: ignore[misc]
    """Watches a weight block by block. ``fake``: gives it back as it will be, which training learns to live with."""

    def __init__(self, *, block: Block, fake: bool = False, eps: float = 0.0, **_: Any) -> None:
        fixed = {"quant_min": -LARGEST, "quant_max": LARGEST, "zero_point_domain": ZeroPointDomain.INT}
        super().__init__(MappingType.SYMMETRIC, torch.int8, PerBlock(block), eps=eps, **fixed)
        self.block, self.fake = block, fake
        self.largest: torch.Tensor | None = None

    def _apart(self, weight: torch.Tensor) -> torch.Tensor:
        """Output channels, blocks, and the weights of a block."""
        return weight.reshape(weight.shape[0], weight.shape[1] // self.block[1], -1)

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        self.original_dtype, self.block_size = weight.dtype, list(self.block)
        apart = self._apart(weight.detach())
        self.largest = apart.abs().amax(-1)
        if not self.fake:
            return weight
        scale = self._scales().unsqueeze(-1)
        rounded = (torch.round(apart / scale).clamp(-LARGEST, LARGEST) * scale).reshape(weight.shape)
        return weight + (rounded - weight).detach()  # gradients pass as if nothing had been rounded

    def _scales(self) -> torch.Tensor:
        """Output channels by blocks, each a multiple of its channel's."""
        assert self.largest is not None
        exact = (self.largest / LARGEST).clamp(min=max(self.eps or 0.0, torch.finfo(torch.float32).tiny))
        unit = exact.amax(1, keepdim=True) / STEPS
        return (exact / unit).round().clamp(1, STEPS) * unit

    def calculate_qparams(self) -> tuple[torch.Tensor, torch.Tensor]:
        scale = self._scales()
        scale = scale.reshape(*scale.shape, *(1,) * (len(self.block) - 2))
        return scale, torch.zeros_like(scale, dtype=torch.int32)


@dataclass(frozen=True)
class BlockConfig(QuantizationConfig):
    """A scheme whose weights are in blocks."""

    block: Block = ()

    def weight_spec(self, axis: int | None) -> QuantizationSpec:
        observer = BlockObserver.with_args(block=self.block, fake=self.is_qat, eps=self.epsilon)
        return QuantizationSpec(torch.int8, observer, -LARGEST, LARGEST, torch.per_channel_symmetric, ch_axis=0)


def in_blocks(config: QuantizationConfig, block: Block, node: str, shape: tuple[int, ...]) -> BlockConfig:
    """A scheme with blocks of one node's weight, which they must fill."""
    rule = "must be 1 of the output channels, a divisor of the input channels, and 1 of a window of one pixel"
    fits = len(block) == len(shape) and all(isinstance(b, int) and b > 0 for b in block)
    if not fits or block[0] != 1 or shape[1] % block[1] or any(n != 1 for n in (*block[2:], *shape[2:])):
        remedy = f"Its weight is {list(shape)}: (1, {shape[1]}, …) would be one block for each output channel."
        raise UsageError(f"block_size_map[{node!r}]", rule, value=block, remedy=remedy)
    return BlockConfig(config.activation, config.weight, config.weight_per_tensor, config.is_qat, config.epsilon, block)
