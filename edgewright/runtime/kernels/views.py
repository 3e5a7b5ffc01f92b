"""Kernels that take tensor slots: ``et_view`` aliases memory, ``et_copy_index`` grows a tensor in place."""

from __future__ import annotations

from edgewright.runtime.kernel import register
from edgewright.runtime.tensor import TensorSlot


def et_view(source: TensorSlot, size: list[int], out: TensorSlot) -> None:
    """Make ``out`` a reshaped view of ``source``."""
    if source.array is None:
        raise ValueError("the viewed tensor has no data")
    out.alias(source.array.reshape(size))


def et_copy_index(target: TensorSlot, source: TensorSlot, index: int) -> None:
    """``target[index] = source``; ``target`` grows to hold slices 0..index."""
    if target.memory is None or source.array is None:
        raise ValueError("both tensors need planned memory")
    if tuple(target.dim_order) != tuple(range(len(target.dim_order))):
        raise ValueError("the target must be contiguous")
    if index < 0:
        raise IndexError(f"index must not be negative; got {index}")
    target.resize((index + 1, *source.array.shape))
    assert target.array is not None
    target.array[index] = source.array


register("executorch_prim::et_view.default", et_view, None, raw=True)
register("executorch_prim::et_copy_index.tensor", et_copy_index, None, raw=True)
