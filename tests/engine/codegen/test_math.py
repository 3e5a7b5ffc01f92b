"""Vector functions against double precision, over all magnitudes: each keeps the error it states."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from edgewright.engine.codegen.builder import I64, PTR, Module, const, vec
from edgewright.engine.codegen.math_float32 import FUNCTIONS
from edgewright.engine.isa import host_isa
from edgewright.engine.jit.build import build_objects
from edgewright.engine.jit.elf import Library, link
from edgewright.ir.dtypes import bfloat16
from tests.engine.graphs import cpus

Array = np.ndarray[Any, Any]


def apply(kind: str, x: Array, cpu: str, *constants: float) -> Array:
    """A function of the engine on an array."""
    isa, module = host_isa(cpu), Module()
    f = module.function("apply", [(PTR, "data"), (PTR, "out"), (I64, "n")], exported=True)
    lanes = vec(isa.lanes, "float")

    def once(i: Any) -> None:
        at = f.mul(i, 4)
        f.store(FUNCTIONS[kind](f, f.load(lanes, f.gep(f.arg("data"), at)), *constants), f.gep(f.arg("out"), at))

    f.for_range(const(0, I64), f.arg("n"), once, isa.lanes)
    f.ret()
    library = Library(link(build_objects([module.text()], isa.cpu, isa.features)))
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(library.address("apply"))
    given = np.zeros(-(-x.size // 16) * 16, np.float32)
    given[: x.size] = x
    made = np.empty_like(given)
    call(given.ctypes.data, made.ctypes.data, given.size)
    return made[: x.size]


def spread(low: float, high: float) -> Array:
    """Numbers of all magnitudes and signs, and those in a row between two limits."""
    bits = np.linspace(0, 0x7F7FFFFF, 40001).astype(np.uint32).view(np.float32)
    both = np.concatenate((bits, -bits, np.linspace(low, high, 40000, dtype=np.float32)))
    return both[(both >= low) & (both <= high)].astype(np.float32)


def units(got: Array, want: Array) -> Array:
    """Differences in units of the last place of what is wanted."""
    with np.errstate(over="ignore"):
        place = np.spacing(np.abs(want.astype(np.float32))).astype(np.float64)
    return np.abs(got.astype(np.float64) - want) / place


def _erf(x: Array) -> Array:
    return np.array([math.erf(v) for v in x])


EXACT: dict[str, Callable[[Array], Array]] = {
    "exp": np.exp, "log": np.log, "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "tanh": np.tanh,
    "rsqrt": lambda x: 1 / np.sqrt(x), "sqrt": np.sqrt, "abs": np.abs, "floor": np.floor, "ceil": np.ceil,
    "neg": np.negative, "square": np.square, "sin": np.sin, "cos": np.cos,
    "log2": np.log2, "log10": np.log10, "log1p": np.log1p, "expm1": np.expm1, "atan": np.arctan, "asin": np.arcsin,
    "acos": np.arccos, "sinh": np.sinh, "cosh": np.cosh, "asinh": np.arcsinh, "acosh": np.arccosh,
    "atanh": np.arctanh, "tan": np.tan, "round": np.rint, "trunc": np.trunc, "sign": np.sign,
    "reciprocal": np.reciprocal,
    "round_to_fp16": lambda x: x.astype(np.float16).astype(np.float64),
    "round_to_bf16": lambda x: x.astype(np.float32).astype(bfloat16).astype(np.float64),
}  # fmt: skip
UNITS = [("exp", -87.0, 88.7, 1), ("log", 1e-38, 3e38, 2), ("sigmoid", -86.0, 100.0, 4), ("tanh", -20.0, 20.0, 4),
         ("rsqrt", 1e-38, 3e38, 1.5), ("sqrt", 0.0, 3e38, 0.5), ("abs", -3e38, 3e38, 0), ("floor", -1e30, 1e30, 0),
         ("ceil", -1e30, 1e30, 0), ("neg", -3e38, 3e38, 0), ("square", -1e18, 1e18, 0.5),
         ("sin", -3e38, 3e38, 2), ("cos", -3e38, 3e38, 2), ("round_to_fp16", -6e4, 6e4, 0),
         ("round_to_bf16", -3e38, 3e38, 0), ("log2", 1e-38, 3e38, 1), ("log10", 1e-38, 3e38, 1),
         ("log1p", -0.9999, 3e38, 1), ("expm1", -80.0, 88.7, 1), ("atan", -3e38, 3e38, 1), ("asin", -1.0, 1.0, 1),
         ("acos", -1.0, 1.0, 1), ("sinh", -88.0, 88.0, 1), ("cosh", -88.0, 88.0, 1), ("asinh", -3e38, 3e38, 1),
         ("acosh", 1.0, 3e38, 1), ("atanh", -0.9999, 0.9999, 1), ("tan", -3e38, 3e38, 5), ("round", -1e30, 1e30, 0),
         ("trunc", -1e30, 1e30, 0), ("sign", -3e38, 3e38, 0), ("reciprocal", 1e-37, 1e37, 0.5)]  # fmt: skip


@pytest.mark.sample(8)
@pytest.mark.parametrize("cpu", cpus())
@pytest.mark.parametrize(("kind", "low", "high", "bound"), UNITS)
def test_units_of_the_last_place(cpu: str, kind: str, low: float, high: float, bound: float) -> None:
    x = spread(low, high)
    with np.errstate(over="ignore", under="ignore"):
        want = EXACT[kind](x.astype(np.float64))
    normal = (np.abs(want) >= 1.2e-38) & (np.abs(want) < 3.4e38)
    assert units(apply(kind, x, cpu), want)[normal].max() <= bound


@pytest.mark.parametrize("cpu", cpus())
@pytest.mark.parametrize(
    ("kind", "exact", "low", "high", "bound"),
    [
        ("erf", _erf, -10.0, 10.0, 3e-7),
    ],
)
def test_absolute_errors(cpu: str, kind: str, exact: Any, low: float, high: float, bound: float) -> None:
    x = np.linspace(low, high, 100001, dtype=np.float32)
    assert np.abs(apply(kind, x, cpu) - exact(x.astype(np.float64))).max() <= bound


@pytest.mark.parametrize("cpu", cpus())
def test_gelu_elu_silu(cpu: str) -> None:
    x = np.linspace(-12, 12, 50001, dtype=np.float32)
    wide = x.astype(np.float64)
    error = np.abs(apply("gelu", x, cpu) - wide / 2 * (1 + _erf(wide / math.sqrt(2))))
    assert (error / np.maximum(np.abs(wide), 1)).max() <= 3e-7
    inside = math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3)
    error = np.abs(apply("gelu_tanh", x, cpu) - wide / 2 * (1 + np.tanh(inside)))
    assert (error / np.maximum(np.abs(wide), 1)).max() <= 5e-7
    assert np.abs(apply("elu", x, cpu, 0.5) - np.where(wide < 0, 0.5 * np.expm1(wide), wide)).max() <= 2e-7
    assert units(apply("silu", x, cpu), wide / (1 + np.exp(-wide)))[np.abs(x) > 0].max() <= 5


@pytest.mark.parametrize("cpu", cpus())
def test_special_arguments(cpu: str) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -1.0], np.float32)
    with np.errstate(all="ignore"):
        for kind in ("exp", "log", "sigmoid", "tanh", "sqrt", "erf", "sin", "cos", "round_to_fp16", "round_to_bf16"):
            exact = _erf if kind == "erf" else EXACT[kind]
            np.testing.assert_allclose(apply(kind, x, cpu), exact(x.astype(np.float64)), 1e-6, err_msg=kind)


def test_every_function_is_tested() -> None:
    tested = {kind for kind, *_ in UNITS} | {"erf", "gelu", "gelu_tanh", "elu", "silu"}
    assert set(FUNCTIONS) - tested == {"hardswish", "leaky_relu"}  # those are rounded as the reference's are
