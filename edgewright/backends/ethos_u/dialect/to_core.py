"""Translation of TOSA's data movement and pooling to core operators."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from edgewright.backends.ethos_u.dialect import to_core_conv  # noqa: F401  (registers its rules)
from edgewright.backends.ethos_u.dialect.table import evaluate
from edgewright.backends.ethos_u.dialect.to_core_float import translate_float
from edgewright.backends.ethos_u.dialect.to_core_rewrite import INT8_RANGES, TosaRewrite, int_pairs, result_of, rule
from edgewright.engine.int_rules import ELEMENTWISE
from edgewright.ir.graph import Graph, Op
from edgewright.ir.numerics import Numerics

_MAX_FOLDED = 1 << 12  # elements of a constant that is folded


def to_core(graph: Graph, numerics: Numerics) -> Graph:
    rw = TosaRewrite(graph)
    for op in graph.ops:
        if not _fold_constants(rw, op) and not translate_float(rw, op):
            rule.apply(rw, op)
    return rw.finish()


def _fold_constants(rw: TosaRewrite, op: Op) -> bool:
    """Evaluate an elementwise operator on small constants at compile time."""
    out, operands = result_of(op), [rw.value(v) for v in op.inputs()]
    if op.kind not in ELEMENTWISE or any(v.data is None for v in operands) or out in rw.outputs:
        return False
    shapes = [v.bound for v in operands]
    if op in rw.done or np.prod(out.bound) > _MAX_FOLDED or np.broadcast_shapes(*shapes) != out.bound:
        return False
    arrays = {v: np.asarray(rw.value(v).data) for v in op.inputs()}
    try:
        data = np.asarray(evaluate(op, arrays), out.dtype)
    except (ValueError, LookupError, ArithmeticError, TypeError):
        return False  # the reference step reports the error at run time
    rw.values[out] = replace(rw.value(out), data=np.ascontiguousarray(data).reshape(out.bound))
    return True


@rule("reshape")
def _reshape(rw: TosaRewrite, op: Op) -> bool:
    if 0 in result_of(op).bound:
        return False
    rw.emit("core.view", op, result_of(op), self=op.args["input"], size=[int(n) for n in op.args["shape"]])
    return True


@rule("transpose")
def _transpose(rw: TosaRewrite, op: Op) -> bool:
    rw.emit("core.permute", op, result_of(op), self=op.args["input"], dims=[int(d) for d in op.args["perms"]])
    return True


@rule("concat")
def _concat(rw: TosaRewrite, op: Op) -> bool:
    rw.emit("core.cat", op, result_of(op), tensors=list(op.args["inputs"]), dim=int(op.args["axis"]))
    return True


@rule("slice")
def _slice(rw: TosaRewrite, op: Op) -> bool:
    if 0 in result_of(op).bound or [int(n) for n in op.args["size"]] != list(result_of(op).bound):
        return False
    rw.emit("core.slice", op, result_of(op), self=op.args["input"], start=[int(n) for n in op.args["start"]],
              length=list(result_of(op).bound))  # fmt: skip
    return True


@rule("pad")
def _pad(rw: TosaRewrite, op: Op) -> bool:
    x, value = op.args["input"], op.args["value"]
    if value.data is None or value.data.size < 1:
        return False
    fill, sides = value.data.reshape(-1)[0], op.args["padding"]
    return rw.pad(op, x, result_of(op), [int(n) for n in sides[::2]], [int(n) for n in sides[1::2]], fill)


@rule("max_pool2d")
def _max_pool(rw: TosaRewrite, op: Op) -> bool:
    x, out = op.args["input"], result_of(op)
    sizes, padding = int_pairs(op, "kernel", "stride"), [int(n) for n in op.args["pad"]]
    if x.dtype in INT8_RANGES and rw.zero_point(x) == rw.zero_point(out):
        rw.emit("core.max_pool2d", op, out, self=x, kernel_size=sizes["kernel"], stride=sizes["stride"],
                  padding=padding, dilation=[1, 1])  # fmt: skip
        return True
    if x.dtype is None or x.dtype.kind != "i" or not any(padding) or min(padding) < 0 or len(x.bound) != 4:
        return False
    padded = rw.pad_image(op, x, padding, int(np.iinfo(x.dtype).min))  # never the maximum
    if padded is None:
        return False
    rw.ops.append(replace(op, args={**op.args, "input": padded, "pad": [0] * 4}, outputs=[rw.value(out)]))
    return True


@rule("resize")
def _resize(rw: TosaRewrite, op: Op) -> bool:
    """Store sums of four pixels as int32 where they fit, so that the following RESCALE need not read 64 bits."""
    x, out, scale = op.args["input"], result_of(op), op.args["scale"]
    fits = x.dtype == np.dtype(np.int16) and int(scale[0]) * int(scale[2]) << 15 < 1 << 31
    if op.args["mode"] == "bilinear" and fits and out not in rw.outputs:
        rw.values[out] = replace(rw.value(out), dtype=np.dtype(np.int32))
    return False
