"""Cross-layer equalization: channels between consecutive layers get the same range (Nagel et al., 2019).

One layer divides an output channel by a factor, the next multiplies its weights of that input channel with it, also
through ReLU, leaky ReLU, pooling and flattening. In floating point, the model computes the same.

ReLU6 ends at 6, so that it is not homogeneous. Channels that come within a fifth of 6 during calibration keep their
scale; smaller ones may grow, but never so that a value of 1.25 times the largest that calibration saw would be clamped.
Beyond that, a value that ReLU6 would have passed ends at the clamp, as it would at the end of its integer range.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import fx

from edgewright.quantize.channel_scales import LAYER, scale_channels


def equalize(prepared: fx.GraphModule, calls: Sequence[Any], run: Callable[..., Any]) -> int:
    """Equalize a prepared model before its observers see data. Returns the number of tensors that changed."""
    return scale_channels(prepared, [LAYER], calls, run)
