"""Inputs at the smallest, middle and largest shape of a model with dynamic shapes, where programs fail most often."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from edgewright.api.data import Call
from edgewright.errors import UsageError

_MAX_ELEMENTS = 1 << 26  # limit of elements of a generated input


def calls_at_bounds(exported: ExportedProgram, example: Call) -> dict[str, Call]:
    """Calls by the name of their shapes; empty if shapes are static. Contents are the example's, repeated or cut."""
    ranges = {str(symbol): (int(r.lower), _finite_bound(r.upper)) for symbol, r in exported.range_constraints.items()}
    values = _input_values(exported)
    leaves, spec = pytree.tree_flatten((example.args, example.kwargs))
    if not ranges or len(values) != len(leaves):
        return {}
    calls = {}
    for name, fraction in (("smallest", 0.0), ("middle", 0.5), ("largest", 1.0)):
        sizes = {s: round(low + fraction * (high - low)) for s, (low, high) in ranges.items() if high is not None}
        inputs = [_resize(leaf, value, sizes) for leaf, value in zip(leaves, values, strict=True)]
        if all(m is not None for m in inputs):
            calls[name] = Call(*pytree.tree_unflatten(inputs, spec))
    return calls


def _finite_bound(bound: Any) -> int | None:
    """An upper bound as an integer; None for torch's several representations of infinity."""
    if isinstance(bound, int) or getattr(bound, "is_Integer", False):
        return int(bound) if int(bound) < _MAX_ELEMENTS else None
    return None


def _input_values(exported: ExportedProgram) -> list[Any]:
    """The fake value of each user input, in order."""
    names = {str(n): node for node in exported.graph.nodes if node.op == "placeholder" for n in (node.name,)}
    return [names[str(n)].meta.get("val") for n in exported.graph_signature.user_inputs if str(n) in names]


def _resize(leaf: Any, value: Any, sizes: Mapping[str, int]) -> Any:
    """An input resized to the shape at these sizes of symbols; None if that is unknown or too large."""
    if not isinstance(leaf, torch.Tensor) or not isinstance(value, torch.Tensor):
        return leaf
    shape = [_evaluate_size(extent, sizes) for extent in value.shape]
    if any(extent is None for extent in shape):
        return None
    static_shape = [int(extent) for extent in shape if extent is not None]
    if not leaf.numel() or torch.Size(static_shape).numel() > _MAX_ELEMENTS:
        return None
    for dim, extent in enumerate(static_shape):
        leaf = leaf.index_select(dim, torch.arange(extent) % leaf.shape[dim])
    return leaf


def _evaluate_size(extent: Any, sizes: Mapping[str, int]) -> int | None:
    if isinstance(extent, int):
        return extent
    expression = extent.node.expr
    symbols = {str(s): s for s in expression.free_symbols}
    if not set(symbols) <= set(sizes):
        return None
    return int(expression.subs({symbol: sizes[name] for name, symbol in symbols.items()}))


def dynamic_shapes_of(exported: ExportedProgram) -> Any:
    """Reconstruct the ``dynamic_shapes`` of an exported program; None if shapes are static.

    Quantization exports a program again, which must preserve its dynamic dimensions.
    """
    example: Any = exported.example_inputs
    if not exported.range_constraints or example is None:
        return None
    dims = {str(symbol): _make_dim(str(symbol), r) for symbol, r in exported.range_constraints.items()}
    values = iter(_input_values(exported))
    shapes = pytree.tree_map(lambda leaf: _dynamic_dims(next(values), dims), example)
    args, kwargs = shapes
    return (*args, *kwargs.values())


def _make_dim(name: str, bounds: Any) -> Any:
    low, high = int(bounds.lower), _finite_bound(bounds.upper)
    return torch.export.Dim(name, min=low, max=high) if high is not None else torch.export.Dim(name, min=low)


def _dynamic_dims(value: Any, dims: Mapping[str, Any]) -> dict[int, Any] | None:
    if not isinstance(value, torch.Tensor):
        return None
    result: dict[int, Any] = {}
    for dim, extent in enumerate(value.shape):
        if isinstance(extent, int):
            continue
        name = str(extent.node.expr)
        if name not in dims:
            remedy = "Pass the model itself with dynamic_shapes=..., instead of an exported program."
            raise UsageError(f"dimension {name}", "is derived from others, and cannot be exported again", remedy=remedy)
        result[dim] = dims[name]
    return result
