"""From exact sums of products to stored integers: what is multiplied, what is added, and how it is rounded.

Where the HTP's matrix unit computes, its way is ``matrix.py``. Else sums of bytes are brought back in single precision,
wider ones in double; halves go to even.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgewright.ir.graph import Array, Op, QParams, Value
from edgewright.ir.numerics import single
from edgewright.ir.qnn.matrix import MatrixScaling, has_matrix, matrix_bias, matrix_scaling
from edgewright.ir.real_scaling import RealScaling

_MULTIPLES = 16  # of a channel's scale that a block's may be


def block_scales(q: QParams, channels: int) -> tuple[Array, Array]:
    """A scale for each output channel, and what its blocks multiply it by: 1 to 16."""
    scales = np.asarray(q.scale, np.float64).reshape(channels, -1)
    units = scales.max(axis=1) / _MULTIPLES
    return units, np.clip(np.round(scales / units[:, None]), 1, _MULTIPLES).astype(np.int64)


def weights_of(value: Value, data: Array) -> tuple[Array, Array]:
    """Integers without their zero point, and a scale for each output channel or one for all. Those of blocks, whose
    output channels are last, are multiplied by what the block has of its channel's scale."""
    q = value.q
    assert q is not None
    if q.block is None:
        zero = np.asarray(q.zero_point, np.int64)
        shape = [1] * data.ndim
        if q.axis is not None and zero.ndim:
            shape[q.axis] = zero.size
            zero = zero.reshape(shape)
        return data.astype(np.int64) - zero, single(q.scale).reshape(-1)
    units, multiples = block_scales(q, data.shape[-1])
    return data.astype(np.int64) * np.repeat(multiples.T, q.block, axis=0), single(units)


def bias_of(value: Value, data: Array, units: Array) -> Array:
    """A bias in units of the accumulator; real numbers are rounded to them."""
    numbers = data.astype(np.float64).reshape(-1)
    if value.q is not None:
        scale = single(value.q.scale).astype(np.float64).reshape(-1)
        if np.allclose(scale, units, 1e-5, 0):
            return data.astype(np.int64).reshape(-1)
        numbers = numbers * scale
    return np.asarray(np.rint(numbers / units), np.float64).astype(np.int64)


def is_bytes(*values: Value) -> bool:
    return all(v.q is not None and v.q.dtype.itemsize == 1 for v in values)


@dataclass(frozen=True)
class Sums:
    """What is added to the exact sums of a product, whose data is without its zero point, and how they become results.

    Channels are last. ``bias``: for each of them.
    """

    bias: Array
    scaling: MatrixScaling | RealScaling

    @classmethod
    def of(cls, op: Op, weights: Array, scales: Array, bias: Array | None) -> Sums:
        """``weights``: integers, [..., channels]; ``scales``: of each channel, or of all."""
        (x, w, *rest), out = op.args["inputs"], op.outputs[0]
        assert x.q is not None and out is not None and out.q is not None
        units = single(x.q.scale).astype(np.float64) * scales.astype(np.float64)
        whole = np.zeros(1, np.int64) if bias is None else bias_of(rest[0], bias, units)
        hexagon = _hexagon(op) if has_matrix(op.args.get("hexagon", 0), x, w, out) else 0
        made = matrix_scaling(hexagon, x, scales, out) if hexagon else None
        if made is None:
            return cls(whole, _plain(x, scales, out))
        filters = weights.reshape(-1, weights.shape[-1]).sum(axis=0)
        return cls(matrix_bias(hexagon, x, scales, out, whole, filters), made)


def _hexagon(op: Op) -> int:
    """The matrix unit's version; 0 for what the vector unit computes: depthwise convolutions that skip pixels."""
    skips = op.kind.endswith("DepthWiseConv2d") and max(op.args["stride"]) > 1
    return 0 if skips else int(op.args["hexagon"])


def _plain(x: Value, scales: Array, out: Value) -> RealScaling:
    assert x.q is not None and out.q is not None
    zero, ends = int(np.asarray(out.q.zero_point)), (out.q.qmin, out.q.qmax)
    with np.errstate(all="ignore"):
        if is_bytes(x, out):
            return RealScaling(_numbers(single(x.q.scale) * scales / single(out.q.scale)), zero, *ends, "even")
        units = single(x.q.scale).astype(np.float64) * scales.astype(np.float64)
        return RealScaling(_numbers(units / single(out.q.scale).astype(np.float64)), zero, *ends, "real")


def _numbers(factors: Array) -> tuple[float, ...]:
    return tuple(float(n) for n in np.ravel(factors))
