"""Trees of vendors' operators on single elements, as one pass over their operands."""

from __future__ import annotations

from collections.abc import Sequence

from edgewright.engine.codegen.builder import PTR, Function, Module, Reg, vec
from edgewright.engine.codegen.ranged_int import IntRangeError, RangedInt, RangedIntBuilder
from edgewright.engine.codegen.requant import storage_offset
from edgewright.engine.dialects.elementwise import ELEMENTS, bounds, operands
from edgewright.engine.graph.elementwise_trees import scalar_constants, tree_inputs
from edgewright.engine.graph.nodes import Node
from edgewright.engine.lower.base import Lowering, LoweringContext
from edgewright.engine.lower.elementwise import emit_elementwise, llvm_type
from edgewright.ir.graph import Value


class IntElementwise(Lowering):
    """Integers of any size, exactly as the reference has them."""

    exact_reads = True

    def __init__(self, node: Node, text: str) -> None:
        super().__init__(node)
        self.leaves = tree_inputs(node.ops)
        self.text = text

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        if node.table is not None or not all(op.kind in ELEMENTS for op in node.ops):
            return None
        try:
            return cls(node, _trial(node))
        except IntRangeError:
            return None

    def emit(self, context: LoweringContext) -> None:
        node = self.node

        def body(f: Function, given: list[Reg]) -> Reg:
            return _emit(f, node, self.leaves, given)

        homes = [context.home(v) for v in self.leaves]
        emit_elementwise(context, "whole", homes, context.home(node.out), self.text, body)


def _trial(node: Node) -> str:
    """The arithmetic, written once: raises if there can be none. The text says all that kernels depend on."""
    module = Module()
    f = module.function("trial", [(PTR, "data")])
    found = tree_inputs(node.ops)
    if all(v.constant for v in found):
        raise IntRangeError("a constant")
    if node.out.dtype is None or any(v.dtype is None or v.dtype.kind not in "biu" for v in (*found, node.out)):
        raise IntRangeError("real numbers")
    given = [f.load(vec(4, llvm_type(v)), f.arg("data"), 64 * n) for n, v in enumerate(found)]
    f.store(_emit(f, node, found, given), f.arg("data"))
    return module.text()


def _moved(value: Value) -> int:
    """What is added to a stored value inside the engine."""
    return 0 if value.q is None else storage_offset(value.q)


def _emit(f: Function, node: Node, found: Sequence[Value], given: Sequence[Reg]) -> Reg:
    lanes = int(given[0].type[1:].split(" ")[0]) if given[0].type.startswith("<") else 1
    i = RangedIntBuilder(f, lanes)
    held = {v: i.load(x, *bounds(v), _moved(v)) for v, x in zip(found, given, strict=True)}
    single = scalar_constants([v for op in node.ops for v in operands(op)])
    made: RangedInt | None = None
    for op in node.ops:
        parts = [held[v] if v in held else i.constant(single[v]) for v in operands(op)]
        made, out = ELEMENTS[op.kind](i, op, parts), op.outputs[0]
        assert out is not None
        low, high = bounds(out)
        if made.low < low or made.high > high:
            raise IntRangeError(f"{made.low} to {made.high} as {out.dtype}")
        held[out] = made
    assert made is not None and node.out.dtype is not None
    return i.store(made, 8 * node.out.dtype.itemsize, _moved(node.out))
