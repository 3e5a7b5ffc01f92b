"""Builds a device graph step by step: values by number, constants from the steps' own seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgewright.ir.graph import Array, Graph, Op, QParams, Value
from tests.compose.draw import Draw
from tests.compose.spec import Spec, Step, need

F32, F16, I8, U8, I32 = (np.dtype(t) for t in (np.float32, np.float16, np.int8, np.uint8, np.int32))
INF = float("inf")
MOST_ELEMENTS, MOST_MACS = 1 << 17, 1 << 23  # of a value and of an operator: numpy runs all of it


@dataclass(frozen=True)
class StepDef:
    """``draw`` proposes a step on the values there are, or None; ``build`` adds its operators and results."""

    draw: Callable[[Draw, Builder], Step | None]
    build: Callable[[Builder, Step], None]
    weight: float = 1.0


class Builder:
    """A graph under construction. Subclasses know a dialect's types and steps."""

    steps: dict[str, StepDef] = {}  # noqa: RUF012  (each dialect's own)

    def __init__(self, name: str = "compose") -> None:
        self.graph = Graph(name)
        self.values: list[Value] = []
        self.times = 1  # as large as values and operators may be otherwise

    def read(self, step: Step, at: int = 0) -> Value:
        need(at < len(step["in"]) and step["in"][at] < len(self.values), "reads a value that there is")
        return self.values[step["in"][at]]

    def reads(self, step: Step) -> list[Value]:
        return [self.read(step, at) for at in range(len(step["in"]))]

    def rng(self, step: Step) -> np.random.Generator:
        return np.random.default_rng([7, int(step.get("seed", 0))])

    def new(self, shape: Sequence[int], dtype: Any = F32, q: QParams | None = None) -> Value:
        """A value that is not in the list, for what lies between a step's own operators."""
        sizes = tuple(int(n) for n in shape)
        need(all(n > 0 for n in sizes) and math.prod(sizes) <= MOST_ELEMENTS * self.times, "a value of a moderate size")
        return Value(f"v{len(self.values)}", np.dtype(dtype) if q is None else q.dtype, sizes,
                     tuple(range(len(sizes))), q=q)  # fmt: skip

    def constant(self, data: Any, q: QParams | None = None) -> Value:
        array = np.asarray(data, order="C")  # ascontiguousarray would make a vector of a scalar
        return Value("c", array.dtype, array.shape, tuple(range(array.ndim)), array, q=q)

    def op(self, kind: str, args: dict[str, Any], out: Value) -> Value:
        self.graph.ops.append(Op(kind, args, [out]))
        return out

    def keep(self, value: Value) -> None:
        """Make a value one of those that later steps read."""
        self.values.append(value)

    def input(self, step: Step) -> None:
        raise NotImplementedError

    def as_input(self, value: Value) -> Step | None:
        """A value as an input of the same type, or None if none can be."""
        raise NotImplementedError

    def apply(self, step: Step) -> None:
        need(step["op"] in self.steps, f"no step {step['op']!r}")
        self.steps[step["op"]].build(self, step)

    def contents(self, value: Value, rng: np.random.Generator) -> Array:
        """What an input holds."""
        if value.q is not None:
            return rng.integers(value.q.qmin, value.q.qmax + 1, value.bound).astype(value.q.dtype)
        if value.dtype is not None and value.dtype.kind in "iu":
            return rng.integers(-100 if value.dtype.kind == "i" else 0, 101, value.bound).astype(value.dtype)
        if value.dtype == np.bool_:
            return rng.integers(0, 2, value.bound).astype(bool)
        return rng.standard_normal(value.bound).astype(value.dtype)


@dataclass(frozen=True)
class Case:
    """A graph and what it is given."""

    spec: Spec
    graph: Graph
    inputs: list[Array]


def build(spec: Spec, builder: Builder) -> Case:
    """The graph of a spec. Raises InvalidSpecError if its steps do not fit."""
    builder.times = int(spec.options.get("times", 1))
    for step in spec.inputs:
        builder.input(step)
    builder.graph.inputs = list(builder.values)
    for step in spec.steps:
        builder.apply(step)
    need(spec.outputs and max(spec.outputs) < len(builder.values), "outputs are values")
    builder.graph.outputs = [builder.values[i] for i in spec.outputs]
    made = {v for op in builder.graph.ops for v in op.outputs}
    need(all(v in made for v in builder.graph.outputs), "outputs are results")
    rng = np.random.default_rng([11, spec.seed])
    return Case(spec, builder.graph, [builder.contents(v, rng) for v in builder.graph.inputs])
