"""Calibration, layer by layer: it lowers the error of a model's outputs on another text than it has seen."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgewright.llm.calibrate import Calibration, products_of
from edgewright.llm.checkpoint import open_checkpoint
from edgewright.llm.float_decoder import FloatDecoder
from edgewright.llm.quantize_weights import QuantizedWeights, quantize_groups
from tests.llm.test_decoder import FAMILIES
from tests.llm.test_float_decoder import logits_of
from tests.support.language_models import RecordedModel

NAMES = {"q": "self_attn.q_proj", "k": "self_attn.k_proj", "v": "self_attn.v_proj", "o": "self_attn.o_proj",
         "gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj"}  # fmt: skip


@pytest.mark.parametrize("family", [f for f in FAMILIES if f != "phi3"])  # whose matrices are fused
def test_errors_of_logits(family: str, tmp_path: Path) -> None:
    model = RecordedModel(family)
    checkpoint = open_checkpoint(model.save(tmp_path / "float"))
    draw = np.random.default_rng(0)
    seen, other = (draw.integers(0, checkpoint.config.vocab_size, (12, 64)) for _ in range(2))
    calibration = Calibration(FloatDecoder(checkpoint, 64, 96), seen, 32)
    calibration.start(lambda tokens: checkpoint.load("embedding")[tokens])
    expected = logits_of(checkpoint, other, 96)
    names = [f"layers.{layer}.{name}" for layer in range(checkpoint.config.layers) for name in NAMES]
    rounded: dict[str, dict[str, QuantizedWeights]] = {
        "calibrated": {name: calibration.quantized(name) for name in names},
        "searched": {name: quantize_groups(checkpoint.load(name), 32) for name in names},
    }
    errors = {}
    for kind, weights in rounded.items():
        for name, made in weights.items():
            _, layer, part = name.split(".")
            model.weights[f"model.layers.{layer}.{NAMES[part]}.weight"] = made.gather()
        folder = model.save(tmp_path / kind)
        errors[kind] = np.linalg.norm(logits_of(open_checkpoint(folder), other, 96) - expected)
    assert errors["calibrated"] < 0.95 * errors["searched"]


def test_a_large_token_counts_like_any_other() -> None:
    x = np.random.default_rng(0).standard_normal((2, 8, 32)).astype(np.float32)
    large = x.copy()
    large[:, 0] *= 1000
    large[1, 7] = x[1, 7] = 0
    np.testing.assert_allclose(products_of(large, "q"), products_of(x, "q"), 1e-4, 1e-4)
    assert np.trace(products_of(x, "q")[0]) == pytest.approx(15 * 32, rel=1e-3)


def test_wide_inputs_have_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(0).standard_normal((2, 8, 80)).astype(np.float32)
    (expected,) = products_of(x, "q")
    monkeypatch.setattr("edgewright.llm.calibrate._SPAN", 32)
    for at, part in enumerate(products_of(x, "q")):
        span = slice(32 * at, 32 * at + 32)
        np.testing.assert_allclose(part, expected[span, span], 1e-5, 1e-5)
