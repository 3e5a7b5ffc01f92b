"""``PlanBuilder``: the values (tensors, scalars, strings, lists) and instructions of one execution plan."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from edgewright.errors import UnsupportedOperatorError
from edgewright.formats import schema
from edgewright.formats.executorch_releases import OLDEST, operators_of
from edgewright.formats.operator_signatures import OPERATORS, Kind, Signature
from edgewright.ir.dtypes import to_scalar_type
from edgewright.ir.graph import Graph, Op, Origin, Value
from edgewright.program.constants import ConstantPool
from edgewright.program.memory import MemoryPlanningPass
from edgewright.program.storage import StoragePlan

if TYPE_CHECKING:
    from edgewright.program.shared_state import SharedLayout

PRESERVE_FORMAT = 1  # torch.preserve_format, as files number it


class ValueTableBuilder:
    """Values in order of creation. Equal literals share one value, because nothing writes them."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self._shared: dict[Any, int] = {}

    def add(self, value: schema.Value) -> int:
        """Append a value without deduplication; returns its index."""
        self.items.append(value)
        return len(self.items) - 1

    def shared(self, key: Any, make: Callable[[], schema.Value]) -> int:
        """The index of the value with ``key``, created if it is new."""
        if key not in self._shared:
            self._shared[key] = self.add(make())
        return self._shared[key]

    def literal(self, value: Any) -> int:
        """The index of a literal."""
        return self.shared((type(value).__name__, str(value)), lambda: make_literal(value))

    def ints(self, indices: list[int]) -> int:
        """The index of a list of integers, which are value indices."""
        return self.shared(("ints", *indices), lambda: schema.IntList(items=indices))

    def floats(self, items: list[float]) -> int:
        return self.shared(("floats", *items), lambda: schema.DoubleList(items=[float(i) for i in items]))

    def bools(self, items: list[bool]) -> int:
        return self.shared(("bools", *items), lambda: schema.BoolList(items=items))


def make_literal(value: Any) -> schema.Value:
    """A Python or torch literal as a value of the file."""
    if value is None:
        return schema.Null()
    if isinstance(value, bool):
        return schema.Bool(bool_val=value)
    if isinstance(value, int):
        return schema.Int(int_val=value)
    if isinstance(value, float):
        return schema.Double(double_val=value)
    if isinstance(value, str):
        return schema.String(string_val=value)
    if type(value).__module__ == "torch":
        return schema.Int(int_val=_torch_literal(value))
    raise UnsupportedOperatorError("argument", "cannot be stored in a program", value=repr(value))


def _torch_literal(value: Any) -> int:
    """The number of a dtype, memory format or layout of torch, which is imported only if such a value appears."""
    import torch

    from edgewright.frontend.tensors import DTYPES

    if isinstance(value, torch.dtype):
        return int(to_scalar_type(DTYPES[value]))
    if isinstance(value, torch.memory_format):
        return PRESERVE_FORMAT if value is torch.preserve_format else 0
    if isinstance(value, torch.layout):
        return 0
    raise UnsupportedOperatorError("argument", "cannot be stored in a program", value=repr(value))


NUMBERS: dict[str, Callable[[], schema.Value]] = {"int": schema.Int, "bool": schema.Bool, "float": schema.Double}


class Kernels(Protocol):
    """The kernels of a runtime: ``lowering.kernel_resolution.KernelSet``, or ``StockKernels``."""

    name: str
    keys: frozenset[str]

    def by_kind(self, kind: str) -> Signature | None:
        """The kernel of an operator by its ``ir.Op.kind``."""

    def remedy_by_kind(self, kind: str) -> str:
        """How to get a kernel for an operator that has none here, or nothing."""


class StockKernels:
    """The kernels of the oldest release, for graphs that are built without torch. Kinds are kernels' own names
    (``aten::add.out``) or their functional operators' (``aten.add.Tensor``)."""

    name = f"wheel-{OLDEST}"
    keys = operators_of(OLDEST)

    def by_kind(self, kind: str) -> Signature | None:
        signature = OPERATORS.get(kind) or _by_functional_operator().get(kind)
        return signature if signature is not None and signature.key in self.keys else None

    def remedy_by_kind(self, kind: str) -> str:
        return ""


@cache
def _by_functional_operator() -> dict[str, Signature]:
    return {signature.functional: signature for signature in OPERATORS.values() if signature.functional}


@dataclass
class EmitOptions:
    """The part of the configuration that concerns one method."""

    planning: MemoryPlanningPass
    kernels: Kernels
    remove_view_copy: bool = True
    emit_stacktrace: bool = False
    emit_mutable_buffer_names: bool = False
    skip_dim_order: bool = False
    shared: SharedLayout | None = None  # offsets of state that other methods use too
    external_tag: Callable[[Value], str | None] | None = None  # data file of a tensor, or None


@dataclass
class TensorEmitter:
    """Builds the tensor values of one method."""

    options: EmitOptions
    constants: ConstantPool
    states: ConstantPool
    storage: StoragePlan

    def make(self, value: Value) -> schema.Tensor:
        """The plan's tensor for a value of the graph."""
        tensor = schema.Tensor(
            scalar_type=int(to_scalar_type(value.dtype)),
            sizes=value.bound,
            dim_order=value.dim_order,
            shape_dynamism=int(schema.Dynamism.DYNAMIC_BOUND if value.dynamic else schema.Dynamism.STATIC),
        )
        if value.constant:
            self._constant(value, tensor)
        elif not self.storage.is_allocated(value):
            self.storage.allocate(value)
        if value.state:
            self._state(value, tensor)
        return tensor

    def _constant(self, value: Value, tensor: schema.Tensor) -> None:
        if not self._external(value, tensor):
            tensor.data_buffer_idx = self.constants.add(value)

    def _external(self, value: Value, tensor: schema.Tensor) -> bool:
        """Store a tensor's contents in a data file, if configured."""
        tag = self.options.external_tag(value) if self.options.external_tag and value.qualified_name else None
        if tag is None:
            return False
        self.constants.add_external(value, tag)
        tensor.extra_tensor_info = schema.ExtraTensorInfo(
            fully_qualified_name=value.qualified_name, location=int(schema.TensorDataLocation.EXTERNAL)
        )
        return True

    def _state(self, value: Value, tensor: schema.Tensor) -> None:
        assert value.data is not None
        if self._external(value, tensor):
            return
        if self.options.planning.alloc_mutable_buffers and np.any(value.data):  # arenas start as zeros
            tensor.data_buffer_idx = self.states.add(value)
        if self.options.emit_mutable_buffer_names or not self.options.planning.alloc_mutable_buffers:
            tensor.extra_tensor_info = schema.ExtraTensorInfo(fully_qualified_name=value.qualified_name)


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
        self.origins: list[Origin] = []  # of each instruction
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
        self.origins.append(op.origin if op is not None else Origin())
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
