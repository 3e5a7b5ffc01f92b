"""Max pooling of real numbers: NaN, infinities and padding mean the same in machine code, numpy and PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from edgewright.backends.registry import find_dialect
from edgewright.engine import compile
from edgewright.ir.core.execute import Executor
from edgewright.ir.graph import Graph, Op
from tests.engine import qnn, vendors
from tests.engine.graphs import cpus, dirty, graph, real
from tests.support.dialects import NUMERICS

SHAPE = (2, 7, 6, 21)
WINDOWS = [  # size, stride, padding before, padding after, ceil mode
    ((3, 3), (2, 2), (1, 1), (1, 1), False),
    ((3, 3), (2, 2), (1, 1), (1, 1), True),
    ((2, 3), (2, 2), (0, 1), (0, 1), True),
    ((2, 2), (2, 2), (0, 0), (0, 0), False),
]


def special(seed: int) -> Any:
    """Normal numbers, with NaN, infinities, both zeros and what overflows half precision among them."""
    rng = np.random.default_rng(seed)
    x = rng.normal(0, 1, SHAPE).astype(np.float32)
    x.reshape(-1)[rng.choice(x.size, 60, replace=False)] = np.resize(
        np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 7e4], np.float32), 60
    )
    x[0, :3, :3, 0] = -np.inf  # a window of nothing else, with padding around it
    return x


def torchs(x: Any, window: Any) -> Any:
    size, stride, before, _, ceil = window
    made = torch.nn.functional.max_pool2d(torch.from_numpy(x).permute(0, 3, 1, 2), size, stride, before, 1, ceil)
    return made.permute(0, 2, 3, 1).contiguous().numpy()


def core(window: Any, out: tuple[int, ...]) -> Graph:
    """Padding reaches as far as the last window does."""
    size, stride, before, after, _ = window
    pads = [(b, max(a, (m - 1) * s + k - n - b)) for b, a, m, s, k, n in
            zip(before, after, out[1:3], stride, size, SHAPE[1:3], strict=True)]  # fmt: skip
    x, y = real("x", *SHAPE), real("y", *out)
    args = {"kernel_size": list(size), "stride": list(stride), "padding": [n for p in pads for n in p]}
    return graph([x], [y], Op("core.max_pool2d", {"self": x, **args, "dilation": [1, 1]}, [y]))


def qnns(window: Any, out: tuple[int, ...]) -> Graph:
    size, stride, before, after, ceil = window
    x, y = qnn.tensor("x", SHAPE, "half"), qnn.tensor("y", out, "half")
    pads = [list(pair) for pair in zip(before, after, strict=True)]
    return qnn.whole("PoolMax2d", [x], y, filter_size=list(size), stride=list(stride), pad_amount=pads,
                     rounding_mode=int(ceil))  # fmt: skip


def tosas(window: Any, out: tuple[int, ...]) -> Graph:
    size, stride, before, after, _ = window
    x, y = vendors.plain("x", SHAPE, "float32"), vendors.plain("y", out, "float32")
    pads = [n for pair in zip(before, after, strict=True) for n in pair]
    return vendors.graph([y], vendors.tosa("max_pool2d", y, input=x, kernel=list(size), stride=list(stride), pad=pads))


def both(made: Graph, numerics: str, x: Any) -> list[Any]:
    """The reference's result, and machine code's with each instruction set."""
    results = Executor(made, NUMERICS[numerics], find_dialect=find_dialect).run([x])
    for cpu in cpus():
        compiled = compile(made, threads=1, numerics=NUMERICS[numerics], cpu=cpu)
        assert not [step.label for step in compiled.plan.steps if step.python is not None]
        dirty(compiled)
        results += compiled.run([x])
    return results


@pytest.mark.parametrize("window", WINDOWS)
def test_the_largest_of_windows_is_pytorchs(window: Any) -> None:
    x = special(0)
    wanted = torchs(x, window)
    for found in both(core(window, wanted.shape), "xnnpack", x):
        np.testing.assert_array_equal(found, wanted)
    if not window[4]:  # TOSA has no ceil mode
        for found in both(tosas(window, wanted.shape), "tosa", x):
            np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("window", WINDOWS)
def test_qnn_holds_the_largest_in_half_precision(window: Any) -> None:
    """Which elements are rounded to, before or after the largest is chosen, is the same: rounding keeps their order."""
    x = special(1)
    with np.errstate(over="ignore"):
        wanted = torchs(x, window).astype(np.float16).astype(np.float32)
    for found in both(qnns(window, wanted.shape), "qnn", x):
        np.testing.assert_array_equal(found, wanted)
