"""Op table of the Ethos-U backend: one row per operator, with the limits of the NPU and of Vela as rules."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.backends.ethos_u import (
    INFO,
    conv,
    division,
    elementwise,
    gather,
    logic,
    movement,
    norm,
    pool,
    rearrange,
    reduce,
    requantize,
    resize,
    softmax,
    variance,
)
from edgewright.backends.ethos_u.dialect.table import TOSA
from edgewright.backends.ethos_u.elementwise import nonzero_alpha
from edgewright.backends.ethos_u.lookup_table import same_width, table_precision, unary
from edgewright.backends.ethos_u.rearrange import MAX_SLICES
from edgewright.backends.ethos_u.rules import (
    COMMON_RULES,
    INTEGERS,
    all_quantized,
    constant_weights,
    conv3d_stride,
    int8_matmul,
    logic_unit,
    movable_types,
    on_family,
    stride_limit,
    unquantized_types,
)
from edgewright.backends.ethos_u.split_conv import legalize_convolution
from edgewright.backends.ethos_u.variance import max_elements, more_than_correction, norm_order, variance_precision
from edgewright.backends.rules import first_output_only, not_scalar, positive_variance, rule
from edgewright.backends.table import (
    FLOAT,
    OK,
    STATIC,
    Backend,
    OpSpec,
    Rule,
    argument_is,
    constant,
    reduced_dims,
    tensors,
)
from edgewright.ir.aten.ops import OPS
from edgewright.ir.graph import Op, Value
from edgewright.ir.ports import ACT, INDEX, Same
from edgewright.lowering.passes.value_storage import CLAMPS

INT = (STATIC,)

# --------------------------------------------------------------------------- arithmetic, tables, softmax, normalization

_OWN_ROWS = (*CLAMPS, "ceil", "floor", "round", "trunc", "reciprocal", "sign")
# Functions of one operand: int8 and int16 lookup tables from the reference; in float, TOSA's operator, or '' for none.
TABLES = {op: op if op in TOSA else "" for op, row in OPS.items() if row.is_function and op not in _OWN_ROWS}

constant_parameters = constant("weight", "bias", "running_mean", "running_var")
_DIVISION = (division.quotient_precision, division.nonzero_divisor)
_REAL = {"weight": INDEX, "bias": INDEX}  # constants that stay float until lowering


def _arithmetic(op: str, lower: Any, *rules: Rule) -> OpSpec:
    """An operator on two tensors, or a tensor and a scalar."""
    return OpSpec(op, lower, (same_width, table_precision, *rules), INT, CLAMPS, numbers=True)


def _norm(op: str, lower: Any, *rules: Rule) -> OpSpec:
    return OpSpec(op, lower, (constant_parameters, *rules), INT, CLAMPS, ports=_REAL)


_MATH_ROWS: tuple[OpSpec, ...] = (
    _arithmetic("add", elementwise.add_or_compare("add"), nonzero_alpha),
    _arithmetic("sub", elementwise.add_or_compare("sub"), nonzero_alpha),
    _arithmetic("rsub", elementwise.add_or_compare("sub"), nonzero_alpha),
    _arithmetic("mul", elementwise.multiply),
    _arithmetic("div", division.divide, *_DIVISION),
    _arithmetic("floor_divide", division.divide, *_DIVISION),
    _arithmetic("remainder", division.remainder, *_DIVISION, division.int8_remainder),
    _arithmetic("fmod", division.remainder, *_DIVISION, division.int8_remainder),
    _arithmetic("maximum", elementwise.add_or_compare("maximum")),
    _arithmetic("minimum", elementwise.add_or_compare("minimum")),
    _arithmetic("pow", unary(), elementwise.one_tensor),
    *(OpSpec(op, elementwise.clamp, (same_width, elementwise.ordered_bounds), INT) for op in CLAMPS),
    *(OpSpec(op, unary(name), (same_width, table_precision), INT, CLAMPS) for op, name in TABLES.items()),
    *(OpSpec(op, division.rounding(op), (same_width,), INT) for op in ("ceil", "floor", "round", "trunc")),
    OpSpec("reciprocal", division.reciprocal, (same_width, division.quotient_precision), INT),
    OpSpec("sign", division.sign, (same_width,), INT),
    OpSpec("prelu", elementwise.prelu, (constant_parameters, same_width), INT, ports={"weight": INDEX}),
    OpSpec("glu", elementwise.glu, (same_width,), INT),
    OpSpec("softmax", softmax.softmax, (same_width, softmax.max_axis_size), INT),
    OpSpec("log_softmax", softmax.log_softmax, (same_width, softmax.max_axis_size), INT),
    _norm("layer_norm", norm.layer_norm(True), max_elements),
    _norm("rms_norm", norm.layer_norm(False), max_elements),
    _norm("group_norm", norm.group_norm, max_elements),
    _norm("native_group_norm", norm.group_norm, max_elements),
    _norm("instance_norm", norm.group_norm, max_elements),
    _norm("batch_norm", norm.batch_norm, positive_variance),
    OpSpec("var", variance.variance, (same_width, max_elements, more_than_correction, variance_precision), INT),
    OpSpec("linalg_vector_norm", variance.vector_norm, (same_width, max_elements, norm_order), INT),
)


ANY = (STATIC, FLOAT)  # float: unquantized integers, and floating point in TOSA export; rules check the types
MAX_REGIONS = 256


# ---------------------------------------------------------------------------------------- pooling, resizing, reductions


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
    regions = math.prod(len(pool.window_runs(size, count)) for size, count in sizes)
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
def max_resize_slices(op: Op, target: Any) -> object:
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
    if not x.shape or argmax_fits(x.bound, x.dtype.itemsize, dim, spec=target):
        return OK
    return f"{math.prod(x.bound) if dim is None else x.bound[dim]} of {x.dtype}"


def argmax_fits(shape: Sequence[int], itemsize: int, dim: int | None = None, *, spec: Any) -> bool:
    """Whether the NPU has an argmax over so many elements of so many bytes."""
    size = math.prod(shape) if dim is None or not shape else shape[dim]
    return on_family(spec, "u85") or (itemsize == 1 and size <= 127)


BILINEAR = (resize_unit, all_quantized, consistent_scales, resize_scale)


def _image_row(
    op: str, lower: Any, *rules: Rule, absorbs: tuple[str, ...] = (), precisions: tuple[str, ...] = ANY
) -> OpSpec:
    return OpSpec(op, lower, (all_quantized, *rules), precisions, absorbs)


_IMAGE_ROWS: tuple[OpSpec, ...] = (
    *(_image_row(op, pool.max_pool, first_output_only) for op in ("max_pool1d", "max_pool2d")),
    _image_row("adaptive_max_pool2d", pool.adaptive_max_pool2d, first_output_only, max_regions),
    *(
        _image_row(op, pool.avg_pool, window_size, positive_divisor, window_count_multiple, absorbs=CLAMPS)
        for op in ("avg_pool1d", "avg_pool2d")
    ),
    *(
        _image_row(op, pool.adaptive_avg_pool, max_regions, adaptive_window_size, absorbs=CLAMPS)
        for op in ("adaptive_avg_pool1d", "adaptive_avg_pool2d")
    ),
    *(
        OpSpec(op, resize.nearest, (all_quantized, max_resize_slices), ANY, ports={"out": Same(name)})
        for op, name in (("upsample_nearest2d", "input"), ("resize_nearest2d", "self"))
    ),
    *(
        OpSpec(op, resize.bilinear, BILINEAR, ANY, ports={"out": Same(name)})
        for op, name in (("upsample_bilinear2d", "input"), ("resize_bilinear2d", "self"))
    ),
    _image_row("mean", reduce.sum_or_mean(True), max_summed, absorbs=CLAMPS),
    _image_row("sum", reduce.sum_or_mean(False), max_summed, absorbs=CLAMPS),
    _image_row("cumsum", reduce.cumsum, max_summed, absorbs=CLAMPS),
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


# -------------------------------------------------------------------------------------------------------- data movement


def _check_slices(op: Op, target: Any) -> object:
    count = rearrange.slice_count(op)
    return count if count > rearrange.MAX_SLICES else OK


max_slices = Rule(f"the result must consist of at most {rearrange.MAX_SLICES} slices of the tensor", _check_slices)


def _check_contiguous(op: Op, target: Any) -> object:
    x = op.args["self"]
    return OK if x.dim_order in ((), tuple(range(len(x.shape)))) else x.dim_order


contiguous_input = Rule("the input of a strided read must be contiguous", _check_contiguous)


def _check_crop(op: Op, target: Any) -> object:
    pads, shape = list(op.args["pad"]), op.args["self"].bound[::-1]
    remaining = [size + min(pads[2 * i], 0) + min(pads[2 * i + 1], 0) for i, size in enumerate(shape[: len(pads) // 2])]
    return pads if any(size < 1 for size in remaining) else OK


nonempty_crop = Rule("negative padding must not remove an entire dimension", _check_crop)


def _movement_rows(
    lower: Any, *ops: str, rules: tuple[Rule, ...] = (), trivial: bool | None = None
) -> tuple[OpSpec, ...]:
    return tuple(OpSpec(op, lower, (movable_types, *rules), ANY, trivial=trivial) for op in ops)


_MOVEMENT_ROWS: tuple[OpSpec, ...] = (
    *_movement_rows(movement.copy, "clone"),
    OpSpec("dropout", movement.copy, (movable_types,), ANY, ports={"out": Same("input")}),
    *_movement_rows(movement.permute, "permute", "transpose", "t"),
    *_movement_rows(movement.view, "view", "reshape", "flatten"),
    *_movement_rows(movement.squeeze, "squeeze", "unsqueeze"),
    *_movement_rows(movement.slice_dim, "slice", trivial=True),
    *_movement_rows(movement.slice_dim, "narrow", "select", "split", "split_with_sizes", "chunk", "unbind"),
    *_movement_rows(movement.flip, "flip"),
    *_movement_rows(movement.roll, "roll"),
    *_movement_rows(movement.pad_by_mode, "pad_by_mode", "reflection_pad", "replication_pad"),
    *_movement_rows(movement.pad, "pad", rules=(nonempty_crop,)),
    *_movement_rows(movement.expand, "expand", "repeat"),
    *_movement_rows(movement.cat, "cat", trivial=True),
    *_movement_rows(movement.stack, "stack"),
    *_movement_rows(rearrange.pixel_shuffle, "pixel_shuffle"),
    *_movement_rows(rearrange.pixel_unshuffle, "pixel_unshuffle"),
    *_movement_rows(rearrange.channel_shuffle, "channel_shuffle"),
    *_movement_rows(rearrange.unfold, "unfold", rules=(not_scalar, max_slices)),
    *_movement_rows(rearrange.strided_read, "as_strided", rules=(max_slices, contiguous_input)),
    *_movement_rows(rearrange.strided_read, "diagonal", rules=(max_slices,)),
    *_movement_rows(rearrange.tril, "tril"),
)


# --------------------------------------------------------------------------- comparison, logic, select, gather, scatter


@rule("operands must both be quantized, or have one unquantized type")
def same_operand_type(op: Op, target: Any) -> object:
    operands = [v for n in ("self", "other") if isinstance(v := op.args.get(n), Value)]
    types = sorted({f"quantized {v.dtype}" if v.q is not None else str(v.dtype) for v in operands})
    return ", ".join(types) if len(types) > 1 else OK


@rule("a scalar operand must be representable in the tensor's type")
def comparable_scalar(op: Op, target: Any) -> object:
    x, number = op.args["self"], op.args["other"]
    if isinstance(number, Value):
        return OK
    if x.q is None and x.dtype.kind in "iu":
        limits = np.iinfo(x.dtype)
        return OK if limits.min <= number <= limits.max else number
    return number if number != number else OK


@rule("bitwise operands must be int8, int16, int32 or bool, all of one type")
def integer_types(op: Op, target: Any) -> object:
    types = sorted({str(v.dtype) for v in tensors(op)})
    return ", ".join(types) if len(types) > 1 or types[0] not in (*INTEGERS, "bool") else OK


@rule("shifted tensors must be integers, and constant shift amounts within 0 and the bit width minus 1")
def shift_range(op: Op, target: Any) -> object:
    other, dtype = op.args["other"], op.args["self"].dtype
    if str(dtype) not in INTEGERS:
        return dtype
    if isinstance(other, Value) and not other.constant:
        return OK
    amounts = np.asarray(other.data if isinstance(other, Value) else other)
    low, high = int(amounts.min()), int(amounts.max())
    return OK if 0 <= low <= high < 8 * dtype.itemsize else f"{low} to {high}"


@rule("shifts on U55 and U65 must be of int32 tensors by constant amounts")
def shift_unit(op: Op, target: Any) -> object:
    x, amounts = op.args["self"], op.args["other"]
    if on_family(target, "u85"):
        return OK
    if not isinstance(x, Value) or str(x.dtype) != "int32":
        return getattr(x, "dtype", "a number")
    return OK if not isinstance(amounts, Value) or amounts.constant else amounts.name


@rule("selected operands must be quantized like the result, or have its unquantized type")
def select_types(op: Op, target: Any) -> object:
    out = op.outputs[0]
    names = ("self", "other") if op.kind == "where" else ("self", "value")
    operands = [v for n in names if isinstance(v := op.args.get(n), Value) and not (v.constant and v.q is None)]
    bad = [v.name for v in operands if (v.q is None) != (out.q is None) or (v.q is None and v.dtype != out.dtype)]  # type: ignore[union-attr]
    return ", ".join(bad) if bad else OK


def _indices(op: Op) -> list[Value]:
    index = op.args.get("indices", op.args.get("index"))
    return [v for v in (index if isinstance(index, list) else [index]) if v is not None]


@rule("indices must be int32 tensors, or constant")
def index_types(op: Op, target: Any) -> object:
    bad = sorted({str(v.dtype) for v in _indices(op) if not _is_constant_index(v) and str(v.dtype) != "int32"})
    return ", ".join(bad) if bad else OK


def _is_constant_index(index: Value) -> bool:
    """True for constant integer indices; the result size of a mask depends on its data."""
    return index.constant and index.dtype is not None and index.dtype.kind == "i"


@rule("gathering at computed indices needs a U85")
def gather_unit(op: Op, target: Any) -> object:
    if on_family(target, "u85"):
        return OK
    constant = op.kind in ("index_select", "index") and all(_is_constant_index(v) for v in _indices(op))
    return OK if constant and gather.slice_count(op) <= MAX_SLICES else target.target


@rule("the write must not cover the entire dimension")
def partial_write(op: Op, target: Any) -> object:
    x = op.args["self"]
    return OK if gather.written_range(op)[1] < x.bound[op.args["dim"] % len(x.shape)] else "nothing"


@rule("gathered tensors must be int8, int16 or int32, all of one type")
def gathered_types(op: Op, target: Any) -> object:
    indices = set(_indices(op))
    operands = [v for v in tensors(op) if v not in indices]
    types = sorted({"quantized " * (v.q is not None) + str(v.dtype) for v in operands})
    allowed = (*INTEGERS, *(("float32",) if target is None else ()))
    return ", ".join(types) if len(types) > 1 or str(operands[0].dtype) not in allowed else OK


@rule("the index must have the rank of the tensor")
def same_rank(op: Op, target: Any) -> object:
    return OK if len(op.args["index"].shape) == len(op.args["self"].shape) else len(op.args["index"].shape)


@rule("indexed dimensions must be adjacent")
def adjacent_dims(op: Op, target: Any) -> object:
    dims = gather.indexed_dims(op)
    return OK if dims and dims == list(range(dims[0], dims[-1] + 1)) else dims


@rule("written dimensions must start with the first")
def leading_dims(op: Op, target: Any) -> object:
    dims = gather.indexed_dims(op)
    return OK if dims and dims[0] == 0 else dims


@rule("casts must be between int8, int16 and int32 (and bool, on U85)")
def plain_cast(op: Op, target: Any) -> object:
    x, out = op.args["self"], op.outputs[0]
    if (x.q is None) != (out.q is None):  # type: ignore[union-attr]
        return f"{x.dtype} to {out.dtype}"  # type: ignore[union-attr]
    return OK


def _logic_row(op: str, lower: Any, *rules: Rule, **options: Any) -> OpSpec:
    return OpSpec(op, lower, (logic_unit, *rules), ANY, **options)


def _gather_row(op: str, lower: Any, *rules: Rule, **options: Any) -> OpSpec:
    return OpSpec(op, lower, (gather_unit, gathered_types, index_types, *rules), ANY, **options)


_LOGIC_ROWS: tuple[OpSpec, ...] = (
    *(
        _logic_row(op, logic.compare, unquantized_types, same_operand_type, comparable_scalar, numbers=True)
        for op in ("eq", "ne", "lt", "le", "gt", "ge")
    ),
    *(_logic_row(op, logic.logical, unquantized_types) for op in ("logical_and", "logical_or", "logical_xor")),
    *(_logic_row(op, logic.bitwise, integer_types) for op in ("bitwise_and", "bitwise_or", "bitwise_xor")),
    *(
        OpSpec(op, logic.shift, (shift_unit, integer_types, shift_range), ANY)
        for op in ("bitwise_left_shift", "bitwise_right_shift")
    ),
    _logic_row("logical_not", logic.invert, unquantized_types),
    _logic_row("bitwise_not", logic.invert, integer_types),
    _logic_row("where", logic.where, unquantized_types, select_types),
    _logic_row("masked_fill", logic.where, unquantized_types, select_types, numbers=True),
    OpSpec("cast", logic.cast, (unquantized_types, plain_cast), ANY),
    _gather_row("embedding", gather.embedding, ports={"weight": ACT, "out": Same("weight")}),
    _gather_row("index_select", gather.index_select, not_scalar),
    _gather_row("gather", gather.gather, not_scalar, same_rank),
    _gather_row("index", gather.index, adjacent_dims),
    _gather_row("index_put", gather.index_put, adjacent_dims, leading_dims),
    *(
        OpSpec(op, gather.slice_scatter, (movable_types, argument_is("step", 1), partial_write), ANY)
        for op in ("slice_scatter", "select_scatter")
    ),
)


# ------------------------------------------------------------------------------------------------------------ the table

ROWS: tuple[OpSpec, ...] = (
    *(
        OpSpec(
            op,
            conv.convolution,
            (constant_weights, stride_limit),
            INT,
            CLAMPS,
            legalize=legalize_convolution,
        )
        for op in ("conv1d", "conv2d", "conv_transpose1d", "conv_transpose2d")
    ),
    OpSpec("conv3d", conv.convolution, (constant_weights, conv3d_stride), INT, CLAMPS, legalize=legalize_convolution),
    OpSpec("linear", conv.linear, (constant_weights,), INT, CLAMPS),
    OpSpec("mm", conv.matmul, (int8_matmul,), INT),
    OpSpec("bmm", conv.matmul, (int8_matmul,), INT),
    OpSpec("requantize", requantize.requantize, (), INT),
    *_IMAGE_ROWS,
    *_LOGIC_ROWS,
    *_MATH_ROWS,
    *_MOVEMENT_ROWS,
)

BACKEND = Backend(
    INFO,
    ROWS,
    COMMON_RULES,
    precision_notes={FLOAT: "unquantized integers and bools (floating point only in TOSA export)"},
)
