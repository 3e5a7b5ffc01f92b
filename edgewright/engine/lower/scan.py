"""Scans and reductions along one dimension of typed tensors: cumsum, integer reductions, and top-k indices."""

from __future__ import annotations

import math

import numpy as np

from edgewright.engine.codegen.typed_arith import has_vector_arithmetic
from edgewright.engine.graph.nodes import Node
from edgewright.engine.kernels.reduce import REDUCE_OPS, ScanSpec, emit_cumsum, emit_scan_reduce, emit_topk
from edgewright.engine.lower.base import DenseLowering, Lowering, LoweringContext, is_unfused
from edgewright.ir.graph import Op

_MAX_COMPARISONS = 1 << 22  # per row; beyond, numpy's sort is faster
_TOPK = "core.topk_indices"


def scan_dim(op: Op) -> int | None:
    """The dimension of an operator along a single dimension; None if it has several."""
    rank, dim = len(op.args["self"].bound), op.args.get("dim")
    if isinstance(dim, list | tuple):
        dim = dim[0] if len(dim) == 1 else None
    if dim is None and rank == 1:
        dim = 0
    return None if dim is None or not rank else int(dim) % rank


def scan_spec(op: Op) -> ScanSpec | None:
    """The rows of an operator, or None if its type is not supported."""
    x, dim = op.args["self"], scan_dim(op)
    if dim is None or x.q is not None or x.dtype is None or not has_vector_arithmetic(x.dtype) or x.constant:
        return None
    shape = [int(n) for n in x.bound]
    sizes = (math.prod(shape[:dim]), shape[dim], math.prod(shape[dim + 1 :]))
    return ScanSpec(*sizes, x.dtype.str, int(op.args.get("k", 1)), bool(op.args.get("largest", True)))


class Scan(DenseLowering):
    """cumsum, sum, prod, amax and amin in the operand's type, and topk_indices."""

    def __init__(self, node: Node, spec: ScanSpec) -> None:
        super().__init__(node)
        self.spec = spec

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        op, out = node.op, node.out
        if not is_unfused(node, _TOPK, "core.cumsum", *(f"core.{name}" for name in REDUCE_OPS)):
            return None
        spec = scan_spec(op)
        if spec is None or out.q is not None or op.args.get("dtype") is not None:
            return None
        result_dtype = np.dtype(np.int64) if op.kind == _TOPK else op.args["self"].dtype
        if (
            op.kind in ("core.sum", "core.prod", "core.cumsum")
            and spec.type.kind in "iub"
            and spec.type != np.dtype(np.int64)
        ):
            return None
        return cls(node, spec) if out.dtype == result_dtype and 0 < spec.k * spec.size <= _MAX_COMPARISONS else None

    def emit(self, context: LoweringContext) -> None:
        spec, op, lanes = self.spec, self.node.op, context.isa.lanes
        if op.kind == _TOPK:
            name = context.kernel("topk", spec, lambda module, name: emit_topk(module, name, spec, lanes))
        elif op.kind == "core.cumsum":
            name = context.kernel("cumsum", spec, lambda module, name: emit_cumsum(module, name, spec, lanes))
        else:
            key = (spec, op.name)
            name = context.kernel(
                "scan_reduce", key, lambda module, name: emit_scan_reduce(module, name, spec, lanes, op.name)
            )
        slots = [context.storage(v).at() for v in (op.args["self"], self.node.out)]
        units = spec.units(lanes)
        context.step(name, slots, units, units * spec.size * spec.k * 1.0)
