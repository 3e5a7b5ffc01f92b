"""Validation of the caller's arrays, which machine code reads and writes without bounds checks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.engine.plan import TensorSpec
from edgewright.errors import InputError
from edgewright.ir.graph import Array


def validate_inputs(arrays: Sequence[Array], tensors: Sequence[TensorSpec]) -> list[Array]:
    """Check the caller's inputs; copy those that are not contiguous and aligned."""
    if len(arrays) != len(tensors):
        raise InputError("inputs", f"must be {len(tensors)} arrays", value=len(arrays))
    result = []
    for at, tensor in enumerate(tensors):
        array = arrays[at]
        if not _fits(array, tensor):
            raise _mismatch_error(f"input {at} ({tensor.name})", array, tensor)
        flags = array.flags
        result.append(array if flags.c_contiguous and flags.aligned else np.array(array, order="C"))
    return result


def validate_outputs(arrays: Sequence[Array], tensors: Sequence[TensorSpec]) -> None:
    if len(arrays) != len(tensors):
        raise InputError("outputs", f"must be {len(tensors)} arrays", value=len(arrays))
    for at, tensor in enumerate(tensors):
        array = arrays[at]
        if not _fits(array, tensor):
            raise _mismatch_error(f"output {at} ({tensor.name})", array, tensor)
        flags = array.flags
        if not (flags.c_contiguous and flags.aligned and flags.writeable):
            raise InputError(f"output {at} ({tensor.name})", "must be contiguous, aligned and writable")
        if any(np.may_share_memory(array, other) for other in arrays[:at]):
            raise InputError(f"output {at} ({tensor.name})", "must not share memory with another output")


def _fits(array: Any, tensor: TensorSpec) -> bool:
    return isinstance(array, np.ndarray) and array.dtype == tensor.dtype and array.shape == tensor.shape


def _mismatch_error(name: str, array: Any, tensor: TensorSpec) -> InputError:
    if not isinstance(array, np.ndarray):
        return InputError(name, "must be a numpy array", value=type(array).__name__)
    if array.dtype != tensor.dtype:
        return InputError(name, f"must be of type {tensor.dtype}", value=str(array.dtype))
    return InputError(name, f"must have shape {list(tensor.shape)}", value=list(array.shape))
