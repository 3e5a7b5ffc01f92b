"""``executorch.devtools.bundled_program``: a program with test cases, made as ExecuTorch's is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from edgewright.errors import UsageError
from edgewright.frontend.importer import to_array
from edgewright.pte import bundled


class MethodTestCase:
    """Inputs of one call, and the outputs it must give, if any."""

    def __init__(self, inputs: Any, expected_outputs: Any = None) -> None:
        self.inputs = tree_leaves(inputs)
        self.expected_outputs = [] if expected_outputs is None else tree_leaves(expected_outputs)


@dataclass
class MethodTestSuite:
    """The test cases of a method."""

    method_name: str
    test_cases: Sequence[MethodTestCase]


class BundledProgram:
    """A program (a manager, or the path of a ``.pte``) and the test cases of its methods."""

    def __init__(
        self, executorch_program: Any = None, method_test_suites: Sequence[MethodTestSuite] = (),
        pte_file_path: str | None = None,
    ) -> None:  # fmt: skip
        if (executorch_program is None) == (pte_file_path is None):
            raise UsageError("BundledProgram", "takes a program or the path of one")
        self.executorch_program = executorch_program
        self.method_test_suites = list(method_test_suites)
        self._path = pte_file_path

    def bundle(self) -> bundled.BundledProgram:
        """The same, as Edgewright's writer takes it."""
        if self._path is None:
            program = self.executorch_program.buffer
        else:
            with open(self._path, "rb") as file:
                program = file.read()
        suites = {
            suite.method_name: [
                bundled.TestCase([_data(v) for v in case.inputs], [_data(v) for v in case.expected_outputs])
                for case in suite.test_cases
            ]
            for suite in self.method_test_suites
        }
        return bundled.BundledProgram(program, suites)


def _data(value: Any) -> Any:
    return to_array(value.detach().contiguous()) if isinstance(value, torch.Tensor) else value


def serialize_from_bundled_program_to_flatbuffer(bundled_program: BundledProgram) -> bytes:
    """The bytes of a ``.bpte``."""
    return bundled.write_bundled(bundled_program.bundle())
