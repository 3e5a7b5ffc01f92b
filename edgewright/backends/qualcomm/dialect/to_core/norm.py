"""Translation of QNN's softmax and norms. Integer ones become ENN's operators, which have the same meaning."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgewright.backends.qualcomm.dialect.dtypes import to_float as numbers_of
from edgewright.backends.qualcomm.dialect.to_core.rewrite import (
    QnnRewrite,
    as_int16,
    convert_to,
    element_count,
    io_of,
    is_float32,
    is_quantized,
    make_constant,
    non_empty,
    rule,
)
from edgewright.ir.graph import Array, Op, Value


def _move_axis_last(rw: QnnRewrite, op: Op, x: Value, axis: int) -> tuple[Value, list[int]]:
    """The tensor with one dimension moved last, and the inverse permutation."""
    dims = [*(d for d in range(len(x.bound)) if d != axis), axis]
    return rw.transpose(op, x, dims), [dims.index(d) for d in range(len(dims))]


@rule("Softmax", "LogSoftmax")
def _softmax(rw: QnnRewrite, op: Op) -> bool:
    (x,), out = io_of(op)
    if not non_empty(x, out):
        return False
    name = op.kind.partition(".")[2]
    if is_quantized(x, out):
        operand, inverse = _move_axis_last(rw, op, x, int(op.args["axis"]))
        log = name == "LogSoftmax"
        result = rw.emit_temporary("core.int_softmax", op, out, operand.bound, self=operand, log=log)
    elif is_float32(x, out):
        operand, inverse = _move_axis_last(rw, op, rw.round_half(op, x), int(op.args["axis"]))
        result = (
            rw.emit_temporary("core.softmax", op, out, operand.bound, self=operand)
            if name == "Softmax"
            else _emit_log_softmax(rw, op, operand)
        )
        result = rw.round_half(op, result)
    else:
        return False
    rw.emit("core.permute", op, out, self=result, dims=inverse)
    if is_float32(out):
        rw.rounded[out] = out
    return True


def _emit_log_softmax(rw: QnnRewrite, op: Op, x: Value) -> Value:
    """Subtract the maximum, then the logarithm of the sum of exponentials."""
    axis, reduced_shape = [len(x.bound) - 1], (*x.bound[:-1], 1)
    largest = rw.emit_temporary("core.amax", op, x, reduced_shape, self=x, dim=axis, keepdim=True)
    shifted = rw.emit_temporary("core.sub", op, x, x.bound, self=x, other=largest)
    exponentials = rw.emit_temporary("core.exp", op, x, x.bound, self=shifted)
    total = rw.emit_temporary("core.sum", op, x, reduced_shape, self=exponentials, dim=axis, keepdim=True)
    return rw.emit_temporary(
        "core.sub", op, x, x.bound, self=shifted, other=rw.emit_temporary("core.log", op, x, reduced_shape, self=total)
    )


_ROW_NORMS = ("LayerNorm", "RmsNorm")


@rule("LayerNorm", "RmsNorm", "GroupNorm", "InstanceNorm")
def _norm(rw: QnnRewrite, op: Op) -> bool:
    (x, *factors), out = io_of(op)
    if not non_empty(x, out) or any(v.data is None for v in factors):
        return False
    if not is_quantized(x, out) and not is_float32(x, out):
        return False
    dims, shape = _row_view(op)
    name = op.kind.partition(".")[2]
    normalized = x.bound[-len(op.args["axes"]) :] if name in _ROW_NORMS else x.bound[-1:]
    params = [np.broadcast_to(numbers_of(v, np.asarray(v.data)), normalized).reshape(-1) for v in factors]
    operand = rw.transpose(op, x if is_quantized(x) else rw.round_half(op, x), dims)
    result = (_emit_int_norm if is_quantized(x) else _emit_float_norm)(rw, op, name, operand, out, params, shape)
    rw.emit("core.permute", op, out, self=result, dims=[dims.index(d) for d in range(len(dims))])
    if is_float32(out):
        rw.rounded[out] = out
    return True


def _emit_int_norm(rw: QnnRewrite, op: Op, name: str, x: Value, out: Value, factors: list[Array],
                shape: tuple[int, ...]) -> Value:  # fmt: skip
    args: dict[str, Any] = {"epsilon": float(op.args["epsilon"]), "center": name != "RmsNorm"}
    if name in _ROW_NORMS:
        weight, bias = _params(factors, shape[1])
        args |= {"weight": weight, "bias": bias if name == "LayerNorm" or len(factors) > 1 else None}
        args |= {"length": shape[1], "channel_size": 1, "groups": 1}
        result = rw.emit_temporary("core.int_norm", op, out, shape, self=rw.reshape(op, x, shape), **args)
    else:
        weight, bias = _params(factors, x.bound[1])
        groups = x.bound[1] if name == "InstanceNorm" else int(op.args["group"])
        images = (x.bound[0], x.bound[1], shape[0] * shape[1] // (x.bound[0] * x.bound[1]))
        flat, int16_out = convert_to(rw, op, rw.reshape(op, x, images), as_int16(x)), as_int16(out)
        args |= {"weight": weight, "bias": bias, "channel_size": images[2], "groups": groups}
        length = images[1] // groups * images[2]
        result = rw.emit_temporary("core.int_norm", op, int16_out, images, self=flat, length=length, **args)
        result = convert_to(rw, op, result, out)
    return rw.reshape(op, result, x.bound)


def _params(factors: list[Array], size: int) -> list[Value]:
    """Weight and bias, with ones and zeros where they are missing."""
    defaults = [np.full(size, n, np.float32) for n in (1, 0)]
    return [make_constant("factor", numbers) for numbers in (*factors, *defaults[len(factors) :])]


def _emit_float_norm(rw: QnnRewrite, op: Op, name: str, x: Value, out: Value, factors: list[Array],
               shape: tuple[int, ...]) -> Value:  # fmt: skip
    size = shape[1] if name in _ROW_NORMS else x.bound[1]
    params = _params(factors, size)
    args: dict[str, Any] = {"weight": params[0], "bias": params[1], "eps": float(op.args["epsilon"])}
    if name in _ROW_NORMS:
        kind = "core.layer_norm" if name == "LayerNorm" else "core.rms_norm"
        bias = args.pop("bias") if name == "RmsNorm" else None
        flat = rw.reshape(op, x, shape)
        result = rw.emit_temporary(kind, op, out, shape, input=flat, normalized_shape=[size], **args)
        if bias is not None and len(factors) > 1:
            result = rw.emit_temporary("core.add", op, out, shape, self=result, other=bias)
    else:
        groups = size if name == "InstanceNorm" else int(op.args["group"])
        result = rw.emit_temporary("core.group_norm", op, out, x.bound, input=x, num_groups=groups, **args)
    return rw.reshape(op, rw.round_half(op, result), x.bound)


def _row_view(op: Op) -> tuple[list[int], tuple[int, int]]:
    """Permutation and shape that make the normalized dimensions the last one."""
    x = op.args["inputs"][0]
    rank, size = len(x.bound), element_count(x.bound)
    if "axes" in op.args:
        length = element_count(x.bound[rank - len(op.args["axes"]) :])
        return list(range(rank)), (size // length, length)
    groups = x.bound[-1] if op.kind.endswith("InstanceNorm") else int(op.args["group"])
    length = size // (x.bound[0] * groups)
    return [0, rank - 1, *range(1, rank - 1)], (size // length, length)
