"""What samples are made of: small arrays of every type, with the values that break things."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from edgewright.ir.dtypes import bfloat16
from tests.ir.aten.harness import Sample

SAMPLES: list[Sample] = []

FLOATS = ("float32", "float64", "float16", "bfloat16")
INTS = ("int8", "int16", "int32", "int64", "uint8")
COMPLEX = ("complex64", "complex128")


def unlike_stock(samples: Iterable[Sample], reason: Callable[[Sample], str]) -> list[Sample]:
    """The samples, those for which there is a ``reason`` marked as different in stock."""
    return [replace(s, stock=False, why=why) if (why := reason(s)) else s for s in samples]


def has_complex(sample: Sample) -> bool:
    return any(isinstance(a, np.ndarray) and a.dtype.kind == "c" for a in sample.args)


def dtype_of(name: str) -> np.dtype:
    return bfloat16 if name == "bfloat16" else np.dtype(name)


def array(values: object, name: str = "float32") -> np.ndarray:
    return np.asarray(values).astype(dtype_of(name))


def normal(name: str, *shape: int, seed: int = 0, scale: float = 2.0) -> np.ndarray:
    """Deterministic values of both signs (non-negative for unsigned types)."""
    rng = np.random.default_rng([seed, *shape])
    if name == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if name in INTS:
        return rng.integers(0 if name == "uint8" else -9, 10, shape).astype(name)
    values = rng.standard_normal(shape) * scale
    if name in COMPLEX:
        return array(values + 1j * rng.standard_normal(shape), name)
    return array(values, name)


def nonzero(name: str, *shape: int, seed: int = 1) -> np.ndarray:
    values = normal(name, *shape, seed=seed)
    return np.where(values == 0, array(3, name), values)


def edges(name: str) -> np.ndarray:
    """The values at a type's limits, and for floats the ones that are no numbers."""
    if name == "bool":
        return np.array([True, False])
    if name in INTS:
        info = np.iinfo(name)
        return np.array([info.min, info.min + 1, 0, 1, 2, info.max - 1, info.max], name)
    return array([np.nan, np.inf, -np.inf, 0.0, -0.0, 0.5, -0.5, 1.5, -2.5, 1.0, -1.0, 3e4, -3e4, 6e-5], name)
