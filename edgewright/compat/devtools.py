"""``executorch.devtools``: bundled programs with test cases, and delegation statistics of a graph."""

from __future__ import annotations

import operator
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from edgewright.errors import MissingError, UsageError
from edgewright.formats import bpte
from edgewright.frontend.delegate import executorch_call_delegate
from edgewright.frontend.tensors import to_array


class MethodTestCase:
    """Inputs of one call, and its expected outputs, if any."""

    def __init__(self, inputs: Any, expected_outputs: Any = None) -> None:
        self.inputs = tree_leaves(inputs)
        self.expected_outputs = [] if expected_outputs is None else tree_leaves(expected_outputs)


@dataclass
class MethodTestSuite:
    """The test cases of a method."""

    method_name: str
    test_cases: Sequence[MethodTestCase]


class BundledProgram:
    """A program (a manager, or the path of a ``.pte``) with test cases for its methods."""

    def __init__(
        self, executorch_program: Any = None, method_test_suites: Sequence[MethodTestSuite] = (),
        pte_file_path: str | None = None,
    ) -> None:  # fmt: skip
        if (executorch_program is None) == (pte_file_path is None):
            raise UsageError("BundledProgram", "takes a program or the path of one")
        self.executorch_program = executorch_program
        self.method_test_suites = list(method_test_suites)
        self._path = pte_file_path

    def bundle(self) -> bpte.BundledProgram:
        """Convert to the type of Edgewright's writer."""
        if self._path is None:
            program = self.executorch_program.buffer
        else:
            with open(self._path, "rb") as file:
                program = file.read()
        suites = {
            suite.method_name: [
                bpte.TestCase([_data(v) for v in case.inputs], [_data(v) for v in case.expected_outputs])
                for case in suite.test_cases
            ]
            for suite in self.method_test_suites
        }
        return bpte.BundledProgram(program, suites)


def _data(value: Any) -> Any:
    return to_array(value.detach().contiguous()) if isinstance(value, torch.Tensor) else value


def serialize_from_bundled_program_to_flatbuffer(bundled_program: BundledProgram) -> bytes:
    """Serialize to ``.bpte``."""
    return bpte.write_bundled(bundled_program.bundle())


@dataclass(frozen=True)
class DelegationBreakdown:
    """Occurrences of an operator inside and outside delegates."""

    op_type: str
    delegated: int
    non_delegated: int


@dataclass
class DelegationInfo:
    """Delegation statistics of a graph. The manager's ``partition_reports`` explain what was not delegated."""

    num_delegated_subgraphs: int
    delegated: dict[str, int]
    others: dict[str, int]

    @property
    def delegation_by_operator(self) -> dict[str, DelegationBreakdown]:
        names = sorted({*self.delegated, *self.others})
        return {n: DelegationBreakdown(n, self.delegated.get(n, 0), self.others.get(n, 0)) for n in names}

    @property
    def num_delegated_nodes(self) -> int:
        return sum(self.delegated.values())

    @property
    def num_non_delegated_nodes(self) -> int:
        return sum(self.others.values())

    def get_summary(self) -> str:
        return "\n".join(
            [
                f"Total delegated subgraphs: {self.num_delegated_subgraphs}",
                f"Number of delegated nodes: {self.num_delegated_nodes}",
                f"Number of non-delegated nodes: {self.num_non_delegated_nodes}",
            ]
        )

    def get_operator_delegation_dataframe(self) -> Any:
        """One row per operator and a total; needs pandas."""
        try:
            pandas = import_module("pandas")
        except ModuleNotFoundError as error:
            raise MissingError(
                "get_operator_delegation_dataframe", "needs pandas", remedy="pip install pandas"
            ) from error
        counts = [(b.op_type, b.delegated, b.non_delegated) for b in self.delegation_by_operator.values()]
        counts.append(("Total", self.num_delegated_nodes, self.num_non_delegated_nodes))
        columns = ["op_type", "occurrences_in_delegated_graphs", "occurrences_in_non_delegated_graphs"]
        return pandas.DataFrame(counts, columns=columns)


def get_delegation_info(graph_module: torch.fx.GraphModule) -> DelegationInfo:
    """Count delegated and other operators."""
    calls = [n for n in graph_module.graph.nodes if n.op == "call_function" and n.target is not operator.getitem]
    groups = [n for n in calls if n.target is executorch_call_delegate]
    delegated = Counter(_operator(name) for call in groups for name in call.meta.get("source_nodes", ()))
    others = Counter(_operator(n.name) for n in calls if n.target is not executorch_call_delegate)
    return DelegationInfo(len(groups), dict(delegated), dict(others))


def print_delegation_info(graph_module: torch.fx.GraphModule) -> None:
    """Print the delegation statistics."""
    info = get_delegation_info(graph_module)
    print(info.get_summary())
    for name, counts in info.delegation_by_operator.items():
        print(f"{name:<40} {counts.delegated:>6} delegated {counts.non_delegated:>6} not")


def _operator(name: str) -> str:
    """A node's name without its numeric suffix."""
    return re.sub(r"_\d+$", "", name)
