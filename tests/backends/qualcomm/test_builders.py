"""The rows beside the builders of stock's backend for the same processors: none is forgotten."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from edgewright.backends.qualcomm.ops import BACKEND

# Rows by the name of stock's builder, where that is another.
OTHER = {
    "and": ("bitwise_and", "logical_and"), "binary": ("floor_divide",), "conv": (
        "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
    ), "cum_sum": ("cumsum",), "depth_to_space": ("pixel_shuffle",), "grid_sampler_2d": (
        "grid_sampler_2d", "grid_sampler_3d",
    ), "group_norm": ("group_norm", "native_group_norm"), "is_inf": ("isinf",), "is_nan": ("isnan",),
    "matmul": ("mm", "bmm"), "max": ("maximum",), "mean_dim": ("mean",), "min": ("minimum",),
    "or": ("bitwise_or", "logical_or"), "pad": ("pad", "pad_by_mode", "reflection_pad"),
    "reshape": ("view", "reshape", "flatten"), "resize": ("upsample_bicubic2d", "resize_bicubic2d"),
    "scatter_elements": ("scatter", "scatter_value"), "select_copy": ("select",), "slice_copy": ("slice", "narrow"),
    "space_to_depth": ("pixel_unshuffle",), "sum_int_list": ("sum",),
    "to": ("cast", "requantize"), "transpose": ("permute", "transpose", "t"), "unary": ("reciprocal",),
    "xor": ("bitwise_xor", "logical_xor"),
}  # fmt: skip


def builders() -> list[str]:
    """The names of stock's builders, by their files; nothing of it is imported."""
    found = find_spec("executorch")
    assert found is not None and found.submodule_search_locations
    folder = Path(next(iter(found.submodule_search_locations))) / "backends" / "qualcomm" / "builders"
    return sorted(path.stem.removeprefix("op_") for path in folder.glob("op_*.py"))


def test_every_builder_of_stock_has_a_row_or_a_reason() -> None:
    names = builders()
    assert len(names) > 100
    for name in names:
        rows = OTHER.get(name, (name,))
        missing = [row for row in rows if row not in BACKEND.rows]
        assert not missing or name in BACKEND.absent, f"{name}: no row {missing}, and no reason"


def test_nothing_is_listed_that_stock_has_not_or_that_has_a_row() -> None:
    names = set(builders())
    assert set(OTHER) <= names
    assert not set(BACKEND.absent) & set(BACKEND.rows)
    assert {name for name in BACKEND.absent if name not in names} == {
        "index_put with accumulate", "scatter_add", "scatter_reduce",  # each a part of one of its builders
    }  # fmt: skip
