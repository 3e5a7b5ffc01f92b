"""References of data movement, casts and quantization. Data movement does not change quantization parameters."""

from __future__ import annotations

import numpy as np

from edgewright.backends.samsung.dialect.numerics import Values, inputs_of, quantize_array, result_of
from edgewright.ir.aten.reference import movement, reduce
from edgewright.ir.core.index_bounds import OutOfRangePolicy
from edgewright.ir.graph import Op


def reshape(values: Values, op: Op) -> None:
    (x,) = inputs_of(op)
    values.set_raw(result_of(op), values.raw(x).reshape([int(n) for n in op.args["new_shape"]]))


def transpose(values: Values, op: Op) -> None:
    (x,) = inputs_of(op)
    values.set_raw(result_of(op), np.asarray(values.raw(x).transpose([int(d) for d in op.args["perm"]]), order="C"))


def concat(values: Values, op: Op) -> None:
    values.set_raw(result_of(op), np.concatenate([values.raw(v) for v in inputs_of(op)], int(op.args["axis"])))


def slices(op: Op) -> tuple[slice, ...]:
    ends = zip(op.args["begin"], op.args["end"], op.args["strides"], strict=True)
    return tuple(slice(int(a), int(b), int(s)) for a, b, s in ends)


def strided_slice(values: Values, op: Op) -> None:
    """Bits of ``shrink_axis_mask`` select dimensions to remove."""
    (x,) = inputs_of(op)
    result = values.raw(x)[slices(op)]
    mask = int(op.args.get("shrink_axis_mask", 0))
    dims = tuple(d for d in range(result.ndim) if mask >> d & 1)
    values.set_raw(result_of(op), np.asarray(result.squeeze(dims), order="C"))


def split(values: Values, op: Op) -> None:
    (x,) = inputs_of(op)
    cuts = np.cumsum([int(n) for n in op.args["point"]])[:-1]
    for out, part in zip(op.outputs, np.split(values.raw(x), cuts, int(op.args["axis"])), strict=True):
        if out is not None:
            values.set_raw(out, np.asarray(part, order="C"))


def pad(values: Values, op: Op) -> None:
    """Pad with zero, which is stored as the zero point."""
    (x,) = inputs_of(op)
    padding = [int(p) for p in op.args["explicit_padding"]]
    rank = len(padding) // 2
    zero = 0 if x.q is None else int(np.ravel(x.q.zero_point)[0])
    widths = list(zip(padding[:rank], padding[rank:], strict=True))
    values.set_raw(result_of(op), np.pad(values.raw(x), widths, constant_values=zero))


def gather(values: Values, op: Op) -> None:
    (x, index), out, axis = inputs_of(op), result_of(op), int(op.args["axis"])
    indices = OutOfRangePolicy(f"{op.kind} {out.name!r}", wrap=True).check(values.raw(index), x.bound[axis])
    values.set_raw(out, np.take(values.raw(x), indices, axis))


def top_k(values: Values, op: Op) -> None:
    (x,) = inputs_of(op)
    result = reduce.topk(values.raw(x), int(op.args["k_dims"]))
    for out, part in zip(op.outputs, result, strict=True):
        if out is not None:
            values.set_raw(out, np.asarray(part, out.dtype))


def depth_to_space(values: Values, op: Op) -> None:
    (x,) = inputs_of(op)
    values.set_raw(result_of(op), movement.pixel_shuffle(values.raw(x), int(op.args["block_size"])))


def cast(values: Values, op: Op) -> None:
    x, out = inputs_of(op)[0], result_of(op)
    with np.errstate(all="ignore"):
        values.set_raw(out, values.raw(x).astype(out.dtype))


def quantize(values: Values, op: Op) -> None:
    x, out = inputs_of(op)[0], result_of(op)
    assert out.q is not None
    values.set_raw(out, quantize_array(values.raw(x), out.q))


def dequantize(values: Values, op: Op) -> None:
    x, out = inputs_of(op)[0], result_of(op)
    values.set_raw(out, values.dequantized(x).astype(out.dtype))
