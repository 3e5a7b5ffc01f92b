"""Small programs made by hand, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.formats import schema
from edgewright.formats.checked_int import align
from edgewright.formats.operator_signatures import OPERATORS, Kind, Signature
from edgewright.ir.dtypes import to_scalar_type


class PlanBuilder:
    """Collects values, operators and instructions of one method, and plans memory without reuse."""

    def __init__(self, name: str = "forward") -> None:
        self.name = name
        self.values: list[schema.Value] = []
        self.inputs: list[int] = []
        self.outputs: list[int] = []
        self.operators: list[schema.Operator] = []
        self.instructions: list[schema.InstructionType] = []
        self.delegates: list[schema.BackendDelegate] = []
        self.arena = 0

    def value(self, value: schema.Value) -> int:
        self.values.append(value)
        return len(self.values) - 1

    def tensor(self, dtype: Any, shape: Sequence[int], order: Sequence[int] | None = None, **fields: Any) -> int:
        """A planned tensor with memory of its own."""
        number = int(to_scalar_type(dtype))
        info = schema.AllocationDetails(memory_id=1, memory_offset_low=self.arena)
        size = int(np.prod(shape, dtype=object)) * np.dtype(dtype).itemsize if shape else np.dtype(dtype).itemsize
        self.arena = align(self.arena + size, 16)
        tensor = schema.Tensor(
            scalar_type=number,
            sizes=tuple(shape),
            dim_order=tuple(order if order is not None else range(len(shape))),
            allocation_info=info,
        )
        for field, content in fields.items():
            setattr(tensor, field, content)
        return self.value(tensor)

    def input(self, dtype: Any, shape: Sequence[int], order: Sequence[int] | None = None, **fields: Any) -> int:
        self.inputs.append(self.tensor(dtype, shape, order, **fields))
        return self.inputs[-1]

    def ints(self, items: Sequence[int]) -> int:
        indices = [self.value(schema.Int(int_val=int(i))) for i in items]
        return self.value(schema.IntList(items=indices))

    def call(self, operator: str, args: Sequence[int]) -> None:
        """A kernel call; ``args`` as the file has them, the returned value included."""
        name, _, overload = operator.partition(".")
        self.operators.append(schema.Operator(name=name, overload=overload))
        self.instructions.append(schema.KernelCall(op_index=len(self.operators) - 1, args=list(args)))

    def plan(self) -> schema.ExecutionPlan:
        return schema.ExecutionPlan(
            name=self.name,
            container_meta_type=schema.ContainerMetadata(encoded_inp_str="", encoded_out_str=""),
            values=self.values,
            inputs=self.inputs,
            outputs=self.outputs,
            chains=[schema.Chain(inputs=[], outputs=[], instructions=self.instructions)],
            operators=self.operators,
            delegates=self.delegates,
            non_const_buffer_sizes=[0, self.arena],
        )

    def program(self) -> schema.Program:
        return program(self.plan())


def program(*plans: schema.ExecutionPlan, **fields: Any) -> schema.Program:
    """A program of these methods without constants."""
    made = schema.Program(execution_plan=list(plans), constant_segment=schema.SubsegmentOffsets(offsets=[0]))
    made.add_segment(b"")
    for field, content in fields.items():
        setattr(made, field, content)
    return made


def dim_order_of(array: np.ndarray) -> tuple[int, ...]:
    """The order in which an array's dimensions lie in memory, outermost first."""
    contiguous = tuple(range(array.ndim))
    if array.flags.c_contiguous or array.ndim < 3:
        return contiguous
    order = (0, *range(2, array.ndim), 1)
    return order if array.transpose(order).flags.c_contiguous else contiguous


def one_call(
    key: str, args: Sequence[Any], outputs: Sequence[np.ndarray], order: Sequence[int] | None = None
) -> schema.Program:
    """A program that calls one operator: array arguments are its inputs, the rest is baked in."""
    builder, signature = PlanBuilder(), OPERATORS[key]
    indices = [_argument(builder, a.kind, value) for a, value in zip(signature.inputs, args, strict=True)]
    changed = [i for i, a in zip(indices, signature.inputs, strict=True) if a.is_write]
    builder.outputs = [*changed, *_results(builder, signature, indices, outputs[len(changed) :], order)]
    builder.call(key, indices)
    return builder.program()


def _results(
    builder: PlanBuilder,
    signature: Signature,
    indices: list[int],
    like: Sequence[np.ndarray],
    order: Sequence[int] | None,
) -> list[int]:
    """Append the result arguments of a call to ``indices``; the values they are."""
    made = [builder.tensor(a.dtype, a.shape, order if i == 0 else None) for i, a in enumerate(like)]
    is_list = len(signature.outputs) == 1 and signature.outputs[0].kind is Kind.TENSORS
    if is_list:
        indices.append(builder.value(schema.TensorList(items=made)))
        indices.append(builder.value(schema.TensorList(items=made)))
    elif len(made) > 1:
        indices += [*made, builder.value(schema.TensorList(items=made))]
    elif made:
        indices += [made[0], made[0]] if signature.num_values > len(signature.args) else [made[0]]
    elif signature.num_values > len(signature.args):
        indices.append(indices[0])  # in place: returns self
    return made


def _argument(builder: PlanBuilder, kind: Kind, value: Any) -> int:
    if value is None:
        return builder.value(schema.Null())
    if isinstance(value, np.ndarray):
        return builder.input(value.dtype, value.shape, dim_order_of(value))
    if kind in (Kind.TENSORS, Kind.OPTIONAL_TENSORS):
        items = [-1 if v is None else builder.input(v.dtype, v.shape, dim_order_of(v)) for v in value]
        made = schema.TensorList if kind is Kind.TENSORS else schema.OptionalTensorList
        return builder.value(made(items=items))
    if kind is Kind.INTS:
        return builder.ints(value)
    if kind is Kind.FLOATS:
        return builder.value(schema.DoubleList(items=list(value)))
    if kind is Kind.BOOLS:
        return builder.value(schema.BoolList(items=list(value)))
    if isinstance(value, str):
        return builder.value(schema.String(string_val=value))
    if isinstance(value, bool):
        return builder.value(schema.Bool(bool_val=value))
    if kind is Kind.FLOAT or isinstance(value, float):
        return builder.value(schema.Double(double_val=float(value)))
    return builder.value(schema.Int(int_val=int(value)))


def arrays_of(args: Sequence[Any]) -> list[np.ndarray]:
    """The arrays among a call's arguments, in the order ``one_call`` makes inputs of them."""
    return [v for a in args for v in (a if isinstance(a, list) else [a]) if isinstance(v, np.ndarray)]
