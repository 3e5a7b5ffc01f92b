"""Compiler options under ExecuTorch's names. An option that is not listed is rejected, not ignored."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Union

from edgewright.errors import UsageError
from edgewright.program.memory import MemoryPlanningPass


@dataclass
class EdgeCompileConfig:
    """Options for rewriting a model to kernels.

    ``runtime`` names the available kernels: ``wheel``, ``android``, ``ios``, ``cortex-m`` or ``portable-only``, with a
    release of ExecuTorch (``android-1.3``; the oldest if there is none), or a list of operators (``"aten::add.out"``).
    ``preserve_ops`` and ``_core_aten_ops_exception_list`` are operators that are not decomposed.
    ``_check_ir_validity=False`` defers the check that every operator has a kernel to ``to_executorch``.
    ``_skip_dim_order`` emits plain copies instead of dim-order operators.
    """

    _check_ir_validity: bool = True
    _skip_dim_order: bool = False
    _core_aten_ops_exception_list: Sequence[Any] = field(default_factory=list)
    preserve_ops: Sequence[Any] = field(default_factory=list)
    runtime: Union[str, Sequence[str]] = "wheel"

    def __post_init__(self) -> None:
        _check_flags(self, "_check_ir_validity", "_skip_dim_order")
        for name in ("_core_aten_ops_exception_list", "preserve_ops", "runtime"):
            _check(self, name, isinstance(getattr(self, name), Sequence), "must be a list of operators")
        for name in ("_core_aten_ops_exception_list", "preserve_ops"):
            ops = getattr(self, name)
            _check(self, name, all(map(_is_operator, ops)), "must hold operators such as torch.ops.aten.add.Tensor")
        names_ok = isinstance(self.runtime, str) or all(isinstance(key, str) for key in self.runtime)
        _check(self, "runtime", names_ok, "must be the name of a profile, or names such as 'aten::add.out'")


HOST_TWINS = ("side", "embed", "none")


@dataclass
class ExecutorchBackendConfig:
    """Options for writing a program.

    ``external_constants``: True, or a function from a placeholder node to the name of the data file of its constant, or
    None. ``manifest=False`` omits the build description, ``layer_names=False`` the names of the model's modules, which
    profiles and reports of a file show. ``host_twin``: where to write the graphs that this machine
    runs in place of blobs that only a device can run: ``side`` (``m.twin`` next to ``m.pte``), ``embed`` or ``none``.
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
    layer_names: bool = True
    host_twin: str = "side"

    def __post_init__(self) -> None:
        _check(self, "host_twin", self.host_twin in HOST_TWINS, f"must be {' or '.join(HOST_TWINS)}")
        _check_flags(self, "emit_stacktrace", "extract_delegate_segments", "remove_view_copy", "manifest")
        _check_flags(self, "external_mutable_weights", "emit_mutable_buffer_names", "layer_names")
        for name, minimum in (("segment_alignment", 16), ("constant_tensor_alignment", 1), ("delegate_alignment", 1)):
            value = getattr(self, name)
            if value is None and name != "segment_alignment":
                continue
            is_int = isinstance(value, int) and not isinstance(value, bool) and value >= minimum
            _check(self, name, is_int and not value & (value - 1), f"must be a power of two, {minimum} or more")
        is_list = isinstance(self.passes, Sequence | Mapping) or hasattr(self.passes, "passes")
        _check(self, "passes", is_list, "must be a list of passes, or of one for each method")
        option: Any = self.memory_planning_pass
        plans = list(option.values()) if isinstance(option, Mapping) else [option]
        valid = all(isinstance(plan, MemoryPlanningPass) for plan in plans)
        _check(self, "memory_planning_pass", valid, "must be a MemoryPlanningPass, or a mapping of methods to them")
        option = self.external_constants
        valid = isinstance(option, bool) or callable(option)
        _check(self, "external_constants", valid, "must be True, False, or a function of a node")

    def planning(self, method: str) -> MemoryPlanningPass:
        """The memory planning pass of one method."""
        option = self.memory_planning_pass
        if isinstance(option, Mapping):
            return option.get(method, MemoryPlanningPass())
        return option


def _check(options: Any, name: str, valid: Any, rule: str) -> None:
    if not valid:
        raise UsageError(f"{type(options).__name__}.{name}", rule, value=getattr(options, name))


def _check_flags(options: Any, *names: str) -> None:
    for name in names:
        _check(options, name, isinstance(getattr(options, name), bool), "must be True or False")


def _is_operator(op: Any) -> bool:
    """Whether ``op`` is an operator overload, without importing torch."""
    return hasattr(op, "_schema") and hasattr(op, "_overloadname")
