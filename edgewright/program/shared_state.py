"""State that methods of a program share: which buffers it is, and their offsets in the arena of shared state."""

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
from edgewright.frontend.constant_eval import written_names
from edgewright.frontend.replace_graph import with_graph
from edgewright.quantize.state import require_same_encoding

_RULE = "must be one tensor in all methods that share it"


@dataclass(frozen=True)
class SharedLayout:
    """Offsets by the names of buffers, and the arena's size."""

    offsets: Mapping[str, int] = field(default_factory=dict)
    size: int = 0


# ------------------------------------------------------------------------------------------------------- while lowering


def keep_reads_of_state(programs: Mapping[str, ExportedProgram]) -> dict[str, ExportedProgram]:
    """Programs in which a buffer that another method writes is state, also where it is only read: as a constant it
    would be folded, or go into a delegate, and never show what was written."""
    reads = _reads_of_state(programs)
    return {name: _with_state(program, reads[name]) for name, program in programs.items()}


def _reads_of_state(programs: Mapping[str, ExportedProgram]) -> dict[str, set[str]]:
    """For each program, the buffers that it reads and only others write."""
    writes = {name: _written(program) for name, program in programs.items()}
    found = {}
    for name, program in programs.items():
        others = {target for other, targets in writes.items() if other != name for target in targets}
        used = {n.name for n in program.graph.nodes if n.op == "placeholder" and n.users}
        read = {str(s.target) for s in _buffers(program) if s.arg.name in used}
        found[name] = read & others - writes[name]
    return found


def _buffers(program: ExportedProgram) -> list[InputSpec]:
    return [spec for spec in program.graph_signature.input_specs if spec.kind == InputKind.BUFFER]


def _written(program: ExportedProgram) -> set[str]:
    """The buffers that a program writes, whether or not its graph is functional yet."""
    targets = {s.arg.name: str(s.target) for s in _buffers(program)}
    nodes = {str(n.target): n.name for n in program.graph.nodes if n.op == "placeholder"}
    named = (nodes.get(name, name) for name in written_names(program.graph.nodes))
    return {targets[name] for name in named if name in targets} | set(
        program.graph_signature.buffers_to_mutate.values()
    )


def _with_state(program: ExportedProgram, targets: set[str]) -> ExportedProgram:
    """The program with an update of each of these buffers, by what it holds."""
    signature = program.graph_signature
    found = [s for s in _buffers(program) if s.target in targets]
    if not found:
        return program
    module = copy.copy(program.graph_module)
    module.graph = _copied(program.graph)
    nodes = {n.name: n for n in module.graph.nodes}
    output: Any = module.graph.output_node()
    output.args = ((*(nodes[s.arg.name] for s in found), *output.args[0]),)
    specs = [OutputSpec(OutputKind.BUFFER_MUTATION, TensorArgument(s.arg.name), s.target) for s in found]
    return with_graph(program, module, ExportGraphSignature(signature.input_specs, [*specs, *signature.output_specs]))


def _copied(graph: fx.Graph) -> fx.Graph:
    made, names = fx.Graph(), dict[fx.Node, fx.Node]()
    for node in graph.nodes:
        names[node] = made.node_copy(node, names.__getitem__)
        names[node].name = node.name
    return made


# ------------------------------------------------------------------------------------------------------- while emitting


def shared_layout(
    programs: Mapping[str, ExportedProgram], sources: Mapping[str, ExportedProgram], alignment: int
) -> SharedLayout:
    """Where the state of methods that share it is: every buffer that any of them writes, by name. ``sources``: the
    programs as they were before lowering."""
    require_same_encoding(programs)
    _check_reads(programs, sources)
    first: dict[str, tuple[str, torch.Tensor]] = {}
    for method, program in programs.items():
        for target in program.graph_signature.buffers_to_mutate.values():
            tensor = _stored(program, target)
            _check_same(target, first.setdefault(target, (method, tensor)), (method, tensor))
    offsets, at = {}, 0
    for target in sorted(first):
        offsets[target] = at
        size = first[target][1].nbytes
        at += size + -size % alignment
    return SharedLayout(offsets, at)


def _check_reads(programs: Mapping[str, ExportedProgram], sources: Mapping[str, ExportedProgram]) -> None:
    """Raise if a read of state was lost while lowering: its value at compile time would stay for ever."""
    for method, targets in _reads_of_state({name: sources[name] for name in programs}).items():
        lost = sorted(targets - set(programs[method].graph_signature.buffers_to_mutate.values()))
        if lost:
            rule = f"is written by another method, and became a constant of {method!r} while lowering"
            remedy = "Lower the methods in one call of to_edge_transform_and_lower, without passes that fold it."
            raise UsageError(f"state {lost[0]!r}", rule, remedy=remedy)


def _stored(program: ExportedProgram, target: str) -> torch.Tensor:
    held: Any = program.state_dict if target in program.state_dict else program.constants
    stored: torch.Tensor = held[target]
    return stored


def _check_same(target: str, one: tuple[str, torch.Tensor], other: tuple[str, torch.Tensor]) -> None:
    """Raise unless two methods mean the same tensor by a name."""
    (first, a), (second, b) = one, other
    remedy = "Export the methods of one module, or lower them without share_mutable_buffers."
    told = [f"{list(t.shape)} {str(t.dtype).removeprefix('torch.')} in {method!r}" for method, t in (one, other)]
    if a.shape != b.shape or a.dtype != b.dtype or a.stride() != b.stride():
        raise UsageError(f"state {target!r}", _RULE, value=", ".join(told), remedy=remedy)
    if a is not b and not torch.equal(torch.nan_to_num(a), torch.nan_to_num(b)):
        value = f"other initial values in {second!r} than in {first!r}"
        raise UsageError(f"state {target!r}", _RULE, value=value, remedy=remedy)
