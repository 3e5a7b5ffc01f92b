"""Operator fusion: partition a graph into nodes, each an operator with the epilogue applied while its result is in
registers.

Fusion is greedy along single-reader chains: an intermediate is fused only if nothing else reads it, so no work is ever
repeated. Three cases differ by what the producer stores: float32 results take elementwise epilogues and one second
tensor; int8 results take an integer add, then a 256-entry table that replaces any chain of int8-to-int8 functions;
elementwise producers become one map. Compare injective fusion in TVM (Chen et al., OSDI 2018, section 3).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgewright.backends.registry import find_dialect
from edgewright.engine.codegen.epilogue import Epilogue, TensorStep, UnaryStep
from edgewright.engine.graph.dynamic_quantization import is_dynamically_quantized, supports_dynamic_rows
from edgewright.engine.graph.elementwise_trees import find_trees, single_int8_input
from edgewright.engine.graph.nodes import (
    BINARY,
    CONV_AND_LINEAR,
    AttentionMatch,
    Node,
    fused_clamp,
    is_float32,
    is_quantized8,
    scalar_epilogue,
    unary_epilogue,
)
from edgewright.ir.core.execute import Executor
from edgewright.ir.graph import Array, Graph, Op, Value
from edgewright.ir.numerics import Numerics

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
