"""``Calibration``: rounds the linear layers of a decoder by what a text makes of their inputs, layer by layer.

A layer is calibrated on what the layers before it compute as they were rounded, activations included. Layers must be
asked for in order; the activations of one layer and its weights are all that memory holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from edgewright.llm.float_decoder import FloatDecoder, linear, round_windows
from edgewright.llm.gptq import round_calibrated
from edgewright.llm.quantize_weights import QuantizedWeights
from edgewright.llm.window_threads import each_window

Array = np.ndarray[Any, Any]

TOKENS = 8192  # of the text, at most


class Calibration:
    """``windows``: tokens [windows, length] of the calibration text."""

    def __init__(self, decoder: FloatDecoder, windows: Array, group: int) -> None:
        self._decoder, self._windows, self._group = decoder, windows, group
        self._hidden: Array | None = None
        self._next = 0
        self._rounded: dict[str, QuantizedWeights] = {}

    @property
    def tokens(self) -> int:
        return int(self._windows.size)

    def start(self, embedding: Callable[[Array], Array]) -> None:
        """Begin with the embedding of the tokens, as the program computes it."""
        self._hidden = embedding(self._windows) * np.float32(self._decoder.config.embedding_scale)

    def quantized(self, name: str) -> QuantizedWeights:
        """The weights of a linear layer, which are handed out once."""
        while name not in self._rounded:
            assert self._hidden is not None, "start comes first"
            assert self._next < self._decoder.config.layers, f"{name} was handed out"
            self._hidden = self._decoder.layer(self._next, self._hidden, self._project)
            self._next += 1
        return self._rounded.pop(name)

    def _project(self, names: Sequence[str], x: Array) -> list[Array]:
        """Round linear layers that read ``x``; their outputs, with the rounded weights."""
        checkpoint = self._decoder.checkpoint
        inputs = round_windows(x)
        matrices = [checkpoint.load(name) for name in names]
        made = round_calibrated(np.concatenate(matrices), _products(inputs), self._group)
        outputs, at = [], 0
        for name, matrix in zip(names, matrices, strict=True):
            part = slice(at, at + len(matrix))
            at += len(matrix)
            own = QuantizedWeights.of(matrix, made.integers[part], made.scales[part])
            self._rounded[name] = own
            outputs.append(linear(inputs, own.gather(), checkpoint.bias(name)))
        checkpoint.release()
        return outputs


def _products(x: Array) -> Array:
    """Sums of products of columns, added up in float64 over windows.

    Rows are scaled to one length. The first tokens of a text have activations that are a thousand times as large as all
    others', and nothing else would count; the norm that follows each layer divides by the same size anyway.
    """

    def products(window: Array) -> Array:
        squares = np.einsum("ij,ij->i", window, window)
        rows = window / np.sqrt(np.maximum(squares / window.shape[1], np.float32(1e-12)))[:, None]
        summed: Array = rows.T @ rows
        return summed

    total = np.zeros((x.shape[-1], x.shape[-1]))
    for product in each_window(products, x):
        total += product
    return total
