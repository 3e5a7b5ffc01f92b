"""Calibration inputs in batches as large as the model was exported with: scripts and loaders give larger ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree


def in_batches(
    graph: fx.Graph, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None
) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """The arguments of one call of a graph as those of several, if only the first size of all is so many times larger.

    Whatever else does not fit is left as it is: the model says what is wrong with it.
    """
    leaves, spec = pytree.tree_flatten((args, dict(kwargs or {})))
    wanted = [node.meta.get("val") for node in graph.nodes if node.op == "placeholder"]
    count = _times(leaves, wanted)
    if count < 2:
        yield args, dict(kwargs or {})
        return
    for together in zip(*(leaf.chunk(count) for leaf in leaves), strict=True):
        part, named = pytree.tree_unflatten(list(together), spec)
        yield part, named


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch compute alone: with more threads it sums in another order, and scales are measured to the last bit."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def calibrate(prepared: fx.GraphModule, dataset: Iterable[tuple[Any, ...]]) -> None:
    """Show a dataset to a prepared model's observers."""
    with one_thread(), torch.no_grad():
        for inputs in dataset:
            for args, kwargs in in_batches(prepared.graph, tuple(inputs)):
                prepared(*args, **kwargs)


def first_call(
    graph: fx.Graph, dataset: Iterable[tuple[Any, ...]]
) -> tuple[tuple[Any, ...] | None, Iterable[tuple[Any, ...]]]:
    """The arguments of the first call of a graph that a dataset holds, if any, and the whole dataset."""
    calls = iter(dataset)
    first = next(calls, None)
    if first is None:
        return None, ()
    args, _ = next(in_batches(graph, tuple(first)))
    return args, chain([first], calls)


def _times(leaves: list[Any], wanted: list[Any]) -> int:
    """How many batches the inputs hold; 1 if they are not whole ones, or sizes are not fixed."""
    if not leaves or len(leaves) != len(wanted) or not all(isinstance(x, torch.Tensor) for x in (*leaves, *wanted)):
        return 1
    pairs = [(tuple(x.shape), tuple(w.shape)) for x, w in zip(leaves, wanted, strict=True)]
    if not all(g and w and all(isinstance(n, int) for n in w) and g[1:] == w[1:] and w[0] for g, w in pairs):
        return 1
    found = {divmod(g[0], w[0]) for g, w in pairs}
    count, rest = found.pop()
    return count if not found and not rest else 1
