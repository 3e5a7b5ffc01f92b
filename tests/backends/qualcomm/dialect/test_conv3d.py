"""Convolutions and averages of volumes for the HTP: what they mean in numpy, with odd shapes and two volumes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.engine.coverage.vendors import native
from tests.engine.qnn import TYPES, fixed, same, tensor, whole

# Window, stride, padding before and after, what is added, groups.
GROWN: dict[str, tuple[Any, ...]] = {
    "whole": ((2, 3, 3), (2, 2, 3), ((0, 0), (1, 1), (1, 1)), (0, 0, 0), 1),
    "more": ((3, 3, 2), (2, 3, 2), ((1, 1), (1, 1), (0, 0)), (1, 2, 1), 1),
    "groups": ((2, 1, 3), (1, 1, 2), ((1, 0), (0, 0), (1, 1)), (0, 0, 1), 3),
    "far out": ((2, 2, 2), (3, 3, 3), ((2, 2), (3, 2), (1, 3)), (2, 1, 0), 1),
}


def grown(held: str, name: str, follow: bool = False) -> Any:
    window, stride, pads, more, groups = GROWN[name]
    rng = np.random.default_rng(3)
    x = tensor("x", (2, 4, 3, 5, 6), held)
    filters = rng.normal(0, 0.3, (*window, 6, 4)).astype(np.float32)
    weight = fixed("w", filters, "half" if held == "half" else "int8", 0.01)
    sizes = [(n - 1) * s + k - a - b + m for n, s, k, (a, b), m in
             zip(x.bound[1:4], stride, window, pads, more, strict=True)]  # fmt: skip
    out = tensor("y", (2, *sizes, 4 * groups), held, 0.05)
    params = {"stride": list(stride), "pad_amount": [list(p) for p in pads], "output_padding": list(more)}
    return whole("TransposeConv3d", [x, weight], out, group=groups, **params)


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", GROWN)
@pytest.mark.parametrize("held", TYPES)
def test_grown(held: str, name: str) -> None:
    same(grown(held, name))


@pytest.mark.parametrize("held", TYPES)
def test_planes_that_are_left_out_between(held: str) -> None:
    x = tensor("x", (2, 7, 4, 5, 3), held)
    filters = np.random.default_rng(5).normal(0, 0.3, (2, 3, 2, 3, 5)).astype(np.float32)
    weight, out = fixed("w", filters, "half" if held == "half" else "int8", 0.01), tensor("y", (2, 3, 2, 4, 5), held)
    pads = [[1, 1], [1, 1], [0, 0]]
    same(whole("Conv3d", [x, weight], out, stride=[2, 2, 1], pad_amount=pads, dilation=[4, 1, 1], group=1))


@pytest.mark.sample(4)
@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize(
    ("window", "stride", "pads", "up", "sizes"),
    [
        ((2, 3, 2), (1, 2, 3), ((0, 0), (0, 0), (0, 0)), 0, (4, 2, 2)),
        ((2, 3, 2), (1, 2, 3), ((0, 0), (0, 0), (0, 0)), 1, (4, 3, 3)),
        ((3, 3, 3), (2, 2, 2), ((1, 1), (1, 1), (1, 1)), 0, (3, 3, 4)),
        ((2, 2, 4), (2, 2, 3), ((0, 1), (1, 0), (2, 2)), 0, (3, 3, 3)),
        ((5, 6, 7), (5, 6, 7), ((0, 0), (0, 0), (0, 0)), 0, (1, 1, 1)),
    ],
)
def test_averages(window: Any, stride: Any, pads: Any, up: int, sizes: Any, counted: bool) -> None:
    x, out = tensor("x", (2, 5, 6, 7, 9), "half"), tensor("y", (2, *sizes, 9), "half")
    params = {"filter_size": list(window), "stride": list(stride), "pad_amount": [list(p) for p in pads]}
    made = whole("PoolAvg3d", [x], out, count_pad_for_edges=counted, rounding_mode=up, **params)
    same(made)
    if not counted:
        same(made, [np.full(x.bound, 65504, np.float32)])


@pytest.mark.parametrize(
    ("kind", "weight", "channels"), [("DepthWiseConv2d", (7, 7, 1, 768), 768), ("Conv2d", (3, 3, 512, 4096), 4096)]
)
def test_large_filters_are_machine_code(kind: str, weight: tuple[int, ...], channels: int) -> None:
    """Filters of all channels need not be made of those that stay what they are. Only a plan is made."""
    x = tensor("x", (1, 8, 8, weight[2] if kind == "Conv2d" else channels), "half")
    out = tensor("y", (1, 9 - weight[0], 9 - weight[1], channels), "half")
    params = {} if kind.startswith("Depth") else {"group": 1}
    filters = tensor("w", weight, "half", data=np.zeros(weight, np.float32))
    made = whole(kind, [x, filters], out, stride=[1, 1], pad_amount=[[0, 0], [0, 0]], dilation=[1, 1], **params)
    assert native(made, "qnn")
