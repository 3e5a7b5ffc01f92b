"""Operator fusion: partition a graph into nodes, each an operator with the epilogue applied while its result is in
registers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgewright.backends.registry import find_dialect
from edgewright.engine.codegen.epilogue import Epilogue, TensorStep, UnaryStep
from edgewright.engine.graph.nodes import (
    BINARY,
    CONV_AND_LINEAR,
    AttentionMatch,
    Node,
    fused_clamp,
    is_core,
    is_float32,
    is_quantized8,
    scalar_epilogue,
    unary_epilogue,
)
from edgewright.ir.core.conv import is_core_pointwise_gemm
from edgewright.ir.core.execute import Executor
from edgewright.ir.graph import Array, Graph, Op, Value
from edgewright.ir.numerics import Numerics

# ------------------------------------------------------------------------------------------------- dynamic quantization

# Dynamically quantized activations, one scale per row: which operators have native kernels for them.


def _is_float32(value: Value) -> bool:
    return value.q is None and value.dtype == np.dtype(np.float32)


def is_dynamically_quantized(value: Value) -> bool:
    """Whether a value's scale and zero point are computed at run time, one pair per row."""
    return value.q is not None and value.q.dynamic is not None


_MAX_DEPTH = 1 << 16  # int8 products whose sum cannot overflow int32


def supports_dynamic_rows(op: Op) -> bool:
    """Whether an operator on dynamically quantized per_row has a native kernel."""
    x, weight, bias, out = (op.args.get("input"), op.args.get("weight"), op.args.get("bias"), op.outputs[0])
    if op.kind not in ("core.linear", "core.conv2d") or weight is None or out is None or not _is_float32(out):
        return False
    q, constant = weight.q, weight.constant and (bias is None or (bias.constant and _is_float32(bias)))
    if x is None or q is None or not constant or not is_dynamically_quantized(x) or q.dtype != np.dtype(np.int8):
        return False
    if op.kind == "core.conv2d" and not is_core_pointwise_gemm(op):
        return False
    transposed, depth = bool(op.args.get("transposed")), int(x.bound[-1])
    in_int4_range = (q.qmin, q.qmax) != (-8, 7) or bool(np.all((weight.data >= -8) & (weight.data <= 7)))
    per_row = op.kind == "core.conv2d" or x.q.axis in (None, -1)
    if not (per_row and in_int4_range and 0 < depth <= _MAX_DEPTH):
        return False
    scales = len(q.scale) if isinstance(q.scale, tuple) else 1
    if q.block:
        columns = int(weight.bound[0])
        return not transposed and depth % q.block == 0 and q.block % 8 == 0 and scales == columns * depth // q.block
    columns = int(weight.bound[1 if transposed else 0])
    return scales in (1, columns)


# ---------------------------------------------------------------------------------------------------- elementwise trees

# Expression trees of other dialects' elementwise operators: intermediates with one reader are fused, never stored.

Tree = list[Op]  # in graph order; the last operator is the root
_MAX_TREE_OPS = 64  # per tree: about twenty IR instructions each, and LLVM's compile time is superlinear


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
    return len(tree) < _MAX_TREE_OPS and out is not None and out.bound == value.bound


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


# ----------------------------------------------------------------------------------------------------------------- fuse

# Operator fusion: partition a graph into nodes, each an operator with the epilogue applied while its result is in
# registers.
#
# Fusion is greedy along single-reader chains: an intermediate is fused only if nothing else reads it, so no work is
# ever repeated. Three cases differ by what the producer stores: float32 results take elementwise epilogues and one
# second tensor; int8 results take an integer add, then a 256-entry table that replaces any chain of int8-to-int8
# functions; elementwise producers become one map. Compare injective fusion in TVM (Chen et al., OSDI 2018, section 3).

# Bounds on code size: a transcendental function takes over a hundred instructions, and an epilogue repeats them for
# every accumulator register of the tile.
_MAX_OPS = 32  # per node
_MAX_EPILOGUE_FUNCTIONS = 8


class Fuser:
    """Fuses a graph in one pass over its operators, in order."""

    def __init__(
        self, graph: Graph, numerics: Numerics, tables: bool, attention: Sequence[AttentionMatch] = ()
    ) -> None:
        self.graph, self.numerics, self.attention = graph, numerics, attention
        self.tables = tables  # byte tables can be looked up in registers, hence in an epilogue
        self.readers: dict[Value, list[Op]] = {}
        self.maker = {v: op for op in graph.ops for v in op.outputs if v is not None}
        for op in graph.ops:
            for value in {v: v for v in op.inputs()}.values():
                self.readers.setdefault(value, []).append(op)
        self.outputs = set(graph.outputs)
        self.trees = find_trees(graph)

    def run(self) -> list[Node]:
        order = {op: i for i, op in enumerate(self.graph.ops)}
        fused = {op for match in self.attention for op in match.ops}
        nodes = [Node(list(match.ops), attention=match) for match in self.attention]
        for op in self.graph.ops:
            if op in fused or (self._is_dynamic(op) and not self._quantized_once(op)):
                continue
            tree = self.trees.get(op, [op])
            if op is not tree[-1]:
                continue  # emitted with the root of its tree
            node = Node(list(tree))
            self._grow(node, fused)
            fused |= set(node.ops)
            before = [self.maker[v] for v in op.inputs() if self._is_dynamic_value(v)]
            before = [maker for maker in before if not self._quantized_once(maker)]
            node.ops, node.quantizes_input = [*before, *node.ops], bool(before)
            nodes.append(node)
        return sorted(nodes, key=lambda n: order[n.ops[-1]])

    @staticmethod
    def _is_dynamic(op: Op) -> bool:
        out = op.outputs[0]
        return out is not None and is_dynamically_quantized(out)

    def _quantized_once(self, op: Op) -> bool:
        """Whether every reader has a kernel for dynamically quantized rows, so that rows are quantized once."""
        out = op.outputs[0]
        if out is None or op.kind != "core.convert" or not is_float32(op.args["self"]) or out in self.outputs:
            return False
        return all(supports_dynamic_rows(reader) for reader in self.readers.get(out, []))

    def _is_dynamic_value(self, value: Value) -> bool:
        return value in self.maker and self._is_dynamic(self.maker[value])

    def next_reader(self, value: Value, fused: set[Op]) -> Op | None:
        """The only reader of a value that is not an output, if it is not fused yet."""
        readers = self.readers.get(value, [])
        if len(readers) != 1 or value in self.outputs or readers[0] in fused:
            return None
        return readers[0] if len(readers[0].outputs) == 1 else None

    def _grow(self, node: Node, fused: set[Op]) -> None:
        op, out = node.op, node.out
        if op in self.trees:
            leaf = single_int8_input(node.ops)
            node.table = None if leaf is None else self._tabulate(leaf, node.ops)
        elif op.kind in CONV_AND_LINEAR and is_quantized8(out.q):
            self._grow_int8(node, fused)
        elif op.kind in (
            *CONV_AND_LINEAR,
            "core.bmm",
            "core.conv_transpose2d",
            "core.global_avg_pool2d",
        ) and is_float32(out):
            self._grow_float(node, fused, _MAX_EPILOGUE_FUNCTIONS)
        elif self._fuse_input_image(node, fused):
            return
        elif self._pointwise(op):
            table = self._table_from(next(iter(op.inputs())), op, fused)
            if table:
                node.ops, node.table = table
            else:
                self._grow_elementwise(node, fused)

    def _fuse_input_image(self, node: Node, fused: set[Op]) -> bool:
        """Fuse quantization with the NCHW-to-NHWC permute of an input image of two to four channels."""
        op = node.op
        if (
            op.kind != "core.convert"
            or not is_quantized8(node.out.q)
            or not is_float32(op.args["self"])
            or op.args.get("limits")
        ):
            return False
        following = self.next_reader(node.out, fused)
        if following is None or following.kind != "core.permute" or list(following.args["dims"]) != [0, 2, 3, 1]:
            return False
        batch, channels, _, width = node.out.bound
        if not 2 <= channels <= 4 or width < 16 or batch > 1024:
            return False
        node.ops.append(following)
        return True

    # ------------------------------------------------------------------------------------------------------ float32

    def _grow_float(self, node: Node, fused: set[Op], functions: int = _MAX_OPS) -> None:
        while len(node.ops) < _MAX_OPS and (following := self.next_reader(node.out, fused)) is not None:
            if sum(isinstance(steps, UnaryStep) for steps in node.epilogue) >= functions:
                return
            items = self._epilogue_steps(node, following)
            if items is None:
                return
            node.epilogue += items
            node.ops.append(following)

    def _epilogue_steps(self, node: Node, op: Op) -> Epilogue | None:
        """The epilogue steps of a following operator, or None if it cannot be fused."""
        out = op.outputs[0]
        if out is None or not is_float32(out) or out.bound != node.out.bound:
            return None
        steps = unary_epilogue(op) or scalar_epilogue(op)
        if steps is None and op.kind in BINARY and node.residual is None:
            steps = self._second_operand(node, op)
        return None if steps is None else steps + fused_clamp(op)

    def _second_operand(self, node: Node, op: Op) -> Epilogue | None:
        a, b = op.args["self"], op.args["other"]
        other = b if a is node.out else a
        if a is b or not is_float32(other) or other.bound != node.out.bound or other.constant:
            return None
        node.residual = other
        return (TensorStep(op.name, flipped=other is a),)

    # ------------------------------------------------------------------------------------------------------- int8

    def _grow_int8(self, node: Node, fused: set[Op]) -> None:
        following = self.next_reader(node.out, fused)
        if following is not None and following.kind in ("core.add", "core.sub") and self._int8_sum(node, following):
            node.sum = following
            node.ops.append(following)
            following = self.next_reader(node.out, fused)
        if following is not None and self.tables:
            table = self._table_from(node.out, following, fused) or self._tree_from(node.out, following)
            if table:
                node.ops += table[0]
                node.table = table[1]

    def _tree_from(self, value: Value, op: Op) -> tuple[list[Op], Array] | None:
        """A tree of other dialects' operators that is an int8-to-int8 function of ``value`` alone."""
        tree = self.trees.get(op)
        if tree is None or single_int8_input(tree) is not value:
            return None
        return tree, self._tabulate(value, tree)

    def _int8_sum(self, node: Node, op: Op) -> bool:
        a, b, out = op.args["self"], op.args["other"], op.outputs[0]
        other = b if a is node.out else a
        if a is b or out is None or not (is_quantized8(other.q) and is_quantized8(out.q)) or other.constant:
            return False
        if other.bound != node.out.bound or out.bound != node.out.bound:
            return False
        node.residual = other
        return True

    def _pointwise(self, op: Op) -> bool:
        supported = (
            unary_epilogue(op) is not None or scalar_epilogue(op) is not None or op.kind in (*BINARY, "core.prelu")
        )
        return op.outputs[0] is not None and supported

    def _table_from(self, value: Value, op: Op | None, fused: set[Op]) -> tuple[list[Op], Array] | None:
        """The longest int8-to-int8 chain of single-input operators, with its 256-entry table."""
        if not is_quantized8(value.q):
            return None
        run: list[Op] = []
        best = 0
        while op is not None and (unary_epilogue(op) is not None or scalar_epilogue(op) is not None):
            out = op.outputs[0]
            if out is None or out.bound != value.bound or not (is_float32(out) or is_quantized8(out.q)):
                break
            run.append(op)
            best = len(run) if is_quantized8(out.q) else best
            op = self.next_reader(out, fused)
        return (run[:best], self._tabulate(value, run[:best])) if best else None

    def _tabulate(self, value: Value, ops: list[Op]) -> Array:
        """Evaluate the chain with the reference on all 256 inputs, in the engine's unsigned storage."""
        out = ops[-1].outputs[0]
        assert value.q is not None
        assert out is not None and out.q is not None
        low = int(np.iinfo(value.q.dtype).min)
        inputs = np.arange(low, low + 256).astype(value.q.dtype)
        stored = Executor(Graph("table", [value], [out], ops), self.numerics, find_dialect=find_dialect).run([inputs])[
            0
        ]
        return np.asarray(stored.reshape(-1).astype(np.int16) - int(np.iinfo(out.q.dtype).min)).astype(np.uint8)

    # ------------------------------------------------------------------------------------------------ elementwise

    def _grow_elementwise(self, node: Node, fused: set[Op]) -> None:
        """Fuse a float32 elementwise chain, up to and including a final quantization."""
        if not is_float32(node.out):
            return
        node.epilogue = fused_clamp(node.op)
        self._grow_float(node, fused)
        following = self.next_reader(node.out, fused)
        stored = (
            None if following is None or following.kind not in ("core.convert", "core.clamp") else following.outputs[0]
        )
        if following is not None and stored is not None and is_quantized8(stored.q) and stored.bound == node.out.bound:
            node.ops.append(following)
