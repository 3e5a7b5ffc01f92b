"""From a graph to an execution plan: values, instructions, and the memory behind them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from edgewright.errors import UnsupportedOperatorError
from edgewright.ir.dtypes import to_scalar_type
from edgewright.ir.graph import Graph, Op, Value
from edgewright.program.constants import ConstantPool
from edgewright.program.memory import Block, MemoryPlanningPass, plan
from edgewright.program.resolve import KernelSet, is_list_output
from edgewright.pte import schema
from edgewright.runtime.operators import OPERATORS, Kind, Signature

# Operators that only rename elements of a dense tensor: no instruction, the result is the same memory.
RESHAPES = {
    "aten.view_copy.default", "aten.unsqueeze_copy.default", "aten.squeeze_copy.dim", "aten.squeeze_copy.dims",
    "aten.alias_copy.default", "aten.detach_copy.default", "aten.lift_fresh_copy.default",
}  # fmt: skip
_MEMORY_FORMATS = {torch.contiguous_format: 0, torch.preserve_format: 1}


@dataclass(eq=False)
class Storage:
    """A tensor's place: a block of the arena (perhaps shared), or nothing."""

    block: Block | None
    planned: bool = True


@dataclass
class EmitOptions:
    """What of the configuration concerns one method."""

    planning: MemoryPlanningPass
    kernels: KernelSet
    remove_view_copy: bool = True
    emit_stacktrace: bool = False
    emit_mutable_buffer_names: bool = False
    skip_dim_order: bool = False
    external_tag: Any = None  # Value -> tag of a data file, or None


@dataclass(eq=False)
class Emitter:
    """Emits one graph."""

    graph: Graph
    options: EmitOptions
    constants: ConstantPool
    states: ConstantPool
    values: list[Any] = field(default_factory=list)
    instructions: list[Any] = field(default_factory=list)
    traces: list[schema.FrameList] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._indices: dict[int, int] = {}
        self._literals: dict[Any, int] = {}
        self._operators: dict[str, int] = {}
        self._storages: dict[int, Storage] = {}
        self._outputs = {id(v) for v in self.graph.outputs if isinstance(v, Value)}
        self._inputs = {id(v) for v in self.graph.inputs if isinstance(v, Value)}
        self._updated = {id(target) for target, _ in self.graph.updates}

    # ------------------------------------------------------------------------------------------------ the plan

    def run(self) -> tuple[list[Any], list[int], list[int]]:
        """Emit everything; the values, and the indices of inputs and outputs."""
        inputs = [self.argument(v, Kind.ANY) for v in self.graph.inputs]
        for op in self.graph.ops:
            self.op(op)
        for target, source in self.graph.updates:
            self._update(target, source)
        outputs = [self._output(v) for v in self.graph.outputs]
        return self.values, inputs, outputs

    def plan(self, encoded: tuple[str, str]) -> schema.ExecutionPlan:
        """The finished plan of the method."""
        values, inputs, outputs = self.run()
        arenas = self._arenas()
        return schema.ExecutionPlan(
            name=self.graph.name,
            container_meta_type=schema.ContainerMetadata(encoded_inp_str=encoded[0], encoded_out_str=encoded[1]),
            values=values,
            inputs=inputs,
            outputs=outputs,
            chains=[
                schema.Chain(
                    inputs=[],
                    outputs=[],
                    instructions=self.instructions,
                    stacktrace=self.traces if self.options.emit_stacktrace else None,
                )
            ],
            operators=[_operator(key) for key in self._operators],
            delegates=[],
            non_const_buffer_sizes=arenas,
        )

    # ---------------------------------------------------------------------------------------------- operators

    def op(self, op: Op) -> None:
        """Emit one operator."""
        from edgewright.program.control import CONTROL

        if op.kind in CONTROL:
            CONTROL[op.kind](self, op)
            return
        if op.kind in RESHAPES and self._reshape(op):
            return
        signature, args = self._kernel(op)
        inputs = [self.argument(args[a.name], a.kind) for a in signature.inputs]
        self.call(signature, inputs, self._results(op, signature), op)

    def _kernel(self, op: Op) -> tuple[Signature, dict[str, Any]]:
        """The kernel an operator becomes, and its arguments by the kernel's names."""
        special = self._layout_kernel(op)
        if special is not None:
            return special
        signature = self.options.kernels.by_kind(op.kind)
        if signature is None:
            where = f" in module {op.origin.module!r}" if op.origin.module else ""
            rule = f"has no kernel in the {self.options.kernels.name!r} runtime"
            line = op.origin.frames[-1] if op.origin.frames else None
            remedy = f"From {line[0]}:{line[1]}: {line[3]}" if line else ""
            raise UnsupportedOperatorError(f"{op.kind}{where}", rule, remedy=remedy)
        names = [a.name for a in signature.inputs]
        if op.args and not set(names) <= set(op.args):  # arithmetic on sizes has no names
            return signature, dict(zip(names, op.args.values(), strict=False))
        return signature, op.args

    def _layout_kernel(self, op: Op) -> tuple[Signature, dict[str, Any]] | None:
        """Copies that change type or layout say so through the output; they have kernels of their own."""
        key = _LAYOUT_KERNELS.get(op.kind)
        if key is None:
            return None
        out = op.outputs[0]
        assert out is not None
        if self.options.skip_dim_order:
            plain = _PLAIN_KERNELS[op.kind]
            fmt = None if out.dim_order == tuple(range(len(out.dim_order))) else torch.preserve_format
            return OPERATORS[plain], {**op.args, "non_blocking": False, "memory_format": fmt}
        return OPERATORS[key], {**op.args, "non_blocking": False, "dim_order": list(out.dim_order)}

    def _results(self, op: Op, signature: Signature) -> list[int]:
        """The values a call writes, as its last arguments."""
        made = [self.define(v) if v is not None else self._nothing() for v in op.outputs]
        if not signature.outputs:
            return made
        if is_list_output(signature):
            return [self.literal(schema.TensorList(items=made), share=False)] * 1 + [
                self.literal(schema.TensorList(items=made), share=False)
            ]
        if len(made) > 1:
            return [*made, self.literal(schema.TensorList(items=made), share=False)]
        return [made[0], made[0]] if signature.boxed > len(signature.args) else made

    def call(self, signature: Signature, inputs: list[int], results: list[int], op: Op | None = None) -> None:
        """Append a kernel call."""
        index = self._operators.setdefault(signature.key, len(self._operators))
        self.instruction(schema.KernelCall(op_index=index, args=[*inputs, *results]), op)

    def instruction(self, instruction: Any, op: Op | None = None) -> int:
        """Append an instruction; its index."""
        self.instructions.append(instruction)
        frames = op.origin.frames if op is not None else ()
        self.traces.append(
            schema.FrameList(items=[schema.Frame(filename=f, lineno=n, name=fn, context=c) for f, n, fn, c in frames])
        )
        return len(self.instructions) - 1

    def _update(self, target: Value, source: Value) -> None:
        """Write new contents to state (or to a mutated input) at the end of the method."""
        state, new = self.argument(target, Kind.TENSOR), self.argument(source, Kind.TENSOR)
        self.call(OPERATORS["aten::copy_"], [state, new, self.literal(False)], [state])

    def _output(self, value: Any) -> int:
        if isinstance(value, Value) and (value.constant or value.state or id(value) in self._inputs):
            if value.dtype is not None and not value.constant:
                return self._copied(value)
        return self.argument(value, Kind.ANY)

    def _copied(self, value: Value) -> int:
        """A graph output that is an input or state: a copy of its own, so that later writes cannot reach it."""
        copy = Value(f"{value.name}_out", value.dtype, value.shape, value.dim_order)
        self._outputs.add(id(copy))
        source, out = self.argument(value, Kind.TENSOR), self.define(copy)
        key = "dim_order_ops::_clone_dim_order.out"
        order = self.argument(list(value.dim_order), Kind.INTS)
        self.call(OPERATORS[key], [source, self.literal(False), order], [out, out])
        return out

    # -------------------------------------------------------------------------------------------------- views

    def _reshape(self, op: Op) -> bool:
        """Make a result another name of its source's memory; False if it must be a copy."""
        source, out = next(op.inputs()), op.outputs[0]
        assert out is not None
        contiguous = all(v.dim_order == tuple(range(len(v.dim_order))) for v in (source, out))
        if not self.options.remove_view_copy or not contiguous or source.state or id(source) in self._updated:
            return False
        if id(out) in self._outputs and (source.constant or not self._may_share_output(source)):
            return False
        if source.dynamic or out.dynamic:
            return self._dynamic_view(op, source, out)
        if source.constant:
            data = source.data
            assert data is not None
            out.data, out.qualified_name = data.reshape(out.bound), source.qualified_name
            return True
        self.argument(source, Kind.TENSOR)
        self._storages[id(out)] = self._storages[id(source)]
        self.define(out)
        return True

    def _may_share_output(self, source: Value) -> bool:
        planning = self.options.planning
        is_input = id(source) in self._inputs
        return planning.alloc_graph_output and (planning.alloc_graph_input or not is_input)

    def _dynamic_view(self, op: Op, source: Value, out: Value) -> bool:
        if op.kind != "aten.view_copy.default" or id(out) in self._outputs or id(source) in self._inputs:
            return False
        base = self.argument(source, Kind.TENSOR)
        shared = self._storages[id(source)]
        self._storages[id(out)] = Storage(shared.block, planned=False)
        size = self.argument(op.args["size"], Kind.INTS)
        self.call(OPERATORS["executorch_prim::et_view.default"], [base, size], [self.define(out)], op)
        return True

    # ------------------------------------------------------------------------------------------------- values

    def argument(self, value: Any, kind: Kind) -> int:
        """The index of an argument's value, made if it is new."""
        if isinstance(value, Value):
            return self._indices[id(value)] if id(value) in self._indices else self.define(value)
        if isinstance(value, list | tuple):
            return self._list(list(value), kind)
        if kind is Kind.FLOAT and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        return self.literal(value)

    def _list(self, items: list[Any], kind: Kind) -> int:
        if kind is Kind.TENSORS:
            return self.literal(schema.TensorList(items=[self.argument(i, Kind.TENSOR) for i in items]), share=False)
        if kind is Kind.OPTIONAL_TENSORS:
            indices = [-1 if i is None else self.argument(i, Kind.TENSOR) for i in items]
            return self.literal(schema.OptionalTensorList(items=indices), share=False)
        if kind is Kind.FLOATS:
            return self._shared(("floats", *items), lambda: schema.DoubleList(items=[float(i) for i in items]))
        if kind is Kind.BOOLS:
            return self._shared(("bools", *items), lambda: schema.BoolList(items=items))
        indices = [self.argument(i, Kind.INT) for i in items]
        return self._shared(("ints", *indices), lambda: schema.IntList(items=indices))

    def literal(self, value: Any, *, share: bool = True) -> int:
        """The index of a baked-in value. Equal ones are stored once; nothing ever writes them."""
        if not share:
            self.values.append(value)
            return len(self.values) - 1
        key = (type(value).__name__, str(value))
        return self._shared(key, lambda: _literal(value))

    def _shared(self, key: Any, make: Any) -> int:
        if key not in self._literals:
            made = make()
            self._literals[key] = len(self.values)
            self.values.append(made)
        return self._literals[key]

    def define(self, value: Value) -> int:
        """A new value of the plan for a tensor or a number."""
        made = self._number(value) if value.dtype is None else self._tensor(value)
        self._indices[id(value)] = len(self.values)
        self.values.append(made)
        return self._indices[id(value)]

    def _number(self, value: Value) -> Any:
        return {"int": schema.Int(), "bool": schema.Bool(), "float": schema.Double()}[value.kind]

    def _nothing(self) -> int:
        return self.literal(None)

    def _tensor(self, value: Value) -> schema.Tensor:
        tensor = schema.Tensor(
            scalar_type=int(to_scalar_type(value.dtype)),
            sizes=value.bound,
            dim_order=value.dim_order,
            shape_dynamism=int(schema.Dynamism.DYNAMIC_BOUND if value.dynamic else schema.Dynamism.STATIC),
        )
        if value.constant:
            self._constant(value, tensor)
        elif id(value) not in self._storages:
            self._storages[id(value)] = Storage(Block(value.nbytes, 0, 0), self._planned(value))
        if value.state:
            self._state(value, tensor)
        return tensor

    def _constant(self, value: Value, tensor: schema.Tensor) -> None:
        tag = self.options.external_tag(value) if self.options.external_tag and value.qualified_name else None
        if tag is None:
            tensor.data_buffer_idx = self.constants.add(value)
            return
        self.constants.add_external(value, tag)
        tensor.extra_tensor_info = schema.ExtraTensorInfo(
            fully_qualified_name=value.qualified_name, location=int(schema.TensorDataLocation.EXTERNAL)
        )

    def _state(self, value: Value, tensor: schema.Tensor) -> None:
        assert value.data is not None
        if np.any(value.data):  # arenas start as zeros
            tensor.data_buffer_idx = self.states.add(value)
        if self.options.emit_mutable_buffer_names or not self.options.planning.alloc_mutable_buffers:
            tensor.extra_tensor_info = schema.ExtraTensorInfo(fully_qualified_name=value.qualified_name)

    def _planned(self, value: Value) -> bool:
        planning = self.options.planning
        if value.state:
            return planning.alloc_mutable_buffers
        if id(value) in self._inputs:
            return planning.alloc_graph_input
        return planning.alloc_graph_output if id(value) in self._outputs else True

    # ------------------------------------------------------------------------------------------------- memory

    def _arenas(self) -> list[int]:
        """Plan the arena, and write each tensor's place into its value."""
        self._lifetimes()
        by_index = {index: self._storages[key] for key, index in self._indices.items() if key in self._storages}
        planned = {i: s for i, s in by_index.items() if s.planned and s.block is not None}
        shared = self._shared_states() if self.options.planning.share_mutable_buffers else []
        blocks = _unique([s.block for s in planned.values() if s.block not in shared])
        alignment = self.options.planning.alignment
        sizes = [0, plan(blocks, alignment)]
        if shared:
            at = 0
            for block in shared:
                block.offset = at
                at = at + block.size + (-block.size % alignment)
            sizes.append(at)
        for index, storage in planned.items():
            assert storage.block is not None
            memory_id = 2 if storage.block in shared else 1
            self.values[index].allocation_info = schema.AllocationDetails(
                memory_id=memory_id,
                memory_offset_low=storage.block.offset & 0xFFFFFFFF,
                memory_offset_high=storage.block.offset >> 32,
            )
        return sizes

    def _shared_states(self) -> list[Block]:
        states = sorted((v for v in self.graph.values() if v.state), key=lambda v: v.qualified_name)
        return [b for v in states if (b := self._storages[id(v)].block) is not None]

    def _lifetimes(self) -> None:
        """From first to last instruction that touches it; inputs from the start, outputs and state to the end."""
        last = len(self.instructions)
        by_index = {index: self._storages[key] for key, index in self._indices.items() if key in self._storages}
        touched: dict[int, list[int]] = {}
        for at, instruction in enumerate(self.instructions):
            for index in self._touches(instruction):
                if index in by_index:
                    touched.setdefault(id(by_index[index].block), []).append(at)
        for key, index in self._indices.items():
            block = self._storages[key].block if key in self._storages else None
            if block is None:
                continue
            times = touched.get(id(block), [])
            if key in self._inputs or self.values[index].data_buffer_idx:
                times = [-1, *times]
            if key in self._outputs or any(v.state and id(v) == key for v in self.graph.values()):
                times = [*times, last]
            touched[id(block)] = times
        states = {id(self._storages[id(v)].block) for v in self.graph.values() if v.state and id(v) in self._storages}
        for storage in by_index.values():
            if storage.block is not None:
                times = touched.get(id(storage.block)) or [0]
                storage.block.start, storage.block.end = min(times), max(times)
                if id(storage.block) in states:
                    storage.block.start, storage.block.end = -1, last

    def _touches(self, instruction: Any) -> list[int]:
        """Every value an instruction reads or writes, through lists too."""
        if isinstance(instruction, schema.KernelCall | schema.DelegateCall):
            direct = list(instruction.args)
        elif isinstance(instruction, schema.MoveCall):
            direct = [instruction.move_from, instruction.move_to]
        elif isinstance(instruction, schema.JumpFalseCall):
            direct = [instruction.cond_value_index]
        else:
            direct = []
        for index in tuple(direct):
            if isinstance(self.values[index], schema.TensorList | schema.OptionalTensorList):
                direct += [i for i in self.values[index].items if i >= 0]
        return direct


_LAYOUT_KERNELS = {
    "aten._to_copy.default": "dim_order_ops::_to_dim_order_copy.out",
    "aten.clone.default": "dim_order_ops::_clone_dim_order.out",
    "aten.empty.memory_format": "dim_order_ops::_empty_dim_order.out",
}
_PLAIN_KERNELS = {
    "aten._to_copy.default": "aten::_to_copy.out",
    "aten.clone.default": "aten::clone.out",
    "aten.empty.memory_format": "aten::empty.out",
}


def _unique(blocks: list[Any]) -> list[Block]:
    return list({id(b): b for b in blocks}.values())


def _operator(key: str) -> schema.Operator:
    name, _, overload = key.partition(".")
    return schema.Operator(name=name, overload=overload)


def _literal(value: Any) -> Any:
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
    if isinstance(value, torch.dtype):
        from edgewright.frontend.importer import DTYPES

        return schema.Int(int_val=int(to_scalar_type(DTYPES[value])))
    if isinstance(value, torch.memory_format):
        return schema.Int(int_val=_MEMORY_FORMATS.get(value, 0))
    if isinstance(value, torch.layout):
        return schema.Int(int_val=0)
    raise UnsupportedOperatorError("argument", "has no place in a program", value=repr(value))
