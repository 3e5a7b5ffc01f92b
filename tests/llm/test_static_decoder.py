"""The decoder in fixed shapes: floats against what transformers computed, and fake quantization."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgewright.errors import UsageError
from edgewright.llm.checkpoint import Checkpoint, open_checkpoint
from edgewright.llm.compile_qualcomm import observe
from edgewright.llm.rotation import Rotation
from edgewright.llm.static_decoder import MASK, MASK_MARGIN, MIDPOINT, Ranges, StaticDecoder
from edgewright.llm.static_reference import (
    NumpyOperators,
    ReferenceDecoder,
    causal_masks,
    fake_quantize,
    negative_log_likelihood,
)
from edgewright.llm.static_weights import OriginalWeights, QuantizedCheckpoint, RotatedWeights, StaticPrecision
from tests.llm.test_decoder import FAMILIES
from tests.support.language_models import PROMPT, RecordedModel


def reference(checkpoint: Checkpoint, operators: NumpyOperators) -> ReferenceDecoder:
    return ReferenceDecoder(StaticDecoder(checkpoint.config, operators), operators)


@pytest.mark.parametrize("family", FAMILIES)
def test_floats_are_those_of_transformers(family: str, tmp_path: Path) -> None:
    model = RecordedModel(family)
    checkpoint = open_checkpoint(model.save(tmp_path))
    tokens = np.stack([model.tokens[:-1], model.tokens[1:]])  # a second window must not see the first
    logits = reference(checkpoint, NumpyOperators(OriginalWeights(checkpoint, 96))).run(tokens)[0][PROMPT - 1 :]
    np.testing.assert_allclose(logits, model.logits, 1e-4, 3e-5 * np.abs(model.logits).max())


@pytest.mark.parametrize("family", FAMILIES)
def test_rotated_weights_compute_the_same(family: str, tmp_path: Path) -> None:
    model = RecordedModel(family)
    checkpoint = open_checkpoint(model.save(tmp_path))
    weights = RotatedWeights(checkpoint, 96)
    logits = reference(checkpoint, NumpyOperators(weights)).run(model.tokens[None, :-1])[0][PROMPT - 1 :]
    np.testing.assert_allclose(logits, model.logits, 1e-3, 1e-4 * np.abs(model.logits).max())
    rotated = np.abs(weights.matrix("layers.0.down") - checkpoint.load("layers.0.down")).max() > 0.1
    assert rotated == (not checkpoint.config.post_norms)


@pytest.mark.parametrize("size", [2, 9, 64, 576, 2048])
def test_rotations_are_orthogonal_and_spread(size: int) -> None:
    rows = np.eye(size, dtype=np.float32)[:32]
    rotated = Rotation(size).apply(rows)
    np.testing.assert_allclose(rotated @ rotated.T, np.eye(len(rows)), atol=1e-5)
    assert np.abs(rotated).max() <= 1.5 / np.sqrt(size)  # one large channel becomes many


@pytest.mark.parametrize("kv_bits", [8, 16])
def test_fake_quantization_is_near_the_floats(kv_bits: int, tmp_path: Path) -> None:
    model = RecordedModel("smollm2")
    checkpoint = open_checkpoint(model.save(tmp_path))
    weights, ranges = QuantizedCheckpoint(checkpoint, StaticPrecision("16a8w"), 96), Ranges()
    tokens = model.tokens[None, :-1]
    floats = reference(checkpoint, NumpyOperators(weights, ranges)).run(tokens)[0]
    rounded = reference(checkpoint, NumpyOperators(weights, encodings=ranges.encodings(kv_bits))).run(tokens)[0]
    error = np.sqrt(np.mean(np.square(rounded - floats)) / np.mean(np.square(floats)))
    assert 1e-6 < error < (0.002 if kv_bits == 16 else 0.05)


def test_encodings() -> None:
    ranges = Ranges()
    for name, ends in {"layers.0.q": (-1, 3), "layers.0.key": (-2, 1), "layers.0.v": (-0.5, 0.25),
                       "layers.0.scores": (-4, 6), "layers.1.scores": (-7, 2)}.items():  # fmt: skip
        ranges.observe(name, np.array(ends, np.float32))
        ranges.observe(name, np.zeros(1, np.float32))
    for bits, zero in ((8, 128), (16, MIDPOINT)):
        made = ranges.encodings(bits)
        low, high = (fake_quantize(np.float32(x), made["layers.0.q"]) for x in (-1e9, 1e9))
        assert -1.11 < low < -1 and 3 < high < 3.31
        for name, reach in (("layers.0.cached_key", 2), ("layers.0.cached_value", 0.5)):  # as right operands must be
            q = made[name]
            assert q.zero_point == zero and (q.qmin, q.qmax) == (0, 2 * zero - 1)
            assert reach < fake_quantize(np.float32(1e9), q) < 1.12 * reach
    for name, lowest, highest in (("layers.0.scores", -4, 6), ("layers.1.scores", -7, 2)):
        low, high = (fake_quantize(np.float32(x), made[name]) for x in (-1e9, 1e9))
        assert low <= lowest - MASK_MARGIN and high > highest  # a masked score is far below all others
    low, high = (fake_quantize(np.float32(x), made[MASK]) for x in (-1e9, 1e9))
    assert low <= -7 - MASK_MARGIN and high > 6


def test_blocks_have_scales_that_are_multiples_of_their_row(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(RecordedModel("llama").save(tmp_path))
    weights = QuantizedCheckpoint(checkpoint, StaticPrecision(group_size=32), 96)
    made = weights.linear("layers.0.down")  # two blocks in a row
    multiples = made.scales / made.accumulator_scales[:, None]
    np.testing.assert_allclose(multiples, np.round(multiples), atol=1e-9)
    assert multiples.max() == 16 and 1 <= multiples.min() < 16
    original = RotatedWeights(checkpoint, 96).matrix("layers.0.down")
    assert np.abs(made.float32() - original).max() < 1.1 * made.scales.max()  # the search for scales may clip
    part = weights.parts["linear layers"]
    assert part.precision == "int4 blocks of 32" and 0.05 < part.relative_error < 0.12


def test_precisions_that_do_not_exist() -> None:
    for wrong, message in (
        ({"linear": "8da4w"}, "must be 16a4w, 16a8w; got 8da4w"),
        ({"head": "fp32"}, "must be int4, int8; got fp32"),
        ({"kv_bits": 4}, "must be 8, 16; got 4"),
        ({"group_size": 33}, "must be 32, 64, 128, 256; got 33"),
    ):
        with pytest.raises(UsageError, match=message):
            StaticPrecision(**wrong)  # type: ignore[arg-type]


def test_masks_and_likelihood() -> None:
    full, window = causal_masks(4, 2)
    assert full[0, 0].sum(1).tolist() == [1, 2, 3, 4] and window[0, 0].sum(1).tolist() == [1, 2, 2, 2]
    logits = np.log(np.array([[0.5, 0.25, 0.25], [0.1, 0.1, 0.8]]))
    assert negative_log_likelihood(logits, np.array([1, 2])) == pytest.approx(-np.log(0.25 * 0.8))


@pytest.mark.parametrize("family", [f for f in FAMILIES if f != "phi3"])  # whose matrices are fused
def test_4_bit_weights_are_calibrated(family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors of logits on another text than the weights were rounded by."""
    checkpoint = open_checkpoint(RecordedModel(family).save(tmp_path))
    draw = np.random.default_rng(0)
    seen, other = (draw.integers(0, checkpoint.config.vocab_size, (12, 64)) for _ in range(2))
    expected = np.array(reference(checkpoint, NumpyOperators(OriginalWeights(checkpoint, 96))).run(other))
    errors = []
    for calibrated in (True, False):
        if not calibrated:
            monkeypatch.setattr(QuantizedCheckpoint, "calibrate", lambda *arguments: None)
        weights = QuantizedCheckpoint(checkpoint, StaticPrecision(), 96)
        observe(checkpoint, weights, seen, 16, lambda: None)
        errors.append(np.linalg.norm(reference(checkpoint, NumpyOperators(weights)).run(other) - expected))
        for part in ("q", "k", "o", "up", "down"):
            made = weights.linear(f"layers.0.{part}")
            multiples = made.scales / made.accumulator_scales[:, None]
            np.testing.assert_allclose(multiples, np.rint(multiples), 1e-9)
            assert multiples.min() >= 1 and multiples.max() == 16
            assert made.integers.min() >= -8 and made.integers.max() <= 7
    assert errors[0] < 0.95 * errors[1]
