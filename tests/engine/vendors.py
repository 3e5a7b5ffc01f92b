"""Graphs of vendors' operators, and the engine's results beside those of the operators' own meaning in numpy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.backends.ethos_u.dialect import DIALECT as TOSA
from edgewright.backends.nxp.dialect import DIALECT as TFLITE
from edgewright.backends.nxp.dialect.numerics import NUMERICS
from edgewright.engine import compile
from edgewright.ir.graph import Graph, Op, QParams, Value
from tests.engine.graphs import cpus, dirty

I8 = np.dtype(np.int8)


def stored(
    name: str, shape: Sequence[int], scale: Any, zero: int = 0, data: Any = None, axis: int | None = None
) -> Value:
    """A tensor of TFLite's bytes."""
    q = QParams(scale, zero, I8, -128, 127, axis=axis)
    return Value(name, I8, tuple(shape), tuple(range(len(shape))), data, q=q)


def plain(name: str, shape: Sequence[int], dtype: str) -> Value:
    """A tensor of TOSA's."""
    return Value(name, np.dtype(dtype), tuple(shape), tuple(range(len(shape))))


def numbers(data: Any, dtype: str = "int32") -> Value:
    held = np.asarray(data, dtype)
    return Value("numbers", held.dtype, held.shape, tuple(range(held.ndim)), held)


def tflite(kind: str, inputs: list[Value], out: Value, **options: Any) -> Op:
    return Op(f"tflite.{kind}", {"inputs": inputs, **options}, [out])


def tosa(kind: str, out: Value, **args: Any) -> Op:
    return Op(f"tosa.{kind}", args, [out])


def graph(outputs: Sequence[Value], *ops: Op) -> Graph:
    made = {v for op in ops for v in op.outputs}
    inputs = dict.fromkeys(v for op in ops for v in op.inputs() if v.data is None and v not in made)
    return Graph("case", list(inputs), list(outputs), list(ops))


def anything(value: Value, seed: int = 0) -> Any:
    """Any integers, the extreme ones among them."""
    rng = np.random.default_rng(seed)
    if value.dtype == np.bool_:
        return rng.integers(0, 2, value.bound).astype(bool)
    info: Any = np.iinfo(value.dtype)
    low, high = max(int(info.min), -(1 << 40)), min(int(info.max), 1 << 40)
    made = rng.integers(low, high, value.bound, endpoint=True).astype(value.dtype)
    made.reshape(-1)[:: max(1, made.size // 7)] = rng.choice(
        [low, high], made.reshape(-1)[:: max(1, made.size // 7)].shape
    )
    return made


def same(made: Graph, numerics: str, given: Sequence[Any] | None = None, native: bool = True, seed: int = 0) -> None:
    """Every bit, with each instruction set; and without numpy, unless ``native`` is False."""
    arrays = [anything(v, seed + i) for i, v in enumerate(made.inputs)] if given is None else list(given)
    dialect, rounding = (TOSA, TOSA.numerics) if numerics == "tosa" else (TFLITE, NUMERICS[numerics])
    wanted = dialect.execute(made, arrays, rounding)
    for cpu in cpus():
        compiled = compile(made, threads=1, numerics=rounding, cpu=cpu)
        left = [s.label for s in compiled.plan.steps if s.python is not None]
        assert bool(left) is not native, left
        dirty(compiled)
        for value, got, want in zip(made.outputs, compiled.run(arrays), wanted, strict=True):
            assert got.dtype == want.dtype
            np.testing.assert_array_equal(got, want, value.name)
