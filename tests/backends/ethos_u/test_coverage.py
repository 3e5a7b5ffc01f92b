"""Everything that stock ExecuTorch takes for an Ethos-U is taken here too, or it is said why not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgewright.backends.ethos_u.ops import BACKEND
from edgewright.ir.aten.ops import OPS

STOCK = json.loads((Path(__file__).parents[2] / "golden/ethos_u/stock_operators.json").read_text())
LISTED = sorted({name for kind in ("int", "float", "checked") for name in STOCK[kind]})
TAKEN = {overload for row in BACKEND.rows if row in OPS for overload in OPS[row].aten}

# Known before anything is quantized, so constants by the time of lowering.
FOLDED = ("arange.start_step", "eye.default", "full.default", "full_like.default", "linspace.default",
          "scalar_tensor.default")  # fmt: skip
OTHERWISE = {
    **{f"aten.{name}": "makes a constant, which is folded" for name in FOLDED},
    "aten.addmm.default": "is decomposed into a product and a sum",
    "aten.copy.default": "is the value that is copied, once programs are functional",
    "aten.prod.dim_int": "is taken by stock's floating-point profile only, which no Ethos-U has",
    "dim_order_ops._clone_dim_order.default": "is how stock writes aten.clone, which has a row",
    "dim_order_ops._to_dim_order_copy.default": "is how stock writes aten._to_copy, which has a row",
    **{
        f"quantized_decomposed.{name}.default": "becomes the scale of a value"
        for name in ("dequantize_per_channel", "dequantize_per_tensor", "quantize_per_channel", "quantize_per_tensor")
    },
}


@pytest.mark.parametrize("name", LISTED)
def test_what_stock_takes_is_taken(name: str) -> None:
    assert (name in TAKEN) != (name in OTHERWISE), OTHERWISE.get(name, "has no row")
