"""The decoder in numpy, layer by layer: what calibration and perplexity are computed with.

All windows of a text pass a layer before the next layer's weights are loaded, so memory holds one layer. How linear
layers compute is the caller's: with the checkpoint's weights, or with quantized ones and rounded activations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from edgewright.ir.numerics import quantize_rows_int8
from edgewright.llm.checkpoint import Checkpoint
from edgewright.llm.config import DecoderConfig
from edgewright.llm.rope import Rope
from edgewright.llm.window_threads import map_windows

Array = np.ndarray[Any, Any]

# Names of linear layers that read one input, and the input [windows, length, columns]; returns their outputs.
Project = Callable[[Sequence[str], Array], list[Array]]
_ROWS = 1 << 20  # elements that are rounded at a time: temporary arrays stay small


@dataclass(frozen=True)
class FloatDecoder:
    """Runs windows of ``length`` tokens, each from position 0; ``context``: of the program that is measured, which
    decides the frequencies of some rotary embeddings."""

    checkpoint: Checkpoint
    length: int
    context: int

    @property
    def config(self) -> DecoderConfig:
        return self.checkpoint.config

    def layer(self, index: int, hidden: Array, project: Project) -> Array:
        """The hidden states [windows, length, dim] after a layer."""
        config, prefix = self.config, f"layers.{index}"
        normed = self.norm(hidden, f"{prefix}.attention_norm")
        query, key, value = project([f"{prefix}.{name}" for name in "qkv"], normed)
        attended = self._attention(index, query, key, value)
        (projected,) = project([f"{prefix}.o"], attended)
        if config.post_norms:
            projected = self.norm(projected, f"{prefix}.attention_post_norm")
        hidden = hidden + projected
        normed = self.norm(hidden, f"{prefix}.ffn_norm")
        gate, up = project([f"{prefix}.gate", f"{prefix}.up"], normed)
        hidden_rows = map_windows(lambda g, u: activate(g, config.activation) * u, gate, up)
        (projected,) = project([f"{prefix}.down"], hidden_rows)
        if config.post_norms:
            projected = self.norm(projected, f"{prefix}.ffn_post_norm")
        return hidden + projected

    def norm(self, x: Array, name: str) -> Array:
        mean = np.einsum("...i,...i->...", x, x)[..., None] / np.float32(x.shape[-1])
        normed: Array = x * (1 / np.sqrt(mean + np.float32(self.config.norm_eps))) * self.checkpoint.load(name)
        return normed

    def cap_logits(self, logits: Array) -> Array:
        """The model's cap of logits, if it has one."""
        cap = self.config.logit_softcap
        return logits if cap is None else np.tanh(logits / np.float32(cap)) * np.float32(cap)

    # ----------------------------------------------------------------------------------------------------- attention

    def _attention(self, layer: int, query: Array, key: Array, value: Array) -> Array:
        config = self.config
        scale = np.float32(config.attention_scale or 1 / math.sqrt(config.head_dim))
        group = config.heads // config.kv_heads
        mask, _ = self._mask(layer), self._table(config.layer_rope(layer))  # made once, not by each thread

        def attend(*rows: Array) -> Array:
            q, k, v = (x.reshape(self.length, -1, config.head_dim) for x in rows)
            q, k = self._rotate(layer, q, "q_norm"), self._rotate(layer, k, "k_norm")
            attended = np.empty_like(q)
            for head in range(config.heads):
                scores = (q[:, head] * scale) @ k[:, head // group].T + mask
                scores -= scores.max(1, keepdims=True)
                np.exp(scores, out=scores)
                attended[:, head] = scores @ v[:, head // group] / scores.sum(1, keepdims=True)
            return attended.reshape(self.length, -1)

        return map_windows(attend, query, key, value)

    def _rotate(self, layer: int, x: Array, norm: str) -> Array:
        """Norm of heads and rotation of their halves, [length, heads, head_dim]."""
        rope = self.config.layer_rope(layer)
        if self.config.qk_norm:
            x = self.norm(x, f"layers.{layer}.{norm}")
        cos, sin = (table[:, None] for table in self._table(rope))
        first, second, rest = np.split(x, (rope.dim // 2, rope.dim), -1)
        return np.concatenate([first * cos - second * sin, second * cos + first * sin, rest], -1)

    def _table(self, rope: Rope) -> tuple[Array, Array]:
        if rope not in self._tables:
            cos, sin = rope.tables(self.context)
            self._tables[rope] = cos[: self.length], sin[: self.length]
        return self._tables[rope]

    @cached_property
    def _tables(self) -> dict[Rope, tuple[Array, Array]]:
        return {}

    def _mask(self, layer: int) -> Array:
        return self._masks[self.config.is_sliding(layer)]

    @cached_property
    def _masks(self) -> tuple[Array, Array]:
        """Of full and of sliding layers: 0 where a key is visible, else minus infinity."""
        distance = np.subtract.outer(np.arange(self.length), np.arange(self.length))
        visible = distance >= 0
        masks = [np.where(v, np.float32(0), np.float32(-np.inf)) for v in
                 (visible, visible & (distance < self.config.window))]  # fmt: skip
        return masks[0], masks[1]


def activate(x: Array, activation: str) -> Array:
    factor: Array
    if activation == "silu":
        with np.errstate(over="ignore"):
            factor = 1 / (1 + np.exp(-x))
    elif activation == "gelu_tanh":
        factor = np.float32(0.5) * (1 + np.tanh(np.float32((2 / np.pi) ** 0.5) * (x + np.float32(0.044715) * x**3)))
    else:
        erf = np.vectorize(math.erf, otypes=[np.float32])
        factor = np.float32(0.5) * (1 + erf(x * np.float32(0.5**0.5)))
    return x * factor


def linear(x: Array, weights: Array, bias: Array | None) -> Array:
    """A linear layer of windows [windows, length, columns]."""
    return map_windows(lambda rows: rows @ weights.T + (0 if bias is None else bias), x)


def round_windows(x: Array) -> Array:
    """``round_rows`` of windows."""
    return map_windows(round_rows, x)


def round_rows(x: Array) -> Array:
    """Rows as int8 linear layers see them: rounded to the row's 8-bit steps."""
    rows = x.reshape(-1, x.shape[-1])
    result = np.empty_like(rows)
    step = max(_ROWS // rows.shape[1], 1)
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        stored, scale, zero = quantize_rows_int8(rows[part], 1)
        result[part] = (stored.astype(np.int32) - zero).astype(np.float32) / scale
    return result.reshape(x.shape)
