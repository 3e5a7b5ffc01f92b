"""Lowering of ``grid_sampler_2d``."""

from __future__ import annotations

import math
from collections.abc import Sequence

from edgewright.engine.graph.grid_sample import Sampling, lower_grid_sample
from edgewright.runtime.jit.graph_builder import GraphBuilder
from edgewright.runtime.jit.registry import Args, lowers
from edgewright.runtime.tensor import TensorSlot


@lowers("aten::grid_sampler_2d.out")
def _grid_sample(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    """Gathers the neighbors of each point and sums them with their weights."""
    x, grid, out = a["input"], a["grid"], outs[0]
    if not g.supports_float(x, grid, out) or len(x.bound) != 4 or len(grid.bound) != 4 or g.constant(x) is not None:
        return False
    batch, channels, *sizes = x.bound
    if grid.bound[0] != batch or grid.bound[3] != 2 or out.bound != (batch, channels, *grid.bound[1:3]):
        return False
    rows = math.prod(grid.bound[:3])
    points = g.emit("view", (rows, 2), {"self": g.value(grid), "size": [rows, 2]})
    size = [batch * math.prod(sizes), channels]
    flat_image = g.emit("view", size, {"self": g.value_nhwc(x), "size": size})
    sampling = Sampling(int(a["interpolation_mode"]), int(a["padding_mode"]), bool(a["align_corners"]))
    total = lower_grid_sample(g.emit, flat_image, points, batch, sizes, sampling)
    shape = [batch, *grid.bound[1:3], channels]
    image = g.emit("view", shape, {"self": total, "size": shape})
    g.bind(out, image, nhwc=True)
    g.macs += math.prod(out.bound) * 16
    return True
