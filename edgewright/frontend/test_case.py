"""Test case for a bundled program: the example inputs and the outputs of the model in eager torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from edgewright.errors import UsageError
from edgewright.formats.bpte import TestCase
from edgewright.frontend.model_spec import ModelSpec
from edgewright.frontend.tensors import to_array


def eager_case(spec: ModelSpec, exported: ExportedProgram) -> TestCase:
    """Run the model on its example inputs, and restore its state."""
    if exported.example_inputs is None:
        raise UsageError("--bundle", "needs example inputs, and the exported program has none")
    inputs = _to_arrays(exported.example_inputs)  # before the model can write to them
    args, kwargs = pytree.tree_map_only(torch.Tensor, torch.clone, exported.example_inputs)
    module = spec.module if spec.module is not None else exported.module()
    with torch.no_grad(), _restored_buffers(module):
        outputs = _to_arrays(module(*args, **kwargs))
    return TestCase(inputs, outputs)


def _to_arrays(tree: Any) -> list[Any]:
    return [
        to_array(leaf).copy() if isinstance(leaf, torch.Tensor) else leaf
        for leaf in pytree.tree_leaves(tree)
    ]  # fmt: skip


@contextmanager
def _restored_buffers(module: torch.nn.Module) -> Iterator[None]:
    """Restore every buffer on exit: running a model may write to buffers or replace them."""
    parts = [(part, dict(part._buffers)) for part in module.modules()]
    contents = {id(b): (b, b.clone()) for _, buffers in parts for b in buffers.values() if b is not None}
    try:
        yield
    finally:
        for part, buffers in parts:
            part._buffers.update(buffers)
        for buffer, content in contents.values():
            buffer.copy_(content)
