"""SmoothQuant: large channels of activations become smaller, and the weights that read them larger (Xiao et al., 2023).

A norm's gain and offset are divided by a factor per channel; all linear layers behind it multiply their weights with
it. Where a product is read (gated feed-forward layers), the linear layer of one factor divides. In floating point, the
model computes the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import fx

from edgewright.quantize.channel_scales import GATE, NORM, scale_channels


def smooth(prepared: fx.GraphModule, calls: Sequence[Any], run: Callable[..., Any]) -> int:
    """Smooth a prepared model before its observers see data. Returns the number of tensors that changed."""
    return scale_channels(prepared, [NORM, GATE], calls, run)
