"""Graphs of QNN's operators, and the engine's results beside those of the operators' own meaning in numpy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.backends.qualcomm.dialect import DIALECT
from edgewright.backends.qualcomm.dialect.numerics import QNN
from edgewright.engine import compile
from edgewright.ir.graph import Array, Graph, Op, QParams, Value
from tests.engine.graphs import cpus, dirty
from tests.engine.vendors import anything, graph

TYPES = ("half", "uint8", "uint16")


def tensor(name: str, shape: Sequence[int], held: str, scale: float = 0.02, data: Any = None) -> Value:
    """``held``: ``half``, for real numbers, or a type of integers that are around the middle of theirs."""
    dims = tuple(range(len(shape)))
    if held == "half":
        return Value(name, np.dtype(np.float32), tuple(shape), dims, data)
    dtype = np.dtype(held)
    info: Any = np.iinfo(dtype)
    zero = 0 if dtype.kind == "i" else int(info.max) // 2
    scale = scale if dtype.itemsize == 1 else scale / 256
    return Value(name, dtype, tuple(shape), dims, data, q=QParams(scale, zero, dtype, int(info.min), int(info.max)))


def plain(name: str, shape: Sequence[int], dtype: str) -> Value:
    return Value(name, np.dtype(dtype), tuple(shape), tuple(range(len(shape))))


def fixed(name: str, numbers: Any, held: str, scale: float = 0.02) -> Value:
    """A constant: real numbers, or the integers that stand for them."""
    reals = np.asarray(numbers, np.float32)
    value = tensor(name, reals.shape, held, scale)
    q = value.q
    data = reals if q is None else np.clip(np.rint(reals / q.scale) + q.zero_point, q.qmin, q.qmax).astype(q.dtype)
    return tensor(name, reals.shape, held, scale, data)


def whole(kind: str, inputs: Sequence[Value], out: Value, **params: Any) -> Graph:
    made = graph([out], Op(f"qnn.{kind}", {"inputs": list(inputs), **params}, [out]))
    DIALECT.check(made, 1 << 30)
    return made


def given(value: Value, seed: int) -> Array:
    """Anything, extreme integers among it."""
    if value.q is None and value.dtype == np.dtype(np.float32):
        return np.random.default_rng(seed).normal(0, 1, value.bound).astype(np.float32)
    return np.asarray(anything(value, seed))


def same(made: Graph, inputs: Sequence[Array] | None = None, native: bool | None = True) -> None:
    """Integers bit for bit, real numbers to two steps of half precision, with each instruction set and no numpy, unless
    it is not ``native``; None: either."""
    arrays = [given(v, i) for i, v in enumerate(made.inputs)] if inputs is None else list(inputs)
    (wanted,) = DIALECT.execute(made, arrays)
    for cpu in cpus():
        compiled = compile(made, threads=1, numerics=QNN, cpu=cpu)
        left = [step.label for step in compiled.plan.steps if step.python is not None]
        assert native is None or bool(left) is not native, left
        dirty(compiled)
        (found,) = compiled.run(arrays)
        assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
        if wanted.dtype.kind == "f":
            np.testing.assert_allclose(found, wanted, 2.0**-9, 2.0**-14 * np.abs(wanted).max(initial=1e-3))
        else:
            np.testing.assert_array_equal(found, wanted)
