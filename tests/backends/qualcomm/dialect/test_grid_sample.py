"""Images and volumes sampled at the points of a grid for the HTP: bit for bit where they are of integers."""

from __future__ import annotations

import numpy as np
import pytest

from tests.engine.qnn import TYPES, given, same, tensor, whole

SHAPES = {2: ((2, 5, 4, 3), (2, 3, 7, 2)), 3: ((2, 3, 4, 5, 6), (2, 2, 3, 2, 3))}


@pytest.mark.sample(3)
@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("padding", range(3))
@pytest.mark.parametrize("mode", range(2))
@pytest.mark.parametrize("held", TYPES)
def test_planes(held: str, mode: int, padding: int, align: bool) -> None:
    _alike(2, held, mode, padding, align)


@pytest.mark.sample(3)
@pytest.mark.parametrize(("mode", "padding", "align"), [(0, 0, False), (0, 2, True), (1, 1, False)])
@pytest.mark.parametrize("held", TYPES)
def test_volumes(held: str, mode: int, padding: int, align: bool) -> None:
    _alike(3, held, mode, padding, align)


def _alike(rank: int, held: str, mode: int, padding: int, align: bool) -> None:
    """Points within, beyond and at the edges; of real numbers, also what is none."""
    shapes = SHAPES[rank]
    x, grid = tensor("x", shapes[0], held), tensor("grid", shapes[1], held)
    out = tensor("y", (*shapes[1][:-1], shapes[0][-1]), held, 0.03)
    made = whole("GridSample", [x, grid], out, mode=mode, padding_mode=padding, align_corners=align)
    points = given(grid, 5)
    if held == "half":
        points.reshape(-1)[:6] = (-1, 1, 0, 1e30, -np.inf, np.nan)
    with np.errstate(invalid="ignore"):
        same(made, [given(x, 3), points])


def test_a_single_pixel() -> None:
    x, grid, out = (
        tensor("x", (1, 1, 1, 5), "uint8"),
        tensor("g", (1, 2, 2, 2), "uint8"),
        tensor("y", (1, 2, 2, 5), "uint8"),
    )
    for padding in range(3):
        same(whole("GridSample", [x, grid], out, mode=0, padding_mode=padding, align_corners=True))
