"""TOSA's operators as the engine's: what moves elements, and pools."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from edgewright.engine.dialects import tosa_conv  # noqa: F401  (it registers what it knows)
from edgewright.engine.dialects.elementwise import ELEMENTWISE
from edgewright.engine.dialects.tosa_float import translate_float
from edgewright.engine.dialects.tosa_rewrite import INT8_RANGES, TosaRewrite, int_pairs, result_of, rule
from edgewright.ir.graph import Graph, Op
from edgewright.ir.numerics import Numerics
from edgewright.ir.tosa.execute import run_op

_SMALL = 1 << 12  # elements that are computed now


def translate(graph: Graph, numerics: Numerics) -> Graph:
    made = TosaRewrite(graph)
    for op in graph.ops:
        if not _fold(made, op) and not translate_float(made, op):
            rule.apply(made, op)
    return made.finish()


def _fold(made: TosaRewrite, op: Op) -> bool:
    """A few constants made of constants, element by element, are constants."""
    out, given = result_of(op), [made.value(v) for v in op.inputs()]
    if op.kind not in ELEMENTWISE or any(v.data is None for v in given) or out in made.outputs:
        return False
    shapes = [v.bound for v in given]
    if op in made.done or np.prod(out.bound) > _SMALL or np.broadcast_shapes(*shapes) != out.bound:
        return False
    held = {v: np.asarray(made.value(v).data) for v in op.inputs()}
    try:
        data = np.asarray(run_op(op, held), out.dtype)
    except (ValueError, LookupError, ArithmeticError, TypeError):
        return False  # it will be said when it runs
    made.values[out] = replace(made.value(out), data=np.ascontiguousarray(data).reshape(out.bound))
    return True


@rule("reshape")
def _reshape(made: TosaRewrite, op: Op) -> bool:
    if 0 in result_of(op).bound:
        return False
    made.emit("view", op, result_of(op), self=op.args["input"], size=[int(n) for n in op.args["shape"]])
    return True


@rule("transpose")
def _transpose(made: TosaRewrite, op: Op) -> bool:
    made.emit("permute", op, result_of(op), self=op.args["input"], dims=[int(d) for d in op.args["perms"]])
    return True


@rule("concat")
def _concat(made: TosaRewrite, op: Op) -> bool:
    made.emit("cat", op, result_of(op), tensors=list(op.args["inputs"]), dim=int(op.args["axis"]))
    return True


@rule("slice")
def _slice(made: TosaRewrite, op: Op) -> bool:
    if 0 in result_of(op).bound or [int(n) for n in op.args["size"]] != list(result_of(op).bound):
        return False
    made.emit("slice", op, result_of(op), self=op.args["input"], start=[int(n) for n in op.args["start"]],
              length=list(result_of(op).bound))  # fmt: skip
    return True


@rule("pad")
def _pad(made: TosaRewrite, op: Op) -> bool:
    x, value = op.args["input"], op.args["value"]
    if value.data is None or value.data.size < 1:
        return False
    fill, sides = value.data.reshape(-1)[0], op.args["padding"]
    return made.pad(op, x, result_of(op), [int(n) for n in sides[::2]], [int(n) for n in sides[1::2]], fill)


@rule("max_pool2d")
def _max_pool(made: TosaRewrite, op: Op) -> bool:
    x, out = op.args["input"], result_of(op)
    sizes, edges = int_pairs(op, "kernel", "stride"), [int(n) for n in op.args["pad"]]
    if x.dtype in INT8_RANGES and made.zero(x) == made.zero(out):
        made.emit("max_pool2d", op, out, self=x, kernel_size=sizes["kernel"], stride=sizes["stride"], padding=edges,
                  dilation=[1, 1])  # fmt: skip
        return True
    if x.dtype is None or x.dtype.kind != "i" or not any(edges) or min(edges) < 0 or len(x.bound) != 4:
        return False
    wide = made.bordered(op, x, edges, int(np.iinfo(x.dtype).min))  # what is less than anything
    if wide is None:
        return False
    made.ops.append(replace(op, args={**op.args, "input": wide, "pad": [0] * 4}, outputs=[made.value(out)]))
    return True


@rule("resize")
def _resize(made: TosaRewrite, op: Op) -> bool:
    """Sums of four pixels that 32 bits can hold are held so: what rescales them need not read 64."""
    x, out, scale = op.args["input"], result_of(op), op.args["scale"]
    fits = x.dtype == np.dtype(np.int16) and int(scale[0]) * int(scale[2]) << 15 < 1 << 31
    if op.args["mode"] == "bilinear" and fits and out not in made.outputs:
        made.values[out] = replace(made.value(out), dtype=np.dtype(np.int32))
    return False
