"""Inputs for programs that nobody has inputs for: ones, as stock runners use."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgewright.errors import LimitError
from edgewright.ir.dtypes import parse_dtype
from edgewright.runtime.metadata import MethodMetadata, ScalarInfo, TensorInfo
from edgewright.runtime.tensor import Array

_LIMIT = 4 << 30


def ones(metadata: MethodMetadata) -> list[Any]:
    """Every tensor filled with ones at its largest shape, as stock runners do."""
    return [i.value if isinstance(i, ScalarInfo) else _ones(i) for i in metadata.inputs]


def _ones(info: TensorInfo) -> Array:
    if info.nbytes > _LIMIT:  # inputs without planned memory may have any bound
        remedy = "Pass an input of the required size with --inputs."
        raise LimitError(f"input {info.name}", f"is filled with ones up to {_LIMIT} bytes", value=str(info),
                         remedy=remedy)  # fmt: skip
    dtype = parse_dtype(info.dtype)
    return np.ones(info.shape, dtype) if dtype.names is None else np.full(info.shape, (1, 0), dtype)
