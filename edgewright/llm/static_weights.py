"""Weights of the static decoder for 16-bit activations: 4 bits in blocks, or 8 bits with a scale for each row.

The scale of a 4-bit block is 1 to 16 times a 16th of the largest of its row, which is what the HTP's blockwise encoding
holds. Factors of the model are part of the weights: of the embedding, and of queries before they meet keys.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgewright.errors import UsageError
from edgewright.llm.checkpoint import Checkpoint, expected_shapes
from edgewright.llm.gptq import CalibratedRounding
from edgewright.llm.quantize_weights import QuantizedWeights, quantize_groups, quantize_rows
from edgewright.llm.rotation import Rotation
from edgewright.llm.static_decoder import Array, rotation_names
from edgewright.llm.weights import GROUP_SIZES, PartReport, check_group

STATIC_PRECISIONS = ("16a4w", "16a8w")
HEAD_PRECISIONS = ("int4", "int8")
KV_BITS = (8, 16)
_MULTIPLES = 16  # largest ratio of a block's scale to its row's unit


@dataclass(frozen=True)
class StaticPrecision:
    """Activations have 16 bits. ``linear``: weights of 4 bits in groups of ``group_size``, or of 8 bits; ``kv_bits``:
    of the cache."""

    linear: str = "16a4w"
    group_size: int = 32
    head: str = "int8"
    kv_bits: int = 16

    def __post_init__(self) -> None:
        for name, value, allowed in (
            ("precision of linear", self.linear, STATIC_PRECISIONS),
            ("precision of head", self.head, HEAD_PRECISIONS),
            ("group size", self.group_size, GROUP_SIZES),
            ("bits of the cache", self.kv_bits, KV_BITS),
        ):
            if value not in allowed:
                raise UsageError(name, f"must be {', '.join(map(str, allowed))}", value=value)


@dataclass(frozen=True)
class LinearWeights:
    """Integers [outputs, inputs] of 4 or 8 bits and their scales [outputs, blocks]."""

    integers: Array
    scales: Array
    bias: Array | None
    bits: int

    @property
    def accumulator_scales(self) -> Array:
        """By output: of 4-bit weights a 16th of the largest, of which the others are multiples."""
        largest: Array = self.scales.max(1)
        return largest if self.bits == 8 else largest / _MULTIPLES

    def float32(self) -> Array:
        grouped = self.integers.reshape(*self.scales.shape, -1) * self.scales[..., None].astype(np.float32)
        return grouped.reshape(self.integers.shape)


class OriginalWeights:
    """A checkpoint's own values. Factors of the model are part of them: of embedding, queries and logits."""

    def __init__(self, checkpoint: Checkpoint, context: int) -> None:
        self.checkpoint = checkpoint
        self._tables: dict[str, Array] = {}
        for rope, names in rotation_names(checkpoint.config).items():
            self._tables.update(zip(names, rope.tables(context), strict=True))

    @property
    def norm_eps(self) -> float:
        return self.checkpoint.config.norm_eps

    def table(self, name: str) -> Array:
        """Rows of the embedding, or cosines and sines by position."""
        if name not in self._tables:
            self._tables[name] = self.checkpoint.load(name) * np.float32(self.checkpoint.config.embedding_scale)
        return self._tables[name]

    def vector(self, name: str) -> Array:
        """The weights of a norm."""
        return self.checkpoint.load(name) * np.float32(self._factor(name))

    def matrix(self, name: str) -> Array:
        matrix = self.checkpoint.load(self._stored_name(name)) * np.float32(self._factor(name))
        self.checkpoint.release()
        return matrix

    def bias(self, name: str) -> Array | None:
        bias = self.checkpoint.bias(name)
        return None if bias is None else bias * np.float32(self._factor(name))

    def _stored_name(self, name: str) -> str:
        return "embedding" if name == "head" and self.checkpoint.config.tied else name

    def _factor(self, name: str) -> float:
        """The scale of attention, for what queries are multiplied with last; the inverse of the cap of logits."""
        config = self.checkpoint.config
        if name == "head":
            return 1 / (config.logit_softcap or 1.0)
        if not name.endswith(".q_norm" if config.qk_norm else ".q"):
            return 1.0
        return config.attention_scale or 1 / math.sqrt(config.head_dim)


class RotatedWeights(OriginalWeights):
    """A checkpoint's values in a rotated basis of hidden states, with the weights of norms in the layers behind them.

    The model computes the same. Norms behind a layer, before the residual (``post_norms``), do not allow it: such
    models stay as they are.
    """

    def __init__(self, checkpoint: Checkpoint, context: int) -> None:
        super().__init__(checkpoint, context)
        self._rotation = None if checkpoint.config.post_norms else Rotation(checkpoint.config.dim)
        self._rotated_table: Array | None = None

    def table(self, name: str) -> Array:
        table = super().table(name)
        if name != "embedding" or self._rotation is None:
            return table
        if self._rotated_table is None:
            self._rotated_table = self._rotation.apply(table)
        return self._rotated_table

    def vector(self, name: str) -> Array:
        weights = super().vector(name)
        return weights if self._rotation is None or name.endswith(("q_norm", "k_norm")) else np.ones_like(weights)

    def matrix(self, name: str) -> Array:
        matrix = super().matrix(name)
        if self._rotation is None:
            return matrix
        if name.endswith((".o", ".down")):
            return np.ascontiguousarray(self._rotation.apply(np.ascontiguousarray(matrix.T)).T)
        return self._rotation.apply(matrix * self.checkpoint.load(_norm_before(name)))

    def bias(self, name: str) -> Array | None:
        bias = super().bias(name)
        if bias is None or self._rotation is None or not name.endswith((".o", ".down")):
            return bias
        return self._rotation.apply(bias)


def _norm_before(name: str) -> str:
    """The norm whose result a linear layer reads."""
    prefix, _, kind = name.rpartition(".")
    return "norm" if name == "head" else f"{prefix}.{'attention' if kind in 'qkv' else 'ffn'}_norm"


class QuantizedCheckpoint(RotatedWeights):
    """Weights in the precision of a program; each matrix is quantized when it is first used, and kept."""

    def __init__(self, checkpoint: Checkpoint, precision: StaticPrecision, context: int) -> None:
        super().__init__(checkpoint, context)
        self.precision = precision
        self.parts: dict[str, PartReport] = {}
        self._linear: dict[str, LinearWeights] = {}
        self._rounding: dict[str, CalibratedRounding] = {}
        for name, shape in expected_shapes(checkpoint.config).items():
            if name.startswith("layers.") and len(shape) == 2 and precision.linear == "16a4w":
                check_group(name, shape[1], precision.group_size)

    def table(self, name: str) -> Array:
        table = super().table(name)
        if name == "embedding":
            self.parts.setdefault(name, PartReport("uint16", table.size, table.size * 2))
        return table

    def matrix(self, name: str) -> Array:
        return self.linear(name).float32()

    def linear(self, name: str) -> LinearWeights:
        if name not in self._linear:
            self._linear[name] = self._quantize(name)
        return self._linear[name]

    def calibrate(self, names: Sequence[str], products: Sequence[Array]) -> None:
        """Round these 4-bit matrices, which read the same inputs, by the inputs' sums of products of columns. To be
        called before their first use."""
        rounding = CalibratedRounding(products, self.precision.group_size)
        self._rounding.update(dict.fromkeys(names, rounding))

    def exact(self, name: str) -> Array:
        """A matrix before it is quantized."""
        return super().matrix(name)

    def _quantize(self, name: str) -> LinearWeights:
        head = name == "head"
        bits = {"int4": 4, "int8": 8, "16a4w": 4, "16a8w": 8}[self.precision.head if head else self.precision.linear]
        values = super().matrix(name)
        rounding = self._rounding.pop(name, None)
        made = (
            quantize_rows(values) if bits == 8 else _quantize_blocks(values, name, self.precision.group_size, rounding)
        )
        self._record("head" if head else "linear layers", made, bits)
        return LinearWeights(made.integers, made.scales.astype(np.float64), self.bias(name), bits)

    def _record(self, part: str, made: QuantizedWeights, bits: int) -> None:
        shown = "int8 rows" if bits == 8 else f"int4 blocks of {made.group}"
        report = self.parts.setdefault(part, PartReport(shown))
        report.parameters += made.integers.size
        blocks = made.scales.size // 2 if bits == 4 else 0  # 4-bit multiples of the row's scale
        report.bytes += made.integers.size * bits // 8 + blocks + 4 * len(made.scales)
        report.error += made.error
        report.energy += made.energy
        report.groups += made.scales.size


@dataclass(frozen=True)
class ExactWeights:
    """The values that a quantized checkpoint rounds."""

    quantized: QuantizedCheckpoint

    @property
    def norm_eps(self) -> float:
        return self.quantized.norm_eps

    def table(self, name: str) -> Array:
        return self.quantized.table(name)

    def vector(self, name: str) -> Array:
        return self.quantized.vector(name)

    def matrix(self, name: str) -> Array:
        return self.quantized.exact(name)

    def bias(self, name: str) -> Array | None:
        return self.quantized.bias(name)


def _quantize_blocks(values: Array, name: str, group: int, rounding: CalibratedRounding | None) -> QuantizedWeights:
    """4-bit blocks, whose scales are multiples of their row's unit."""
    check_group(name, values.shape[1], group)
    found = quantize_groups(values, group).scales if rounding is None else rounding.scales(values)
    units = found.astype(np.float64).max(1, keepdims=True) / _MULTIPLES
    scales = units * np.clip(np.round(found / units), 1, _MULTIPLES)
    by_group = values.reshape(*scales.shape, group)
    if rounding is None:
        integers = np.clip(np.rint(by_group / scales[..., None]), -8, 7).astype(np.int8)
    else:
        integers = rounding.integers(values, scales.astype(np.float32)).reshape(by_group.shape)
    residual = by_group - integers * scales[..., None]
    error, energy = (float(np.vdot(x, x)) for x in (residual, values))
    return QuantizedWeights(integers.reshape(values.shape), scales, error, energy)
