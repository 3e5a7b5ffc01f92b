"""State that calls of a prepared model leave to the next ones, such as key-value caches: the contents before a call."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx

from edgewright.frontend.mutation import written_names

State = dict[str, torch.Tensor]  # by the name of the attribute


def state_names(module: fx.GraphModule) -> list[str]:
    """The attributes that a model writes, and so may read in the next call."""
    attributes = {str(node.target) for node in module.graph.nodes if node.op == "get_attr"}
    return sorted(written_names(module.graph.nodes) & attributes)


def contents(module: fx.GraphModule) -> State:
    """Copies of a model's state."""
    return {name: operator.attrgetter(name)(module).detach().clone() for name in state_names(module)}


@contextmanager
def restored_state(module: fx.GraphModule) -> Iterator[None]:
    """Restore a model's state on exit."""
    before = contents(module)
    try:
        yield
    finally:
        with torch.no_grad():
            for name, value in before.items():
                operator.attrgetter(name)(module).copy_(value)


def states_before(interpreter: fx.Interpreter, calls: Sequence[Any], chosen: Collection[int]) -> list[State]:
    """The state before each of some calls, all of which run in their order. ``calls``: the flattened inputs of each."""
    module: Any = interpreter.module
    found = []
    with restored_state(module):
        for number, call in enumerate(calls[: max(chosen) + 1]):
            if number in chosen:
                found.append(contents(module))
            leaves = (leaf.clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in call)
            interpreter.run(*leaves, enable_io_processing=False)
    return found
