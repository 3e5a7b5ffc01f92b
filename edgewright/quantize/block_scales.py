"""Block-wise quantization of 4-bit weights: the scale of each block of input channels is a multiple, 1 to 16, of its
output channel's scale. These are the scales of Hexagon's low-power blockwise quantization (LPBQ)."""

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

MAX_WEIGHT = 7  # of the symmetric 4-bit range
MAX_MULTIPLE = 16  # the largest multiple of a channel's scale
Block = tuple[int, ...]


class BlockObserver(AffineQuantizedObserverBase):  # type: ignore[misc]
    """Observes a weight per block. ``fake``: returns the fake-quantized weight, for quantization-aware training."""

    def __init__(self, *, block: Block, fake: bool = False, eps: float = 0.0, **_: Any) -> None:
        options = {"quant_min": -MAX_WEIGHT, "quant_max": MAX_WEIGHT, "zero_point_domain": ZeroPointDomain.INT}
        super().__init__(MappingType.SYMMETRIC, torch.int8, PerBlock(block), eps=eps, **options)
        self.block, self.fake = block, fake
        self.largest: torch.Tensor | None = None

    def _to_blocks(self, weight: torch.Tensor) -> torch.Tensor:
        """Reshape to (output channels, blocks, weights per block)."""
        return weight.reshape(weight.shape[0], weight.shape[1] // self.block[1], -1)

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        self.original_dtype, self.block_size = weight.dtype, list(self.block)
        blocks = self._to_blocks(weight.detach())
        self.largest = blocks.abs().amax(-1)
        if not self.fake:
            return weight
        scale = self._scales().unsqueeze(-1)
        rounded = (torch.round(blocks / scale).clamp(-MAX_WEIGHT, MAX_WEIGHT) * scale).reshape(weight.shape)
        return weight + (rounded - weight).detach()  # straight-through estimator

    def _scales(self) -> torch.Tensor:
        """Scales of shape (output channels, blocks), each a multiple of its channel's scale."""
        assert self.largest is not None
        exact = (self.largest / MAX_WEIGHT).clamp(min=max(self.eps or 0.0, torch.finfo(torch.float32).tiny))
        unit = exact.amax(1, keepdim=True) / MAX_MULTIPLE
        return (exact / unit).round().clamp(1, MAX_MULTIPLE) * unit

    def calculate_qparams(self) -> tuple[torch.Tensor, torch.Tensor]:
        scale = self._scales()
        scale = scale.reshape(*scale.shape, *(1,) * (len(self.block) - 2))
        return scale, torch.zeros_like(scale, dtype=torch.int32)


@dataclass(frozen=True)
class BlockConfig(QuantizationConfig):
    """A quantization config with block-wise weights."""

    block: Block = ()

    def weight_spec(self, axis: int | None) -> QuantizationSpec:
        observer = BlockObserver.with_args(block=self.block, fake=self.is_qat, eps=self.epsilon)
        return QuantizationSpec(torch.int8, observer, -MAX_WEIGHT, MAX_WEIGHT, torch.per_channel_symmetric, ch_axis=0)


def in_blocks(config: QuantizationConfig, block: Block, node: str, shape: tuple[int, ...]) -> BlockConfig:
    """A config with blocks of the given shape, which must divide the weight of a node."""
    rule = "must be 1 of the output channels, a divisor of the input channels, and 1 of a window of one pixel"
    fits = len(block) == len(shape) and all(isinstance(b, int) and b > 0 for b in block)
    if not fits or block[0] != 1 or shape[1] % block[1] or any(n != 1 for n in (*block[2:], *shape[2:])):
        remedy = f"Its weight is {list(shape)}: (1, {shape[1]}, …) would be one block for each output channel."
        raise UsageError(f"block_size_map[{node!r}]", rule, value=block, remedy=remedy)
    return BlockConfig(
        config.activation, config.weight, config.weight_per_tensor, config.is_qat, config.epsilon, block=block
    )
