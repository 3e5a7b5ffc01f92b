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

    def __post_init__(self) -> None:
        _check_flags(self, "_check_ir_validity", "_skip_dim_order")
        for name in ("_core_aten_ops_exception_list", "preserve_ops", "runtime"):
            _check(self, name, isinstance(getattr(self, name), Sequence), "must be a list of operators")
        for name in ("_core_aten_ops_exception_list", "preserve_ops"):
            given = getattr(self, name)
            _check(self, name, all(map(_is_operator, given)), "must hold operators such as torch.ops.aten.add.Tensor")
        texts = isinstance(self.runtime, str) or all(isinstance(key, str) for key in self.runtime)
        _check(self, "runtime", texts, "must be the name of a profile, or names such as 'aten::add.out'")


HOST_TWINS = ("side", "embed", "none")


@dataclass
class ExecutorchBackendConfig:
    """How a graph becomes a file.

    ``external_constants``: True, or a function of a placeholder node that gives the name of the data file its
    constant goes to, or None. ``manifest=False`` leaves out the description of the build. ``host_twin``: where to put
    what this machine runs in place of blobs that only a device can run: ``side`` (``m.twin`` beside ``m.pte``),
    ``embed`` or ``none``.
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
    host_twin: str = "side"

    def __post_init__(self) -> None:
        _check(self, "host_twin", self.host_twin in HOST_TWINS, f"must be {' or '.join(HOST_TWINS)}")
        _check_flags(self, "emit_stacktrace", "extract_delegate_segments", "remove_view_copy", "manifest")
        _check_flags(self, "external_mutable_weights", "emit_mutable_buffer_names")
        for name, least in (("segment_alignment", 16), ("constant_tensor_alignment", 1), ("delegate_alignment", 1)):
            value = getattr(self, name)
            if value is None and name != "segment_alignment":
                continue
            number = isinstance(value, int) and not isinstance(value, bool) and value >= least
            _check(self, name, number and not value & (value - 1), f"must be a power of two, {least} or more")
        listed = isinstance(self.passes, Sequence | Mapping) or hasattr(self.passes, "passes")
        _check(self, "passes", listed, "must be a list of passes, or of one for each method")
        chosen: Any = self.memory_planning_pass
        plans = list(chosen.values()) if isinstance(chosen, Mapping) else [chosen]
        right = all(isinstance(plan, MemoryPlanningPass) for plan in plans)
        _check(self, "memory_planning_pass", right, "must be a MemoryPlanningPass, or a mapping of methods to them")
        chosen = self.external_constants
        right = isinstance(chosen, bool) or callable(chosen)
        _check(self, "external_constants", right, "must be True, False, or a function of a node")

    def planning(self, method: str) -> MemoryPlanningPass:
        """The memory planning of one method."""
        chosen = self.memory_planning_pass
        if isinstance(chosen, Mapping):
            return chosen.get(method, MemoryPlanningPass())
        return chosen


def _check(options: Any, name: str, right: Any, rule: str) -> None:
    if not right:
        raise UsageError(f"{type(options).__name__}.{name}", rule, value=getattr(options, name))


def _check_flags(options: Any, *names: str) -> None:
    for name in names:
        _check(options, name, isinstance(getattr(options, name), bool), "must be True or False")


def _is_operator(op: Any) -> bool:
    """An overload, without importing torch to say so."""
    return hasattr(op, "_schema") and hasattr(op, "_overloadname")
