"""Norms of groups and slopes for the HTP: what they mean in numpy, bit for bit where they are of integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.engine.qnn import TYPES, fixed, same, tensor, whole

RNG = np.random.default_rng(2)


@pytest.mark.sample(4)
@pytest.mark.parametrize("shape", [(2, 3, 5, 6), (1, 1, 1, 12), (2, 7, 18)])
@pytest.mark.parametrize("groups", [1, 3, 6])
@pytest.mark.parametrize("held", TYPES)
def test_groups(held: str, groups: int, shape: tuple[int, ...]) -> None:
    x, out = tensor("x", shape, held), tensor("y", shape, held, 0.03)
    factors = [fixed(n, RNG.normal(m, 0.5, shape[-1]), held, 0.01) for n, m in (("gamma", 1), ("beta", 0))]
    same(whole("GroupNorm", [x, *factors], out, epsilon=1e-5, group=groups))


@pytest.mark.parametrize("shape", [(2, 3, 5, 6), (1, 1, 9, 33)])
@pytest.mark.parametrize("held", TYPES)
def test_instances(held: str, shape: tuple[int, ...]) -> None:
    x, out = tensor("x", shape, held), tensor("y", shape, held, 0.03)
    made = whole("InstanceNorm", [x, fixed("gamma", RNG.normal(1, 0.5, shape[-1]), held, 0.01),
                                  fixed("beta", RNG.normal(0, 0.5, shape[-1]), held, 0.01)], out, epsilon=1e-3,
                 mode=0, normalize_variance=1, region=0)  # fmt: skip
    same(made)
    for number in (0, 3):  # nothing to divide by
        same(made, [np.full(shape, number, x.dtype)])


@pytest.mark.sample(4)
@pytest.mark.parametrize("held", TYPES)
@pytest.mark.parametrize(("shape", "slopes"), [((), (1,)), ((1,), (1,)), ((2, 3, 5), (5,)), ((2, 3, 5), (1,))])
def test_slopes(held: str, shape: tuple[int, ...], slopes: tuple[int, ...]) -> None:
    x, out = tensor("x", shape, held), tensor("y", shape, held, 0.03)
    slope: Any = fixed("slope", RNG.normal(0, 1, slopes), held, 0.01)
    made = whole("Prelu", [x, slope], out)
    for number in (-2.0, 2.0, 0.0):
        array = np.asarray(number if x.q is None else round(number / x.q.scale) + x.q.zero_point, x.dtype)
        same(made, [np.full(shape, array)])
    same(made)
