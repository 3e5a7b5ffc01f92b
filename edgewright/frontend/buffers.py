"""State of exported programs: buffers are restored after a run, and writes to plain tensors are rejected.

Plain tensors are neither parameters nor buffers. torch.export treats them as constants: writes would be lost after each
call, or fail later with an obscure error.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from edgewright.errors import ExportError
from edgewright.frontend.mutation import first_writes
from edgewright.frontend.origin import source_line


@contextlib.contextmanager
def preserve_buffers(exported: ExportedProgram) -> Iterator[None]:
    """Restore a model's buffers on exit: modules of one exported program share them, and running writes to them."""
    before = [(buffer, buffer.clone()) for _, buffer in exported.named_buffers()]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, content in before:
                buffer.copy_(content)


def writes_state(exported: ExportedProgram) -> bool:
    """True if a call of a program may depend on what an earlier one left in a buffer. Writes to inputs count too."""
    graphs = (m.graph for m in exported.graph_module.modules() if isinstance(m, fx.GraphModule))
    return bool(exported.graph_signature.buffers_to_mutate) or any(first_writes(graph.nodes) for graph in graphs)


def require_buffers(exported: ExportedProgram) -> None:
    """Raise if a program writes to a constant."""
    specs = {s.arg.name: s for s in exported.graph_signature.input_specs if s.kind == InputKind.CONSTANT_TENSOR}
    names = {str(n.target): n.name for n in exported.graph.nodes if n.op == "placeholder"}
    for target, node in first_writes(exported.graph.nodes).items():
        spec = specs.get(names.get(target, target))
        if spec is not None:
            raise _plain_write_error(str(spec.target), node)


def require_module_buffers(module: fx.GraphModule) -> None:
    """Raise if an exported graph module writes to an attribute that is neither a parameter nor a buffer."""
    registered = {name for name, _ in (*module.named_parameters(), *module.named_buffers(remove_duplicate=False))}
    attributes = {str(node.target) for node in module.graph.nodes if node.op == "get_attr"}
    for target, node in first_writes(module.graph.nodes).items():
        if target in attributes - registered:
            raise _plain_write_error(target, node)


def _plain_write_error(name: str, node: fx.Node) -> ExportError:
    line = source_line(node)
    remedy = f"Make it a buffer: register_buffer({name.rpartition('.')[2]!r}, ...)."
    return ExportError(
        ": ".join(filter(None, (line, f"self.{name}"))), "is a tensor that forward writes", remedy=remedy
    )
