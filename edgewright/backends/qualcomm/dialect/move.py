"""References of data movement by indices that are computed, on stored values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from edgewright.backends.qualcomm.dialect.dtypes import convert_elements, from_float, round_to_fp16, to_float
from edgewright.ir.core.index_bounds import OutOfRangePolicy
from edgewright.ir.graph import Array, Op

Params = Mapping[str, Any]


# On the HTP, negative indices do not count from the end. Out of range, GatherElements returns 0 and scatter writes
# nothing, for all types. For Gather of rows the emulator raises, returns 0 or returns some other row, depending on what
# it reads: here this is an error.


def _in_range(indices: Array, size: int) -> tuple[Array, Array]:
    """Indices with those out of range replaced by 0, and the mask of those in range."""
    at = indices.astype(np.int64)
    inside = (at >= 0) & (at < size)
    return np.where(inside, at, 0), inside


def gather(params: Params, x: Array, indices: Array) -> Array:
    axis = params["axis"]
    return np.take(x, OutOfRangePolicy(params["subject"]).check(indices.astype(np.int64), x.shape[axis]), axis)


def gather_elements(params: Params, x: Array, indices: Array) -> Array:
    """Other dimensions are truncated to those of ``indices``."""
    x = x[tuple(slice(None if d == params["axis"] else n) for d, n in enumerate(indices.shape))]
    at, inside = _in_range(indices, x.shape[params["axis"]])
    return np.where(inside, np.take_along_axis(x, at, params["axis"]), np.asarray(params["zero"], x.dtype))


def _scatter(targets: Callable[[Op, Array, Array], tuple[tuple[Any, ...], Array]]) -> Any:
    """Scatter stored values in the output's scale; with a reduction, dequantized values. ``targets``: the indices that
    updates are written to, and the mask of updates in range."""

    def reference(op: Op, arrays: Sequence[Array]) -> Array:
        (x, _, updates), out = op.args["inputs"], op.outputs[0]
        assert out is not None
        convert = convert_elements if op.args["reduction"] == 0 else lambda value, array, _: to_float(value, array)
        result = convert(x, arrays[0], out).copy()
        at, inside = targets(op, result, arrays[1])
        values = convert(updates, arrays[2], out)[inside]
        if op.args["reduction"] == 0:
            result[at] = values
            return result
        {1: np.add, 2: np.multiply}[op.args["reduction"]].at(result, at, values)
        return from_float(out, result)

    return reference


def _element_targets(op: Op, x: Array, indices: Array) -> tuple[tuple[Any, ...], Array]:
    targets, axis = list(np.indices(indices.shape)), op.args["axis"]
    targets[axis], inside = _in_range(indices, x.shape[axis])
    return tuple(p[inside] for p in targets), inside


def _row_targets(op: Op, x: Array, indices: Array) -> tuple[tuple[Any, ...], Array]:
    axes = [_in_range(indices[..., i], x.shape[i]) for i in range(indices.shape[-1])]
    inside = np.logical_and.reduce([inside for _, inside in axes])
    return tuple(at[inside] for at, _ in axes), inside


scatter_elements, scatter_nd = _scatter(_element_targets), _scatter(_row_targets)


def top_k(params: Params, x: Array) -> list[Array]:
    """The largest, or smallest, along the last dimension, in order, and their indices. Floating point is compared
    in fp16, in which the HTP computes."""
    x = round_to_fp16(x).astype(x.dtype) if x.dtype.kind == "f" else x
    order = np.argsort(-x.astype(np.float64) if params["largest"] else x, axis=-1, kind="stable")[..., : params["k"]]
    return [np.take_along_axis(x, order, -1), order]
