"""``Calibration``: rounds the linear layers of a decoder by what a text makes of their inputs, layer by layer.

A layer is calibrated on what the layers before it compute as they were rounded, activations included. Layers must be
asked for in order; the activations of one layer and its weights are all that memory holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from edgewright.errors import UsageError
from edgewright.llm.float_decoder import FloatDecoder, linear, round_windows
from edgewright.llm.gptq import CalibratedRounding
from edgewright.llm.quantize_weights import QuantizedWeights, count_carried, held_groups
from edgewright.llm.window_threads import each_window

Array = np.ndarray[Any, Any]

TOKENS = 8192  # of the text, at most
OWN_TOKENS = 4096  # of a text of ours
_SPAN = 2048  # columns whose errors compensate each other: memory is its square, and time its cube


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
        rounding, outputs = CalibratedRounding(products_of(inputs, names[0]), self._group), []
        for name in names:
            matrix = checkpoint.load(name)
            own = count_carried(rounding.round(matrix), held_groups(checkpoint.tensors[name], self._group))
            self._rounded[name] = own
            outputs.append(linear(inputs, own.gather(), checkpoint.bias(name)))
        checkpoint.release()
        return outputs


def products_of(x: Array, name: str) -> list[Array]:
    """Sums of products of columns of ``name``'s inputs [windows, length, columns], added up in float64 over windows;
    of wide inputs, for spans of columns.

    Rows are scaled to one length. The first tokens of a text have activations that are a thousand times as large as all
    others', and nothing else would count; the norm that follows each layer divides by the same size anyway.
    """
    spans = [slice(start, start + _SPAN) for start in range(0, x.shape[-1], _SPAN)]

    def products(window: Array) -> list[Array]:
        squares = np.einsum("ij,ij->i", window, window)
        rows = window / np.sqrt(np.maximum(squares / window.shape[1], np.float32(1e-12)))[:, None]
        return [rows[:, span].T @ rows[:, span] for span in spans]

    totals = [np.zeros((len(range(*span.indices(x.shape[-1]))),) * 2) for span in spans]
    for found in each_window(products, x):
        for total, product in zip(totals, found, strict=True):
            total += product
    if not all(np.isfinite(total).all() for total in totals):
        rule = "must be finite on the calibration text"
        raise UsageError(f"inputs of {name}", rule, remedy="Weights of the checkpoint are damaged or too large.")
    return totals
