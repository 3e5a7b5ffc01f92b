"""A test case for a bundle: the example inputs, and what the model gives for them in eager torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from edgewright.errors import UsageError
from edgewright.formats.bpte import TestCase
from edgewright.frontend.importer import to_array
from edgewright.frontend.model_spec import Spec


def eager_case(spec: Spec, exported: ExportedProgram) -> TestCase:
    """Run the model on its example inputs; its state is afterwards what it was before."""
    if exported.example_inputs is None:
        raise UsageError("--bundle", "needs example inputs, and the exported program has none")
    inputs = _flat(exported.example_inputs)  # before the model can write to them
    args, kwargs = pytree.tree_map_only(torch.Tensor, torch.clone, exported.example_inputs)
    module = spec.module if spec.module is not None else exported.module()
    with torch.no_grad(), _kept_state(module):
        outputs = _flat(module(*args, **kwargs))
    return TestCase(inputs, outputs)


def _flat(tree: Any) -> list[Any]:
    return [
        to_array(leaf).copy() if isinstance(leaf, torch.Tensor) else leaf
        for leaf in pytree.tree_leaves(tree)
    ]  # fmt: skip


@contextmanager
def _kept_state(module: torch.nn.Module) -> Iterator[None]:
    """Put every buffer back as it was: running a model may write to them, or replace them."""
    parts = [(part, dict(part._buffers)) for part in module.modules()]
    contents = {id(b): (b, b.clone()) for _, buffers in parts for b in buffers.values() if b is not None}
    try:
        yield
    finally:
        for part, buffers in parts:
            part._buffers.update(buffers)
        for buffer, content in contents.values():
            buffer.copy_(content)
