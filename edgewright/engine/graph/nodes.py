"""Nodes: an operator with its fused epilogue, and predicates on operators that fusion and lowering share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from edgewright.engine.codegen.epilogue import ClampStep, Epilogue, EpilogueStep, ScalarStep, UnaryStep
from edgewright.engine.codegen.math_float32 import FUNCTIONS
from edgewright.ir.graph import Array, Graph, Op, QParams, Value
from edgewright.ir.layer_names import summarize_layers

CONV_AND_LINEAR = ("core.conv2d", "core.depthwise_conv2d", "core.linear")
BINARY = ("core.add", "core.sub", "core.mul", "core.div", "core.maximum", "core.minimum")
_PARAMETERS = {"core.leaky_relu": ("negative_slope",), "core.elu": ("alpha",)}
_F32 = np.dtype(np.float32)


@dataclass(frozen=True)
class Operand:
    """A float32 matrix, or an int8 matrix whose dequantized values are multiplied by ``factor``."""

    value: Value
    factor: float = 1.0


@dataclass(frozen=True)
class AttentionMatch:
    """A matched attention. ``ops`` are in graph order; ``scores`` is the shape to which the mask is broadcast.

    ``safe``: queries whose keys are all masked get zeros instead of NaN.
    """

    ops: tuple[Op, ...]
    query: Operand
    keys: Operand
    values: Operand
    out: Value
    epilogue: Epilogue
    mask: Value | None
    scores: tuple[int, ...]
    safe: bool = False

    @property
    def bytes(self) -> bool:
        """Whether queries and keys are int8."""
        return self.query.value.q is not None

    def replace_value(self, old: Value, new: Value) -> AttentionMatch:
        """A copy that reads ``new`` in place of ``old``."""
        result = [replace(o, value=new) if o.value is old else o for o in (self.query, self.keys, self.values)]
        mask = new if self.mask is old else self.mask
        return replace(self, query=result[0], keys=result[1], values=result[2], mask=mask)


@dataclass(eq=False)
class Node:
    """``ops[0]`` and the operators fused into it.

    ``epilogue``: in float32. ``residual``: the tensor it reads, such as the other operand of a residual add. ``table``:
    256 entries applied to an int8 result.
    """

    ops: list[Op]
    epilogue: Epilogue = ()
    residual: Value | None = None
    sum: Op | None = None  # a fused int8 addition of ``residual``
    table: Array | None = None
    parts: list[Node] = field(default_factory=list)  # the nodes that were combined into this one
    quantizes_input: bool = False  # ops[0] is the dynamic quantization of the input
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
        """The result of ``ops[0]``, before the epilogue."""
        out = self.ops[0].outputs[0]
        assert out is not None
        return out

    def reads(self) -> Iterator[Value]:
        """The non-constant values the node reads, once each."""
        produced = {v for op in self.ops for v in op.outputs}
        seen: set[Value] = set()
        for op in self.ops:
            for value in op.inputs():
                if value not in produced and not value.constant and value not in seen:
                    seen.add(value)
                    yield value

    @property
    def label(self) -> str:
        return "attention" if self.attention is not None else "+".join(op.name for op in self.ops)

    @property
    def layer(self) -> str:
        """The layers of the user's model that it computes."""
        return summarize_layers(op.origin for op in self.ops)


def is_core(graph: Graph) -> bool:
    """Whether every operator is of the core dialect."""
    return all(op.kind.startswith("core.") for op in graph.ops)


def is_quantized8(q: QParams | None) -> bool:
    """Whether a value is int8 or uint8 with one static scale."""
    return q is not None and q.axis is None and q.dynamic is None and q.dtype in (np.dtype(np.int8), np.dtype(np.uint8))


def is_float32(value: Value) -> bool:
    """Whether a value is an unquantized float32 tensor."""
    return value.q is None and value.dtype == _F32


def fused_clamp(op: Op) -> Epilogue:
    """The clamp that was fused into an operator, as an epilogue."""
    limits = op.args.get("limits")
    return () if limits is None else (ClampStep(float(np.float32(limits[0])), float(np.float32(limits[1]))),)


def unary_epilogue(op: Op) -> Epilogue | None:
    """The epilogue of a single-input operator, or None."""
    if op.kind in ("core.clamp", "core.clone", "core.convert"):
        return ()
    if op.kind in _PARAMETERS:
        return (UnaryStep(op.name, tuple(float(op.args[n]) for n in _PARAMETERS[op.kind])),)
    return (UnaryStep(op.name),) if op.name in FUNCTIONS else None


def scalar_epilogue(op: Op) -> Epilogue | None:
    """The epilogue of a binary operator with a float32 scalar constant, or None."""
    if op.kind not in BINARY:
        return None
    for name, flipped in (("other", False), ("self", True)):
        value, other = op.args[name], op.args["other" if flipped else "self"]
        if value.constant and is_float32(value) and value.data.size == 1 and not other.constant:
            return (ScalarStep(op.name, float(value.data.reshape(())), flipped),)
    return None


def single_input_epilogue(op: Op) -> tuple[EpilogueStep, ...]:
    """The epilogue of an operator with one non-constant input; empty if it is the identity."""
    return unary_epilogue(op) or scalar_epilogue(op) or ()
