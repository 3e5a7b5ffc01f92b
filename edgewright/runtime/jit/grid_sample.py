"""Images sampled at the points of a grid, as operators of a device graph."""

from __future__ import annotations

import math
from collections.abc import Sequence

from edgewright.engine.graph.grid_sample import Sampling, lower_grid_sample
from edgewright.runtime.jit.graph_builder import Maker
from edgewright.runtime.jit.registry import Args, taken
from edgewright.runtime.tensor import TensorSlot


@taken("aten::grid_sampler_2d.out")
def _sampled(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    """Pixels at each point's neighbours, with their weights."""
    x, grid, out = a["input"], a["grid"], outs[0]
    if not m.usable(x, grid, out) or len(x.bound) != 4 or len(grid.bound) != 4 or m.constant(x) is not None:
        return False
    batch, channels, *sizes = x.bound
    if grid.bound[0] != batch or grid.bound[3] != 2 or out.bound != (batch, channels, *grid.bound[1:3]):
        return False
    rows = math.prod(grid.bound[:3])
    points = m.between("view", (rows, 2), {"self": m.planes(grid), "size": [rows, 2]})
    size = [batch * math.prod(sizes), channels]
    pixels = m.between("view", size, {"self": m.pixels(x), "size": size})
    how = Sampling(int(a["interpolation_mode"]), int(a["padding_mode"]), bool(a["align_corners"]))
    total = lower_grid_sample(m.between, pixels, points, batch, sizes, how)
    shape = [batch, *grid.bound[1:3], channels]
    image = m.between("view", shape, {"self": total, "size": shape})
    m.bind(out, image, pixels=True)
    m.macs += math.prod(out.bound) * 16
    return True
