"""Options of the compiler, under the names the ecosystem knows. What is not listed here is refused, not ignored."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Union

from edgewright.errors import UsageError
from edgewright.program.memory import MemoryPlanningPass


@dataclass
class EdgeCompileConfig:
    """How a model becomes a graph of kernels.

    ``runtime`` names the kernels that may be used: ``wheel``, ``android``, ``ios``, ``portable-only``, or a list of
    operators of your own (``"aten::add.out"``). ``preserve_ops`` and ``_core_aten_ops_exception_list`` are operators
    to leave as they are. ``_check_ir_validity=False`` puts off the check that every operator has a kernel until
    ``to_executorch``. ``_skip_dim_order`` uses plain copies instead of dim-order operators.
    """

    _check_ir_validity: bool = True
    _skip_dim_order: bool = False
    _core_aten_ops_exception_list: Sequence[Any] = field(default_factory=list)
    preserve_ops: Sequence[Any] = field(default_factory=list)
    runtime: Union[str, Sequence[str]] = "wheel"


@dataclass
class ExecutorchBackendConfig:
    """How a graph becomes a file.

    ``external_constants``: True, or a function of a placeholder node that gives the name of the data file its
    constant goes to, or None. ``manifest=False`` leaves out the description of the build.
    """

    passes: Sequence[Callable[[Any], Any]] = field(default_factory=list)
    memory_planning_pass: Union[MemoryPlanningPass, Mapping[str, MemoryPlanningPass]] = field(
        default_factory=MemoryPlanningPass
    )
    emit_stacktrace: bool = False
    extract_delegate_segments: bool = True
    segment_alignment: int = 128
    constant_tensor_alignment: int | None = None
    delegate_alignment: int | None = None
    remove_view_copy: bool = True
    external_constants: Union[bool, Callable[[Any], str | None]] = False
    external_mutable_weights: bool = False
    emit_mutable_buffer_names: bool = False
    manifest: bool = True

    def __post_init__(self) -> None:
        for name in ("segment_alignment", "constant_tensor_alignment", "delegate_alignment"):
            value = getattr(self, name)
            if value is not None and (value < 1 or value & (value - 1)):
                raise UsageError(f"ExecutorchBackendConfig.{name}", "must be a power of two", value=value)

    def planning(self, method: str) -> MemoryPlanningPass:
        """The memory planning of one method."""
        chosen = self.memory_planning_pass
        if isinstance(chosen, Mapping):
            return chosen.get(method, MemoryPlanningPass())
        return chosen
