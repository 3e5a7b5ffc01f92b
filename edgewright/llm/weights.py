"""The decoder's weights in the precision of the program: one tensor is loaded, quantized and forgotten at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edgewright.errors import UsageError
from edgewright.ir.graph import Array, QParams, Value
from edgewright.llm.calibrate import Calibration
from edgewright.llm.checkpoint import Checkpoint, expected_shapes
from edgewright.llm.delegate_builder import INT8, DelegateBuilder, constant
from edgewright.llm.perplexity import Perplexity, PerplexityMeasurement
from edgewright.llm.quantize_weights import (
    QuantizedWeights,
    held_groups,
    quantize_groups,
    quantize_rows,
    rows_of_q8_0,
)

LINEAR_PRECISIONS = ("8da4w", "int8", "fp32")
TABLE_PRECISIONS = ("int4", "int8", "fp32")
CACHE_PRECISIONS = ("int8", "fp32")
GROUP_SIZES = (32, 64, 128, 256)


@dataclass(frozen=True)
class Precision:
    """Precision of linear layers, of the embedding, of the output head, and of keys and values in the cache.

    ``8da4w``: 4-bit groups of ``group_size`` weights, activations quantized to int8 by row at run time; ``int8``: int8
    rows, activations the same. The cache is float32 by default if the linear layers are, else int8, with a scale and a
    zero point for each position and head.
    """

    linear: str = "8da4w"
    group_size: int = 32
    embedding: str = "int8"
    head: str = "int8"
    kv_cache: str = ""

    def __post_init__(self) -> None:
        if not self.kv_cache:
            object.__setattr__(self, "kv_cache", "fp32" if self.linear == "fp32" else "int8")
        for name, allowed in (
            ("linear", LINEAR_PRECISIONS),
            ("embedding", TABLE_PRECISIONS),
            ("head", TABLE_PRECISIONS),
            ("kv_cache", CACHE_PRECISIONS),
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
    groups: int = 0
    carried_groups: int = 0  # whose integers are the checkpoint's own

    @property
    def relative_error(self) -> float:
        return float((self.error / self.energy) ** 0.5) if self.energy else 0.0

    def shares_embedding(self) -> None:
        """Record that the weights are the embedding's bytes, which the file contains once."""
        self.precision, self.bytes = f"{self.precision}, the embedding's", 0


@dataclass
class DecoderWeights:
    """Turns tensors of a checkpoint into constants of delegates; ``parts`` records what became of them.

    ``calibration`` rounds the 4-bit linear layers; ``measurement`` is shown all weights, in the decoder's order, and
    gives ``perplexity`` when the head is made.
    """

    checkpoint: Checkpoint
    precision: Precision
    threads: int = 2
    calibration: Calibration | None = None
    measurement: PerplexityMeasurement | None = None
    perplexity: Perplexity | None = None
    on_layer: Callable[[], None] = lambda: None
    parts: dict[str, PartReport] = field(default_factory=dict)
    _table: QuantizedWeights | None = None  # the embedding in int8 rows

    def __post_init__(self) -> None:
        if self.precision.linear == "8da4w":
            for name, shape in expected_shapes(self.checkpoint.config).items():
                if name.startswith("layers.") and len(shape) == 2:
                    check_group(name, shape[1], self.precision.group_size)

    def vector(self, name: str) -> Array:
        """The weights of a norm."""
        return self.checkpoint.load(name)

    def linear(self, b: DelegateBuilder, x: Value, name: str) -> Value:
        """A linear layer of the decoder."""
        made = self._quantized(name, self.precision.linear)
        if self.measurement is not None:
            self.measurement.add(name, made)
        weight = self._matrix(name, made, self.precision.linear, "linear layers")
        if name.endswith(".down"):  # the last one of a layer
            self.on_layer()
        return b.linear(x, weight, self._bias(b, name))

    def head(self, b: DelegateBuilder, x: Value) -> Value:
        """The logits."""
        name = "embedding" if self.checkpoint.config.tied else "head"
        precision = {"int4": "8da4w"}.get(self.precision.head, self.precision.head)
        made = self._quantized(name, precision)
        if self.measurement is not None:
            self.perplexity = self.measurement.finish(name, made)
        logits = b.linear(x, self._matrix(name, made, precision, "head"))
        if self._head_is_embedding and self.precision.embedding != "int4":
            self.parts["head"].shares_embedding()
        return logits

    @property
    def _head_is_embedding(self) -> bool:
        return self.checkpoint.config.tied and self.precision.head == self.precision.embedding

    def embedding(self, tokens: Value) -> tuple[str, dict[str, Any]]:
        """The kernel of the embedding and its arguments."""
        kind = self.precision.embedding
        if kind == "fp32":
            weights = self.checkpoint.load("embedding")
            self._start(lambda ids: weights[ids])
            self._record("embedding", kind, weights.size, weights.nbytes, None)
            options = {"padding_idx": -1, "scale_grad_by_freq": False, "sparse": False}
            return "aten::embedding.out", {"weight": constant("embedding", weights), "indices": tokens, **options}
        made = self._int8_table() if kind == "int8" else self._int4_groups("embedding")
        self._start(made.gather)
        if kind == "int8":
            stored, bits, limits = made.integers, "byte", (-128, 127)
        else:
            nibbles = (made.integers + 8).astype(np.uint8)
            # The even index is the high nibble, other than in XNNPACK's weights.
            stored, bits, limits = nibbles[:, 0::2] << 4 | nibbles[:, 1::2], "4bit", (-8, 7)
        scales = made.scales[:, 0] if made.scales.shape[1] == 1 else made.scales
        shown = kind if made.scales.shape[1] == 1 else f"{kind} groups of {made.group}"
        self._record("embedding", shown, made.integers.size, stored.nbytes + scales.nbytes, made)
        return f"quantized_decomposed::embedding_{bits}.dtype_out", {
            "weight": constant("embedding", stored), "weight_scales": constant("embedding_scales", scales),
            "weight_zero_points": None, "weight_quant_min": limits[0], "weight_quant_max": limits[1],
            "indices": tokens, "dtype": None,
        }  # fmt: skip

    def _start(self, embedding: Callable[[Array], Array]) -> None:
        for consumer in (self.calibration, self.measurement):
            if consumer is not None:
                consumer.start(embedding)

    def _matrix(self, name: str, made: QuantizedWeights | None, precision: str, part: str) -> Value:
        if made is None:
            weights = self.checkpoint.load(name)
            self._record(part, precision, weights.size, weights.nbytes, None)
            return constant(name, weights)
        if precision == "int8":
            self._record(part, precision, made.integers.size, made.integers.nbytes + made.scales.nbytes, made)
            return _value(name, made, QParams(_numbers(made), 0, INT8, -128, 127, axis=0))
        size = made.integers.size // 2 + made.scales.size * 2
        self._record(part, f"int4 groups of {made.group}", made.integers.size, size, made)
        return _value(name, made, QParams(_numbers(made), 0, INT8, -8, 7, axis=0, block=made.group))

    def _quantized(self, name: str, precision: str) -> QuantizedWeights | None:
        """The weights of a linear layer or of the head; None if they stay float32."""
        if precision == "fp32":
            return None
        if precision == "int8":
            return self._int8_rows(name)
        if self.calibration is not None and name.startswith("layers."):
            return self.calibration.quantized(name)
        return self._int4_groups(name)

    def _int8_rows(self, name: str) -> QuantizedWeights:
        if name != "embedding":
            return quantize_rows(self.checkpoint.matrix(name))
        if self._table is None:  # a tied head reads it again
            self._table = quantize_rows(self.checkpoint.matrix(name))
        return self._table

    def _int8_table(self) -> QuantizedWeights:
        """The embedding: Q8_0 as it is, unless the head is the same bytes, which need one scale for a row."""
        exact = None if self._head_is_embedding else rows_of_q8_0(self.checkpoint.tensors["embedding"])
        return self._int8_rows("embedding") if exact is None else exact

    def _int4_groups(self, name: str) -> QuantizedWeights:
        group = self.precision.group_size
        weights = self.checkpoint.matrix(name)
        check_group(name, weights.shape[1], group)
        return quantize_groups(weights, group, held_groups(weights.tensor, group), self.threads)

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
            report.groups += made.scales.size
            report.carried_groups += made.carried


def check_group(name: str, columns: int, group: int) -> None:
    """Raise unless groups divide the rows of a matrix."""
    if columns % group:
        fitting = ", ".join(str(size) for size in GROUP_SIZES if not columns % size)
        remedy = f"Group sizes that divide it: {fitting}." if fitting else "Use int8."
        rule = f"must have rows that are multiples of the group size {group}"
        raise UsageError(f"weights {name!r}", rule, value=columns, remedy=remedy)


def _numbers(made: QuantizedWeights) -> tuple[float, ...]:
    return tuple(made.scales.reshape(-1).tolist())


def _value(name: str, made: QuantizedWeights, q: QParams) -> Value:
    return Value(name, INT8, made.integers.shape, (0, 1), made.integers, q=q)
