"""What ENN asks of operators, and what stock's lowering gets wrong: refused here, before a graph is cut up."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgewright.backends.rules import rule
from edgewright.backends.samsung.conv import along, pads
from edgewright.backends.samsung.lower import QUANTIZED
from edgewright.backends.table import OK, over, pool_arguments, tensor, tensors
from edgewright.ir.enn.dtypes import ELEMENT_NAMES
from edgewright.ir.graph import Op, Value

# Of these, constants are real numbers until they are lowered.
_REAL = ("bias", "weight", "running_mean", "running_var")
_PLACES = ("indices", "index")


def _listed(op: Op, names: tuple[str, ...]) -> set[Value]:
    held = [op.args.get(n) for n in names]
    return {v for item in held for v in (item if isinstance(item, list) else [item]) if isinstance(v, Value)}


@rule("integers must be of 8 or 16 bits; activations with one scale, known now")
def storage(op: Op, target: Any) -> object:
    weights = _listed(op, ("weight", "mat2"))
    for value in tensors(op):
        q = value.q
        if q is None:
            continue
        said = f"{value.name}: {q.dtype}" + (" by channel" if q.axis is not None else "")
        if q.dynamic or q.block:
            return f"{said}, found as it runs or in blocks"
        if str(q.dtype) not in QUANTIZED or (q.axis is not None and value not in weights):
            return said
    return OK


@rule("activations must all be integers of one type")
def one_type(op: Op, target: Any) -> object:
    weights = _listed(op, ("weight", "mat2"))
    held = sorted({str(v.q.dtype) for v in tensors(op) if v.q is not None and v not in weights})
    return ", ".join(held) if len(held) > 1 and op.kind != "requantize" else OK


@rule("operands and results must all be quantized, or none")
def all_or_none(op: Op, target: Any) -> object:
    apart = _listed(op, (*_REAL, *_PLACES)) if op.kind != "embedding" else _listed(op, _PLACES)
    held = [v for v in tensors(op) if v not in apart]
    loose = [v.name for v in held if v.q is None]
    return ", ".join(loose) if loose and len(loose) < len(held) else OK


@rule(
    "elements that are not quantized must be float32 or float16 (of a model in bfloat16, export model.half() or "
    "model.float()), and places int32 or int64"
)
def plain(op: Op, target: Any) -> object:
    places = _listed(op, _PLACES) | (set(op.outputs[1:]) if op.kind == "topk" else set())
    whole = ("int32", "int64")
    real = tuple(ELEMENT_NAMES) if op.kind == "cast" else ("float32", "float16")
    found = [(str(v.dtype), whole if v in places else real) for v in tensors(op) if v.q is None]
    bad = sorted({kind for kind, allowed in found if kind not in allowed})
    return ", ".join(bad) if bad else OK


@rule("weights must be integers where their input is, and only there")
def stored_weights(op: Op, target: Any) -> object:
    pairs = {"addmm": ("mat1", "mat2"), "mm": ("self", "mat2")}.get(op.kind, ("input", "weight"))
    x, weight = (tensor(op, name) for name in pairs)
    if x is None or weight is None or (x.q is None) == (weight.q is None):
        return OK
    return f"{weight.name}: {weight.dtype}"


@rule("output padding must not be larger than padding, which is all that ENN can be told")
def within_padding(op: Op, target: Any) -> object:
    if not op.args.get("transposed"):
        return OK
    extra = along(op, "output_padding", 0)
    return extra if any(e > p for e, (p, _) in zip(extra, pads(op), strict=True)) else OK


@rule("weights of transposed convolutions in groups must have one scale")
def grouped_scale(op: Op, target: Any) -> object:
    q = op.args["weight"].q
    grouped = op.args.get("transposed") and op.args.get("groups", 1) > 1
    return "by channel" if grouped and q is not None and q.axis is not None else OK


@rule("a product and the number added to it must not be scaled")
def unscaled(op: Op, target: Any) -> object:
    given = {name: op.args.get(name, 1) for name in ("alpha", "beta")}
    scaled = {name: n for name, n in given.items() if n != 1}
    return scaled or OK


@rule("a number must be added for each column")
def column_bias(op: Op, target: Any) -> object:
    shape = op.args["self"].shape
    return OK if shape == (op.args["mat2"].shape[1],) else list(shape)


@rule("windows must be of images with batch and channels, and not hang over the edge (ceil_mode)")
def plain_window(op: Op, target: Any) -> object:
    if len(op.args["self"].shape) != 4:
        return f"rank {len(op.args['self'].shape)}"
    return "ceil_mode" if op.args.get("ceil_mode") else OK


@rule("averages must divide by the window's size")
def plain_average(op: Op, target: Any) -> object:
    kernel = pool_arguments(op)[0]
    divisor = op.args.get("divisor_override")
    return OK if divisor in (None, kernel[0] * kernel[1]) else f"divisor {divisor}"


@rule("sizes must be multiples of those of the result, of images with batch and channels")
def even_windows(op: Op, target: Any) -> object:
    x, out = op.args["self"], op.outputs[0]
    if len(x.shape) != 4 or out is None:
        return f"rank {len(x.shape)}"
    pairs = list(zip(x.bound[2:], out.bound[2:], strict=True))
    return OK if all(m and n % m == 0 for n, m in pairs) else x.bound


@rule("something must be reduced, and the result must be of the type of what it is made from")
def reduces(op: Op, target: Any) -> object:
    x, out = op.args["self"], op.outputs[0]
    if not x.shape or not over(op):
        return "no dimension"
    return OK if out is None or x.q is not None or out.dtype == x.dtype else str(out.dtype)


@rule("slopes must be constant, one for all or one for each channel")
def slopes(op: Op, target: Any) -> object:
    x, weight = op.args["self"], tensor(op, "weight")
    if weight is None or not weight.constant or weight.q is not None:
        return "computed"
    count = int(np.prod(weight.bound))
    return OK if count == 1 or (len(x.shape) > 1 and count == x.bound[1]) else count


@rule("limits must be numbers, at least one of them, the lower one first")
def number_limits(op: Op, target: Any) -> object:
    names = ("min_val", "max_val") if op.kind == "hardtanh" else ("min", "max")
    low, high = (op.args.get(n) for n in names)
    if isinstance(low, Value) or isinstance(high, Value):
        return "tensors"
    if op.kind == "relu6":
        return OK
    given = [float(n) for n in (low, high) if n is not None]
    if not given or any(np.isnan(n) for n in given):
        return given
    return OK if given == sorted(given) else given


@rule("padding must not be negative, and filled with zeros")
def zeros_outward(op: Op, target: Any) -> object:
    given, value = list(op.args["pad"]), op.args.get("value") or 0
    return given if any(p < 0 for p in given) else OK if value == 0 else value


@rule("nearest pixels are found as PyTorch does for images that grow to multiples of their size only")
def whole_factors(op: Op, target: Any) -> object:
    x, out = op.args["input" if "input" in op.args else "self"], op.outputs[0]
    if out is None or len(x.shape) != 4:
        return f"rank {len(x.shape)}"
    pairs = list(zip(out.bound[2:], x.bound[2:], strict=True))
    return OK if all(m and m % n == 0 for m, n in pairs) else out.bound


@rule("at most one of the tensors may be constant")
def one_constant(op: Op, target: Any) -> object:
    fixed = [t.name for t in op.args["tensors"] if t.constant]
    return ", ".join(fixed) if len(fixed) > 1 else OK


@rule("there must be one tensor of places, not of truths")
def one_index(op: Op, target: Any) -> object:
    given = [t for t in op.args["indices"] if t is not None]
    return OK if len(given) == 1 else f"{len(given)} tensors"


@rule("places must be listed in one dimension")
def listed_places(op: Op, target: Any) -> object:
    rank = len(op.args["index"].shape)
    return OK if rank == 1 else f"rank {rank}"


@rule("the largest must be asked for, in order, along the last dimension")
def plain_topk(op: Op, target: Any) -> object:
    rank = len(op.args["self"].shape)
    if not rank or op.args.get("dim", -1) % rank != rank - 1:
        return f"dim {op.args.get('dim', -1)}"
    off = [name for name in ("largest", "sorted") if not op.args.get(name, True)]
    return ", ".join(off) if off else OK


@rule("casts must be between types that ENN has")
def known_types(op: Op, target: Any) -> object:
    bad = sorted({str(v.dtype) for v in tensors(op) if str(v.dtype) not in ELEMENT_NAMES})
    return ", ".join(bad) if bad else OK
