"""ENN's names of element types and layouts."""

from __future__ import annotations

from collections.abc import Sequence

ELEMENT_NAMES = {
    "int8": "INT8", "uint8": "UINT8", "int16": "INT16", "uint16": "UINT16", "int32": "INT32", "int64": "INT64",
    "float16": "FLOAT16", "float32": "FLOAT32",
}  # fmt: skip


def layout_name(shape: Sequence[int]) -> str:
    """The layout of a tensor: rank 4 is NCHW."""
    return "NCHW" if len(shape) == 4 else "UNDEFINED"
