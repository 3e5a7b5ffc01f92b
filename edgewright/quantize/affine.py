"""The operators that torchao's ``quantize_`` leaves in a graph. Partitioners keep them whole, to fold them."""

from __future__ import annotations

from typing import Any

import torch

_NAMES = ("choose_qparams_affine", "quantize_affine", "dequantize_affine")


def affine_operators() -> list[Any]:
    """Those that are there: no graph has one unless torchao registered it before."""
    return [getattr(torch.ops.torchao, name).default for name in _NAMES if hasattr(torch.ops.torchao, name)]
