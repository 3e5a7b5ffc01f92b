"""The inputs of a compiled model, as people pass them to the model itself: by position, by name, or all in one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.export.graph_signature import InputKind
from torch.utils import _pytree as pytree

from edgewright.errors import InputError
from edgewright.hints import not_among


def in_order(exported: Any, inputs: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
    """The inputs as a program takes them. ``named``: by the names of forward's arguments. A single dict, tuple or list
    is all inputs, as in ``compile(model, inputs)``. Numbers and flags were fixed at export, and may be left out.

    >>> model = torch.export.export(torch.nn.Bilinear(2, 2, 1), (torch.ones(1, 2), torch.ones(1, 2)))
    >>> in_order(model, (), {"input2": "b", "input1": "a"}), in_order(model, [("a", "b")], {})
    (['a', 'b'], ['a', 'b'])
    """
    only = inputs[0] if len(inputs) == 1 and not named else None
    for arguments in (inputs, only) if not named else ():
        leaves = _like_examples(exported, arguments)
        if leaves is not None:
            return leaves
    if isinstance(only, Mapping):
        return _by_name(_examples(exported), (), only)
    if isinstance(only, tuple | list):
        return list(only)
    return _by_name(_examples(exported), inputs, named) if named else list(inputs)


def _like_examples(exported: Any, arguments: Any) -> list[Any] | None:
    """The parts of arguments that are nested as the example inputs are; None if they are not."""
    args, kwargs = exported.example_inputs
    if kwargs or not isinstance(arguments, tuple | list):
        return None
    leaves, structure = pytree.tree_flatten(tuple(arguments))
    return leaves if structure == pytree.tree_structure(tuple(args)) else None


def _by_name(examples: Mapping[str, Any], inputs: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
    if not examples:
        rule = "must be passed by position: a dict, tuple or list among the model's arguments has no name here"
        raise InputError("inputs", rule, value=", ".join(named))
    unknown = next((name for name in named if name not in examples), None)
    if unknown is not None:
        raise not_among("input", unknown, examples, error=InputError)
    passed = {**dict(zip(examples, inputs, strict=False)), **named}
    if len(passed) < len(inputs) + len(named):
        twice = ", ".join(name for name in list(examples)[: len(inputs)] if name in named)
        raise InputError("inputs", "must be passed once", value=f"{twice} by position and by name")
    leaves: list[Any] = []
    for name, example in examples.items():
        if name not in passed and any(isinstance(x, torch.Tensor) for x in pytree.tree_leaves(example)):
            raise InputError(f"input {name!r}", "is missing", remedy=f"Pass {name}=, of {_describe(example)}.")
        leaves += pytree.tree_leaves(passed.get(name, example))
    return leaves


def _examples(exported: Any) -> dict[str, Any]:
    """The example inputs by the names of forward's arguments; those by position only if none of them is a container,
    whose parts have the names."""
    args, kwargs = exported.example_inputs
    specs = [s.arg.name for s in exported.graph_signature.input_specs if s.kind == InputKind.USER_INPUT]
    if len(pytree.tree_leaves(args)) != len(args):
        return dict(kwargs)
    return {**dict(zip(specs, args, strict=False)), **kwargs}


def _describe(example: Any) -> str:
    if not isinstance(example, torch.Tensor):
        return type(example).__name__
    return f"{str(example.dtype).removeprefix('torch.')}{list(example.shape)}"
