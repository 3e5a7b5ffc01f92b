"""Kernels that work on planned tensors themselves: one makes a name for memory, one grows a tensor in place."""

from __future__ import annotations

from edgewright.runtime.registry import row
from edgewright.runtime.tensor import TensorSlot


def et_view(source: TensorSlot, size: list[int], out: TensorSlot) -> None:
    """``out`` becomes another shape of the same memory."""
    if source.array is None:
        raise ValueError("the viewed tensor has no data")
    out.alias(source.array.reshape(size))


def et_copy_index(target: TensorSlot, source: TensorSlot, index: int) -> None:
    """``target[index] = source``, where ``target`` grows to hold slices 0..index."""
    if target.memory is None or source.array is None:
        raise ValueError("both tensors need planned memory")
    if tuple(target.dim_order) != tuple(range(len(target.dim_order))):
        raise ValueError("the target must be contiguous")
    if index < 0:
        raise IndexError(f"index must not be negative; got {index}")
    target.resize((index + 1, *source.array.shape))
    assert target.array is not None
    target.array[index] = source.array


row("executorch_prim::et_view.default", et_view, None, raw=True)
row("executorch_prim::et_copy_index.tensor", et_copy_index, None, raw=True)
