"""The methods of a program: named, checked, and those that only give constants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Union

import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from edgewright.errors import UsageError
from edgewright.formats import schema
from edgewright.frontend.importer import to_array
from edgewright.hints import not_among
from edgewright.ir.graph import Graph, Value
from edgewright.lowering.kernel_resolution import kernel_set
from edgewright.program.config import ExecutorchBackendConfig
from edgewright.program.constants import ConstantPool
from edgewright.program.emit import Emitter
from edgewright.program.tensors import EmitOptions

Programs = Union[ExportedProgram, Mapping[str, ExportedProgram]]


def named(programs: Programs) -> dict[str, ExportedProgram]:
    if not isinstance(programs, ExportedProgram | Mapping):
        programs = {"forward": programs}
    named = {"forward": programs} if isinstance(programs, ExportedProgram) else dict(programs)
    if not named:
        raise UsageError("programs", "must hold at least one method")
    for name, program in named.items():
        if not isinstance(program, ExportedProgram):
            remedy = "Export it first: torch.export.export(model, example_inputs)."
            raise UsageError(
                f"method {name!r}", "must be an ExportedProgram", value=type(program).__name__, remedy=remedy
            )
    return named


def check_methods(option: str, chosen: Any, methods: set[str]) -> None:
    """A mapping by method must name methods that exist: a misspelt one would be ignored."""
    unknown = sorted(set(chosen) - methods) if isinstance(chosen, Mapping) else []
    if unknown:
        raise not_among(option, unknown[0], sorted(methods), rule="must name methods of the program:")


def structure(spec: pytree.TreeSpec) -> str:
    """A structure as text. Classes that have no name in it (torch's named results, dataclasses that were registered
    without one) are tuples of what they hold."""
    try:
        return pytree.treespec_dumps(spec)
    except NotImplementedError:
        return pytree.treespec_dumps(pytree.tree_structure(_unnamed(spec)))


def _unnamed(spec: pytree.TreeSpec) -> Any:
    if spec.is_leaf():
        return 0
    children = [_unnamed(child) for child in spec.children()]
    if spec.type is dict:
        return dict(zip(spec.context, children, strict=True))
    return children if spec.type is list else tuple(children)


def constant_plan(name: str, value: Any, constants: ConstantPool) -> schema.ExecutionPlan:
    """A method without instructions that returns what it was given."""
    leaves, spec = pytree.tree_flatten(value)
    outputs: list[Any] = []
    for index, leaf in enumerate(leaves):
        if isinstance(leaf, torch.Tensor):
            array = to_array(leaf.contiguous())
            outputs.append(Value(f"{name}_{index}", array.dtype, array.shape, tuple(range(array.ndim)), array))
        elif isinstance(leaf, int) and not -(1 << 63) <= leaf < 1 << 63:
            raise UsageError(f"constant method {name!r}", "returns integers of at most 64 bits", value=leaf)
        elif leaf is None or isinstance(leaf, int | float | bool | str):
            outputs.append(leaf)
        else:
            rule = "returns numbers, text, tensors, None, and lists of them"
            raise UsageError(f"constant method {name!r}", rule, value=type(leaf).__name__)
    graph = Graph(name, [], outputs)
    options = EmitOptions(ExecutorchBackendConfig().planning(name), kernel_set("wheel"))
    plan = Emitter(graph, options, constants, ConstantPool()).plan(("", structure(spec)))
    plan.non_const_buffer_sizes = [0]
    return plan
