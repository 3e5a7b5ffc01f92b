"""The edge of a method: what callers pass in, and what they get back."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from edgewright.errors import ExecutionError, InputError
from edgewright.ir.dtypes import bfloat16
from edgewright.runtime.metadata import MethodMetadata, ScalarInfo, TensorInfo
from edgewright.runtime.tensor import Array, TensorSlot, strides_of
from edgewright.runtime.values import IntItems, TensorItems

Values = list[Any]
_ONE_INPUT = "Write execute([x])."


def take(metadata: MethodMetadata, slots: Sequence[Any], inputs: Sequence[Any]) -> bool:
    """Put ``inputs`` in place, checked against the signature; True if any of them is a torch tensor."""
    if not isinstance(inputs, Sequence) or isinstance(inputs, str | bytes | bytearray | memoryview):
        remedy = "Write execute(list(inputs))." if isinstance(inputs, Iterable) and not _array(inputs) else _ONE_INPUT
        raise InputError(f"method {metadata.name!r}", "takes a list of inputs", value=type(inputs).__name__,
                         remedy=remedy)  # fmt: skip
    if len(inputs) != len(slots):
        expected = ", ".join(map(str, metadata.inputs)) or "none"
        raise InputError(f"method {metadata.name!r}", f"takes {len(slots)} inputs ({expected})", value=len(inputs))
    for index, (info, slot, value) in enumerate(zip(metadata.inputs, slots, inputs, strict=True)):
        subject = f"input {index} of {metadata.name!r}"
        if isinstance(info, ScalarInfo):
            _check_scalar(subject, info, value)
        else:
            _set(subject, info, slot, to_array(subject, value))
    return any(is_torch(value) for value in inputs)


def _array(value: Any) -> bool:
    return isinstance(value, np.ndarray) or is_torch(value)


def is_torch(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def to_array(subject: str, value: Any) -> Array:
    """A numpy array of what the caller gave, without copying."""
    if isinstance(value, np.ma.MaskedArray):
        rule = "must be a numpy array without a mask, whose hidden elements would be read as numbers"
        raise InputError(subject, rule, remedy="Fill it: x.filled(0).")
    if isinstance(value, np.ndarray):
        return value
    if is_torch(value):
        try:
            return _of_torch(value)
        except (TypeError, RuntimeError) as error:  # sparse, quantized, without data, or of a type numpy lacks
            raise InputError(
                subject, "must be a dense torch tensor with data", value=f"{value.layout} on {value.device}"
            ) from error
    if isinstance(value, np.generic):
        return np.asarray(value)
    raise InputError(subject, "must be a numpy array or a torch tensor", value=type(value).__name__)


def _of_torch(value: Any) -> Array:
    tensor = value.detach().cpu().resolve_conj().resolve_neg()
    if str(tensor.dtype) == "torch.bfloat16":
        array: Array = tensor.contiguous().view(sys.modules["torch"].int16).numpy().view(bfloat16)
        return array
    return np.asarray(tensor.numpy())


def _set(subject: str, info: TensorInfo, slot: TensorSlot, array: Array) -> None:
    if array.dtype != slot.dtype:
        raise InputError(subject, f"must be {info}", value=f"{array.dtype}{list(array.shape)}",
                         remedy=f"Convert it: x.astype('{info.dtype}').")  # fmt: skip
    fits = len(array.shape) == len(info.shape) and all(
        n <= bound if info.dynamic else n == bound for n, bound in zip(array.shape, info.shape, strict=True)
    )
    if not fits:
        raise InputError(subject, f"must be {info}", value=f"{array.dtype}{list(array.shape)}")
    if slot.memory is None or not slot.memory.flags.writeable:
        slot.array = array.copy() if slot.mutated else array
        return
    if slot.lent and array.flags.aligned and _lies_as_planned(slot, array):
        slot.array = array
        return
    slot.array = None  # which may be an earlier caller's
    slot.resize(array.shape)
    assert slot.array is not None
    np.copyto(slot.array, array)


def _lies_as_planned(slot: TensorSlot, array: Array) -> bool:
    return array.strides == strides_of(array.shape, slot.dim_order, array.dtype.itemsize)


def _check_scalar(subject: str, info: ScalarInfo, value: Any) -> None:
    """Numbers are baked into the program when it is exported: only the same value may be passed."""
    if info.kind == "double":
        same = isinstance(value, int | float) and math.isclose(value, info.value, rel_tol=1e-5, abs_tol=1e-4)
        same = same or (isinstance(value, float) and math.isnan(value) and math.isnan(info.value))
    else:
        same = type(value) is type(info.value) and value == info.value
    if not same:
        raise InputError(subject, f"must be the {info} the program was exported with", value=value)


def give(subject: str, value: Any, values: Values, as_torch: bool) -> Any:
    """An output the caller may keep: a copy of a tensor, the number or text itself, or a list of them."""
    if isinstance(value, IntItems | TensorItems):
        return [None if i is None else give(subject, values[i], values, as_torch) for i in value.indices]
    if not isinstance(value, TensorSlot):
        return value
    if value.array is None:
        raise ExecutionError(subject, "was filled by no instruction")
    return give_array(np.array(value.array, order="C"), as_torch=as_torch)


def give_array(array: Array, *, as_torch: bool) -> Any:
    """An array as the caller wants it."""
    if not as_torch:
        return array
    torch = sys.modules["torch"]
    if array.dtype == bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
