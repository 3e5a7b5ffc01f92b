"""The methods of a program: validation, and methods that return constants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Union

import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from edgewright.errors import UsageError
from edgewright.formats import schema
from edgewright.frontend.tensors import to_array
from edgewright.hints import not_among
from edgewright.ir.graph import Graph, Value
from edgewright.lowering.kernel_resolution import kernel_set
from edgewright.program.config import ExecutorchBackendConfig
from edgewright.program.constants import ConstantPool
from edgewright.program.emit import Emitter
from edgewright.program.plan_builder import EmitOptions

Programs = Union[ExportedProgram, Mapping[str, ExportedProgram]]


def methods_by_name(programs: Programs) -> dict[str, ExportedProgram]:
    """Methods by name; a single program is ``forward``."""
    if not isinstance(programs, ExportedProgram | Mapping):
        programs = {"forward": programs}
    methods = {"forward": programs} if isinstance(programs, ExportedProgram) else dict(programs)
    if not methods:
        raise UsageError("programs", "must hold at least one method")
    for name, program in methods.items():
        if not isinstance(program, ExportedProgram):
            remedy = "Export it first: torch.export.export(model, example_inputs)."
            raise UsageError(
                f"method {name!r}", "must be an ExportedProgram", value=type(program).__name__, remedy=remedy
            )
    return methods


def check_methods(option: str, value: Any, methods: set[str]) -> None:
    """Raise if a mapping by method names an unknown one, which would otherwise be ignored."""
    unknown = sorted(set(value) - methods) if isinstance(value, Mapping) else []
    if unknown:
        raise not_among(option, unknown[0], sorted(methods), rule="must name methods of the program:")


def encode_structure(spec: pytree.TreeSpec) -> str:
    """A pytree spec as a string. Classes that it cannot name (torch's named results, unnamed dataclasses) are encoded
    as tuples."""
    try:
        return pytree.treespec_dumps(spec)
    except NotImplementedError:
        return pytree.treespec_dumps(pytree.tree_structure(_as_builtin_containers(spec)))


def _as_builtin_containers(spec: pytree.TreeSpec) -> Any:
    if spec.is_leaf():
        return 0
    children = [_as_builtin_containers(child) for child in spec.children()]
    if spec.type is dict:
        return dict(zip(spec.context, children, strict=True))
    return children if spec.type is list else tuple(children)


def constant_plan(name: str, value: Any, constants: ConstantPool) -> schema.ExecutionPlan:
    """A method without instructions that returns ``value``."""
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
    plan = Emitter(graph, options, constants, ConstantPool()).plan(("", encode_structure(spec)))
    plan.non_const_buffer_sizes = [0]
    return plan
