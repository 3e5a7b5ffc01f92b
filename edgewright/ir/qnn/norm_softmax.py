"""Softmax and normalization. Quantized inputs use exact integer sums, independent of summation order
(``ir/int_rows.py``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.ir.graph import Array, Op, Value
from edgewright.ir.int_rows import log_softmax, norm_fits_int64, normalize_rows, softmax
from edgewright.ir.qnn import image, norms
from edgewright.ir.qnn.dtypes import from_float, subtract_zero_point, to_float


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
    "LayerNorm": norms.layer_norm, "RmsNorm": norms.rms_norm, "GroupNorm": norms.group_norm,
    "InstanceNorm": norms.instance_norm,
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
