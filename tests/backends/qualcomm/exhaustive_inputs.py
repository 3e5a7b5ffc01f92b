"""Rows of the HTP on inputs that walk what a tensor can hold: every integer of 8 bits, every pair of them, and of 16
bits every integer or a sample of pairs. What the host twin makes of them is counted against the emulator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgewright.backends.qualcomm.ops import BACKEND
from edgewright.backends.qualcomm.partitioner import QnnPartitioner, to_qnn
from edgewright.ir.aten.ops import OPS
from edgewright.ir.graph import Array, Graph, Op
from tests.backends.qualcomm.rows import emulated_result, scheme, twin_result
from tests.ir.aten.harness import Sample
from tests.ir.aten.overload_calls import Call
from tests.support.quantized_calls import Case, Maker, load, parameters, store, value

Range = tuple[float, float]
_PIXELS = {256: (1, 16, 4, 4), 65536: (1, 64, 32, 32)}
# Of activations: about zero, one-sided, and with a little below zero.
ONE: tuple[Range, ...] = ((-3.1, 4.2), (-8.0, 8.0), (-0.6, 6.0), (0.0, 2.7))
TWO: tuple[tuple[Range, Range], ...] = (
    ((-1.0, 1.0), (-1.0, 1.0)), ((-2.3, 1.9), (-0.7, 3.1)), ((0.0, 6.0), (-5.1, 4.2)), ((0.0, 1.0), (-0.4, 11.3)),
)  # fmt: skip
_POOL = {"kernel_size": [3, 3], "stride": [2, 2], "padding": [1, 1], "ceil_mode": False}
# What rows are called with beside the tensor that walks; numbers above zero alone where a function needs them.
FUNCTIONS: dict[str, dict[str, Any]] = {
    **{op: {} for op in ("abs", "exp", "hardsigmoid", "hardswish", "neg", "relu", "relu6", "sigmoid", "square")},
    "clamp": {"min": -1.5, "max": 2.5}, "elu": {"alpha": 1, "scale": 1, "input_scale": 1},
    "gelu": {"approximate": "none"}, "hardtanh": {"min_val": -1, "max_val": 1}, "leaky_relu": {"negative_slope": 0.01},
    **{op: {} for op in ("tanh", "log", "rsqrt", "sqrt")},
}  # fmt: skip
POSITIVE = {"log": (0.1, 4.2), "rsqrt": (0.1, 4.2), "sqrt": (0.0, 4.2)}
PAIRS: dict[str, dict[str, Any]] = {"add": {"alpha": 1}, "sub": {"alpha": 1}, "mul": {}, "maximum": {}, "minimum": {}}
FOLDS: dict[str, dict[str, Any]] = {
    "adaptive_avg_pool2d": {"output_size": [1, 1]},
    "amax": {"dim": [2], "keepdim": False},
    "avg_pool2d": {**_POOL, "count_include_pad": True, "divisor_override": None},
    "max_pool2d": {**_POOL, "dilation": [1, 1]},
    "mean": {"dim": [2, 3], "keepdim": True, "dtype": None},
    "pad": {"pad": [1, 2, 0, 1], "value": 0.7},
    "sum": {"dim": [3], "keepdim": False, "dtype": None},
    "upsample_bilinear2d": {"output_size": [64, 64], "align_corners": False, "scale_factors": None},
    "upsample_nearest2d": {"output_size": [64, 64], "scale_factors": None},
}
ROWS = (*PAIRS, *FUNCTIONS, *FOLDS, "cat", "requantize")
REFUSED = {("log", 16)}  # by Qualcomm's validator
# Where not every result is the emulator's: the least share that is, in hundredths of all, and how many steps the others
# are away at most. Measured on SM8650, rounded down. Of sqrt it is the emulator that is 88 steps from the exact result;
# the twin is within one.
COUNTED: dict[tuple[str, int], tuple[float, int]] = {
    ("add", 8): (99.2, 1), ("sub", 8): (99.6, 1), ("mul", 8): (99.6, 1), ("maximum", 8): (99.8, 1),
    ("minimum", 8): (99.5, 1), ("avg_pool2d", 8): (99.8, 1), ("sum", 8): (99.7, 1), ("requantize", 8): (99.8, 1),
    ("upsample_bilinear2d", 8): (95.7, 1), ("upsample_bilinear2d", 16): (96, 1),
    ("sub", 16): (99.99, 1), ("mul", 16): (98, 1), ("maximum", 16): (98.6, 1), ("minimum", 16): (99.4, 1),
    ("abs", 16): (97, 1), ("square", 16): (99, 1), ("rsqrt", 16): (96, 1), ("leaky_relu", 16): (65, 2),
    ("hardsigmoid", 16): (58, 2), ("hardswish", 16): (57, 4), ("sigmoid", 16): (37, 4), ("tanh", 16): (49, 4),
    ("elu", 16): (45, 2), ("exp", 16): (44, 16), ("gelu", 16): (8, 29), ("sqrt", 16): (2, 88),
    ("avg_pool2d", 16): (54, 2), ("adaptive_avg_pool2d", 16): (38, 2), ("mean", 16): (15, 2), ("sum", 16): (48, 2),
}  # fmt: skip


@dataclass(frozen=True)
class Agreement:
    """Of a row's walks: how many results there are, how many are the emulator's, and how far the others are at most,
    in steps of the last place."""

    results: int = 0
    equal: int = 0
    steps: int = 0

    def __add__(self, other: Agreement) -> Agreement:
        return Agreement(self.results + other.results, self.equal + other.equal, max(self.steps, other.steps))

    @property
    def share(self) -> float:
        return self.equal / self.results


def every(limits: Range, bits: int) -> Array:
    """The real numbers that the integers of a range stand for."""
    count = 1 << bits
    return np.linspace(*limits, count).astype(np.float32).reshape(_PIXELS[count])


def pairs(limits: tuple[Range, Range], bits: int) -> list[Array]:
    """Two tensors that meet in every pair of bytes; wider ones in as many pairs, drawn at random."""
    last = (1 << bits) - 1
    if bits == 8:
        places = np.meshgrid(np.arange(256), np.arange(256))
    else:
        drawn = np.random.default_rng(8).integers(0, last + 1, (2, 1 << 16))
        drawn[:, 0], drawn[:, 1] = 0, last  # the whole range, so that it is found again
        places = list(drawn)
    return [
        (low + p.reshape(_PIXELS[1 << 16]) * ((high - low) / last)).astype(np.float32)
        for p, (low, high) in zip(places, limits, strict=True)
    ]


def mixed(limits: Range, bits: int) -> Array:
    """An image of as many pixels, drawn at random: what lies together in a window is not alike."""
    return np.random.default_rng(9).permutation(pairs((limits, limits), bits)[1].ravel()).reshape(_PIXELS[1 << 16])


def case_of(op: str, args: Mapping[str, Any], bits: int) -> Case:
    """A call quantized as calibration would: by the ranges of what it is given and of what it gives."""
    overload = OPS[op].aten[0]
    made = Maker(Call(overload, dict(args), Sample(overload, ())), scheme(bits), BACKEND.rows[op].ports).run()
    assert made is not None
    return made


def requantized(given: Range, wanted: Range, bits: int) -> Case:
    """Integers of one range as those of another."""
    array = every(given, bits)
    first, second = (parameters([np.asarray(r, np.float32)], np.dtype(f"uint{bits}")) for r in (given, wanted))
    stored = store(array, first)
    x, y = value("x", stored, first), value("y", stored, second)
    made = store(load(stored, first), second)
    return Case(Graph("case", [x], [y], [Op("requantize", {"self": x}, [y])]), [stored], made, "requantize", made >= 0)


def walks(op: str, bits: int) -> Iterator[Case]:
    """A row's calls, each on tensors of other ranges."""
    if op in PAIRS:
        for limits in TWO:
            first, second = pairs(limits, bits)
            yield case_of(op, {"self": first, "other": second, **PAIRS[op]}, bits)
    elif op in FUNCTIONS:
        for limit in [POSITIVE[op]] if op in POSITIVE else ONE:
            yield case_of(op, {"self": every(limit, bits), **FUNCTIONS[op]}, bits)
    elif op == "requantize":
        for limits in TWO:
            yield requantized(*limits, bits)
    elif op == "cat":
        for limits in TWO:
            yield case_of(op, {"tensors": pairs(limits, bits), "dim": 1}, bits)
    else:
        name = "input" if op.startswith("upsample") else "self"
        for limits in TWO:
            yield case_of(op, {name: mixed(limits[1], bits), **FOLDS[op]}, bits)


def agreement(case: Case, soc: str = "SM8650") -> Agreement:
    """How often the twin gives the emulator's integer."""
    partitioner = QnnPartitioner.for_target(soc)
    assert not partitioner.rejections(case.op), case.name
    target = partitioner.target()
    device = to_qnn(case.copy(), target)
    wanted = emulated_result(device, target, case.inputs)
    found = twin_result(device, case.inputs).reshape(wanted.shape)
    assert found.dtype == wanted.dtype
    apart = np.abs(found.astype(np.int64) - wanted.astype(np.int64))
    return Agreement(apart.size, int((apart == 0).sum()), int(apart.max(initial=0)))
