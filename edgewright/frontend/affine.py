"""The operators that torchao's ``quantize_`` inserts into a graph. They are not decomposed, so that partitioners can
fold them."""

from __future__ import annotations

from typing import Any

import torch

_NAMES = ("choose_qparams_affine", "quantize_affine", "dequantize_affine")


def affine_operators() -> list[Any]:
    """The operators that torchao has registered; an unregistered one cannot be in a graph."""
    return [getattr(torch.ops.torchao, name).default for name in _NAMES if hasattr(torch.ops.torchao, name)]
