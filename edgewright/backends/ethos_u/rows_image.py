"""Support rules and op table rows of pooling, resizing and reductions."""

from __future__ import annotations

import math
from typing import Any

from edgewright.backends.ethos_u import adaptive_pool, pool, reduce, resize
from edgewright.backends.ethos_u.dtypes import ACTIVATIONS, all_quantized, logic_unit, on_family, unquantized_types
from edgewright.backends.ethos_u.rearrange import MAX_SLICES
from edgewright.backends.rules import first_output_only, not_scalar, rule
from edgewright.backends.table import FLOAT, OK, STATIC, OpSpec, Rule, reduced_dims
from edgewright.ir.graph import Op
from edgewright.ir.ports import Same

ANY = (STATIC, FLOAT)  # float only for TOSA export, checked by ``all_quantized``
MAX_REGIONS = 256


@rule("element counts of the windows must have a common multiple below 2**23 (2**15 for 16 bits)")
def window_count_multiple(op: Op, target: Any) -> object:
    size = op.args["self"].bound[-2:] if op.kind.endswith("2d") else (1, op.args["self"].bound[-1])
    counts = pool.window_counts(op, size)
    if op.args["self"].q is None or counts.min() == counts.max():
        return OK
    largest = pool.max_scaled_sum(op, counts)
    return OK if largest < 1 << 31 else largest


@rule(f"an adaptive pool must have at most {MAX_REGIONS} regions of equal windows")
def max_regions(op: Op, target: Any) -> object:
    dims = pool.spatial_dims(op)
    sizes = zip(op.args["self"].bound[-dims:], op.outputs[0].bound[-dims:], strict=True)  # type: ignore[union-attr]
    regions = math.prod(len(adaptive_pool.window_runs(size, count)) for size, count in sizes)
    return regions if regions > MAX_REGIONS else OK


@rule("windows must have at most 2**14 elements for 16-bit inputs")
def adaptive_window_size(op: Op, target: Any) -> object:
    dims, x = pool.spatial_dims(op), op.args["self"]
    if x.q is None or x.q.dtype.itemsize == 1 or 0 in op.outputs[0].bound:  # type: ignore[union-attr]
        return OK
    sizes = zip(x.bound[-dims:], op.outputs[0].bound[-dims:], strict=True)  # type: ignore[union-attr]
    largest = math.prod(-(-size // count) + 1 for size, count in sizes)
    return largest if largest > 1 << 14 else OK


@rule("windows must be at most 64x64, or cover the entire image")
def window_size(op: Op, target: Any) -> object:
    kernel, dims = list(op.args["kernel_size"]), pool.spatial_dims(op)
    covers_image = all(k == size for k, size in zip(kernel * dims, op.args["self"].bound[-dims:], strict=False))
    fits = max(kernel) <= pool.MAX_WINDOW or (covers_image and not any(op.args.get("padding") or [0]))
    return OK if fits else kernel


@rule("reductions must have at most 2**22 elements (2**14 for 16 bits), and 65536 along a dimension on U55 and U65")
def max_summed(op: Op, target: Any) -> object:
    x = op.args["self"]
    if x.q is None or not x.shape:
        return OK
    dims = [op.args["dim"] % len(x.shape)] if op.kind == "cumsum" else reduced_dims(op)
    sizes = [x.bound[d] for d in dims]
    if math.prod(sizes) > 1 << (22 if x.q.dtype.itemsize == 1 else 14):
        return math.prod(sizes)
    return max(sizes) if not on_family(target, "u85") and max(sizes, default=0) > 1 << 16 else OK


@rule("divisors must be positive")
def positive_divisor(op: Op, target: Any) -> object:
    divisor = op.args.get("divisor_override")
    return divisor if divisor is not None and divisor < 0 else OK


@rule(f"nearest resizing must read at most {MAX_SLICES} slices")
def max_slices(op: Op, target: Any) -> object:
    slices = resize.slice_count(op)
    return slices if slices > MAX_SLICES else OK


@rule("bilinear resizing needs a U85")
def resize_unit(op: Op, target: Any) -> object:
    return OK if on_family(target, "u85") else target.target


@rule("scale factors must be output size divided by input size")
def consistent_scales(op: Op, target: Any) -> object:
    return resize.inconsistent_scales(op)


@rule("scale must be above 1/16 and a fraction with a numerator of at most 2048")
def resize_scale(op: Op, target: Any) -> object:
    for up, down, offset, border in resize.resize_params(op):
        max_factor = resize.MAX_SHRINK * up
        if (
            up > resize.MAX_SCALE
            or down >= max_factor
            or not -up <= offset < max_factor
            or not -max_factor <= border < up
        ):
            return f"{up}/{down}"
    return OK


@rule("argmax on U55 and U65 must be over at most 127 8-bit elements of one dimension")
def argmax_size(op: Op, target: Any) -> object:
    x, dim = op.args["self"], op.args.get("dim")
    if on_family(target, "u85") or not x.shape:
        return OK
    size = math.prod(x.bound) if dim is None else x.bound[dim]
    return OK if x.dtype.itemsize == 1 and size <= 127 else f"{size} of {x.dtype}"


BILINEAR = (resize_unit, all_quantized, consistent_scales, resize_scale)


def _row(op: str, lower: Any, *rules: Rule, absorbs: tuple[str, ...] = (), precisions: tuple[str, ...] = ANY) -> OpSpec:
    return OpSpec(op, lower, (all_quantized, *rules), precisions, absorbs)


ROWS: tuple[OpSpec, ...] = (
    *(_row(op, pool.max_pool, first_output_only) for op in ("max_pool1d", "max_pool2d")),
    _row("adaptive_max_pool2d", adaptive_pool.adaptive_max_pool2d, first_output_only, max_regions),
    *(
        _row(op, pool.avg_pool, window_size, positive_divisor, window_count_multiple, absorbs=ACTIVATIONS)
        for op in ("avg_pool1d", "avg_pool2d")
    ),
    *(
        _row(op, adaptive_pool.adaptive_avg_pool, max_regions, adaptive_window_size, absorbs=ACTIVATIONS)
        for op in ("adaptive_avg_pool1d", "adaptive_avg_pool2d")
    ),
    *(
        OpSpec(op, resize.nearest, (all_quantized, max_slices), ANY, ports={"out": Same(name)})
        for op, name in (("upsample_nearest2d", "input"), ("resize_nearest2d", "self"))
    ),
    *(
        OpSpec(op, resize.bilinear, BILINEAR, ANY, ports={"out": Same(name)})
        for op, name in (("upsample_bilinear2d", "input"), ("resize_bilinear2d", "self"))
    ),
    _row("mean", reduce.sum_or_mean(True), max_summed, absorbs=ACTIVATIONS),
    _row("sum", reduce.sum_or_mean(False), max_summed, absorbs=ACTIVATIONS),
    _row("cumsum", reduce.cumsum, max_summed, absorbs=ACTIVATIONS),
    *(
        OpSpec(op, reduce.reduce_each_dim("reduce_max"), (all_quantized, first_output_only), ANY)
        for op in ("amax", "max_dim")
    ),
    *(
        OpSpec(op, reduce.reduce_each_dim("reduce_min"), (all_quantized, first_output_only), ANY)
        for op in ("amin", "min_dim")
    ),
    OpSpec("argmax", reduce.argmax, (not_scalar, unquantized_types, argmax_size), (STATIC,), ("cast",)),
    OpSpec("any", reduce.reduce_each_dim("reduce_any"), (unquantized_types, logic_unit), ANY),
)
