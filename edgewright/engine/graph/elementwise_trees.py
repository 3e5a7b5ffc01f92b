"""Vendors' operators on single elements that are done at once: what only one of them reads is never stored."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgewright.ir.graph import Graph, Op, Value

Tree = list[Op]  # in the graph's order; the last one's result is the tree's
_LONGEST = (
    64  # operators of a tree: its kernel has some twenty lines for each, and LLVM's time grows faster than they do
)


def find_trees(graph: Graph) -> dict[Op, Tree]:
    """The tree that each such operator belongs to."""
    if not any("." in op.kind for op in graph.ops):
        return {}
    from edgewright.engine.dialects.elementwise import TABULAR  # most graphs have no such operators

    trees = _grown(graph, set())
    alone = {op for tree in trees for op in tree if op.kind in TABULAR and single_int8_input(tree) is None}
    trees = _grown(graph, alone) if alone else trees
    return {op: tree for tree in trees for op in tree}


def _grown(graph: Graph, alone: set[Op]) -> list[Tree]:
    """From the last operator to the first: each joins the tree of its only reader, unless it is to stay alone."""
    from edgewright.engine.dialects.elementwise import ELEMENTS, TABULAR

    readers: dict[Value, list[Op]] = {}
    for op in graph.ops:
        for value in dict.fromkeys(op.inputs()):
            readers.setdefault(value, []).append(op)
    outputs = set(graph.outputs)
    found: dict[Op, Tree] = {}
    trees: list[Tree] = []
    for op in reversed(graph.ops):
        out = op.outputs[0]
        if out is None or (op.kind not in ELEMENTS and op.kind not in TABULAR):
            continue
        own = readers.get(out, [])
        tree = found.get(own[0]) if len(own) == 1 and out not in outputs else None
        if tree is None or op in alone or own[0] in alone or not _may_join(out, tree):
            tree = []
            trees.append(tree)
        tree.insert(0, op)
        found[op] = tree
    return trees


def _may_join(value: Value, tree: Tree) -> bool:
    out = tree[-1].outputs[0]
    return len(tree) < _LONGEST and out is not None and out.bound == value.bound


def tree_inputs(tree: Sequence[Op]) -> list[Value]:
    """Tensors that a tree's elements are made of: those from outside, and constants of several elements."""
    from edgewright.engine.dialects.elementwise import operands

    made = {v for op in tree for v in op.outputs}
    return list(dict.fromkeys(v for op in tree for v in operands(op) if v not in made and not _number(v)))


def single_int8_input(tree: Sequence[Op]) -> Value | None:
    """The one tensor of bytes that a tree of bytes is a function of, element by element."""
    found = tree_inputs(tree)
    out = tree[-1].outputs[0]
    if len(found) != 1 or out is None or found[0].constant or found[0].bound != out.bound:
        return None
    bytes_ = all(v.q is not None and v.dtype is not None and v.dtype.itemsize == 1 for v in (found[0], out))
    return found[0] if bytes_ and not any(op.args.get("per_channel") for op in tree) else None


def _number(value: Value) -> bool:
    return value.constant and value.data is not None and value.data.size == 1


def scalar_constants(values: Sequence[Value]) -> dict[Value, int]:
    """Constants of one element."""
    return {v: int(np.ravel(v.data)[0]) for v in values if _number(v)}  # type: ignore[arg-type]
