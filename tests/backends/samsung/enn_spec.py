"""What AI LiteCore is to be told of each operator: type and parameters, written down from the interface's description
and from nothing in the product. ``expected`` gives the nodes of a call, in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from edgewright.ir.graph import Op, Value

Nodes = list[tuple[str, dict[str, Any]]]
Args = Mapping[str, Any]
MAX = float(np.finfo(np.float32).max)

# Types that are told how their result is quantized.
TOLD = {
    "ELTSUM", "SUB", "ELTMUL", "ELTDIV", "CONV2D", "DWCONV2D", "DECONV2D", "DWDECONV2D", "FC", "BATCH_MATMUL",
    "AVGPOOL2D", "MAXPOOL2D", "REDUCEMEAN", "RELU", "CLIP", "HARDSWISH", "HardSigmoid", "GELU", "SOFTMAX", "LAYERNORM",
    "CONCAT", "PAD", "RESIZE_BILINEAR",
}  # fmt: skip
PLAIN = {
    "add": "ELTSUM", "sub": "SUB", "rsub": "SUB", "mul": "ELTMUL", "div": "ELTDIV", "maximum": "MAXIMUM",
    "minimum": "MIN", "pow": "POW", "bmm": "BATCH_MATMUL", "relu": "RELU", "hardswish": "HARDSWISH",
    "hardsigmoid": "HardSigmoid", "gelu": "GELU", "sigmoid": "SIGMOID", "tanh": "TANH", "log": "LOG", "sqrt": "SQRT",
    "rsqrt": "RSQRT", "sin": "Sin", "cos": "Cos", "leaky_relu": "PRELU", "prelu": "PRELU",
}  # fmt: skip
NAMES = {np.dtype(n): n.upper() for n in ("int8", "uint8", "int16", "uint16", "int32", "int64", "float16", "float32")}


def _pair(given: Any, fill: int, count: int = 2) -> list[int]:
    listed = list(given) if given else [fill]
    return listed * count if len(listed) == 1 else listed


def _conv(a: Args, out: Value) -> Nodes:
    weight, x, groups = a["weight"], a["input"], a["groups"]
    flat, back = len(weight.shape) == 3, bool(a.get("transposed"))
    dims = len(weight.shape) - 2
    wide = [1] * flat
    kernel = [*weight.shape[2:], *wide]
    stride, dilation = ([*_pair(a[n], 1, dims), *wide] for n in ("stride", "dilation"))
    extra = [*_pair(a.get("output_padding"), 0, dims), *[0] * flat] if back else [0, 0]
    made: Nodes = [("RESHAPE", {"new_shape": [*x.shape, 1]})] if flat else []
    if a["padding"] == "same":
        whole = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
        before = [n // 2 for n in whole]
        pads = before
        if any(n % 2 for n in whole):
            widths = [0, 0, *before, 0, 0, *(n - n // 2 for n in whole)]
            made.append(("PAD", {"explicit_padding": widths, "padding": "EXPLICIT", "padding_type": "CONSTANT"}))
            pads = [0, 0]
    else:
        pads = [0, 0] if a["padding"] == "valid" else [*_pair(a["padding"], 0, dims), *[0] * flat]
    pads = [p - e for p, e in zip(pads, extra, strict=True)]
    deep = weight.shape[1] == 1 and weight.shape[0] == groups
    made.append((f"{'DW' * deep}{'DE' * back}CONV2D", {
        "kernel_h": kernel[0], "kernel_w": kernel[1], "stride_h": stride[0], "stride_w": stride[1],
        "dilation_h": dilation[0], "dilation_w": dilation[1], "groups": groups, "padding": "EXPLICIT",
        "padding_type": "CONSTANT", "explicit_padding": [*pads, *pads], "in_channels": x.shape[1],
        "out_channels": out.shape[1],
    }))  # fmt: skip
    if any(extra):
        size = [*out.shape, *wide]
        end = [n + e for n, e in zip(size, [0, 0, *extra], strict=True)]
        made.append(("STRIDEDSLICE", {"begin": [0, 0, *extra], "end": end, "strides": [1] * 4}))
    return [*made, ("RESHAPE", {"new_shape": list(out.shape)})] if flat else made


def _pool(a: Args) -> dict[str, Any]:
    kernel = _pair(a["kernel_size"], 1)
    stride, pads = (_pair(a.get("stride"), 0) if a.get("stride") else kernel), _pair(a.get("padding"), 0)
    return {
        "kernel_h": kernel[0], "kernel_w": kernel[1], "stride_h": stride[0], "stride_w": stride[1],
        "padding": "EXPLICIT", "explicit_padding": [*pads, *pads],
    }  # fmt: skip


def _largest(a: Args, out: Value) -> Nodes:
    gaps = _pair(a.get("dilation"), 1)
    return [("MAXPOOL2D", {**_pool(a), "dilation_h": gaps[0], "dilation_w": gaps[1]})]


def _average(a: Args, out: Value) -> Nodes:
    return [("AVGPOOL2D", {**_pool(a), "count_include_pad": a.get("count_include_pad", True)})]


def _adaptive(a: Args, out: Value) -> Nodes:
    if out.shape[2:] == (1, 1):
        return [("REDUCEMEAN", {"keep_dims": True, "axis": [2, 3]})]
    window = [n // m for n, m in zip(a["self"].shape[2:], out.shape[2:], strict=True)]
    return _average({"kernel_size": window}, out)


def _reduce(kind: str) -> Callable[[Args, Value], Nodes]:
    def nodes(a: Args, out: Value) -> Nodes:
        rank, dims = len(a["self"].shape), a.get("dim")
        axes = sorted(d % rank for d in dims) if dims else list(range(rank))
        return [(kind, {"keep_dims": bool(a.get("keepdim")), "axis": axes})]

    return nodes


def _clip(low: str, high: str) -> Callable[[Args, Value], Nodes]:
    def nodes(a: Args, out: Value) -> Nodes:
        first, last = a.get(low), a.get(high)
        if first == 0 and (last is None or last == float("inf")):
            return [("RELU", {})]
        ends = (-MAX if first is None else max(first, -MAX), MAX if last is None else min(last, MAX))
        return [("CLIP", {"minimum": float(ends[0]), "maximum": float(ends[1])})]

    return nodes


def _shape(a: Args, out: Value) -> Nodes:
    return [("RESHAPE", {"new_shape": list(out.shape)})]


def _transpose(a: Args, out: Value) -> Nodes:
    rank = len(a["self"].shape)
    if "dims" in a:
        return [("TRANSPOSE", {"perm": [d % rank for d in a["dims"]]})]
    dims = list(range(rank))
    first, second = (a["dim0"] % rank, a["dim1"] % rank) if "dim0" in a else (0, rank - 1)
    dims[first], dims[second] = dims[second], dims[first]
    return [("TRANSPOSE", {"perm": dims})]


def _cut(a: Args, dim: int, places: list[int]) -> dict[str, Any]:
    shape = a["self"].shape
    begin, end, strides = [0] * len(shape), list(shape), [1] * len(shape)
    step = places[1] - places[0] if len(places) > 1 else 1
    begin[dim], end[dim], strides[dim] = places[0], min(places[-1] + step, shape[dim]), step
    return {"begin": begin, "end": end, "strides": strides}


def _slice(a: Args, out: Value) -> Nodes:
    dim = a["dim"] % len(a["self"].shape)
    places = list(range(a["self"].shape[dim]))
    if "length" in a:
        start = a["start"] + len(places) if a["start"] < 0 else a["start"]
        chosen = places[start : start + a["length"]]
    else:
        chosen = places[a.get("start") : a.get("end") : a.get("step", 1)]
    return [("STRIDEDSLICE", _cut(a, dim, chosen))]


def _select(a: Args, out: Value) -> Nodes:
    dim = a["dim"] % len(a["self"].shape)
    place = a["index"] % a["self"].shape[dim]
    return [("STRIDEDSLICE", {**_cut(a, dim, [place]), "shrink_axis_mask": 2**dim})]


def _unbind(a: Args, out: Value) -> Nodes:
    return _select({**a, "index": 0}, out)


def _split(a: Args, out: Value) -> Nodes:
    dim = a.get("dim", 0) % len(a["self"].shape)
    whole = a["self"].shape[dim]
    if "split_sizes" in a:
        sizes = list(a["split_sizes"])
    else:
        step = -(-whole // a["chunks"]) if "chunks" in a else a["split_size"]
        sizes = [min(step, whole - i) for i in range(0, whole, step)]
    return [("SPLIT", {"axis": dim, "point": sizes})]


def _pad(a: Args, out: Value) -> Nodes:
    rank, given = len(a["self"].shape), list(a["pad"])
    before = [0] * (rank - len(given) // 2) + given[::2][::-1]
    after = [0] * (rank - len(given) // 2) + given[1::2][::-1]
    return [("PAD", {"explicit_padding": [*before, *after], "padding": "EXPLICIT", "padding_type": "CONSTANT"})]


def _expand(a: Args, out: Value) -> Nodes:
    shape = (1,) * (len(out.shape) - len(a["self"].shape)) + a["self"].shape
    grown = [d for d, (n, m) in enumerate(zip(shape, out.shape, strict=True)) if n != m]
    if not grown:
        return _shape(a, out)
    first: Nodes = [] if shape == a["self"].shape else [("RESHAPE", {"new_shape": list(shape)})]
    return [*first, *(("CONCAT", {"axis": d}) for d in grown)]


def _resize(kind: str) -> Callable[[Args, Value], Nodes]:
    def nodes(a: Args, out: Value) -> Nodes:
        x = a["input" if "input" in a else "self"]
        factors = [m / n for m, n in zip(out.shape[2:], x.shape[2:], strict=True)]
        corners = bool(a.get("align_corners")) and kind == "RESIZE_BILINEAR"
        return [(kind, {"align_corners": corners, "upsampling_factor": factors, "half_pixel_centers": True})]

    return nodes


def _norm(kind: str, **names: str) -> Callable[[Args, Value], Nodes]:
    def nodes(a: Args, out: Value) -> Nodes:
        given = a.get("eps", 1e-5)
        epsilon = float(np.finfo(np.float32).eps) if given is None else given
        return [(kind, {**{ours: a[theirs] for ours, theirs in names.items()}, "epsilon": epsilon})]

    return nodes


def _rms(a: Args, out: Value) -> Nodes:
    ((kind, params),) = _norm("RMSNORM", normalize_shape="normalized_shape")(a, out)
    return [(kind, {**params, "param_num": 2})]


def _softmax(kind: str) -> Callable[[Args, Value], Nodes]:
    return lambda a, out: [(kind, {"axis": a["dim"]})]


def _mm(a: Args, out: Value) -> Nodes:
    if a["mat2"].data is not None:
        return [("FC", {"in_channels": a["mat2"].shape[0], "out_channels": a["mat2"].shape[1]})]
    shapes = [[1, *a[n].shape] for n in ("self", "mat2")]
    ends: Nodes = [("RESHAPE", {"new_shape": shape}) for shape in shapes]
    return [*ends, ("BATCH_MATMUL", {}), ("RESHAPE", {"new_shape": list(out.shape)})]


def _alone(kind: str) -> Callable[[Args, Value], Nodes]:
    return lambda a, out: [(kind, {})]


def _nothing(a: Args, out: Value) -> Nodes:
    return [("RESHAPE", {"new_shape": list(out.shape)})]  # an input that is an output, too, must be made by a node


CALLS: dict[str, Callable[[Args, Value], Nodes]] = {
    **{op: _alone(kind) for op, kind in PLAIN.items()},
    **dict.fromkeys(("conv1d", "conv2d", "conv_transpose1d", "conv_transpose2d"), _conv),
    **dict.fromkeys(("view", "reshape", "flatten", "squeeze", "unsqueeze"), _shape),
    **dict.fromkeys(("permute", "transpose", "t"), _transpose),
    **dict.fromkeys(("slice", "narrow"), _slice),
    **dict.fromkeys(("split", "split_with_sizes", "chunk"), _split),
    "softmax": _softmax("SOFTMAX"),
    **dict.fromkeys(("clone", "dropout"), _nothing),
    **{f"{op}_bilinear2d": _resize("RESIZE_BILINEAR") for op in ("upsample", "resize")},
    **{f"{op}_nearest2d": _resize("RESIZE_NEAREST_NEIGHBOR") for op in ("upsample", "resize")},
    "log_softmax": _softmax("LOGSOFTMAX"),
    "linear": lambda a, out: [("FC", {"in_channels": a["weight"].shape[1], "out_channels": a["weight"].shape[0]})],
    "addmm": lambda a, out: [("FC", {"in_channels": a["mat2"].shape[0], "out_channels": a["mat2"].shape[1]})],
    "mm": _mm,
    "max_pool2d": _largest,
    "avg_pool2d": _average,
    "adaptive_avg_pool2d": _adaptive,
    "mean": _reduce("REDUCEMEAN"),
    "sum": _reduce("REDUCESUM"),
    "relu6": lambda a, out: [("CLIP", {"minimum": 0.0, "maximum": 6.0})],
    "hardtanh": _clip("min_val", "max_val"),
    "clamp": _clip("min", "max"),
    "select": _select,
    "unbind": _unbind,
    "pad": _pad,
    "expand": _expand,
    "cat": lambda a, out: [("CONCAT", {"axis": a.get("dim", 0) % len(out.shape)})],
    "embedding": lambda a, out: [("GATHER", {"axis": 0})],
    "index": lambda a, out: [("GATHER", {"axis": next(i for i, t in enumerate(a["indices"]) if t is not None)})],
    "index_select": lambda a, out: [("GATHER", {"axis": a["dim"] % len(a["self"].shape)})],
    "topk": lambda a, out: [("TopK", {"k_dims": a["k"]})],
    "pixel_shuffle": lambda a, out: [("DEPTH_TO_SPACE", {"block_size": a["upscale_factor"], "mode": "CRD"})],
    "cast": lambda a, out: [("CAST", {"out_dtype": NAMES[np.dtype(out.dtype)]})],
    "batch_norm": _norm("BatchNormalization"),
    "layer_norm": _norm("LAYERNORM"),
    "group_norm": _norm("GROUPNORM", num_groups="num_groups"),
    "native_group_norm": _norm("GROUPNORM", num_groups="group"),
    "rms_norm": _rms,
}


def expected(op: Op) -> Nodes:
    """The nodes of a call; a cast to its own type is none but the copy that an output needs."""
    out = op.outputs[0]
    assert out is not None
    if op.kind == "cast" and op.args["self"].dtype == out.dtype:
        return _nothing(op.args, out)
    name = {"int8": "AINT8", "uint8": "AINT8", "int16": "AINT16", "uint16": "AINT16"}.get(str(out.dtype))
    told = {"quant_dtype": name} if out.q is not None else {}
    gathered = op.kind == "embedding"
    return [(kind, {**params, **(told if (kind in TOLD and op.kind != "expand") or gathered else {})})
            for kind, params in CALLS[op.kind](op.args, out)]  # fmt: skip
