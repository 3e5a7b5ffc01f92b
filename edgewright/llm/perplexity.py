"""Perplexity of a program's weights on a text, beside the original's and that of simpler rounding.

The arithmetic is the program's: dequantized weights, and activations rounded to int8 by row where the program does so.
Windows of the text pass each layer while it is compiled, so that no weights are held or loaded twice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edgewright.llm.checkpoint import Checkpoint
from edgewright.llm.float_decoder import FloatDecoder, linear, round_rows, round_windows
from edgewright.llm.quantize_weights import QuantizedWeights, held_groups, nearest_groups, quantize_groups

Array = np.ndarray[Any, Any]

TOKENS = 4096  # of the text, at most
ORIGINAL, NEAREST, SEARCHED, CALIBRATED, FLOAT = "original", "nearest", "searched", "calibrated", "float"
STATIC = "static"  # weights and activations as in a program for an NPU
_LAYER = ("q", "k", "v", "o", "gate", "up", "down")
_ROWS = 4096  # of the head at a time


@dataclass(frozen=True)
class Perplexity:
    """``values``: by rounding; ``program``: which of them the program has."""

    tokens: int
    values: Mapping[str, float]
    program: str


@dataclass
class _Variant:
    """The text's hidden states with one kind of weights."""

    load: Callable[[str], Array]
    dynamic: bool  # activations are rounded by row
    hidden: Array = field(default_factory=lambda: np.empty(0, np.float32))


class PerplexityMeasurement:
    """Takes a program's weights in the order in which they are made: embedding, layers, head."""

    def __init__(self, decoder: FloatDecoder, windows: Array, program: str, *, group: int, dynamic: bool) -> None:
        """``program``: what the weights that will be added are; ``group``: of 4-bit weights, 0 if they are not;
        ``dynamic``: whether the program rounds the inputs of linear layers."""
        self._decoder, self._windows, self._program = decoder, windows, program
        self._added: dict[str, Array] = {}
        self._layer = 0
        checkpoint = decoder.checkpoint
        self._variants = {ORIGINAL: _Variant(checkpoint.load, False)}
        if group:
            self._variants[NEAREST] = _Variant(lambda name: nearest_groups(checkpoint.load(name), group), True)
            self._variants[SEARCHED] = _Variant(lambda name: _searched(checkpoint, name, group), True)
        self._variants[program] = _Variant(lambda name: self._added[name], dynamic)

    def start(self, embedding: Callable[[Array], Array]) -> None:
        """``embedding``: of the program; the original has its own."""
        scale = np.float32(self._decoder.config.embedding_scale)
        for name, variant in self._variants.items():
            rows = self._original_rows() if name == ORIGINAL else embedding(self._windows)
            variant.hidden = rows * scale

    def _original_rows(self) -> Array:
        used, where = np.unique(self._windows, return_inverse=True)
        rows: Array = self._decoder.checkpoint.tensors["embedding"].rows(used).float32()
        gathered: Array = rows[where.reshape(self._windows.shape)]
        return gathered

    def add(self, name: str, made: QuantizedWeights | None) -> None:
        """Weights of a linear layer, None if they are not quantized."""
        self._added[name] = self._decoder.checkpoint.load(name) if made is None else made.gather()
        if all(f"layers.{self._layer}.{part}" in self._added for part in _LAYER):
            for variant in self._variants.values():
                variant.hidden = self._decoder.layer(self._layer, variant.hidden, _projection(self._decoder, variant))
            self._added = {n: w for n, w in self._added.items() if not n.startswith(f"layers.{self._layer}.")}
            self._layer += 1

    def finish(self, name: str, made: QuantizedWeights | None) -> Perplexity:
        """``made``: the head of the program, whose weights are ``name`` of the checkpoint."""
        original, values = self._decoder.checkpoint.matrix(name), {}
        for key, variant in self._variants.items():
            own = made if key != ORIGINAL else None
            head = original.__getitem__ if own is None else own.gather
            values[key] = self._perplexity(variant.hidden, head, original.shape[0], own is not None)
        return Perplexity(int(self._windows[:, 1:].size), values, self._program)

    def _perplexity(self, hidden: Array, head: Callable[[slice], Array], vocabulary: int, dynamic: bool) -> float:
        """``head``: its rows, of which some are loaded at a time."""
        normed = self._decoder.norm(hidden, "norm")
        rows = normed[:, :-1].reshape(-1, normed.shape[-1])
        rows = round_rows(rows) if dynamic else rows
        following, index = self._windows[:, 1:].reshape(-1), np.arange(len(rows))
        chosen, largest = np.zeros(len(rows)), np.full((len(rows), 1), -np.inf, np.float32)
        total = np.zeros(len(rows))  # of exponentials, relative to the largest logit so far
        for start in range(0, vocabulary, _ROWS):
            logits = self._decoder.cap_logits(rows @ head(slice(start, start + _ROWS)).T)
            here = (following >= start) & (following < start + logits.shape[1])
            chosen[here] = logits[index[here], following[here] - start]
            before, largest = largest, np.maximum(largest, logits.max(1, keepdims=True))
            total = total * np.exp(before - largest)[:, 0] + np.exp(logits - largest).sum(1, dtype=np.float64)
        self._decoder.checkpoint.release()
        return math.exp(float((np.log(total) + largest[:, 0] - chosen).mean()))


def _searched(checkpoint: Checkpoint, name: str, group: int) -> Array:
    matrix = checkpoint.matrix(name)
    return quantize_groups(matrix, group, held_groups(matrix.tensor, group)).gather()


def _projection(decoder: FloatDecoder, variant: _Variant) -> Callable[[Sequence[str], Array], list[Array]]:
    def project(names: Sequence[str], x: Array) -> list[Array]:
        inputs = round_windows(x) if variant.dynamic else x
        outputs = [linear(inputs, variant.load(name), decoder.checkpoint.bias(name)) for name in names]
        decoder.checkpoint.release()
        return outputs

    return project
