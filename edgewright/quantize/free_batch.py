"""Views whose first size is the batch of the exported inputs, for any batch: training and calibration use their own.

Decomposition makes a view of ``flatten`` and similar operators, with the sizes of the example inputs.
"""

from __future__ import annotations

import math

import torch
from torch import fx

aten = torch.ops.aten
_VIEWS = (aten.view.default, aten.view_copy.default, aten.reshape.default, aten._unsafe_view.default)


def free_batch(module: fx.GraphModule) -> fx.GraphModule:
    """Infer the first size of views that keep it. With the exported batch, the results are the same."""
    for node in module.graph.nodes:
        if node.target in _VIEWS and _keeps_batch(node):
            node.args = (node.args[0], [-1, *node.meta["val"].shape[1:]])
    module.recompile()
    return module


def _keeps_batch(view: fx.Node) -> bool:
    x = view.args[0]
    if not isinstance(x, fx.Node) or "val" not in x.meta or "val" not in view.meta:
        return False
    before, after = x.meta["val"].shape, view.meta["val"].shape  # a view's own sizes may have a -1
    if not before or not after or not all(isinstance(n, int) for n in (*before, *after)):
        return False
    return bool(before[0] == after[0]) and math.prod(before) > 0
