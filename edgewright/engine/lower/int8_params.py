"""Requantization parameters of int8 convolutions: corrected bias, multipliers, and output clamping."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from edgewright.engine.codegen.requant import affine_of, clamp_limits, scale_of, storage_offset
from edgewright.engine.graph.nodes import Node
from edgewright.engine.kernels import int8_gemm
from edgewright.engine.kernels.int8_gemm import EpilogueParams, Int8Epilogue
from edgewright.engine.lower.base import LoweringContext
from edgewright.ir.graph import Array, QParams

if TYPE_CHECKING:
    from edgewright.ir.requant_scale import FixedPointScale

_INT32 = 1 << 31  # exclusive bound of accumulators
_HALF_INT32 = 1 << 30


class Int8ConvParams:
    """Integer parameters of an int8 convolution: filters, bias with the zero point folded in, and requantization.

    Multipliers are float32, rounding half to even, unless the operator carries a ``scaling``:
    a fixed-point rescale with a vendor's rounding (``ir/requant_scale.py``).
    """

    def __init__(self, node: Node, context: LoweringContext, filters: Array) -> None:
        op = node.op
        x, out = op.args["input"], node.middle
        assert x.q is not None and out.q is not None
        self.node, self.context = node, context
        self.filters = filters
        channels = len(self.filters)
        bias = op.args.get("bias")
        plain_bias = np.zeros(channels, np.int64) if bias is None else np.asarray(bias.data, np.int64).reshape(-1)
        zero_point = affine_of(x.q).zero
        corrected = plain_bias - zero_point * self._sum_per_channel(self.filters) if zero_point else plain_bias
        self.bias = ((corrected + _INT32) % (2 * _INT32) - _INT32).astype(np.int32)
        self.scaling: FixedPointScale | None = op.args.get("scaling")
        self.factors, self.gain = self._factors(channels)
        self.max_accumulator = self._accumulator_bound(plain_bias)
        self.requant, self.epilogue_params = self._requantization()

    def _factors(self, channels: int) -> tuple[Array, float]:
        """Multipliers as 32-bit words, [words, channels], and the largest as a float."""
        x, weight, out = self.node.op.args["input"], self.node.op.args["weight"], self.node.middle
        if self.scaling is not None:
            words = self.scaling.packed()
            return np.broadcast_to(words, (len(words), channels)), self.scaling.max_factor
        assert x.q is not None and out.q is not None
        scale = np.asarray(weight.q.scale, np.float32).reshape(-1)
        factors = np.broadcast_to(scale_of(x.q) * scale / scale_of(out.q), channels).astype(np.float32)
        return factors[None], float(factors.max(initial=0))

    def _sum_per_channel(self, filters: Array) -> Array:
        """The sum of each output channel's filter."""
        return np.asarray(filters.reshape(len(filters), -1).sum(axis=1, dtype=np.int64))

    def _accumulator_bound(self, bias: Array) -> int:
        """An upper bound of the accumulators' magnitude; computed exactly only if a rough bound is too large."""
        channels = len(self.filters)
        rough = int8_gemm.max_accumulator(
            np.array([128 * self.filters[:1].size]), np.abs(bias).max(initial=0, keepdims=True)
        )
        if not channels or rough * max(1.0, self.gain) < _HALF_INT32:
            return rough if channels else 0
        magnitudes = np.abs(self.filters).view(np.uint8)  # abs(-128) overflows to -128, which reads as 128 unsigned
        return int8_gemm.max_accumulator(self._sum_per_channel(magnitudes), bias)

    @property
    def exact(self) -> bool:
        """Whether accumulators fit in 32 bits, with a spare bit where rounding adds to them."""
        if self.scaling is None:
            return self.max_accumulator < _INT32
        limit = _HALF_INT32 if self.scaling.rounding == "twice" else _INT32
        return self.scaling.is_valid and self.max_accumulator < limit

    def _requantization(self) -> tuple[Int8Epilogue, EpilogueParams]:
        node, numerics = self.node, self.context.numerics
        conv_q, out_q = node.middle.q, node.sum.outputs[0].q if node.sum and node.sum.outputs[0] else node.middle.q
        assert conv_q is not None and out_q is not None
        limits = (node.sum or node.op).args.get("limits")
        low, high = clamp_limits(numerics, out_q, limits)
        if self.scaling is not None:
            low, high = (n + storage_offset(out_q) for n in (self.scaling.low, self.scaling.high))
        factors = self._residual_factors(conv_q, out_q) if node.sum else ()
        rounding = "even" if self.scaling is None else self.scaling.rounding
        large = self.max_accumulator * self.gain >= _HALF_INT32 or (
            self.scaling is not None and self.scaling.may_exceed_int32
        )
        zero_point = affine_of(out_q).zero if self.scaling is None else self.scaling.zero + storage_offset(out_q)
        requant = Int8Epilogue(
            zero_point != 0, low > 0, high < 255, large, bool(node.sum), node.table is not None, rounding
        )
        return requant, EpilogueParams(zero_point, low, high, factors, node.table)

    def _residual_factors(self, conv_q: QParams, out_q: QParams) -> tuple[int, ...]:
        """Clamp limits of the convolution, and the factors of the fused residual add."""
        node, op = self.node, self.node.sum
        assert op is not None and node.residual is not None and node.residual.q is not None
        second_q, zero = node.residual.q, affine_of(conv_q).zero
        low, high = clamp_limits(self.context.numerics, conv_q, node.op.args.get("limits"))
        conv_is_left = op.args["other"] is node.residual
        a, b = (conv_q, second_q) if conv_is_left else (second_q, conv_q)
        left, right, shift = self.context.numerics.sum_factors((a, b), out_q)
        right = -right if op.kind == "core.sub" else right
        conv_factor, second_factor = (left, right) if conv_is_left else (right, left)
        offset = (1 << shift - 1) - affine_of(second_q).zero * second_factor
        return low - zero, high - zero, conv_factor, second_factor, offset, shift
