"""Graphs whose sizes vary: each call runs code for its own shapes, and few forms are kept."""

from __future__ import annotations

import numpy as np
import pytest

from edgewright.backends.xnnpack.numerics import XNNPACK
from edgewright.engine import Specialized
from edgewright.errors import EdgewrightError
from edgewright.ir.core.execute import Executor
from edgewright.ir.graph import Graph, Op, Value
from tests.engine.graphs import F32, filters, random, real
from tests.engine.lower.test_conv import conv


def two_layers() -> Graph:
    """A convolution, and a view that leaves a size open."""
    made = conv((4, 16, 16, 8), 12, (3, 3), padding=(1, 1, 1, 1))
    middle = made.outputs[0]
    flat, y = real("flat", 4 * 16 * 16, 12), real("z", 4 * 16 * 16, 5)
    made.ops.append(Op("core.view", {"self": middle, "size": [0, 12]}, [flat]))
    args = {"input": flat, "weight": filters(5, 12, quantize=False), "bias": None, "transposed": False}
    made.ops.append(Op("core.linear", args, [y]))
    made.outputs[0] = y
    return made


@pytest.mark.parametrize("shape", [(4, 16, 16, 8), (1, 16, 16, 8), (2, 5, 9, 8), (1, 1, 1, 8)])
def test_any_smaller_shape(shape: tuple[int, ...]) -> None:
    made = two_layers()
    x = random(Value("x", F32, shape))
    (want,) = Executor(made, XNNPACK).run([x])
    (got,) = Specialized(made, threads=1).run([x])
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, atol=1e-5)


def test_few_forms_are_kept() -> None:
    special = Specialized(two_layers(), threads=1, max_cached=2)
    first = special.compiled([(1, 4, 4, 8)])
    assert special.compiled([(1, 4, 4, 8)]) is first
    for n in (5, 6, 7):
        special.compiled([(1, n, 4, 8)])
    assert special.compiled([(1, 4, 4, 8)]) is not first
    assert len(special._cache) == 2


@pytest.mark.parametrize("shape", [(5, 16, 16, 8), (1, 17, 16, 8), (16, 16, 8), (1, 4, 4, 7)])
def test_shapes_that_do_not_fit_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(EdgewrightError):
        Specialized(two_layers(), threads=1).run([np.zeros(shape, np.float32)])
