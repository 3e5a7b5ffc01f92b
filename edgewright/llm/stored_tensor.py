"""Tensors of a checkpoint as they are stored: rows of bytes in one of the formats of GGUF or safetensors."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from edgewright.errors import FormatError, MissingError
from edgewright.ir.dtypes import bfloat16

Array = np.ndarray[Any, Any]

# Elements and bytes of a block.
BLOCKS = {
    "F64": (1, 8), "F32": (1, 4), "F16": (1, 2), "BF16": (1, 2), "Q8_0": (32, 34), "Q4_0": (32, 18), "Q4_1": (32, 20),
    "Q5_0": (32, 22), "Q5_1": (32, 24), "IQ4_NL": (32, 18), "Q2_K": (256, 84), "Q3_K": (256, 110), "Q4_K": (256, 144),
    "Q5_K": (256, 176), "Q6_K": (256, 210),
}  # fmt: skip
_PLAIN: dict[str, Any] = {
    "F64": np.dtype(np.float64), "F32": np.dtype(np.float32), "F16": np.dtype(np.float16), "BF16": bfloat16,
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class StoredTensor:
    """``data``: uint8 [rows, bytes of a row], where a row is the last dimension of ``shape``; usually a mapped file."""

    kind: str
    shape: tuple[int, ...]
    data: Array

    def rows(self, selection: slice | Array) -> StoredTensor:
        """Some rows of a matrix (or elements of a vector), in the order of ``selection``."""
        data = self.data.reshape(len(self.data), -1)
        if len(self.shape) == 1:
            if self.kind not in _PLAIN:
                rule = "must be floats: the elements of a vector are divided or reordered"
                raise FormatError(rule, value=self.kind, where="vector")
            data = data.reshape(self.shape[0], -1)[selection]
            return replace(self, shape=(len(data),), data=data.reshape(1, -1))
        data = data[selection]
        return replace(self, shape=(len(data), *self.shape[1:]), data=data)

    def float32(self) -> Array:
        """The tensor's values."""
        if self.kind in _PLAIN:
            plain: Array = np.ascontiguousarray(self.data).view(_PLAIN[self.kind]).reshape(self.shape)
            return plain.astype(np.float32, copy=False)
        return np.asarray(_dequantize(np.ascontiguousarray(self.data), self.kind), np.float32).reshape(self.shape)

    @property
    def nbytes(self) -> int:
        return int(self.data.size)

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class LazyRows:
    """A matrix whose rows are loaded when they are read."""

    tensor: StoredTensor

    @property
    def shape(self) -> tuple[int, ...]:
        return self.tensor.shape

    def __getitem__(self, part: slice, /) -> Array:
        return self.tensor.rows(part).float32()


def _dequantize(data: Array, kind: str) -> Array:
    """Dequantize by the package ``gguf``, which is imported only for quantized types."""
    try:
        import gguf
    except ImportError as error:
        remedy = "pip install 'edgewright[llm]'"
        raise MissingError(f"{kind} weights", "need the package gguf", remedy=remedy) from error
    return gguf.dequantize(data, gguf.GGMLQuantizationType[kind])
