"""State shared by the methods of a program: which buffers, and their offsets in the shared arena."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)

from edgewright.errors import UsageError
from edgewright.frontend.mutation import written_names
from edgewright.frontend.replace_graph import with_graph
from edgewright.quantize.state import require_same_encoding

_RULE = "must be one tensor in all methods that share it"


@dataclass(frozen=True)
class SharedLayout:
    """Offsets of buffers by name, and the size of the arena."""

    offsets: Mapping[str, int] = field(default_factory=dict)
    size: int = 0


# ------------------------------------------------------------------------------------------------------------- lowering


def keep_reads_of_state(programs: Mapping[str, ExportedProgram]) -> dict[str, ExportedProgram]:
    """Mark buffers that another method writes as state, even where a method only reads them.

    As a constant, such a buffer would be folded or move into a delegate, and the writes would never be observed.
    """
    reads = _reads_of_state(programs)
    return {name: _add_identity_updates(program, reads[name]) for name, program in programs.items()}


def _reads_of_state(programs: Mapping[str, ExportedProgram]) -> dict[str, set[str]]:
    """For each program, the buffers that it reads and only others write."""
    writes = {name: _written_buffers(program) for name, program in programs.items()}
    reads = {}
    for name, program in programs.items():
        written_by_others = {target for other, targets in writes.items() if other != name for target in targets}
        used = {n.name for n in program.graph.nodes if n.op == "placeholder" and n.users}
        read = {str(s.target) for s in _buffers(program) if s.arg.name in used}
        reads[name] = read & written_by_others - writes[name]
    return reads


def _buffers(program: ExportedProgram) -> list[InputSpec]:
    return [spec for spec in program.graph_signature.input_specs if spec.kind == InputKind.BUFFER]


def _written_buffers(program: ExportedProgram) -> set[str]:
    """The buffers that a program writes, before or after functionalization."""
    targets = {s.arg.name: str(s.target) for s in _buffers(program)}
    nodes = {str(n.target): n.name for n in program.graph.nodes if n.op == "placeholder"}
    names = (nodes.get(name, name) for name in written_names(program.graph.nodes))
    return {targets[name] for name in names if name in targets} | set(
        program.graph_signature.buffers_to_mutate.values()
    )


def _add_identity_updates(program: ExportedProgram, targets: set[str]) -> ExportedProgram:
    """Add an identity update of each of these buffers to the program."""
    signature = program.graph_signature
    specs_read = [s for s in _buffers(program) if s.target in targets]
    if not specs_read:
        return program
    module = copy.copy(program.graph_module)
    module.graph = _copy_graph(program.graph)
    nodes = {n.name: n for n in module.graph.nodes}
    output: Any = module.graph.output_node()
    output.args = ((*(nodes[s.arg.name] for s in specs_read), *output.args[0]),)
    specs = [OutputSpec(OutputKind.BUFFER_MUTATION, TensorArgument(s.arg.name), s.target) for s in specs_read]
    return with_graph(program, module, ExportGraphSignature(signature.input_specs, [*specs, *signature.output_specs]))


def _copy_graph(graph: fx.Graph) -> fx.Graph:
    copied, mapping = fx.Graph(), dict[fx.Node, fx.Node]()
    for node in graph.nodes:
        mapping[node] = copied.node_copy(node, mapping.__getitem__)
        mapping[node].name = node.name
    return copied


# ------------------------------------------------------------------------------------------------------------- emission


def shared_layout(
    programs: Mapping[str, ExportedProgram], sources: Mapping[str, ExportedProgram], alignment: int
) -> SharedLayout:
    """Offsets for every buffer that any of the methods writes. ``sources``: the programs before lowering."""
    require_same_encoding(programs)
    _check_reads(programs, sources)
    first: dict[str, tuple[str, torch.Tensor]] = {}
    for method, program in programs.items():
        for target in program.graph_signature.buffers_to_mutate.values():
            tensor = _initial_value(program, target)
            _check_same_tensor(target, first.setdefault(target, (method, tensor)), (method, tensor))
    offsets, at = {}, 0
    for target in sorted(first):
        offsets[target] = at
        size = first[target][1].nbytes
        at += size + -size % alignment
    return SharedLayout(offsets, at)


def _check_reads(programs: Mapping[str, ExportedProgram], sources: Mapping[str, ExportedProgram]) -> None:
    """Raise if lowering turned a read of state into a constant, which would freeze its compile-time value."""
    for method, targets in _reads_of_state({name: sources[name] for name in programs}).items():
        folded = sorted(targets - set(programs[method].graph_signature.buffers_to_mutate.values()))
        if folded:
            rule = f"is written by another method, and became a constant of {method!r} while lowering"
            remedy = "Lower the methods in one call of to_edge_transform_and_lower, without passes that fold it."
            raise UsageError(f"state {folded[0]!r}", rule, remedy=remedy)


def _initial_value(program: ExportedProgram, target: str) -> torch.Tensor:
    tensors: Any = program.state_dict if target in program.state_dict else program.constants
    tensor: torch.Tensor = tensors[target]
    return tensor


def _check_same_tensor(target: str, earlier: tuple[str, torch.Tensor], other: tuple[str, torch.Tensor]) -> None:
    """Raise unless a name refers to the same tensor in two methods."""
    (first, a), (second, b) = earlier, other
    remedy = "Export the methods of one module, or lower them without share_mutable_buffers."
    descriptions = [
        f"{list(t.shape)} {str(t.dtype).removeprefix('torch.')} in {method!r}" for method, t in (earlier, other)
    ]
    if a.shape != b.shape or a.dtype != b.dtype or a.stride() != b.stride():
        raise UsageError(f"state {target!r}", _RULE, value=", ".join(descriptions), remedy=remedy)
    if a is not b and not torch.equal(torch.nan_to_num(a), torch.nan_to_num(b)):
        value = f"other initial values in {second!r} than in {first!r}"
        raise UsageError(f"state {target!r}", _RULE, value=value, remedy=remedy)
