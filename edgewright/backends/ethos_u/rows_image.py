"""Rows of pools, resizing and reductions, and what those ask for."""

from __future__ import annotations

import math
from typing import Any

from edgewright.backends.ethos_u import adaptive_pool, pool, reduce, resize
from edgewright.backends.ethos_u.dtypes import ACTIVATIONS, all_quantized, logic_unit, on, plain
from edgewright.backends.ethos_u.rearrange import MAX_RUNS
from edgewright.backends.rules import has_dims, rule, values_only
from edgewright.backends.table import FLOAT, OK, STATIC, OpSpec, Rule, over
from edgewright.ir.graph import Op
from edgewright.ir.ports import Same

ANY = (STATIC, FLOAT)  # real numbers for TOSA alone, which ``all_quantized`` sees to
MAX_REGIONS = 256


@rule("numbers of elements in the windows must have a common multiple below 2**23 (2**15 for 16 bits)")
def few_counts(op: Op, target: Any) -> object:
    size = op.args["self"].bound[-2:] if op.kind.endswith("2d") else (1, op.args["self"].bound[-1])
    counted = pool.counts(op, size)
    if op.args["self"].q is None or counted.min() == counted.max():
        return OK
    largest = pool.largest_product(op, counted)
    return OK if largest < 1 << 31 else largest


@rule(f"an adaptive pool must have at most {MAX_REGIONS} regions of windows that are alike")
def few_regions(op: Op, target: Any) -> object:
    dims = pool.spatial_dims(op)
    sizes = zip(op.args["self"].bound[-dims:], op.outputs[0].bound[-dims:], strict=True)  # type: ignore[union-attr]
    found = math.prod(len(adaptive_pool.adaptive_runs(size, count)) for size, count in sizes)
    return found if found > MAX_REGIONS else OK


@rule("windows of 16-bit elements must be at most 2**14 elements")
def sums_fit(op: Op, target: Any) -> object:
    dims, x = pool.spatial_dims(op), op.args["self"]
    if x.q is None or x.q.dtype.itemsize == 1 or 0 in op.outputs[0].bound:  # type: ignore[union-attr]
        return OK
    sizes = zip(x.bound[-dims:], op.outputs[0].bound[-dims:], strict=True)  # type: ignore[union-attr]
    largest = math.prod(-(-size // count) + 1 for size, count in sizes)
    return largest if largest > 1 << 14 else OK


@rule("windows must be at most 64 by 64, or the whole image")
def windows_fit(op: Op, target: Any) -> object:
    kernel, dims = list(op.args["kernel_size"]), pool.spatial_dims(op)
    whole = all(k == size for k, size in zip(kernel * dims, op.args["self"].bound[-dims:], strict=False))
    fits = max(kernel) <= pool.MAX_WINDOW or (whole and not any(op.args.get("padding") or [0]))
    return OK if fits else kernel


@rule("sums must be of at most 2**14 elements (of 16 bits; 2**22 of 8 bits), 65536 along a dimension on U55 and U65")
def sums_of(op: Op, target: Any) -> object:
    x = op.args["self"]
    if x.q is None or not x.shape:
        return OK
    dims = [op.args["dim"] % len(x.shape)] if op.kind == "cumsum" else over(op)
    counted = [x.bound[d] for d in dims]
    if math.prod(counted) > 1 << (22 if x.q.dtype.itemsize == 1 else 14):
        return math.prod(counted)
    return max(counted) if not on(target, "u85") and max(counted, default=0) > 1 << 16 else OK


@rule("divisors must be positive")
def positive_divisor(op: Op, target: Any) -> object:
    given = op.args.get("divisor_override")
    return given if given is not None and given < 0 else OK


@rule(f"nearest resizing must read at most {MAX_RUNS} slices")
def few_slices(op: Op, target: Any) -> object:
    found = resize.pieces(op)
    return found if found > MAX_RUNS else OK


@rule("bilinear resizing needs a U85")
def resize_unit(op: Op, target: Any) -> object:
    return OK if on(target, "u85") else target.target


@rule("factors must be the quotients of the sizes")
def true_factors(op: Op, target: Any) -> object:
    return resize.off_scale(op)


@rule("sizes must not shrink to less than a sixteenth, and grow by fractions of at most 2048 parts")
def resize_scale(op: Op, target: Any) -> object:
    for up, down, offset, border in resize.steps(op):
        most = resize.MAX_SHRINK * up
        if up > resize.MAX_SCALE or down >= most or not -up <= offset < most or not -most <= border < up:
            return f"{up}/{down}"
    return OK


@rule("U55 and U65 find the largest of 8-bit elements along one dimension, of at most 127")
def one_row(op: Op, target: Any) -> object:
    x, dim = op.args["self"], op.args.get("dim")
    if on(target, "u85") or not x.shape:
        return OK
    size = math.prod(x.bound) if dim is None else x.bound[dim]
    return OK if x.dtype.itemsize == 1 and size <= 127 else f"{size} of {x.dtype}"


BILINEAR = (resize_unit, all_quantized, true_factors, resize_scale)


def _row(op: str, lower: Any, *rules: Rule, absorbs: tuple[str, ...] = (), precisions: tuple[str, ...] = ANY) -> OpSpec:
    return OpSpec(op, lower, (all_quantized, *rules), precisions, absorbs)


ROWS: tuple[OpSpec, ...] = (
    *(_row(op, pool.max_pool, values_only) for op in ("max_pool1d", "max_pool2d")),
    _row("adaptive_max_pool2d", adaptive_pool.adaptive_max_pool2d, values_only, few_regions),
    *(
        _row(op, pool.avg_pool, windows_fit, positive_divisor, few_counts, absorbs=ACTIVATIONS)
        for op in ("avg_pool1d", "avg_pool2d")
    ),
    *(
        _row(op, adaptive_pool.adaptive_avg_pool, few_regions, sums_fit, absorbs=ACTIVATIONS)
        for op in ("adaptive_avg_pool1d", "adaptive_avg_pool2d")
    ),
    *(
        OpSpec(op, resize.nearest, (all_quantized, few_slices), ANY, ports={"out": Same(name)})
        for op, name in (("upsample_nearest2d", "input"), ("resize_nearest2d", "self"))
    ),
    *(
        OpSpec(op, resize.bilinear, BILINEAR, ANY, ports={"out": Same(name)})
        for op, name in (("upsample_bilinear2d", "input"), ("resize_bilinear2d", "self"))
    ),
    _row("mean", reduce.summed(True), sums_of, absorbs=ACTIVATIONS),
    _row("sum", reduce.summed(False), sums_of, absorbs=ACTIVATIONS),
    _row("cumsum", reduce.cumsum, sums_of, absorbs=ACTIVATIONS),
    *(OpSpec(op, reduce.extreme("reduce_max"), (all_quantized, values_only), ANY) for op in ("amax", "max_dim")),
    *(OpSpec(op, reduce.extreme("reduce_min"), (all_quantized, values_only), ANY) for op in ("amin", "min_dim")),
    OpSpec("argmax", reduce.argmax, (has_dims, plain, one_row), (STATIC,), ("cast",)),
    OpSpec("any", reduce.extreme("reduce_any"), (plain, logic_unit), ANY),
)
