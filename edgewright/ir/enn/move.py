"""References of data movement, casts and quantization. Data movement does not change quantization parameters."""

from __future__ import annotations

import numpy as np

from edgewright.ir.aten.reference import rearrange, reduce
from edgewright.ir.core.index_bounds import OutOfRangePolicy
from edgewright.ir.enn.numerics import Values, inputs_of, quantized, result_of
from edgewright.ir.graph import Op


def reshape(values: Values, op: Op) -> None:
    (x,) = inputs_of(op)
    values.keep(result_of(op), values.stored(x).reshape([int(n) for n in op.args["new_shape"]]), x)


def transpose(values: Values, op: Op) -> None:
    (x,) = inputs_of(op)
    values.keep(result_of(op), np.asarray(values.stored(x).transpose([int(d) for d in op.args["perm"]]), order="C"), x)


def concat(values: Values, op: Op) -> None:
    values.keep(result_of(op), np.concatenate([values.stored(v) for v in inputs_of(op)], int(op.args["axis"])))


def pieces(op: Op) -> tuple[slice, ...]:
    ends = zip(op.args["begin"], op.args["end"], op.args["strides"], strict=True)
    return tuple(slice(int(a), int(b), int(s)) for a, b, s in ends)


def strided_slice(values: Values, op: Op) -> None:
    """Bits of ``shrink_axis_mask`` select dimensions to remove."""
    (x,) = inputs_of(op)
    made = values.stored(x)[pieces(op)]
    mask = int(op.args.get("shrink_axis_mask", 0))
    gone = tuple(d for d in range(made.ndim) if mask >> d & 1)
    values.keep(result_of(op), np.asarray(made.squeeze(gone), order="C"), x)


def split(values: Values, op: Op) -> None:
    (x,) = inputs_of(op)
    cuts = np.cumsum([int(n) for n in op.args["point"]])[:-1]
    for out, part in zip(op.outputs, np.split(values.stored(x), cuts, int(op.args["axis"])), strict=True):
        if out is not None:
            values.keep(out, np.asarray(part, order="C"), x)


def pad(values: Values, op: Op) -> None:
    """Pad with zero, which is stored as the zero point."""
    (x,) = inputs_of(op)
    given = [int(p) for p in op.args["explicit_padding"]]
    rank = len(given) // 2
    zero = 0 if x.q is None else int(np.ravel(x.q.zero_point)[0])
    widths = list(zip(given[:rank], given[rank:], strict=True))
    values.keep(result_of(op), np.pad(values.stored(x), widths, constant_values=zero), x)


def gather(values: Values, op: Op) -> None:
    (x, index), out, axis = inputs_of(op), result_of(op), int(op.args["axis"])
    places = OutOfRangePolicy(f"{op.kind} {out.name!r}", wrap=True).check(values.stored(index), x.bound[axis])
    values.keep(out, np.take(values.stored(x), places, axis), x)


def top_k(values: Values, op: Op) -> None:
    (x,) = inputs_of(op)
    made = reduce.topk(values.stored(x), int(op.args["k_dims"]))
    for out, part in zip(op.outputs, made, strict=True):
        if out is not None:
            values.keep(out, np.asarray(part, out.dtype), x)


def depth_to_space(values: Values, op: Op) -> None:
    (x,) = inputs_of(op)
    values.keep(result_of(op), rearrange.pixel_shuffle(values.stored(x), int(op.args["block_size"])), x)


def cast(values: Values, op: Op) -> None:
    x, out = inputs_of(op)[0], result_of(op)
    with np.errstate(all="ignore"):
        values.keep(out, values.stored(x).astype(out.dtype))


def quantize(values: Values, op: Op) -> None:
    x, out = inputs_of(op)[0], result_of(op)
    assert out.q is not None
    values.keep(out, quantized(values.stored(x), out.q))


def dequantize(values: Values, op: Op) -> None:
    x, out = inputs_of(op)[0], result_of(op)
    values.keep(out, values.real(x).astype(out.dtype))
