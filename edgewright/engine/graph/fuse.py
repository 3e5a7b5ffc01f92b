"""From a device graph to nodes: an operator with what follows it and can be done while its result is in registers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from edgewright.engine.codegen.epilogue import Epilogue, TensorStep, UnaryStep
from edgewright.engine.graph.dynamic_quantization import is_dynamically_quantized, supports_dynamic_rows
from edgewright.engine.graph.elementwise_trees import find_trees, single_int8_input
from edgewright.engine.graph.nodes import (
    BINARY,
    CONV_AND_LINEAR,
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

if TYPE_CHECKING:
    from edgewright.engine.graph.match_attention import AttentionMatch

# Machine code must not grow with the length of a chain: some functions have over a hundred instructions each, and an
# epilogue has them for every register of its tile.
_LONGEST = 32  # operators whose real results stay in registers
_FUNCTIONS = 8  # of them in an epilogue


class Fuser:
    """Walks a graph once."""

    def __init__(
        self, graph: Graph, numerics: Numerics, tables: bool, attention: Sequence[AttentionMatch] = ()
    ) -> None:
        self.graph, self.numerics, self.attention = graph, numerics, attention
        self.tables = tables  # can be looked up in registers, so at the end of a product
        self.readers: dict[Value, list[Op]] = {}
        self.maker = {v: op for op in graph.ops for v in op.outputs if v is not None}
        for op in graph.ops:
            for value in {v: v for v in op.inputs()}.values():
                self.readers.setdefault(value, []).append(op)
        self.outputs = set(graph.outputs)
        self.trees = find_trees(graph)

    def run(self) -> list[Node]:
        place = {op: i for i, op in enumerate(self.graph.ops)}
        taken = {op for found in self.attention for op in found.ops}
        nodes = [Node(list(found.ops), attention=found) for found in self.attention]
        for op in self.graph.ops:
            if op in taken or (self._on_the_fly(op) and not self._rows_for_all(op)):
                continue
            tree = self.trees.get(op, [op])
            if op is not tree[-1]:
                continue  # done with the last of its tree
            node = Node(list(tree))
            self._grow(node, taken)
            taken |= set(node.ops)
            before = [self.maker[v] for v in op.inputs() if self._made_on_the_fly(v)]
            before = [maker for maker in before if not self._rows_for_all(maker)]
            node.ops, node.before = [*before, *node.ops], bool(before)
            nodes.append(node)
        return sorted(nodes, key=lambda n: place[n.ops[-1]])

    @staticmethod
    def _on_the_fly(op: Op) -> bool:
        out = op.outputs[0]
        return out is not None and is_dynamically_quantized(out)

    def _rows_for_all(self, op: Op) -> bool:
        """All that read what is made on the fly have kernels: it is made once for all."""
        out = op.outputs[0]
        if out is None or op.kind != "convert" or not is_float32(op.args["self"]) or out in self.outputs:
            return False
        return all(supports_dynamic_rows(reader) for reader in self.readers.get(out, []))

    def _made_on_the_fly(self, value: Value) -> bool:
        return value in self.maker and self._on_the_fly(self.maker[value])

    def next_of(self, value: Value, taken: set[Op]) -> Op | None:
        """The only reader of a value that nobody else wants."""
        readers = self.readers.get(value, [])
        if len(readers) != 1 or value in self.outputs or readers[0] in taken:
            return None
        return readers[0] if len(readers[0].outputs) == 1 else None

    def _grow(self, node: Node, taken: set[Op]) -> None:
        op, out = node.op, node.out
        if op in self.trees:
            leaf = single_int8_input(node.ops)
            node.table = None if leaf is None else self._tabulate(leaf, node.ops)
        elif op.kind in CONV_AND_LINEAR and is_quantized8(out.q):
            self._grow_bytes(node, taken)
        elif op.kind in (*CONV_AND_LINEAR, "bmm", "conv_transpose2d", "global_avg_pool2d") and is_float32(out):
            self._grow_reals(node, taken, _FUNCTIONS)
        elif self._image_in(node, taken):
            return
        elif self._pointwise(op):
            table = self._table_from(next(iter(op.inputs())), op, taken)
            if table:
                node.ops, node.table = table
            else:
                self._grow_map(node, taken)

    def _image_in(self, node: Node, taken: set[Op]) -> bool:
        """A conversion to bytes before planes become pixels: few channels, done at once."""
        op = node.op
        if (
            op.kind != "convert"
            or not is_quantized8(node.out.q)
            or not is_float32(op.args["self"])
            or op.args.get("limits")
        ):
            return False
        following = self.next_of(node.out, taken)
        if following is None or following.kind != "permute" or list(following.args["dims"]) != [0, 2, 3, 1]:
            return False
        batch, channels, _, wide = node.out.bound
        if not 2 <= channels <= 4 or wide < 16 or batch > 1024:
            return False
        node.ops.append(following)
        return True

    # ------------------------------------------------------------------------------------------------ real results

    def _grow_reals(self, node: Node, taken: set[Op], functions: int = _LONGEST) -> None:
        while len(node.ops) < _LONGEST and (following := self.next_of(node.out, taken)) is not None:
            if sum(isinstance(item, UnaryStep) for item in node.tail) >= functions:
                return
            items = self._items(node, following)
            if items is None:
                return
            node.tail += items
            node.ops.append(following)

    def _items(self, node: Node, op: Op) -> Epilogue | None:
        """A following operator as items of the tail, or None."""
        out = op.outputs[0]
        if out is None or not is_float32(out) or out.bound != node.out.bound:
            return None
        item = unary_epilogue(op) or scalar_epilogue(op)
        if item is None and op.kind in BINARY and node.second is None:
            item = self._second(node, op)
        return None if item is None else item + fused_clamp(op)

    def _second(self, node: Node, op: Op) -> Epilogue | None:
        a, b = op.args["self"], op.args["other"]
        other = b if a is node.out else a
        if a is b or not is_float32(other) or other.bound != node.out.bound or other.constant:
            return None
        node.second = other
        return (TensorStep(op.kind, flipped=other is a),)

    # ----------------------------------------------------------------------------------------------------- bytes

    def _grow_bytes(self, node: Node, taken: set[Op]) -> None:
        following = self.next_of(node.out, taken)
        if following is not None and following.kind in ("add", "sub") and self._bytes_sum(node, following):
            node.sum = following
            node.ops.append(following)
            following = self.next_of(node.out, taken)
        if following is not None and self.tables:
            table = self._table_from(node.out, following, taken) or self._tree_from(node.out, following)
            if table:
                node.ops += table[0]
                node.table = table[1]

    def _tree_from(self, value: Value, op: Op) -> tuple[list[Op], Array] | None:
        """A tree of vendors' operators that makes bytes of these alone."""
        tree = self.trees.get(op)
        if tree is None or single_int8_input(tree) is not value:
            return None
        return tree, self._tabulate(value, tree)

    def _bytes_sum(self, node: Node, op: Op) -> bool:
        a, b, out = op.args["self"], op.args["other"], op.outputs[0]
        other = b if a is node.out else a
        if a is b or out is None or not (is_quantized8(other.q) and is_quantized8(out.q)) or other.constant:
            return False
        if other.bound != node.out.bound or out.bound != node.out.bound:
            return False
        node.second = other
        return True

    def _pointwise(self, op: Op) -> bool:
        known = unary_epilogue(op) is not None or scalar_epilogue(op) is not None or op.kind in (*BINARY, "prelu")
        return op.outputs[0] is not None and known

    def _table_from(self, value: Value, op: Op | None, taken: set[Op]) -> tuple[list[Op], Array] | None:
        """The longest run of operators from bytes to bytes, each of one input, as a table of 256."""
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
            op = self.next_of(out, taken)
        return (run[:best], self._tabulate(value, run[:best])) if best else None

    def _tabulate(self, value: Value, ops: list[Op]) -> Array:
        """What the reference makes of every byte, both as the engine stores them."""
        out = ops[-1].outputs[0]
        assert value.q is not None
        assert out is not None and out.q is not None
        low = int(np.iinfo(value.q.dtype).min)
        given = np.arange(low, low + 256).astype(value.q.dtype)
        made = Executor(Graph("table", [value], [out], ops), self.numerics).run([given])[0]
        return np.asarray(made.reshape(-1).astype(np.int16) - int(np.iinfo(out.q.dtype).min)).astype(np.uint8)

    # ------------------------------------------------------------------------------------------------------- maps

    def _grow_map(self, node: Node, taken: set[Op]) -> None:
        """Real results of an operator on elements, up to one that stores bytes."""
        if not is_float32(node.out):
            return
        node.tail = fused_clamp(node.op)
        self._grow_reals(node, taken)
        following = self.next_of(node.out, taken)
        made = None if following is None or following.kind not in ("convert", "clamp") else following.outputs[0]
        if following is not None and made is not None and is_quantized8(made.q) and made.bound == node.out.bound:
            node.ops.append(following)
