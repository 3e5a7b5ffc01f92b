"""Emission of tensor values: dtype, sizes, and the source of their contents."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from edgewright.formats import schema
from edgewright.ir.dtypes import to_scalar_type
from edgewright.ir.graph import Value
from edgewright.lowering.kernel_resolution import KernelSet
from edgewright.program.constants import ConstantPool
from edgewright.program.memory import MemoryPlanningPass
from edgewright.program.shared_state import SharedLayout
from edgewright.program.storage import StoragePlan


@dataclass
class EmitOptions:
    """The part of the configuration that concerns one method."""

    planning: MemoryPlanningPass
    kernels: KernelSet
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
