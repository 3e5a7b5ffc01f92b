"""Rotation of the residual stream, so that few large channels become many of the same size.

A few channels of trained models are hundreds of times larger than all others in some tokens, and one scale for a tensor
leaves few steps for the rest. An orthogonal matrix in the basis of the hidden states spreads them. It changes nothing
else: it is multiplied into the weights before and behind, and an RMS norm without weights commutes with it (Ashkboos et
al., "QuaRot: Outlier-Free 4-Bit Inference in Rotated LLMs", 2024).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_MAX_HADAMARD = 64  # larger ones are products of smaller ones


class Rotation:
    """An orthogonal matrix of ``size`` rows: random signs, then a Kronecker product of Hadamard matrices and, for the
    odd part of the size, of a discrete cosine transform."""

    def __init__(self, size: int) -> None:
        power = size & -size
        self._factors = [_cosines(size // power)] if size // power > 1 else []
        while power > 1:
            part = min(power, _MAX_HADAMARD)
            self._factors.append(_hadamard(part))
            power //= part
        signs = np.random.default_rng(size).integers(0, 2, size) * 2 - 1
        self._signs = signs.astype(np.float32)

    def apply(self, x: Array) -> Array:
        """Rows times the matrix."""
        y = (x * self._signs).reshape(-1, *(len(factor) for factor in self._factors))
        for axis, factor in enumerate(self._factors, 1):
            y = np.moveaxis(np.tensordot(y, factor, (axis, 0)), -1, axis)
        result: Array = np.ascontiguousarray(y).reshape(x.shape)
        return result


def _hadamard(size: int) -> Array:
    matrix = np.ones((1, 1), np.float32)
    while len(matrix) < size:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    scaled: Array = (matrix / math.sqrt(size)).astype(np.float32)
    return scaled


def _cosines(size: int) -> Array:
    """The orthogonal discrete cosine transform."""
    index = np.arange(size)
    matrix = np.cos(np.pi * (2 * index[:, None] + 1) * index / (2 * size)) * math.sqrt(2 / size)
    matrix[:, 0] /= math.sqrt(2)
    result: Array = matrix.astype(np.float32)
    return result
