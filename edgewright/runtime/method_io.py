"""Inputs and outputs of a method: checks and stores what callers pass, and copies out results."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from edgewright.errors import ExecutionError, InputError
from edgewright.ir.dtypes import bfloat16
from edgewright.runtime.metadata import MethodMetadata, ScalarInfo, TensorInfo
from edgewright.runtime.tensor import Array, TensorSlot, strides_of
from edgewright.runtime.values import IntItems, TensorItems

Values = list[Any]
_ONE_INPUT = "Write execute([x])."


def store_inputs(metadata: MethodMetadata, slots: Sequence[Any], inputs: Sequence[Any]) -> bool:
    """Check ``inputs`` against the signature and store them; True if any is a torch tensor."""
    if not isinstance(inputs, Sequence) or isinstance(inputs, str | bytes | bytearray | memoryview):
        remedy = _ONE_INPUT
        if isinstance(inputs, Mapping):
            remedy = "Write execute(list(inputs.values())), in the order of the model's arguments."
        elif isinstance(inputs, Iterable) and not _is_array(inputs):
            remedy = "Write execute(list(inputs))."
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
            _store_tensor(subject, info, slot, to_array(subject, value))
    return any(is_torch(value) for value in inputs)


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) or is_torch(value)


def is_torch(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def to_array(subject: str, value: Any) -> Array:
    """A numpy array over the caller's data, without a copy."""
    if isinstance(value, np.ma.MaskedArray):
        rule = "must be a numpy array without a mask, whose hidden elements would be read as numbers"
        raise InputError(subject, rule, remedy="Fill it: x.filled(0).")
    if isinstance(value, np.ndarray):
        return value
    if is_torch(value):
        try:
            return _torch_to_array(value)
        except (TypeError, RuntimeError) as error:  # sparse, quantized, without data, or of a type numpy lacks
            raise InputError(
                subject, "must be a dense torch tensor with data", value=f"{value.layout} on {value.device}"
            ) from error
    if isinstance(value, np.generic):
        return np.asarray(value)
    raise InputError(subject, "must be a numpy array or a torch tensor", value=type(value).__name__)


def _torch_to_array(value: Any) -> Array:
    tensor = value.detach().cpu().resolve_conj().resolve_neg()
    if str(tensor.dtype) == "torch.bfloat16":
        array: Array = tensor.contiguous().view(sys.modules["torch"].int16).numpy().view(bfloat16)
        return array
    return np.asarray(tensor.numpy())


_CHANNEL_ORDERS = ((0, 3, 1, 2), (0, 2, 3, 1))  # channels first from last, and last from first


def dtype_remedy(actual: str, expected: str) -> str:
    """What to do with an array of another dtype. Small integers are real numbers with a scale: a cast would change what
    they mean."""
    if expected in ("int8", "uint8", "int16", "uint16") and actual != "bool":
        return "Quantize it: q = round(x / scale) + zero_point, which `edgewright inspect` shows, clipped to the type."
    return f"Convert it: x.astype('{expected}')."


def _store_tensor(subject: str, info: TensorInfo, slot: TensorSlot, array: Array) -> None:
    if array.dtype != slot.dtype:
        raise InputError(subject, f"must be {info}", value=f"{array.dtype}{list(array.shape)}",
                         remedy=dtype_remedy(str(array.dtype), info.dtype))  # fmt: skip
    fits = len(array.shape) == len(info.shape) and all(
        n <= bound if info.dynamic else n == bound for n, bound in zip(array.shape, info.shape, strict=True)
    )
    if not fits:
        raise InputError(
            subject, f"must be {info}", value=f"{array.dtype}{list(array.shape)}", remedy=_shape_remedy(array, info)
        )
    if slot.memory is None or not slot.memory.flags.writeable:
        slot.array = array.copy() if slot.mutated else array
        return
    if slot.aliasable and array.flags.aligned and _has_planned_layout(slot, array):
        slot.array = array
        return
    slot.array = None  # it may alias an earlier caller's array
    slot.resize(array.shape)
    assert slot.array is not None
    np.copyto(slot.array, array)


def _shape_remedy(array: Array, info: TensorInfo) -> str:
    """For a batch dimension that is missing or one too many, and for channels on the other side of an image."""
    given, expected = tuple(array.shape), tuple(info.shape)
    for order in _CHANNEL_ORDERS if len(given) == 4 and not info.dynamic else ():
        if tuple(given[dim] for dim in order) == expected:
            return f"Its dimensions are in another order: x.transpose{order}."
    if given == expected[1:] and expected[0] == 1:
        return "Add the dimension of the batch: x[None]."
    return "Take an element of the batch: x[0]." if given[1:] == expected and given[0] == 1 else ""


def _has_planned_layout(slot: TensorSlot, array: Array) -> bool:
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


def copy_output(subject: str, value: Any, values: Values, as_torch: bool) -> Any:
    """An output that the caller owns: a copy of a tensor, a scalar, or a list of them."""
    if isinstance(value, IntItems | TensorItems):
        return [None if i is None else copy_output(subject, values[i], values, as_torch) for i in value.indices]
    if not isinstance(value, TensorSlot):
        return value
    if value.array is None:
        raise ExecutionError(subject, "was filled by no instruction")
    return to_caller(np.array(value.array, order="C"), as_torch=as_torch)


def to_caller(array: Array, *, as_torch: bool) -> Any:
    """The array, or a torch tensor over it."""
    if not as_torch:
        return array
    torch = sys.modules["torch"]
    if array.dtype == bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
