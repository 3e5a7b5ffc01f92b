"""``executorch.runtime`` on Edgewright's runtime."""

from __future__ import annotations

import enum
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, Union

from edgewright.engine.profile import Profile
from edgewright.errors import UsageError
from edgewright.files import write_file
from edgewright.ir.dtypes import parse_dtype, to_scalar_type
from edgewright.runtime import method as methods
from edgewright.runtime.metadata import MethodMetadata
from edgewright.runtime.metadata import TensorInfo as Tensor
from edgewright.runtime.program import LoadedProgram
from edgewright.runtime.program import Runtime as EdgewrightRuntime

Data = Union[bytes, bytearray, memoryview, BinaryIO, str, "os.PathLike[str]"]


class Verification(enum.Enum):
    """Verification levels of ExecuTorch. Edgewright always checks everything."""

    Minimal = 0
    InternalConsistency = 1


class TensorInfo:
    """A tensor input or output of a method."""

    def __init__(self, info: Any) -> None:
        if not isinstance(info, Tensor):
            raise UsageError(f"{info.name}", "is not a tensor", value=str(info))
        self._info = info

    def sizes(self) -> tuple[int, ...]:
        return self._info.shape

    def dtype(self) -> int:
        """ExecuTorch's scalar type number."""
        return int(to_scalar_type(parse_dtype(self._info.dtype)))

    def nbytes(self) -> int:
        return self._info.nbytes

    def is_memory_planned(self) -> bool:
        return self._info.planned

    def __repr__(self) -> str:
        return f"TensorInfo({self._info})"


class MethodMeta:
    """Inputs, outputs and memory of a method."""

    def __init__(self, metadata: MethodMetadata) -> None:
        self._metadata = metadata

    def name(self) -> str:
        return self._metadata.name

    def num_inputs(self) -> int:
        return len(self._metadata.inputs)

    def num_outputs(self) -> int:
        return len(self._metadata.outputs)

    def input_tensor_meta(self, index: int) -> TensorInfo:
        return TensorInfo(_item(f"inputs of {self.name()!r}", self._metadata.inputs, index))

    def output_tensor_meta(self, index: int) -> TensorInfo:
        return TensorInfo(_item(f"outputs of {self.name()!r}", self._metadata.outputs, index))

    def __repr__(self) -> str:
        inputs, outputs = (", ".join(map(str, side)) for side in (self._metadata.inputs, self._metadata.outputs))
        return f"MethodMeta({self.name()}: ({inputs}) -> ({outputs}))"


def _item(subject: str, items: Sequence[Any], index: int) -> Any:
    if not 0 <= index < len(items):
        raise UsageError(subject, f"are numbered from 0 to {len(items) - 1}", value=index)
    return items[index]


class Method:
    """A loaded method."""

    def __init__(self, method: methods.Method, profile: Profile | None) -> None:
        self._method = method
        self._profile = profile

    def execute(self, inputs: Sequence[Any]) -> list[Any]:
        """Run once; tensors in, tensors out."""
        return self._method.execute(list(inputs), profile=self._profile)

    @property
    def metadata(self) -> MethodMeta:
        return MethodMeta(self._method.metadata)


class Program:
    """A program; each method is loaded once."""

    def __init__(self, program: LoadedProgram, profile: Profile | None = None) -> None:
        self._program = program
        self._profile = profile
        self._methods: dict[str, Method] = {}

    @property
    def method_names(self) -> set[str]:
        return set(self._program.method_names)

    def load_method(self, name: str) -> Method:
        if name not in self._methods:
            self._methods[name] = Method(self._program.load_method(name), self._profile)
        return self._methods[name]

    def metadata(self, method_name: str) -> MethodMeta:
        return MethodMeta(self._program.metadata(method_name))

    def write_etdump_result_to_file(self, etdump_path: str, debug_buffer_path: str | None = None) -> None:
        """Write the profile of all runs so far. Intermediate values are not recorded: the debug buffer is empty."""
        if self._profile is None:
            remedy = "Load the program with enable_etdump=True."
            raise UsageError("write_etdump_result_to_file", "needs a program that records its runs", remedy=remedy)
        self._profile.save_etdump(etdump_path)
        if debug_buffer_path is not None:
            write_file(debug_buffer_path, [b""])


class BackendRegistry:
    """Backends whose delegates run here."""

    @property
    def registered_backend_names(self) -> list[str]:
        return EdgewrightRuntime.get().delegates

    def is_available(self, backend_name: str) -> bool:
        return backend_name in self.registered_backend_names


class OperatorRegistry:
    """Operators with kernels here."""

    @property
    def operator_names(self) -> set[str]:
        return set(EdgewrightRuntime.get().operators)


class Runtime:
    """Loads programs; has the registries of backends and operators.

    >>> Runtime.get().backend_registry.is_available("XnnpackBackend")
    True
    """

    _instance: Runtime | None = None

    def __init__(self) -> None:
        self.backend_registry = BackendRegistry()
        self.operator_registry = OperatorRegistry()

    @classmethod
    def get(cls) -> Runtime:
        cls._instance = cls._instance or cls()
        return cls._instance

    def load_program(
        self, data: Data, *, verification: Verification = Verification.InternalConsistency,
        enable_etdump: bool = False, debug_buffer_size: int = 0, data_path: str | os.PathLike[str] | None = None,
    ) -> Program:  # fmt: skip
        """Read and verify a program from a path, bytes, or an open file. Every verification level checks everything."""
        if not isinstance(verification, Verification):
            raise UsageError("verification", "must be a Verification", value=verification)
        loaded = EdgewrightRuntime.get().load_program(source_of(data), None if data_path is None else Path(data_path))
        return Program(loaded, Profile() if enable_etdump else None)


def source_of(data: Any) -> Any:
    """A path or bytes, as Edgewright's reader accepts."""
    if hasattr(data, "read"):
        return data.read()
    if not isinstance(data, bytes | bytearray | memoryview | str | os.PathLike):
        raise UsageError("program", "must be a path, bytes, or an open file", value=type(data).__name__)
    return data
