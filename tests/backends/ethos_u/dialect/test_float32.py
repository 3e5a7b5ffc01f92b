"""TOSA graphs of single precision in the engine: near what ``backends/ethos_u/dialect`` says, and without numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgewright.backends.ethos_u.dialect import DIALECT
from edgewright.backends.ethos_u.dialect.numerics import TOSA_NUMERICS
from edgewright.engine import compile
from edgewright.ir.graph import Op
from tests.backends.nxp.dialect.test_to_core import window
from tests.engine.graphs import cpus, dirty
from tests.engine.vendors import graph, numbers, plain, tosa

RNG = np.random.default_rng(5)


def real(name: str, *shape: int) -> Any:
    return plain(name, shape, "float32")


def numbers_of(*shape: int) -> Any:
    return numbers(RNG.standard_normal(shape), "float32")


def near(*ops: Op, positive: bool = False, native: bool = True) -> None:
    made = graph([op.outputs[0] for op in ops], *ops)
    given = [RNG.standard_normal(v.bound).astype(np.float32) for v in made.inputs]
    given = [np.abs(x) + np.float32(0.1) if positive else x for x in given]
    wanted = DIALECT.execute(made, given)
    for cpu in cpus():
        compiled = compile(made, threads=1, numerics=TOSA_NUMERICS, cpu=cpu)
        left = [s.label for s in compiled.plan.steps if s.python is not None]
        assert bool(left) is not native, left
        dirty(compiled)
        for got, want in zip(compiled.run(given), wanted, strict=True):
            assert got.dtype == want.dtype and got.shape == want.shape
            np.testing.assert_allclose(got, want, rtol=2e-6, atol=2e-5 * max(1, float(np.abs(want).max())))


def test_functions() -> None:
    x = real("x", 3, 37)
    kinds = ("abs", "exp", "ceil", "floor", "sin", "cos", "tanh", "erf", "sigmoid")
    near(*(tosa(kind, real(kind, 3, 37), input=x) for kind in kinds))
    near(*(tosa(kind, real(kind, 3, 37), input=x) for kind in ("log", "reciprocal", "rsqrt")), positive=True)
    near(tosa("negate", real("n", 3, 37), input=x, input_zp=0, output_zp=0),
         tosa("clamp", real("c", 3, 37), input=x, min_val=-0.5, max_val=1.25))  # fmt: skip


@pytest.mark.parametrize("shape", [(2, 5, 19), (1, 1, 19), (2, 1, 1)])
def test_pairs(shape: tuple[int, ...]) -> None:
    a, b = real("a", 2, 5, 19), real("b", *shape)
    near(*(tosa(kind, real(kind, 2, 5, 19), a=a, b=b) for kind in ("add", "sub", "maximum", "minimum")),
         tosa("mul", real("mul", 2, 5, 19), a=a, b=b, shift=0))  # fmt: skip


@pytest.mark.parametrize("kind", ["conv2d", "depthwise_conv2d"])
@pytest.mark.parametrize(("pad", "stride", "dilation"), [([0] * 4, 1, 1), ([1, 0, 2, 1], 2, 1), ([2] * 4, 1, 2)])
def test_convolutions(kind: str, pad: list[int], stride: int, dilation: int) -> None:
    deep = "depthwise" in kind
    x, w = real("x", 2, 8, 9, 21 if deep else 6), numbers_of(3, 2, 21, 1) if deep else numbers_of(19, 3, 2, 6)
    size = [window(n + pad[2 * i] + pad[2 * i + 1], k, stride, dilation) for i, (n, k) in
            enumerate(zip(x.bound[1:3], (3, 2), strict=True))]  # fmt: skip
    channels = 21 if deep else 19
    near(tosa(kind, real("y", 2, *size, channels), input=x, weight=w, bias=numbers_of(channels), input_zp=0,
              weight_zp=0, pad=pad, stride=[stride] * 2, dilation=[dilation] * 2))  # fmt: skip


def test_transposed_convolutions_and_products() -> None:
    x = real("x", 2, 4, 5, 6)
    near(tosa("transpose_conv2d", real("y", 2, 7, 10, 16), input=x, weight=numbers_of(16, 3, 3, 6), bias=numbers_of(16),
              input_zp=0, weight_zp=0, out_pad=[-1, -1, 0, -1], stride=[2, 2]))  # fmt: skip
    a, b = real("a", 3, 5, 37), real("b", 3, 37, 19)
    near(tosa("matmul", real("y", 3, 5, 19), a=a, b=b, a_zp=0, b_zp=0))


@pytest.mark.parametrize("kind", ["reduce_sum", "reduce_max", "reduce_min"])
def test_reductions(kind: str) -> None:
    x = real("x", 2, 5, 4, 19)
    for axis in range(4):
        shape = tuple(1 if d == axis else n for d, n in enumerate(x.bound))
        near(tosa(kind, real("y", *shape), input=x, axis=axis))


@pytest.mark.parametrize("pad", [[0] * 4, [1] * 4])
def test_pools(pad: list[int]) -> None:
    x, size = real("x", 2, 7, 8, 21), (5 + 2 * pad[0], 6 + 2 * pad[0])
    sizes = {"kernel": [3, 3], "stride": [1, 1], "pad": pad}
    near(tosa("max_pool2d", real("most", 2, *size, 21), input=x, **sizes))
    near(tosa("avg_pool2d", real("mean", 2, *size, 21), input=x, input_zp=0, output_zp=0, **sizes))


def test_moves() -> None:
    x = real("x", 2, 3, 4, 5)
    near(tosa("pad", real("p", 2, 6, 4, 5), input=x, value=numbers([0.3], "float32"), padding=[0, 0, 1, 2, 0, 0, 0, 0]),
         tosa("tile", real("t", 2, 3, 8, 5), input=x, multiples=[1, 1, 2, 1]),
         tosa("reverse", real("r", 2, 3, 4, 5), input=x, axis=2),
         tosa("transpose", real("q", 2, 5, 3, 4), input=x, perms=[0, 3, 1, 2]))  # fmt: skip


def test_powers_comparisons_and_choices() -> None:
    a, b = real("a", 3, 19), real("b", 3, 19)
    near(tosa("pow", real("y", 3, 19), a=a, b=b), positive=True)
    compared = [plain(kind, (3, 19), "bool") for kind in ("equal", "greater", "greater_equal")]
    near(*(tosa(out.name, out, a=a, b=b) for out in compared))
    near(tosa("greater", compared[1], a=a, b=b),
         tosa("select", real("z", 3, 19), condition=compared[1], on_true=a, on_false=b))  # fmt: skip
