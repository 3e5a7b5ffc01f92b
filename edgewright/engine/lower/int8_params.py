"""The integers of a product of bytes: filters, bias, factors, and how sums become bytes again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from edgewright.engine.codegen.requant import affine_of, clamp_limits, scale_of, storage_offset
from edgewright.engine.graph.nodes import Node
from edgewright.engine.kernels import int8_gemm
from edgewright.engine.kernels.int8_store import EpilogueParams, Int8Epilogue
from edgewright.engine.lower.base import LoweringContext
from edgewright.engine.lower.elementwise import int8_add_factors
from edgewright.ir.graph import Array, QParams

if TYPE_CHECKING:
    from edgewright.ir.fixed_point_scale import FixedPointScale

_WIDE = 1 << 31
_FAR = 1 << 30


class Int8ConvParams:
    """A product's integers: filters, bias without the input's zero point, factors, and how its sums end.

    Factors are of XNNPACK's rounding, unless the operator has a ``scaling`` of its own.
    """

    def __init__(self, node: Node, context: LoweringContext, filters: Array) -> None:
        op = node.op
        x, out = op.args["input"], node.middle
        assert x.q is not None and out.q is not None
        self.node, self.context = node, context
        self.filters = filters
        channels = len(self.filters)
        bias = op.args.get("bias")
        given = np.zeros(channels, np.int64) if bias is None else np.asarray(bias.data, np.int64).reshape(-1)
        zero = affine_of(x.q).zero
        corrected = given - zero * self._total(self.filters) if zero else given
        self.bias = ((corrected + _WIDE) % (2 * _WIDE) - _WIDE).astype(np.int32)
        self.scaling: FixedPointScale | None = op.args.get("scaling")
        self.factors, self.gain = self._factors(channels)
        self.reach = self._reach(given)
        self.ending, self.notes = self._ending()

    def _factors(self, channels: int) -> tuple[Array, float]:
        """[words, channels] of 32 bits, and the largest as a real number."""
        x, weight, out = self.node.op.args["input"], self.node.op.args["weight"], self.node.middle
        if self.scaling is not None:
            words = self.scaling.packed()
            return np.broadcast_to(words, (len(words), channels)), self.scaling.max_factor
        assert x.q is not None and out.q is not None
        scale = np.asarray(weight.q.scale, np.float32).reshape(-1)
        factors = np.broadcast_to(scale_of(x.q) * scale / scale_of(out.q), channels).astype(np.float32)
        return factors[None], float(factors.max(initial=0))

    def _total(self, filters: Array) -> Array:
        """The sum of each channel's numbers."""
        return np.asarray(filters.reshape(len(filters), -1).sum(axis=1, dtype=np.int64))

    def _reach(self, bias: Array) -> int:
        """No sum is larger; looked at closely only if that may matter."""
        channels = len(self.filters)
        rough = int8_gemm.max_accumulator(
            np.array([128 * self.filters[:1].size]), np.abs(bias).max(initial=0, keepdims=True)
        )
        if not channels or rough * max(1.0, self.gain) < _FAR:
            return rough if channels else 0
        sizes = np.abs(self.filters).view(np.uint8)  # 128 is its own, and right as an unsigned byte
        return int8_gemm.max_accumulator(self._total(sizes), bias)

    @property
    def exact(self) -> bool:
        """No sum leaves 32 bits; with a bit to spare where halves are added to one."""
        if self.scaling is None:
            return self.reach < _WIDE
        return self.scaling.is_valid and self.reach < (_FAR if self.scaling.rounding == "twice" else _WIDE)

    def _ending(self) -> tuple[Int8Epilogue, EpilogueParams]:
        node, numerics = self.node, self.context.numerics
        first, last = node.middle.q, node.sum.outputs[0].q if node.sum and node.sum.outputs[0] else node.middle.q
        assert first is not None and last is not None
        limits = (node.sum or node.op).args.get("limits")
        low, high = clamp_limits(numerics, last, limits)
        if self.scaling is not None:
            low, high = (n + storage_offset(last) for n in (self.scaling.low, self.scaling.high))
        factors = self._sum(first, last) if node.sum else ()
        rounding = "even" if self.scaling is None else self.scaling.rounding
        far = self.reach * self.gain >= _FAR or (self.scaling is not None and self.scaling.may_exceed_int32)
        zero = affine_of(last).zero if self.scaling is None else self.scaling.zero + storage_offset(last)
        ending = Int8Epilogue(zero != 0, low > 0, high < 255, far, bool(node.sum), node.table is not None, rounding)
        return ending, EpilogueParams(zero, low, high, factors, node.table)

    def _sum(self, first: QParams, last: QParams) -> tuple[int, ...]:
        """The limits of the product itself, and the factors of its sum with the second operand."""
        node, op = self.node, self.node.sum
        assert op is not None and node.second is not None and node.second.q is not None
        other, zero = node.second.q, affine_of(first).zero
        low, high = clamp_limits(self.context.numerics, first, node.op.args.get("limits"))
        ours_first = op.args["other"] is node.second
        a, b = (first, other) if ours_first else (other, first)
        left, right, shift = int8_add_factors(a, b, last, op.kind == "sub")
        mine, theirs = (left, right) if ours_first else (right, left)
        rest = (1 << shift - 1) - affine_of(other).zero * theirs
        return low - zero, high - zero, mine, theirs, rest, shift
