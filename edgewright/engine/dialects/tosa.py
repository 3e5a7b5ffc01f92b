"""TOSA's operators as the engine's.

TOSA's bytes have no scale of their own: here they get a scale of 1 and the zero point of whoever pads them, so that
borders hold what means nothing. Factors stand in the RESCALE after a convolution, which becomes part of it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from edgewright.engine.dialects.rewrite import Rewrite, Rules
from edgewright.ir.graph import Array, Graph, Op, QParams, Value
from edgewright.ir.numerics import Numerics
from edgewright.ir.scaling import Scaling
from edgewright.ir.tosa.table import PREFIX

rule: Rules[_Tosa] = Rules(PREFIX)
_BYTES: dict[Any, tuple[int, int]] = {np.dtype(np.int8): (-128, 127), np.dtype(np.uint8): (0, 255)}
_STORED: dict[Any, tuple[int, int]] = {**_BYTES, np.dtype(np.int16): (-32768, 32767)}
_MOVES = ("max_pool2d", "reshape", "transpose", "slice", "concat", "pad", "clamp", "identity", "reverse", "tile")


def translate(graph: Graph, numerics: Numerics) -> Graph:
    made = _Tosa(graph)
    for op in graph.ops:
        rule.apply(made, op)
    return made.finish()


class _Tosa(Rewrite):
    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        zeros = _zeros(graph)
        for value in graph.values():
            q = None
            if value.dtype is not None and value.dtype in _BYTES:
                q = QParams(1.0, zeros.get(id(value), 0), value.dtype, *_BYTES[value.dtype])
            if q is not None or value.q is not None:
                self.values[id(value)] = replace(value, q=q)

    def zero(self, value: Value) -> int:
        q = self.value(value).q
        return 0 if q is None else int(np.asarray(q.zero_point))

    def scaled(self, op: Op) -> tuple[Scaling, Value] | None:
        """The RESCALE that alone reads an accumulator, with limits that follow; and the value it makes."""
        acc = _result(op)
        following = self.only_reader(acc)
        if following is None or following.kind != f"{PREFIX}rescale" or following.args["input_zp"]:
            return None
        out = _result(following)
        multiplier, shift = (following.args[name].data for name in ("multiplier", "shift"))
        if out.dtype not in _STORED or multiplier is None or shift is None or multiplier.size != shift.size:
            return None
        if not following.args["per_channel"]:
            multiplier, shift = multiplier.reshape(-1)[:1], shift.reshape(-1)[:1]
        if multiplier.size not in (1, acc.bound[-1]):
            return None
        self.done.add(id(following))
        low, high = _STORED[out.dtype]
        clamp = self.only_reader(out)
        if clamp is not None and clamp.kind == f"{PREFIX}clamp" and _whole(clamp):
            self.done.add(id(clamp))
            low, high, out = max(low, int(clamp.args["min_val"])), min(high, int(clamp.args["max_val"])), _result(clamp)
        by, bits = (tuple(int(n) for n in a.reshape(-1)) for a in (multiplier, shift))
        return Scaling(by, bits, following.args["rounding"], int(following.args["output_zp"]), low, high), out


def _whole(clamp: Op) -> bool:
    """Limits are integers, in order."""
    low, high = clamp.args["min_val"], clamp.args["max_val"]
    return bool(low == int(low) and high == int(high) and low <= high)


def _zeros(graph: Graph) -> dict[int, int]:
    """The zero point that each tensor of bytes is read with by what pads it, as far as anything is moved before."""
    found: dict[int, int] = {}
    for op in reversed(graph.ops):
        name = op.kind.removeprefix(PREFIX)
        if "input_zp" in op.args and name != "rescale" and isinstance(op.args.get("input"), Value):
            found.setdefault(id(op.args["input"]), int(op.args["input_zp"]))
        elif name in _MOVES and id(op.outputs[0]) in found:
            for value in op.inputs():
                found.setdefault(id(value), found[id(op.outputs[0])])
    return {key: zero for key, zero in found.items() if -128 <= zero <= 127}


def _result(op: Op) -> Value:
    out = op.outputs[0]
    assert out is not None
    return out


def _constant(data: Array, q: QParams | None = None) -> Value:
    held = np.ascontiguousarray(data)
    return Value("constant", held.dtype, held.shape, tuple(range(held.ndim)), held, q=q)


# ---------------------------------------------------------------------------------------------------------- products

_WEIGHT = QParams(1.0, 0, np.dtype(np.int8), -128, 127)


def _operands(made: _Tosa, op: Op, channels: int) -> dict[str, Any] | None:
    """Image and bias of a convolution of bytes or words by constants; None if it is another one."""
    x, weight, bias = (op.args[name] for name in ("input", "weight", "bias"))
    words = x.dtype == np.dtype(np.int16)
    if x.dtype not in _STORED or weight.data is None or bias.data is None or weight.dtype.kind != "i":
        return None
    if (not words and weight.dtype != np.dtype(np.int8)) or bias.data.dtype.kind != "i":
        return None
    if op.args["weight_zp"] or made.zero(x) != op.args["input_zp"] or bias.data.size not in (1, channels):
        return None
    data = np.broadcast_to(bias.data.reshape(-1), channels).astype(np.int64 if words else np.int32)
    return {"input": x, "bias": _constant(data)}


def _product(made: _Tosa, op: Op, kind: str, filters: Array, channels: int, **sizes: Any) -> bool:
    given = _operands(made, op, channels)
    scaled = None if given is None else made.scaled(op)
    if given is None or scaled is None:
        return False
    scaling, out = scaled
    weight = _constant(filters, _WEIGHT if op.args["input"].dtype in _BYTES else None)
    made.emit(kind, op, out, **given, weight=weight, scaling=scaling, **sizes)
    return True


def _pairs(op: Op, *names: str) -> dict[str, list[int]]:
    return {name: [int(n) for n in op.args[name]] for name in names}


@rule("conv2d")
def _conv2d(made: _Tosa, op: Op) -> bool:
    weight = op.args["weight"]
    return weight.data is not None and _product(
        made, op, "conv2d", weight.data, weight.bound[0], padding=[int(n) for n in op.args["pad"]], groups=1,
        **_pairs(op, "stride", "dilation"),
    )  # fmt: skip


@rule("matmul")
def _matmul(made: _Tosa, op: Op) -> bool:
    a, b = op.args["a"], op.args["b"]
    if any(v.dtype not in _STORED or v.data is not None for v in (a, b)):
        return False
    scaled = made.scaled(op)
    if scaled is None:
        return False
    scaling, out = scaled
    zeros = (int(op.args["a_zp"]), int(op.args["b_zp"]))
    made.emit("whole_matmul", op, out, self=a, other=b, zeros=zeros, scaling=scaling)
    return True


@rule("depthwise_conv2d")
def _depthwise(made: _Tosa, op: Op) -> bool:
    weight = op.args["weight"]
    if weight.data is None:
        return False
    high, wide, inputs, each = weight.bound
    filters = weight.data.reshape(1, high, wide, inputs * each)
    return _product(made, op, "depthwise_conv2d", filters, inputs * each, padding=[int(n) for n in op.args["pad"]],
                    groups=inputs, **_pairs(op, "stride", "dilation"))  # fmt: skip


@rule("transpose_conv2d")
def _transposed(made: _Tosa, op: Op) -> bool:
    """What is added at the lower edges is less than a step; more stays with the reference."""
    weight, pads = op.args["weight"], [int(n) for n in op.args["out_pad"]]
    extra = [max(pads[1], 0), max(pads[3], 0)]
    fits = all(e < s for e, s in zip(extra, op.args["stride"], strict=True)) and max(pads[0], pads[2]) <= 0
    if weight.data is None or not fits:
        return False
    cut = [max(-n, 0) for n in pads]
    return _product(made, op, "conv_transpose2d", weight.data, weight.bound[0], padding=cut, groups=1, dilation=[1, 1],
                    output_padding=extra, **_pairs(op, "stride"))  # fmt: skip


# ------------------------------------------------------------------------------------------------------------- moves


@rule("reshape")
def _reshape(made: _Tosa, op: Op) -> bool:
    if 0 in _result(op).bound:
        return False
    made.emit("view", op, _result(op), self=op.args["input"], size=[int(n) for n in op.args["shape"]])
    return True


@rule("transpose")
def _transpose(made: _Tosa, op: Op) -> bool:
    made.emit("permute", op, _result(op), self=op.args["input"], dims=[int(d) for d in op.args["perms"]])
    return True


@rule("concat")
def _concat(made: _Tosa, op: Op) -> bool:
    made.emit("cat", op, _result(op), tensors=list(op.args["inputs"]), dim=int(op.args["axis"]))
    return True


@rule("slice")
def _slice(made: _Tosa, op: Op) -> bool:
    if 0 in _result(op).bound or [int(n) for n in op.args["size"]] != list(_result(op).bound):
        return False
    made.emit("slice", op, _result(op), self=op.args["input"], start=[int(n) for n in op.args["start"]],
              length=list(_result(op).bound))  # fmt: skip
    return True


@rule("pad")
def _pad(made: _Tosa, op: Op) -> bool:
    x, value = op.args["input"], op.args["value"]
    if x.dtype not in _BYTES or value.data is None:
        return False
    before, after = ([int(n) for n in op.args["padding"][side::2]] for side in (0, 1))
    made.emit("pad", op, _result(op), self=x, before=before, after=after,
              value=float(int(value.data.reshape(-1)[0]) - made.zero(x)))  # fmt: skip
    return True


@rule("max_pool2d")
def _max_pool(made: _Tosa, op: Op) -> bool:
    x, out = op.args["input"], _result(op)
    if x.dtype not in _BYTES or made.zero(x) != made.zero(out):
        return False
    sizes = _pairs(op, "kernel", "stride")
    made.emit("max_pool2d", op, out, self=x, kernel_size=sizes["kernel"], stride=sizes["stride"],
              padding=[int(n) for n in op.args["pad"]], dilation=[1, 1])  # fmt: skip
    return True
