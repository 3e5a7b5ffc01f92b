"""Lowering of operators that take shapes apart and put them together: pixel blocks, windows, memory read anew."""

from __future__ import annotations

import math

import numpy as np

from edgewright.backends.ethos_u.lower import BOOL, FLOAT32, INT32, TosaLowering, result, sizes, zero_of
from edgewright.backends.ethos_u.movement import stored_as
from edgewright.backends.ethos_u.pool import image_of, name_image
from edgewright.backends.ethos_u.slice_concat import picked, runs
from edgewright.ir.aten.ops import OPS
from edgewright.ir.graph import Op, Value
from edgewright.lowering.passes.layout import Order, common_order, identity

MAX_RUNS = 256  # pieces of memory that are joined to one tensor


def pixel_shuffle(low: TosaLowering, op: Op) -> None:
    """Channels become pixels. First the channels of a row of pixels, then those of a column."""
    image = image_of(low, op.args["self"], 2)
    n, h, w, c = image.bound
    f = op.args["upscale_factor"]
    each = c // f**2
    parts = low.transposed(low.reshaped(image, [n * h * w, each, f, f]), [0, 2, 3, 1])
    turned = low.transposed(low.reshaped(parts, [n * h, w, f, f * each]), [0, 2, 1, 3])
    _name(low, op, low.reshaped(turned, [n, h * f, w * f, each]))


def pixel_unshuffle(low: TosaLowering, op: Op) -> None:
    """The way back."""
    image = image_of(low, op.args["self"], 2)
    n, h, w, c = image.bound
    f = op.args["downscale_factor"]
    turned = low.transposed(low.reshaped(image, [n * h // f, f, w // f, f * c]), [0, 2, 1, 3])
    parts = low.transposed(low.reshaped(turned, [n * (h // f) * (w // f), f, f, c]), [0, 3, 1, 2])
    _name(low, op, low.reshaped(parts, [n, h // f, w // f, c * f * f]))


def _name(low: TosaLowering, op: Op, made: Value) -> None:
    name_image(low, result(op), 2, stored_as(low, op.args["self"], result(op), made))


def channel_shuffle(low: TosaLowering, op: Op) -> None:
    x, out = op.args["self"], result(op)
    rank = len(x.shape)
    order: Order = (0, *range(2, rank), 1)
    held, groups = low.get(x, order), op.args["groups"]
    pixels, each = math.prod(held.bound[:-1]), x.bound[1] // groups
    dealt = low.transposed(low.reshaped(held, [pixels, groups, each]), [0, 2, 1])
    low.alias(out, order, stored_as(low, x, out, low.reshaped(dealt, held.bound)))


def unfold(low: TosaLowering, op: Op) -> None:
    """Windows along one dimension; places in a window become the last."""
    x, out = op.args["self"], result(op)
    rank, dim = len(x.shape), op.args["dimension"] % len(x.shape)
    count, size = out.bound[dim], op.args["size"]
    places = [i * op.args["step"] + j for i in range(count) for j in range(size)]
    found = picked(low, low.get(x), dim, places)
    outer, inner = math.prod(x.bound[:dim]), math.prod(x.bound[dim + 1 :])
    windows = low.transposed(low.reshaped(found, [outer * count, size, inner]), [0, 2, 1])
    low.alias(out, identity(rank + 1), low.reshaped(stored_as(low, x, out, windows), sizes(out)))


def elements_read(op: Op) -> list[int]:
    """Which elements, counted in their order, an operator reads one after the other."""
    x = op.args["self"]
    numbers = np.arange(math.prod(x.bound)).reshape(x.bound)
    return np.asarray(OPS[op.kind].call({**op.args, "self": numbers})[0]).ravel().tolist()  # type: ignore[no-any-return]


def memory(low: TosaLowering, op: Op) -> None:
    """``as_strided``, ``diagonal``: runs of elements, as they lie in memory."""
    x, out = op.args["self"], result(op)
    line = low.reshaped(low.get(x), [math.prod(x.bound)])
    made = picked(low, line, 0, elements_read(op))
    low.alias(out, identity(len(out.shape)), low.reshaped(stored_as(low, x, out, made), sizes(out)))


def pieces(op: Op) -> int:
    """How many slices a reading of memory, or of windows, takes."""
    if op.kind == "unfold":
        count, size, step = result(op).bound[op.args["dimension"]], op.args["size"], op.args["step"]
        return len(runs([i * step + j for i in range(count) for j in range(size)]))
    return len(runs(elements_read(op)))


def tril(low: TosaLowering, op: Op) -> None:
    """A product with ones and zeros; nothing is rounded."""
    x, out = op.args["self"], result(op)
    order = common_order(low, op, len(x.shape))
    held = low.get(x, order)
    ones = OPS["tril"].call({**op.args, "self": np.ones([1] * (len(x.shape) - 2) + list(x.bound[-2:]))})[0]
    mask = np.asarray(ones).transpose(order)
    if held.dtype == BOOL:
        made = low.node("logical_and", held.bound, BOOL, a=held, b=low.tensor(mask, np.bool_))
    elif held.dtype in (FLOAT32, INT32):
        made = low.node("mul", held.bound, held.dtype, a=held, b=low.tensor(mask, held.dtype), shift=0)
    else:
        wide = low.rescale(held, INT32, 1.0, zero_of(x))
        acc = low.node("mul", held.bound, INT32, a=wide, b=low.tensor(mask, np.int32), shift=0)
        made = low.rescale(acc, held.dtype, 1.0, 0, zero_of(x))
    low.alias(out, order, stored_as(low, x, out, made))
