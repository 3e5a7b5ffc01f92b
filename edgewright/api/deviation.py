"""Deviation of a result from the expected one, and the bound that rounding explains."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import fx

from edgewright.api.quantized_graph import is_dequantize, is_quantize
from edgewright.backends.table import Rounding
from edgewright.ir.aten.ops import OPS
from edgewright.ir.dtypes import is_floating
from edgewright.quantize.evaluate import BEST
from edgewright.runtime.method_io import is_torch, to_array


def deviation(expected: Any, actual: Any) -> float:
    """The root mean square difference. For discrete results (indices, masks, counts) use ``flips``.

    It is infinite if shapes differ, or an element is infinite or NaN on one side only.

    >>> deviation(np.array([1.0, 2.0]), np.array([1.0, 4.0])) == math.sqrt(2)
    True
    >>> deviation(np.array([np.inf]), np.array([1.0]))
    inf
    """
    a, b = to_float64(expected), to_float64(actual)
    if a.shape != b.shape:
        return math.inf
    finite = np.isfinite(a)
    same = np.array_equal(finite, np.isfinite(b)) and np.array_equal(a[~finite], b[~finite], equal_nan=True)
    if not same:
        return math.inf
    return float(np.sqrt(np.mean(np.square(a[finite] - b[finite])))) if finite.any() else 0.0


def flips(expected: Any, actual: Any) -> float:
    """The fraction of elements that differ.

    >>> flips(np.array([1, 2, 3, 4]), np.array([1, 2, 3, 5])), flips(3, 3)
    (0.25, 0.0)
    """
    a, b = (np.asarray(to_array("result", v) if is_torch(v) else v) for v in (expected, actual))
    if a.shape != b.shape:
        return 1.0
    return float(np.mean(a != b)) if a.size else 0.0


def is_discrete(node: Any, value: Any) -> bool:
    """True for indices, counts and bools, which rounding flips instead of perturbing."""
    if isinstance(value, torch.Tensor):
        return not value.is_floating_point() and not value.is_complex() and step_of(node) is None
    return not isinstance(value, float)


def step_of(node: Any) -> float | None:
    """The quantization step of a node's result, looking through data movement; None if it is not quantized."""
    while isinstance(node, fx.Node):
        if is_quantize(node):
            return 1.0
        if is_dequantize(node):
            scale = node.args[1] if "per_tensor" in str(node.target) else None
            return float(scale) if isinstance(scale, int | float) else None
        is_moved = node.op == "call_function" and OPS.moves_data(node.target)
        node = node.args[0] if is_moved and node.args else None
    return None


def bits_of(node: Any) -> int:
    """The bit width of a quantized result."""
    while isinstance(node, fx.Node) and not is_quantize(node):
        node = node.all_input_nodes[0] if node.all_input_nodes else None
    kind = node.meta.get("val") if isinstance(node, fx.Node) else None
    return torch.iinfo(kind.dtype).bits if isinstance(kind, torch.Tensor) else 8


def own_rounding(node: Any, value: Any, rounding: Rounding) -> float:
    """The error that rounding the result itself may cause: a few steps, or a fraction of its largest element."""
    step = step_of(node)
    if step is not None:
        return step * rounding.steps(bits_of(node))
    if not isinstance(value, torch.Tensor) or not value.is_floating_point() or not value.numel():
        return 0.0
    finite = value.double()[torch.isfinite(value)]
    fraction = max(rounding.real, float(torch.finfo(value.dtype).eps))
    return fraction * float(finite.abs().max()) if finite.numel() else 0.0


def decibels(expected: Any, noise: float) -> float:
    """The SQNR of a result with noise of a given root mean square.

    >>> round(decibels(np.array([10.0, -10.0]), 0.1))
    40
    """
    a = to_float64(expected)
    finite = a[np.isfinite(a)]
    signal = float(np.sqrt(np.mean(np.square(finite)))) if finite.size else 0.0
    if noise == 0:
        return BEST
    if signal == 0 or math.isinf(noise):
        return -BEST
    return max(-BEST, min(BEST, 20 * math.log10(signal / noise)))


@dataclass(frozen=True)
class OutputDeviation:
    """An output of one call: the file's distance from the graph, and the distance that rounding explains."""

    expected: Any
    distance: float
    allowed: float
    discrete: bool

    @property
    def exceeds(self) -> bool:
        return self.distance > self.allowed

    @property
    def sqnr(self) -> float:
        if self.discrete:
            return BEST if not self.distance else -BEST
        return decibels(self.expected, self.distance)


def compare_values(
    node: Any, expected: Any, actual: Any, noisy: Sequence[Any], rounding: Rounding, slack: float = 1.0
) -> OutputDeviation:
    """Compare a node's result with the file's. ``noisy``: results under simulated rounding errors; ``slack``: the
    factor by which the real error may exceed theirs."""
    discrete = is_discrete(node, expected)
    measure = flips if discrete else deviation
    distances = [measure(expected, other) for other in noisy]
    own_error = 0.0 if discrete else own_rounding(node, expected, rounding)
    return OutputDeviation(
        expected, measure(expected, actual), max([own_error, *(slack * m for m in distances)]), discrete
    )


def to_float64(value: Any) -> Any:
    array = np.asarray(to_array("result", value) if is_torch(value) else value)
    if array.dtype.kind == "c":
        array = array.astype(np.complex128).view(np.float64)
    if array.dtype.kind in "fiub" or is_floating(array.dtype):
        return array.astype(np.float64)
    return np.zeros(0)
