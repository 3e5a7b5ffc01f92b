"""Metadata of a method: signature, memory, and requirements, as recorded in the file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from edgewright.formats import schema
from edgewright.formats.checked_int import tensor_bytes
from edgewright.ir.dtypes import dtype_name, parse_dtype, to_numpy


@dataclass(frozen=True)
class TensorInfo:
    """A tensor input or output. ``shape`` is the upper bound if ``dynamic``."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    dim_order: tuple[int, ...]
    dynamic: bool
    planned: bool

    @property
    def nbytes(self) -> int:
        size = parse_dtype(self.dtype).itemsize
        for extent in self.shape:
            size *= extent
        return size

    def __str__(self) -> str:
        dims = ", ".join(f"<={n}" if self.dynamic else str(n) for n in self.shape)
        return f"{self.dtype}[{dims}]"


@dataclass(frozen=True)
class ScalarInfo:
    """A number, string or null input or output."""

    name: str
    kind: str
    value: Any

    def __str__(self) -> str:
        return f"{self.kind} {self.value!r}"


@dataclass(frozen=True)
class MethodMetadata:
    """A method's signature, memory, and requirements."""

    name: str
    inputs: tuple[TensorInfo | ScalarInfo, ...]
    outputs: tuple[TensorInfo | ScalarInfo, ...]
    arenas: tuple[int, ...]
    constant_bytes: int
    operators: tuple[str, ...]
    delegates: tuple[str, ...]
    instructions: int

    @property
    def planned_bytes(self) -> int:
        return sum(self.arenas)


def describe(plan: schema.ExecutionPlan) -> MethodMetadata:
    """The metadata of a verified plan."""
    constants = {}
    for value in plan.values:
        if (
            isinstance(value, schema.Tensor)
            and value.allocation_info is None
            and (value.data_buffer_idx or value.external)
        ):
            name = value.extra_tensor_info.fully_qualified_name if value.extra_tensor_info else None
            key = name if value.external else value.data_buffer_idx
            constants[key] = tensor_bytes(value.scalar_type, value.sizes)
    return MethodMetadata(
        name=plan.name,
        inputs=tuple(describe_value(f"in{i}", plan.values[v]) for i, v in enumerate(plan.inputs)),
        outputs=tuple(describe_value(f"out{i}", plan.values[v]) for i, v in enumerate(plan.outputs)),
        arenas=tuple(plan.non_const_buffer_sizes[1:]),
        constant_bytes=sum(constants.values()),
        operators=tuple(operator.key for operator in plan.operators or ()),
        delegates=tuple(delegate.id for delegate in plan.delegates),
        instructions=sum(len(chain.instructions) for chain in plan.chains),
    )


def describe_value(name: str, value: schema.Value) -> TensorInfo | ScalarInfo:
    if isinstance(value, schema.Tensor):
        return TensorInfo(
            name,
            dtype_name(to_numpy(value.scalar_type)),
            tuple(value.sizes),
            tuple(value.dim_order),
            value.shape_dynamism != schema.Dynamism.STATIC,
            value.allocation_info is not None or value.data_buffer_idx != 0,
        )
    return ScalarInfo(name, type(value).__name__.lower(), schema.scalar(value))
