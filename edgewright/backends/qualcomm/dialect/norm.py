"""References of normalization and softmax.

Floating point is normalized with channels last. Quantized inputs use exact integer sums, independent of summation
order (``ir/int_rows.py``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from edgewright.backends.qualcomm.dialect import image
from edgewright.backends.qualcomm.dialect.dtypes import from_float, subtract_zero_point, to_float
from edgewright.ir.graph import Array, Op, Value
from edgewright.ir.int_rows import log_softmax, norm_fits_int64, normalize_rows, softmax

Params = Mapping[str, Any]


def _affine(x: Array, constants: tuple[Array, ...]) -> Array:
    """Multiply with the first constant and add the second, if present."""
    for index, constant in enumerate(constants):
        x = x + constant if index else x * constant
    return np.asarray(x, np.float32)


def batch_norm(params: Params, x: Array, *constants: Array) -> Array:
    """In float32, rounded after each operation."""
    return _affine(x, constants)


def _normalize(x: Array, axes: tuple[int, ...], epsilon: float) -> Array:
    wide = x.astype(np.float64)
    centered = wide - wide.mean(axes, keepdims=True)
    return np.asarray(centered / np.sqrt(np.square(centered).mean(axes, keepdims=True) + epsilon))


def layer_norm(params: Params, x: Array, *constants: Array) -> Array:
    return _affine(_normalize(x, tuple(params["axes"]), params["epsilon"]), constants)


def rms_norm(params: Params, x: Array, *constants: Array) -> Array:
    wide = x.astype(np.float64)
    power = np.square(wide).mean(tuple(params["axes"]), keepdims=True)
    return _affine(wide / np.sqrt(power + params["epsilon"]), constants)


def group_norm(params: Params, x: Array, *constants: Array) -> Array:
    split = x.reshape(*x.shape[:-1], params["group"], x.shape[-1] // params["group"])
    axes = (*range(1, x.ndim - 1), x.ndim)
    return _affine(_normalize(split, axes, params["epsilon"]).reshape(x.shape), constants)


def instance_norm(params: Params, x: Array, *constants: Array) -> Array:
    return _affine(_normalize(x, tuple(range(1, x.ndim - 1)), params["epsilon"]), constants)


def l2_norm(params: Params, x: Array) -> Array:
    wide = x.astype(np.float64)
    length = np.sqrt(np.maximum(np.square(wide).sum(params["axis"], keepdims=True), params["epsilon"]))
    return np.asarray(wide / length, np.float32)


def hadamard(params: Params, x: Array) -> Array:
    """Orthonormal Walsh-Hadamard transform of the last dimension, times ``scale``; its size is a power of two."""
    wide, size = x.astype(np.float64), x.shape[-1]
    step = 1
    while step < size:
        pairs = wide.reshape(*x.shape[:-1], -1, 2, step)
        wide = np.stack([pairs[..., 0, :] + pairs[..., 1, :], pairs[..., 0, :] - pairs[..., 1, :]], -2)
        wide = wide.reshape(x.shape)
        step *= 2
    return np.asarray(wide * (params["scale"] / np.sqrt(size)), np.float32)


def is_quantized(*values: Value) -> bool:
    """True if all values are 8 or 16-bit integers quantized per tensor."""
    return all(v.q is not None and v.q.axis is None and v.q.dtype.itemsize <= 2 for v in values)


def _io(op: Op) -> tuple[list[Value], Value]:
    out = op.outputs[0]
    assert out is not None
    return op.args["inputs"], out


def softmax_op(op: Op, arrays: Sequence[Array]) -> Array:
    """``Softmax``, ``LogSoftmax``."""
    (x,), out = _io(op)
    log = op.kind.endswith("LogSoftmax")
    if is_quantized(x, out) and op.args["beta"] == 1 and arrays[0].size:
        return from_float(out, (log_softmax if log else softmax)(x, arrays[0], int(op.args["axis"])))
    return from_float(out, (image.log_softmax if log else image.softmax)(op.args, to_float(x, arrays[0])))


_NORMS: dict[str, Any] = {
    "LayerNorm": layer_norm, "RmsNorm": rms_norm, "GroupNorm": group_norm,
    "InstanceNorm": instance_norm,
}  # fmt: skip


def normalize(op: Op, arrays: Sequence[Array]) -> Array:
    """``LayerNorm``, ``RmsNorm``, ``GroupNorm``, ``InstanceNorm``."""
    (x, *factors), out = _io(op)
    constants = [to_float(v, a) for v, a in zip(factors, arrays[1:], strict=True)]
    order = row_view(op)
    if order is None or not is_quantized(x, out):
        result = _NORMS[op.kind.partition(".")[2]](op.args, to_float(x, arrays[0]), *constants)
        return from_float(out, result)
    dims, shape = order
    assert x.q is not None
    rows = subtract_zero_point(arrays[0], x.q, np.int64).transpose(dims)
    result = normalize_rows(x, rows.reshape(shape), float(op.args["epsilon"]), not op.kind.endswith("RmsNorm"))
    result = result.reshape(rows.shape).transpose(np.argsort(dims))
    for index, numbers in enumerate(constants):
        result = result + numbers if index else result * numbers
    return from_float(out, result)


def row_view(op: Op) -> tuple[list[int], tuple[int, ...]] | None:
    """Permutation and shape that make the normalized dimensions the last one; None if the tensor is empty or a sum of
    squares may exceed 64 bits."""
    x = op.args["inputs"][0]
    rank, size = len(x.bound), int(np.prod(x.bound, dtype=np.int64))
    if not size:
        return None
    if "axes" in op.args:
        axes = sorted(int(a) for a in op.args["axes"])
        dims = [*(d for d in range(rank) if d not in axes), *axes]
        length = int(np.prod([x.bound[a] for a in axes]))
    else:
        groups = x.bound[-1] if op.kind.endswith("InstanceNorm") else int(op.args["group"])
        dims = [0, rank - 1, *range(1, rank - 1)]
        length = size // (x.bound[0] * groups)
    if x.q is not None and not norm_fits_int64(x, length):
        return None
    return dims, (size // length, length)
