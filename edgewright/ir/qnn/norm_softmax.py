"""Softmax and norms. Those of integers are made of exact sums, so that their order does not matter
(``ir/int_rows.py``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.ir.graph import Array, Op, Value
from edgewright.ir.int_rows import log_softmax, norm_fits_int64, normalize_rows, softmax
from edgewright.ir.qnn import image, norms
from edgewright.ir.qnn.dtypes import centred, real, stored


def whole(*values: Value) -> bool:
    """Integers of one scale, of 8 or 16 bits."""
    return all(v.q is not None and v.q.axis is None and v.q.dtype.itemsize <= 2 for v in values)


def _ends(op: Op) -> tuple[list[Value], Value]:
    out = op.outputs[0]
    assert out is not None
    return op.args["inputs"], out


def shares(op: Op, arrays: Sequence[Array]) -> Array:
    """``Softmax``, ``LogSoftmax``."""
    (x,), out = _ends(op)
    log = op.kind.endswith("LogSoftmax")
    if whole(x, out) and op.args["beta"] == 1 and arrays[0].size:
        return stored(out, (log_softmax if log else softmax)(x, arrays[0], int(op.args["axis"])))
    return stored(out, (image.log_softmax if log else image.softmax)(op.args, real(x, arrays[0])))


_NORMS: dict[str, Any] = {
    "LayerNorm": norms.layer_norm, "RmsNorm": norms.rms_norm, "GroupNorm": norms.group_norm,
    "InstanceNorm": norms.instance_norm,
}  # fmt: skip


def normed(op: Op, arrays: Sequence[Array]) -> Array:
    """``LayerNorm``, ``RmsNorm``, ``GroupNorm``, ``InstanceNorm``."""
    (x, *factors), out = _ends(op)
    constants = [real(v, a) for v, a in zip(factors, arrays[1:], strict=True)]
    order = rows_of(op)
    if order is None or not whole(x, out):
        made = _NORMS[op.kind.partition(".")[2]](op.args, real(x, arrays[0]), *constants)
        return stored(out, made)
    dims, shape = order
    assert x.q is not None
    rows = centred(arrays[0], x.q, np.int64).transpose(dims)
    made = normalize_rows(x, rows.reshape(shape), float(op.args["epsilon"]), not op.kind.endswith("RmsNorm"))
    made = made.reshape(rows.shape).transpose(np.argsort(dims))
    for index, numbers in enumerate(constants):
        made = made + numbers if index else made * numbers
    return stored(out, made)


def rows_of(op: Op) -> tuple[list[int], tuple[int, ...]] | None:
    """The order and the shape in which the last dimension is all that a mean is of; None if there is none, or if sums
    of its squares have more than 64 bits."""
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
