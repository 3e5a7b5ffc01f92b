"""Replaces the graph of an exported program."""

from __future__ import annotations

from typing import Any

from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature


def with_graph(
    program: ExportedProgram, module: fx.GraphModule, signature: ExportGraphSignature, verifiers: Any = None, *,
    states: dict[str, Any] | None = None, constants: dict[str, Any] | None = None,
) -> ExportedProgram:  # fmt: skip
    """A program with another graph that shares everything else, including weights unless others are passed.

    torch's ``_update`` deep-copies the module call graph, which torch deprecates.
    """
    return ExportedProgram(
        root=module,
        graph=module.graph,
        graph_signature=signature,
        state_dict=program.state_dict if states is None else states,
        range_constraints=dict(program.range_constraints),
        module_call_graph=list(program.module_call_graph),
        example_inputs=program.example_inputs,
        constants=program.constants if constants is None else constants,
        verifiers=program.verifiers if verifiers is None else verifiers,
    )
