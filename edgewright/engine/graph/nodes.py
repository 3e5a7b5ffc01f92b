"""Nodes of a plan: an operator with those that follow while its result is in registers, and what is said of such."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from edgewright.engine.codegen.epilogue import ClampStep, Epilogue, EpilogueStep, ScalarStep, UnaryStep
from edgewright.engine.codegen.math_float32 import FUNCTIONS
from edgewright.ir.graph import Array, Op, QParams, Value

if TYPE_CHECKING:
    from edgewright.engine.graph.match_attention import AttentionMatch

CONV_AND_LINEAR = ("conv2d", "depthwise_conv2d", "linear")
BINARY = ("add", "sub", "mul", "div", "maximum", "minimum")
_CONSTANTS = {"leaky_relu": ("negative_slope",), "elu": ("alpha",)}
_SINGLE = np.dtype(np.float32)


@dataclass(eq=False)
class Node:
    """``ops[0]`` and those fused into it. ``table`` maps the bytes of the result; ``second`` is read by the tail."""

    ops: list[Op]
    tail: Epilogue = ()
    second: Value | None = None
    sum: Op | None = None  # an integer sum with ``second``
    table: Array | None = None
    parts: list[Node] = field(default_factory=list)  # nodes that were made this one
    before: bool = False  # begins with the operator that quantizes its rows by their own range
    attention: AttentionMatch | None = None

    @property
    def op(self) -> Op:
        return self.ops[0]

    @property
    def out(self) -> Value:
        out = self.ops[-1].outputs[0]
        assert out is not None
        return out

    @property
    def outputs(self) -> list[Value]:
        return [v for v in self.ops[-1].outputs if v is not None]

    @property
    def middle(self) -> Value:
        """What the operator itself makes, before anything fused."""
        out = self.ops[0].outputs[0]
        assert out is not None
        return out

    def reads(self) -> Iterator[Value]:
        """Values that are not constants and not made inside."""
        made = {v for op in self.ops for v in op.outputs}
        seen: set[Value] = set()
        for op in self.ops:
            for value in op.inputs():
                if value not in made and not value.constant and value not in seen:
                    seen.add(value)
                    yield value

    @property
    def label(self) -> str:
        return "attention" if self.attention is not None else "+".join(op.kind for op in self.ops)


def is_quantized8(q: QParams | None) -> bool:
    """Quantized to 8 bits, with one scale, fixed."""
    return q is not None and q.axis is None and q.dynamic is None and q.dtype in (np.dtype(np.int8), np.dtype(np.uint8))


def is_float32(value: Value) -> bool:
    """A real number of single precision."""
    return value.q is None and value.dtype == _SINGLE


def fused_clamp(op: Op) -> Epilogue:
    """The limits that were fused into an operator."""
    given = op.args.get("limits")
    return () if given is None else (ClampStep(float(np.float32(given[0])), float(np.float32(given[1]))),)


def unary_epilogue(op: Op) -> Epilogue | None:
    """An operator of one input, or None."""
    if op.kind in ("clamp", "clone", "convert"):
        return ()
    if op.kind in _CONSTANTS:
        return (UnaryStep(op.kind, tuple(float(op.args[n]) for n in _CONSTANTS[op.kind])),)
    return (UnaryStep(op.kind),) if op.kind in FUNCTIONS else None


def scalar_epilogue(op: Op) -> Epilogue | None:
    """A binary operator with a single real constant."""
    if op.kind not in BINARY:
        return None
    for name, flipped in (("other", False), ("self", True)):
        value, other = op.args[name], op.args["other" if flipped else "self"]
        if value.constant and is_float32(value) and value.data.size == 1 and not other.constant:
            return (ScalarStep(op.kind, float(value.data.reshape(())), flipped),)
    return None


def single_input_epilogue(op: Op) -> tuple[EpilogueStep, ...]:
    """The tail of an operator of one input."""
    return unary_epilogue(op) or scalar_epilogue(op) or ()
