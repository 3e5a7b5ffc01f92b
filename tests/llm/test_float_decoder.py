"""The decoder in numpy against what transformers computed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from edgewright.llm.checkpoint import Checkpoint, open_checkpoint
from edgewright.llm.float_decoder import FloatDecoder, activate, round_rows
from tests.llm.test_decoder import FAMILIES
from tests.support.language_models import PROMPT, RecordedModel


def logits_of(checkpoint: Checkpoint, tokens: np.ndarray, context: int) -> np.ndarray:
    """Logits of all positions of windows [windows, length]."""
    decoder = FloatDecoder(checkpoint, tokens.shape[1], context)

    def project(names: Sequence[str], x: np.ndarray) -> list[np.ndarray]:
        biases = [checkpoint.bias(name) for name in names]
        return [x @ checkpoint.load(n).T + (0 if b is None else b) for n, b in zip(names, biases, strict=True)]

    table = checkpoint.load("embedding")
    hidden = table[tokens] * np.float32(checkpoint.config.embedding_scale)
    for layer in range(checkpoint.config.layers):
        hidden = decoder.layer(layer, hidden, project)
    head = table if checkpoint.config.tied else checkpoint.load("head")
    return decoder.cap_logits(decoder.norm(hidden, "norm") @ head.T)


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_those_of_transformers(family: str, tmp_path: Path) -> None:
    model = RecordedModel(family)
    checkpoint = open_checkpoint(model.save(tmp_path))
    tokens = np.stack([model.tokens[:-1], model.tokens[1:]])  # a second window must not see the first
    logits = logits_of(checkpoint, tokens, 96)[0, PROMPT - 1 :]
    np.testing.assert_allclose(logits, model.logits, 1e-4, 2e-5 * np.abs(model.logits).max())


def test_rounded_rows_have_256_steps_from_their_smallest_to_their_largest() -> None:
    x = np.random.default_rng(0).standard_normal((3, 50, 64)).astype(np.float32)
    x[0, 0] = 0
    rounded = round_rows(x)
    steps = (x.max(-1, keepdims=True) - x.min(-1, keepdims=True)) / 255
    assert (np.abs(rounded - x) <= 0.51 * steps).all() and (rounded[0, 0] == 0).all()
    assert np.abs(rounded - x).max() > 0
    np.testing.assert_array_equal(round_rows(np.repeat(x, 400, 0)), np.repeat(rounded, 400, 0))  # in several parts


def test_activations() -> None:
    x = np.array([-200.0, -1.0, 0.0, 2.0], np.float32)
    np.testing.assert_allclose(activate(x, "silu"), [0, -0.26894143, 0, 1.7615942], 1e-5, 1e-6)
    np.testing.assert_allclose(activate(x, "gelu"), [0, -0.15865526, 0, 1.9544997], 1e-5, 1e-6)
    np.testing.assert_allclose(activate(x, "gelu_tanh"), [0, -0.15880800, 0, 1.9545977], 1e-5, 1e-6)
