"""Tensors of torch as numpy arrays: dtypes, memory and dim orders."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from edgewright.ir.dtypes import ScalarType, bfloat16, to_numpy
from edgewright.ir.graph import Array

DTYPES: dict[torch.dtype, Any] = {
    torch.uint8: np.uint8, torch.int8: np.int8, torch.int16: np.int16, torch.int32: np.int32, torch.int64: np.int64,
    torch.float16: np.float16, torch.bfloat16: bfloat16, torch.float32: np.float32, torch.float64: np.float64,
    torch.bool: np.bool_, torch.complex64: np.complex64, torch.complex128: np.complex128,
    torch.uint16: np.uint16, torch.uint32: np.uint32, torch.uint64: np.uint64,
}  # fmt: skip
for _name in ("float8_e5m2", "float8_e4m3fn", "float8_e5m2fnuz", "float8_e4m3fnuz"):
    DTYPES[getattr(torch, _name)] = to_numpy(ScalarType[_name.upper()])


def to_array(tensor: torch.Tensor) -> Array:
    """A tensor as a numpy array of the same memory and strides."""
    tensor = tensor.detach()
    if tensor.dtype in (torch.bfloat16,) or (tensor.dtype.itemsize == 1 and tensor.dtype.is_floating_point):
        carrier = torch.int16 if tensor.dtype == torch.bfloat16 else torch.uint8
        array: Array = tensor.view(carrier).numpy().view(DTYPES[tensor.dtype])
        return array
    return np.asarray(tensor.resolve_conj().resolve_neg().numpy())


def dim_order_of(tensor: torch.Tensor) -> tuple[int, ...]:
    """The dim order in which a tensor is stored: channels-last if it is contiguous in that format, else contiguous."""
    contiguous = tuple(range(tensor.dim()))
    if tensor.dim() not in (4, 5) or tensor.is_contiguous():
        return contiguous
    last = torch.channels_last if tensor.dim() == 4 else torch.channels_last_3d
    return (0, *range(2, tensor.dim()), 1) if tensor.is_contiguous(memory_format=last) else contiguous
