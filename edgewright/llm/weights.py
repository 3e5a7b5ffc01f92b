"""The decoder's weights in the precision of the program: one tensor is loaded, quantized and forgotten at a time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edgewright.errors import UsageError
from edgewright.ir.graph import Array, QParams, Value
from edgewright.llm.checkpoint import Checkpoint
from edgewright.llm.delegate_builder import INT8, DelegateBuilder, constant
from edgewright.llm.quantize_weights import QuantizedWeights, quantize_groups, quantize_rows, scale_hints

LINEAR_PRECISIONS = ("8da4w", "int8", "fp32")
TABLE_PRECISIONS = ("int4", "int8", "fp32")
GROUP_SIZES = (32, 64, 128, 256)


@dataclass(frozen=True)
class Precision:
    """Precision of linear layers, of the embedding and of the output head.

    ``8da4w``: 4-bit groups of ``group_size`` weights, activations quantized to int8 by row at run time; ``int8``: int8
    rows, activations the same.
    """

    linear: str = "8da4w"
    group_size: int = 32
    embedding: str = "int8"
    head: str = "int8"

    def __post_init__(self) -> None:
        for name, allowed in (
            ("linear", LINEAR_PRECISIONS),
            ("embedding", TABLE_PRECISIONS),
            ("head", TABLE_PRECISIONS),
        ):
            if getattr(self, name) not in allowed:
                raise UsageError(f"precision of {name}", f"must be {', '.join(allowed)}", value=getattr(self, name))
        if self.group_size not in GROUP_SIZES:
            raise UsageError("group size", f"must be one of {', '.join(map(str, GROUP_SIZES))}", value=self.group_size)


@dataclass
class PartReport:
    """Bytes and error of one part of the model."""

    precision: str
    parameters: int = 0
    bytes: int = 0
    error: float = 0.0
    energy: float = 0.0

    @property
    def relative_error(self) -> float:
        return float((self.error / self.energy) ** 0.5) if self.energy else 0.0

    def shares_embedding(self) -> None:
        """Record that the weights are the embedding's bytes, which the file contains once."""
        self.precision, self.bytes = f"{self.precision}, the embedding's", 0


@dataclass
class DecoderWeights:
    """Turns tensors of a checkpoint into constants of delegates; ``parts`` records what became of them."""

    checkpoint: Checkpoint
    precision: Precision
    threads: int = 2
    parts: dict[str, PartReport] = field(default_factory=dict)
    _table: QuantizedWeights | None = None  # the embedding in int8

    def vector(self, name: str) -> Array:
        """The weights of a norm."""
        return self.checkpoint.load(name)

    def linear(self, b: DelegateBuilder, x: Value, name: str) -> Value:
        """A linear layer of the decoder."""
        return b.linear(x, self._matrix(name, self.precision.linear, "linear layers"), self._bias(b, name))

    def head(self, b: DelegateBuilder, x: Value) -> Value:
        """The logits."""
        tied = self.checkpoint.config.tied
        precision = {"int4": "8da4w"}.get(self.precision.head, self.precision.head)
        logits = b.linear(x, self._matrix("embedding" if tied else "head", precision, "head"))
        if tied and self.precision.head == self.precision.embedding != "int4":
            self.parts["head"].shares_embedding()
        return logits

    def embedding(self, tokens: Value) -> tuple[str, dict[str, Any]]:
        """The kernel of the embedding and its arguments."""
        kind = self.precision.embedding
        if kind == "fp32":
            weights = self.checkpoint.load("embedding")
            self._record("embedding", kind, weights.size, weights.nbytes, None)
            options = {"padding_idx": -1, "scale_grad_by_freq": False, "sparse": False}
            return "aten::embedding.out", {"weight": constant("embedding", weights), "indices": tokens, **options}
        if kind == "int8":
            made = self._int8_rows("embedding")
            stored, bits, limits = made.integers, "byte", (-128, 127)
        else:
            made = self._int4_groups("embedding")
            nibbles = (made.integers + 8).astype(np.uint8)
            # The even index is the high nibble, other than in XNNPACK's weights.
            stored, bits, limits = nibbles[:, 0::2] << 4 | nibbles[:, 1::2], "4bit", (-8, 7)
        scales = made.scales[:, 0] if made.scales.shape[1] == 1 else made.scales
        self._record("embedding", kind, made.integers.size, stored.nbytes + scales.nbytes, made)
        return f"quantized_decomposed::embedding_{bits}.dtype_out", {
            "weight": constant("embedding", stored), "weight_scales": constant("embedding_scales", scales),
            "weight_zero_points": None, "weight_quant_min": limits[0], "weight_quant_max": limits[1],
            "indices": tokens, "dtype": None,
        }  # fmt: skip

    def _matrix(self, name: str, precision: str, part: str) -> Value:
        if precision == "fp32":
            weights = self.checkpoint.load(name)
            self._record(part, precision, weights.size, weights.nbytes, None)
            return constant(name, weights)
        if precision == "int8":
            made = self._int8_rows(name)
            self._record(part, precision, made.integers.size, made.integers.nbytes + made.scales.nbytes, made)
            return _value(name, made, QParams(_numbers(made), 0, INT8, -128, 127, axis=0))
        made, group = self._int4_groups(name), self.precision.group_size
        size = made.integers.size // 2 + made.scales.size * 2
        self._record(part, f"int4 groups of {group}", made.integers.size, size, made)
        return _value(name, made, QParams(_numbers(made), 0, INT8, -8, 7, axis=0, block=group))

    def _int8_rows(self, name: str) -> QuantizedWeights:
        if name != "embedding":
            return quantize_rows(self.checkpoint.matrix(name))
        if self._table is None:  # a tied head reads it again
            self._table = quantize_rows(self.checkpoint.matrix(name))
        return self._table

    def _int4_groups(self, name: str) -> QuantizedWeights:
        weights, group = self.checkpoint.matrix(name), self.precision.group_size
        if weights.shape[1] % group:
            fitting = ", ".join(str(size) for size in GROUP_SIZES if not weights.shape[1] % size)
            remedy = f"Group sizes that divide it: {fitting}." if fitting else "Use int8."
            rule = f"must have rows that are multiples of the group size {group}"
            raise UsageError(f"weights {name!r}", rule, value=weights.shape[1], remedy=remedy)
        return quantize_groups(weights, group, scale_hints(weights.tensor, group), self.threads)

    def _bias(self, b: DelegateBuilder, name: str) -> Value | None:
        bias = self.checkpoint.bias(name)
        return None if bias is None else b.constant(bias)

    def _record(self, part: str, precision: str, parameters: int, size: int, made: QuantizedWeights | None) -> None:
        self.checkpoint.release()
        report = self.parts.setdefault(part, PartReport(precision))
        report.parameters += parameters
        report.bytes += size
        if made is not None:
            report.error += made.error
            report.energy += made.energy


def _numbers(made: QuantizedWeights) -> tuple[float, ...]:
    return tuple(made.scales.reshape(-1).tolist())


def _value(name: str, made: QuantizedWeights, q: QParams) -> Value:
    return Value(name, INT8, made.integers.shape, (0, 1), made.integers, q=q)
