"""The static decoder in numpy: floats whose ranges are observed, or fake quantization, which rounds each result to its
encoding. The tokens of the fake-quantized model are what a compiled program is compared with.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from edgewright.ir.graph import QParams
from edgewright.llm.float_decoder import activate
from edgewright.llm.static_decoder import MAX_SYMMETRIC, PROBABILITY, TANH, Call, Ranges, StaticDecoder

Array = np.ndarray[Any, Any]


class StaticWeights(Protocol):
    """Weights by name."""

    @property
    def norm_eps(self) -> float: ...

    def table(self, name: str) -> Array: ...

    def vector(self, name: str) -> Array: ...

    def matrix(self, name: str) -> Array: ...

    def bias(self, name: str) -> Array | None: ...


def quantize_int16(weights: Array) -> tuple[Array, float]:
    """Symmetric integers of a norm's weights, and their scale."""
    scale = max(float(np.abs(weights).max()), 1e-9) / MAX_SYMMETRIC
    return np.rint(weights / scale).astype(np.int16), scale


@dataclass
class NumpyOperators:
    """``ranges`` observes results; ``encodings`` rounds them. Weights that are used again are kept until ``forget``."""

    weights: StaticWeights
    ranges: Ranges | None = None
    encodings: Mapping[str, QParams] | None = None
    _kept: dict[str, Array] = field(default_factory=dict)

    def forget(self) -> None:
        self._kept.clear()

    def rows(self, name: str, index: Array) -> Array:
        table = self.weights.table(name)
        if self.ranges is not None:
            self.ranges.observe(name, table)
        return self._rounded(name, table[index])

    def linear(self, name: str, x: Array) -> Array:
        matrix, bias = self._keep(name, lambda: self.weights.matrix(name)), self.weights.bias(name)
        return self._result(name, x @ matrix.T + (0 if bias is None else bias))

    def norm(self, name: str, x: Array) -> Array:
        factors = self.weights.vector(name)
        if self.encodings is not None:
            integers, scale = quantize_int16(factors)
            factors = integers * np.float32(scale)
        mean = np.mean(np.square(x, dtype=np.float64), -1, keepdims=True)
        return self._result(name, (x / np.sqrt(mean + self.weights.norm_eps) * factors).astype(np.float32))

    def binary(self, kind: str, name: str, x: Array, y: Array) -> Array:
        return self._result(name, {"add": np.add, "sub": np.subtract, "mul": np.multiply}[kind](x, y))

    def unary(self, kind: str, name: str, x: Array) -> Array:
        if kind == "tanh":
            return np.tanh(x) if self.encodings is None else fake_quantize(np.tanh(x), TANH)
        if kind != "sigmoid":
            exact = kind if self.encodings is None else "gelu"  # the HTP has one GELU, with erf
            return self._result(name, activate(x, exact))
        with np.errstate(over="ignore"):
            return self._shares(1 / (1 + np.exp(-x)))

    def masked_scores(self, name: str, query: Array, keys: Array, mask: Array, heads: int) -> Array:
        length = mask.shape[2]
        scores = (query @ keys).reshape(1, heads, length, -1)
        visible = np.broadcast_to(mask, scores.shape)
        if self.ranges is not None:
            self.ranges.observe(name, scores[visible])
        if self.encodings is None:
            return np.where(visible, scores, np.float32(-np.inf))
        q = self.encodings[name]
        return np.where(visible, fake_quantize(scores, q), fake_quantize(np.float32(-np.inf), q))

    def softmax(self, x: Array) -> Array:
        exponentials = np.exp(x - x.max(-1, keepdims=True))
        return self._shares(exponentials / exponentials.sum(-1, keepdims=True))

    def matmul(self, name: str, x: Array, y: Array) -> Array:
        return self._result(name, x @ y)

    def convert(self, name: str, x: Array) -> Array:
        return self._result(name, x) if not name.rpartition(".")[2].startswith("cached") else self._rounded(name, x)

    def reshape(self, x: Array, shape: Sequence[int]) -> Array:
        return x.reshape(tuple(shape))

    def transpose(self, x: Array, dims: Sequence[int]) -> Array:
        return x.transpose(tuple(dims))

    def columns(self, x: Array, start: int, end: int) -> Array:
        return x[..., start:end]

    def concat(self, name: str, parts: Sequence[Array], axis: int) -> Array:
        return np.concatenate(list(parts), axis)

    # --------------------------------------------------------------------------------------------------------- rounding

    def _keep(self, name: str, load: Callable[[], Array]) -> Array:
        if name not in self._kept:
            self._kept[name] = load()
        return self._kept[name]

    def _result(self, name: str, x: Array) -> Array:
        if self.ranges is not None:
            self.ranges.observe(name, x)
        return self._rounded(name, x)

    def _rounded(self, name: str, x: Array) -> Array:
        return x if self.encodings is None else fake_quantize(x, self.encodings[name])

    def _shares(self, x: Array) -> Array:
        return x if self.encodings is None else fake_quantize(x, PROBABILITY)


@dataclass
class RecordedInputs(NumpyOperators):
    """Keeps what linear layers read: by the first of the layers that read it, rows [length, columns] of each window."""

    inputs: dict[str, list[Array]] = field(default_factory=dict)

    def linear(self, name: str, x: Array) -> Array:
        if name.rpartition(".")[2] not in ("k", "v", "up"):  # they read what "q" and "gate" do
            self.inputs.setdefault(name, []).append(x.reshape(x.shape[-2:]))
        return super().linear(name, x)


def fake_quantize(x: Array | np.float32, q: QParams) -> Array:
    """Numbers rounded to an encoding with one scale."""
    zero, scale = int(np.asarray(q.zero_point)), float(np.asarray(q.scale))
    stored = np.clip(np.rint(np.asarray(x, np.float64) / scale), q.qmin - zero, q.qmax - zero)
    result: Array = (stored * scale).astype(np.float32)
    return result


class ReferenceDecoder:
    """Runs windows of tokens, each from position 0 and without caches, layer by layer."""

    def __init__(self, decoder: StaticDecoder[Array], operators: NumpyOperators) -> None:
        self._decoder, self._operators = decoder, operators

    def start(self, windows: Array) -> list[Array]:
        """The hidden states of each window."""
        return [self._decoder.embed(window[None], len(window)) for window in windows]

    def layer(self, index: int, hidden: list[Array]) -> list[Array]:
        call = self._call(hidden[0].shape[2])
        result = [self._decoder.layer(index, x, call)[0] for x in hidden]
        self._operators.forget()
        return result

    def logits(self, hidden: list[Array]) -> list[Array]:
        """[A, V] of each window."""
        cap = np.float32(self._decoder.config.logit_softcap or 1)
        return [self._decoder.logits(x, x.shape[2])[0] * cap for x in hidden]

    def run(self, windows: Array, on_layer: Callable[[], None] = lambda: None) -> list[Array]:
        hidden = self.start(windows)
        for index in range(self._decoder.config.layers):
            hidden = self.layer(index, hidden)
            on_layer()
        return self.logits(hidden)

    def _call(self, length: int) -> Call[Array]:
        rotations = self._decoder.rotations(np.arange(length)[None], length)
        return Call(length, rotations, causal_masks(length, self._decoder.config.window), {})


def causal_masks(length: int, window: int) -> tuple[Array, Array]:
    """Which positions are visible, of full and of sliding layers: bool [1, 1, A, A]."""
    distance = np.subtract.outer(np.arange(length), np.arange(length))[None, None]
    visible = distance >= 0
    return visible, visible & (distance < (window or length))


def negative_log_likelihood(logits: Array, following: Array) -> float:
    """The sum over positions of the logits [A, V]."""
    wide = logits.astype(np.float64)
    largest = wide.max(-1, keepdims=True)
    total = np.log(np.exp(wide - largest).sum(-1)) + largest[:, 0]
    value = float((total - wide[np.arange(len(following)), following]).sum())
    return value if math.isfinite(value) else math.inf
