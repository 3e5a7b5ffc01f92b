"""Expression trees of other dialects' elementwise operators: intermediates with one reader are fused, never stored."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgewright.engine.graph.nodes import is_core
from edgewright.ir.graph import Graph, Op, Value

Tree = list[Op]  # in graph order; the last operator is the root
_MAX_OPS = 64  # per tree: about twenty IR instructions each, and LLVM's compile time is superlinear


def find_trees(graph: Graph) -> dict[Op, Tree]:
    """Map each elementwise operator of another dialect to its tree."""
    if is_core(graph):
        return {}
    from edgewright.ir.int_rules import ELEMENTWISE  # imported late: most graphs need none

    trees = _grow_trees(graph, set())
    alone = {op for tree in trees for op in tree if not ELEMENTWISE[op.kind].fuses and single_int8_input(tree) is None}
    trees = _grow_trees(graph, alone) if alone else trees
    return {op: tree for tree in trees for op in tree}


def _grow_trees(graph: Graph, unfusable: set[Op]) -> list[Tree]:
    """Grow trees in reverse order: an operator joins the tree of its only reader, unless it is ``unfusable``."""
    from edgewright.ir.int_rules import ELEMENTWISE

    readers: dict[Value, list[Op]] = {}
    for op in graph.ops:
        for value in dict.fromkeys(op.inputs()):
            readers.setdefault(value, []).append(op)
    outputs = set(graph.outputs)
    tree_of: dict[Op, Tree] = {}
    trees: list[Tree] = []
    for op in reversed(graph.ops):
        out = op.outputs[0]
        if out is None or op.kind not in ELEMENTWISE:
            continue
        users = readers.get(out, [])
        tree = tree_of.get(users[0]) if len(users) == 1 and out not in outputs else None
        if tree is None or op in unfusable or users[0] in unfusable or not _may_join(out, tree):
            tree = []
            trees.append(tree)
        tree.insert(0, op)
        tree_of[op] = tree
    return trees


def _may_join(value: Value, tree: Tree) -> bool:
    out = tree[-1].outputs[0]
    return len(tree) < _MAX_OPS and out is not None and out.bound == value.bound


def tree_inputs(tree: Sequence[Op]) -> list[Value]:
    """The tensors a tree reads: results of other nodes, and constants of more than one element."""
    from edgewright.ir.int_rules import elementwise_operands

    produced = {v for op in tree for v in op.outputs}
    return list(
        dict.fromkeys(v for op in tree for v in elementwise_operands(op) if v not in produced and not _is_scalar(v))
    )


def single_int8_input(tree: Sequence[Op]) -> Value | None:
    """The single int8 input of a tree with an int8 result, which a table of 256 entries can replace."""
    inputs = tree_inputs(tree)
    out = tree[-1].outputs[0]
    if len(inputs) != 1 or out is None or inputs[0].constant or inputs[0].bound != out.bound:
        return None
    int8 = all(v.q is not None and v.dtype is not None and v.dtype.itemsize == 1 for v in (inputs[0], out))
    return inputs[0] if int8 and not any(op.args.get("per_channel") for op in tree) else None


def _is_scalar(value: Value) -> bool:
    return value.constant and value.data is not None and value.data.size == 1


def scalar_constants(values: Sequence[Value]) -> dict[Value, int]:
    """The constants of one element, with their values."""
    return {v: int(np.ravel(v.data)[0]) for v in values if _is_scalar(v)}  # type: ignore[arg-type]
