"""``PlanBuilder``: the values and instructions of one execution plan while they are appended."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from edgewright.formats import schema
from edgewright.formats.operator_signatures import Kind, Signature
from edgewright.ir.graph import Graph, Op, Value
from edgewright.program.constants import ConstantPool
from edgewright.program.storage import StoragePlan
from edgewright.program.tensors import EmitOptions, TensorEmitter
from edgewright.program.values import NUMBERS, ValueTableBuilder

# Reshapes of a dense tensor: no instruction, the result aliases its source.
RESHAPES = {
    "aten.view_copy.default", "aten.unsqueeze_copy.default", "aten.squeeze_copy.dim", "aten.squeeze_copy.dims",
    "aten.alias_copy.default", "aten.detach_copy.default", "aten.lift_fresh_copy.default",
}  # fmt: skip


class PlanBuilder(ABC):
    """Appends values and instructions. A subclass says how an operator becomes instructions (``op``)."""

    def __init__(self, graph: Graph, options: EmitOptions, constants: ConstantPool, states: ConstantPool) -> None:
        self.graph = graph
        self.options = options
        self.values = ValueTableBuilder()
        self.storage = StoragePlan(graph, options.planning, options.shared)
        self.tensors = TensorEmitter(options, constants, states, self.storage)
        self.instructions: list[Any] = []
        self.traces: list[schema.FrameList] = []
        self.source_nodes: list[tuple[str, ...]] = []  # source nodes of each instruction in the exported program
        self._indices: dict[Value, int] = {}
        self._operators: dict[str, int] = {}

    @abstractmethod
    def op(self, op: Op) -> None:
        """Emit one operator."""

    def body(self, graph: Graph) -> None:
        """Emit the operators of a method, a branch or a loop body."""
        for op in graph.ops:
            self.op(op)

    # ------------------------------------------------------------------------------------------- instructions

    def call(self, signature: Signature, inputs: list[int], results: list[int], op: Op | None = None) -> int:
        """Append a kernel call; returns the instruction's index."""
        index = self._operators.setdefault(signature.key, len(self._operators))
        return self.instruction(schema.KernelCall(op_index=index, args=[*inputs, *results]), op)

    def instruction(self, instruction: Any, op: Op | None = None) -> int:
        """Append an instruction; returns its index."""
        self.instructions.append(instruction)
        frames = op.origin.frames if op is not None else ()
        items = [schema.Frame(filename=f, lineno=n, name=name, context=c) for f, n, name, c in frames]
        self.traces.append(schema.FrameList(items=items))
        self.source_nodes.append(op.origin.exported_nodes if op is not None else ())
        return len(self.instructions) - 1

    # ------------------------------------------------------------------------------------------------- values

    def argument(self, value: Any, kind: Kind) -> int:
        """The index of an argument's value, created if it is new."""
        if isinstance(value, Value):
            return self._indices[value] if value in self._indices else self.define(value)
        if isinstance(value, list | tuple):
            return self._list(list(value), kind)
        if kind is Kind.FLOAT and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        return self.values.literal(value)

    def _list(self, items: list[Any], kind: Kind) -> int:
        if kind is Kind.TENSORS:
            return self.values.add(schema.TensorList(items=[self.argument(i, Kind.TENSOR) for i in items]))
        if kind is Kind.OPTIONAL_TENSORS:
            indices = [-1 if i is None else self.argument(i, Kind.TENSOR) for i in items]
            return self.values.add(schema.OptionalTensorList(items=indices))
        if kind is Kind.FLOATS:
            return self.values.floats(items)
        if kind is Kind.BOOLS:
            return self.values.bools(items)
        return self.values.ints([self.argument(i, Kind.INT) for i in items])

    def define(self, value: Value) -> int:
        """Create a value of the plan for a tensor or a scalar."""
        index = self.values.add(NUMBERS[value.kind]() if value.dtype is None else self.tensors.make(value))
        self._indices[value] = index
        self.storage.bind(value, index)
        return index

    def alias_to(self, value: Value, other: Value) -> None:
        """Map ``value`` to the same value of the plan as ``other``, which is defined."""
        self._indices[value] = self._indices[other]
        if other.dtype is not None:
            self.storage.share(value, other)
