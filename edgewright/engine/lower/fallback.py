"""Lowerings of what no common lowering accepts: rare core operators and operators of other dialects, imported on
first use, and a step that calls the numpy reference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np

from edgewright.backends.registry import find_dialect
from edgewright.engine.codegen.requant import storage_offset
from edgewright.engine.graph.layout import Layout, Storage
from edgewright.engine.graph.nodes import Node
from edgewright.engine.lower.base import DescribedLowering, Lowering, LoweringContext
from edgewright.engine.plan import PythonCall
from edgewright.errors import ExecutionError
from edgewright.ir.core.execute import Executor
from edgewright.ir.graph import Array, Graph, Value
from edgewright.ir.int_arithmetic import IntRangeError
from edgewright.ir.int_rules import (
    ELEMENTWISE,
    AccumulatorConv,
    ArgMaxReduction,
    BatchedGather,
    BatchedScatter,
    BilinearResize,
    FixedPointSoftmax,
    FloatConversion,
    IndexGather,
    IntReduction,
    describe,
)

# ------------------------------------------------------------------------------------------------------- reference step

# Fallback for operators without a kernel: a step that calls the numpy reference.

_REFERENCE_ERRORS = (ValueError, LookupError, ArithmeticError, TypeError)  # numpy rejects malformed arguments


class ReferenceStep(Lowering):
    """Accepts any node and runs it in Python, between barriers."""

    exact_reads = True

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        return cls(node)

    def reads_layout(self, value: Value, layout: Layout) -> bool:
        return True

    def emit(self, context: LoweringContext) -> None:
        node = self.node
        reads, writes = list(node.reads()), node.outputs
        graph = Graph("step", list(reads), list(writes), node.ops)
        executor = Executor(graph, context.numerics, context.memory, find_dialect)
        storages = [context.storage(v) for v in (*reads, *writes)]
        source_storages, target_storages = storages[: len(reads)], storages[len(reads) :]

        def run(sources: Sequence[Array], targets: Sequence[Array]) -> None:
            try:
                results = executor.run([_decode(h, x) for h, x in zip(source_storages, sources, strict=True)])
            except _REFERENCE_ERRORS as error:
                raise ExecutionError(f"device graph: {node.label}", f"does not run: {error}"[:200]) from error
            for storage, target, result in zip(target_storages, targets, results, strict=True):
                if result.shape != target.shape:
                    rule = f"produces a tensor of shape {list(result.shape)}"
                    raise ExecutionError(f"device graph: {node.label}", rule, value=list(target.shape))
                target[...] = _encode(storage, result)

        views = [h.view(_dtype(h)) for h in storages]
        context.call(PythonCall(run, tuple(views[: len(reads)]), tuple(views[len(reads) :])))


def _is_offset(storage: Storage) -> bool:
    """Whether int8 elements are stored offset to uint8."""
    q = storage.value.q
    return not storage.raw and q is not None and bool(storage_offset(q))


def _dtype(storage: Storage) -> np.dtype[np.generic]:
    assert storage.value.dtype is not None
    return np.dtype(np.uint8) if _is_offset(storage) else storage.value.dtype


def _decode(storage: Storage, x: Array) -> Array:
    """An array as the reference expects it."""
    return (x ^ 0x80).view(np.int8) if _is_offset(storage) else np.ascontiguousarray(x)


def _encode(storage: Storage, x: Array) -> Array:
    """A result as the engine stores it."""
    return np.ascontiguousarray(x).view(np.uint8) ^ np.uint8(0x80) if _is_offset(storage) else x


# -------------------------------------------------------------------------------------------------------------- general

# Lowerings of core operators that few programs contain, imported on first use.


class CoreDispatch(Lowering):
    """Tries the lowerings of this group; their modules load when no common lowering accepts a node."""

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        if not node.op.kind.startswith("core."):
            return None
        return next(
            (lowering for candidate in _core_lowerings() if (lowering := candidate.accept(node, context)) is not None),
            None,
        )


@cache
def _core_lowerings() -> list[type[Lowering]]:
    from edgewright.engine.lower.gather import StaticGather
    from edgewright.engine.lower.int_rows import DenseIntNorm, IntNorm, IntSoftmax
    from edgewright.engine.lower.pool_resize import SeparableResize
    from edgewright.engine.lower.typed import ArgMax, ElementGather, Scan, TypedElementwise

    return [
        TypedElementwise, StaticGather, Scan, ArgMax, ElementGather, SeparableResize, IntSoftmax, IntNorm, DenseIntNorm,
    ]  # fmt: skip


# -------------------------------------------------------------------------------------------------------------- foreign

# Lowerings of operators that are not core's, by their rules (``ir/int_rules.py``), imported on first use.


class ForeignDispatch(Lowering):
    """Operators of other dialects, and core operators with a ``scaling``. Most graphs have none and never load them."""

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        op = node.op
        if op.kind.startswith("core."):
            candidates = _scaled() if "scaling" in op.args else ()
        else:
            candidates = _elementwise() if op.kind in ELEMENTWISE else ()
        lowering = next((found for candidate in candidates if (found := candidate.accept(node, context))), None)
        return lowering or (_described(node, context) if len(node.ops) == 1 else None)


def _described(node: Node, context: LoweringContext) -> Lowering | None:
    description = describe(node.op, context.numerics)
    for candidate in _foreign_lowerings().get(type(description), ()):
        try:
            lowering = candidate.accept_description(node, description)
        except IntRangeError:
            continue
        if lowering is not None:
            return lowering
    return None


@cache
def _scaled() -> Sequence[type[Lowering]]:
    from edgewright.engine.lower.int_gemm import Int16Conv, Int16DepthwiseConv, IntMatMul

    return (Int16Conv, Int16DepthwiseConv, IntMatMul)


@cache
def _elementwise() -> Sequence[type[Lowering]]:
    from edgewright.engine.lower.int_elementwise import Int16Table, IntElementwise

    return (IntElementwise, Int16Table)


@cache
def _foreign_lowerings() -> Mapping[type, Sequence[type[DescribedLowering]]]:
    from edgewright.engine.lower.gather import BatchedRowGather, BatchedRowScatter, TableGather
    from edgewright.engine.lower.int_elementwise import Conversion
    from edgewright.engine.lower.int_gemm import IntAccumulatorConv
    from edgewright.engine.lower.int_pool_resize import IntReduce, IntResize
    from edgewright.engine.lower.int_rows import Int8Softmax
    from edgewright.engine.lower.typed import Int32ArgMax

    return {
        AccumulatorConv: (IntAccumulatorConv,),
        ArgMaxReduction: (Int32ArgMax,),
        BatchedGather: (BatchedRowGather,),
        BatchedScatter: (BatchedRowScatter,),
        BilinearResize: (IntResize,),
        FixedPointSoftmax: (Int8Softmax,),
        FloatConversion: (Conversion,),
        IntReduction: (IntReduce,),
        IndexGather: (TableGather,),
    }
