"""``executorch.extension.pybindings.portable_lib`` on Edgewright's runtime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edgewright.compat.runtime import BackendRegistry, MethodMeta, OperatorRegistry, Program, Runtime, Verification
from edgewright.errors import UsageError

_CHECKED = Verification.InternalConsistency


class _LoadedProgram:
    """Base of loaded programs."""

    def __init__(self, program: Program, profiled: bool) -> None:
        self._program = program
        self._profiled = profiled

    def method_meta(self, method_name: str) -> MethodMeta:
        return self._program.metadata(method_name)

    def has_etdump(self) -> bool:
        return self._profiled

    def write_etdump_result_to_file(self, path: str, debug_buffer_path: str | None = None) -> None:
        self._program.write_etdump_result_to_file(path, debug_buffer_path)


class ExecuTorchModule(_LoadedProgram):
    """A program with callable methods."""

    def run_method(self, method_name: str = "forward", inputs: Sequence[Any] = (), clone_outputs: bool = True) -> Any:
        """Run a method; outputs are always copies."""
        return self._program.load_method(method_name).execute(inputs)

    def forward(self, inputs: Sequence[Any] = (), clone_outputs: bool = True) -> Any:
        return self.run_method("forward", inputs)

    __call__ = forward

    def method_names(self) -> list[str]:
        return sorted(self._program.method_names)


class ExecuTorchMethod:
    """A loaded method."""

    def __init__(self, program: Program, name: str) -> None:
        self._method = program.load_method(name)
        self._inputs: Sequence[Any] = ()
        self._outputs: list[Any] | None = None

    def set_inputs(self, inputs: Sequence[Any]) -> None:
        self._inputs = inputs

    def execute(self) -> None:
        self._outputs = self._method.execute(self._inputs)

    def get_outputs(self, clone_outputs: bool = True) -> list[Any]:
        if self._outputs is None:
            raise UsageError("get_outputs", "must come after execute")
        return self._outputs

    def __call__(self, inputs: Sequence[Any] = (), clone_outputs: bool = True) -> list[Any]:
        return self._method.execute(inputs)

    call = __call__

    def method_meta(self) -> MethodMeta:
        return self._method.metadata


class ExecuTorchProgram(_LoadedProgram):
    """A loaded program."""

    def num_methods(self) -> int:
        return len(self._program.method_names)

    def get_method_name(self, method_index: int) -> str:
        return sorted(self._program.method_names)[method_index]

    def load_method(self, method_name: str) -> ExecuTorchMethod:
        return ExecuTorchMethod(self._program, method_name)


def _load(source: Any, data_path: str | None, etdump: bool, verification: Verification) -> Program:
    return Runtime.get().load_program(source, verification=verification, enable_etdump=etdump, data_path=data_path)


def _load_for_executorch(
    path: str, data_path: str | None = None, enable_etdump: bool = False, debug_buffer_size: int = 0,
    program_verification: Verification = _CHECKED,
) -> ExecuTorchModule:  # fmt: skip
    """Load a file."""
    return ExecuTorchModule(_load(path, data_path, enable_etdump, program_verification), enable_etdump)


def _load_for_executorch_from_buffer(
    buffer: bytes, enable_etdump: bool = False, debug_buffer_size: int = 0,
    program_verification: Verification = _CHECKED,
) -> ExecuTorchModule:  # fmt: skip
    """Load a program from bytes."""
    return ExecuTorchModule(_load(buffer, None, enable_etdump, program_verification), enable_etdump)


def _load_program(
    path: str, enable_etdump: bool = False, debug_buffer_size: int = 0,
    program_verification: Verification = _CHECKED, data_path: str | None = None,
) -> ExecuTorchProgram:  # fmt: skip
    """Load a file; methods load lazily."""
    return ExecuTorchProgram(_load(path, data_path, enable_etdump, program_verification), enable_etdump)


def _load_program_from_buffer(
    buffer: bytes, enable_etdump: bool = False, debug_buffer_size: int = 0,
    program_verification: Verification = _CHECKED, data_path: str | None = None,
) -> ExecuTorchProgram:  # fmt: skip
    """Load a program from bytes; methods load lazily."""
    return ExecuTorchProgram(_load(buffer, data_path, enable_etdump, program_verification), enable_etdump)


def _is_available(backend_name: str) -> bool:
    return BackendRegistry().is_available(backend_name)


def _get_registered_backend_names() -> list[str]:
    return BackendRegistry().registered_backend_names


def _get_operator_names() -> list[str]:
    return sorted(OperatorRegistry().operator_names)
