"""Calibration: splits inputs into batches of the size that the model was exported with, and runs the observers."""

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
    """Split the arguments of one call into several calls if their batch is a multiple of the exported batch size.

    Any other mismatch is passed through, for the model to report.
    """
    leaves, spec = pytree.tree_flatten((args, dict(kwargs or {})))
    expected = [node.meta.get("val") for node in graph.nodes if node.op == "placeholder"]
    count = _batch_count(leaves, expected)
    if count < 2:
        yield args, dict(kwargs or {})
        return
    for chunk in zip(*(leaf.chunk(count) for leaf in leaves), strict=True):
        part, named = pytree.tree_unflatten(list(chunk), spec)
        yield part, named


@contextmanager
def one_thread() -> Iterator[None]:
    """Run torch on one thread: more threads change the order of summation, and thus the last bits of scales."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def calibrate(prepared: fx.GraphModule, dataset: Iterable[tuple[Any, ...]]) -> None:
    """Run a prepared model on a dataset to calibrate its observers."""
    with one_thread(), torch.no_grad():
        for inputs in dataset:
            for args, kwargs in in_batches(prepared.graph, tuple(inputs)):
                prepared(*args, **kwargs)


def first_call(
    graph: fx.Graph, dataset: Iterable[tuple[Any, ...]]
) -> tuple[tuple[Any, ...] | None, Iterable[tuple[Any, ...]]]:
    """The arguments of the first call in a dataset, if any, and the complete dataset."""
    calls = iter(dataset)
    first = next(calls, None)
    if first is None:
        return None, ()
    args, _ = next(in_batches(graph, tuple(first)))
    return args, chain([first], calls)


def _batch_count(leaves: list[Any], expected: list[Any]) -> int:
    """The number of batches in the inputs; 1 if it is not an integer or sizes are dynamic."""
    if not leaves or len(leaves) != len(expected) or not all(isinstance(x, torch.Tensor) for x in (*leaves, *expected)):
        return 1
    pairs = [(tuple(x.shape), tuple(w.shape)) for x, w in zip(leaves, expected, strict=True)]
    if not all(g and w and all(isinstance(n, int) for n in w) and g[1:] == w[1:] and w[0] for g, w in pairs):
        return 1
    quotients = {divmod(g[0], w[0]) for g, w in pairs}
    count, rest = quotients.pop()
    return count if not quotients and not rest else 1
