"""Inputs at the smallest, middle and largest shape of a model with dynamic ones: where files break on devices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from edgewright.api.data import Call
from edgewright.errors import UsageError

_LARGEST = 1 << 26  # elements of an input that is made for the check


def calls_at_bounds(exported: ExportedProgram, example: Call) -> dict[str, Call]:
    """Calls by the name of their shapes; none if shapes are fixed. Contents are the example's, repeated or cut."""
    ranges = {str(symbol): (int(r.lower), _finite(r.upper)) for symbol, r in exported.range_constraints.items()}
    values = _inputs(exported)
    leaves, spec = pytree.tree_flatten((example.args, example.kwargs))
    if not ranges or len(values) != len(leaves):
        return {}
    found = {}
    for name, share in (("smallest", 0.0), ("middle", 0.5), ("largest", 1.0)):
        sizes = {s: round(low + share * (high - low)) for s, (low, high) in ranges.items() if high is not None}
        made = [_resized(leaf, value, sizes) for leaf, value in zip(leaves, values, strict=True)]
        if all(m is not None for m in made):
            found[name] = Call(*pytree.tree_unflatten(made, spec))
    return found


def _finite(bound: Any) -> int | None:
    """An upper end that is one; torch has several ways to say there is none."""
    if isinstance(bound, int) or getattr(bound, "is_Integer", False):
        return int(bound) if int(bound) < _LARGEST else None
    return None


def _inputs(exported: ExportedProgram) -> list[Any]:
    """What stands for each input of the user's, in order."""
    names = {str(n): node for node in exported.graph.nodes if node.op == "placeholder" for n in (node.name,)}
    return [names[str(n)].meta.get("val") for n in exported.graph_signature.user_inputs if str(n) in names]


def _resized(leaf: Any, value: Any, sizes: Mapping[str, int]) -> Any:
    """An input in the shape that its dimensions have at these sizes; None if that is not known."""
    if not isinstance(leaf, torch.Tensor) or not isinstance(value, torch.Tensor):
        return leaf
    shape = [_size(extent, sizes) for extent in value.shape]
    if any(extent is None for extent in shape):
        return None
    known = [int(extent) for extent in shape if extent is not None]
    if not leaf.numel() or torch.Size(known).numel() > _LARGEST:
        return None
    for dim, extent in enumerate(known):
        leaf = leaf.index_select(dim, torch.arange(extent) % leaf.shape[dim])
    return leaf


def _size(extent: Any, sizes: Mapping[str, int]) -> int | None:
    if isinstance(extent, int):
        return extent
    expression = extent.node.expr
    symbols = {str(s): s for s in expression.free_symbols}
    if not set(symbols) <= set(sizes):
        return None
    return int(expression.subs({symbol: sizes[name] for name, symbol in symbols.items()}))


def dynamic_shapes_of(exported: ExportedProgram) -> Any:
    """What was given to ``torch.export`` as ``dynamic_shapes``, from what it made of it; None if shapes are fixed.

    A program that is quantized is exported again, and must keep its dimensions.
    """
    example: Any = exported.example_inputs
    if not exported.range_constraints or example is None:
        return None
    dims = {str(symbol): _dim(str(symbol), r) for symbol, r in exported.range_constraints.items()}
    values = iter(_inputs(exported))
    made = pytree.tree_map(lambda leaf: _dynamic(next(values), dims), example)
    args, kwargs = made
    return (*args, *kwargs.values())


def _dim(name: str, bounds: Any) -> Any:
    low, high = int(bounds.lower), _finite(bounds.upper)
    return torch.export.Dim(name, min=low, max=high) if high is not None else torch.export.Dim(name, min=low)


def _dynamic(value: Any, dims: Mapping[str, Any]) -> dict[int, Any] | None:
    if not isinstance(value, torch.Tensor):
        return None
    found: dict[int, Any] = {}
    for at, extent in enumerate(value.shape):
        if isinstance(extent, int):
            continue
        name = str(extent.node.expr)
        if name not in dims:
            remedy = "Give the model itself with dynamic_shapes=..., instead of an exported program."
            raise UsageError(f"dimension {name}", "is computed of others, and cannot be exported again", remedy=remedy)
        found[at] = dims[name]
    return found
