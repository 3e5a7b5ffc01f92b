"""Configurations: both forms of config.json, and rotations that transformers defines."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from edgewright.errors import EdgewrightError, UsageError
from edgewright.llm.config import from_hf
from edgewright.llm.rope import Rope, scaled_rope

BASE: dict[str, Any] = {
    "model_type": "llama", "vocab_size": 100, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 12,
    "num_attention_heads": 4, "rms_norm_eps": 1e-5, "max_position_embeddings": 4096,
}  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip


def test_rotation_of_transformers_4_and_5() -> None:
    old = from_hf({**BASE, "rope_theta": 5e5, "rope_scaling": LLAMA3})
    new = from_hf({**BASE, "rope_parameters": {**LLAMA3, "rope_theta": 5e5}})
    assert old == new
    assert old.rope.theta == 5e5 and len(set(old.rope.divisors)) > 1
    assert (old.kv_heads, old.head_dim, old.tied) == (4, 16, False)


def test_gemma_of_transformers_4_and_5() -> None:
    sizes = {**BASE, "model_type": "gemma3_text", "head_dim": 16, "sliding_window": 512}
    scaling = {"rope_type": "linear", "factor": 8.0}
    old = from_hf({**sizes, "rope_theta": 1e6, "rope_local_base_freq": 1e4, "sliding_window_pattern": 6,
                   "rope_scaling": scaling})  # fmt: skip
    types = ["full_attention" if (n + 1) % 6 == 0 else "sliding_attention" for n in range(12)]
    ropes = {"full_attention": {**scaling, "rope_theta": 1e6}, "sliding_attention": {"rope_theta": 1e4}}
    new = from_hf({**sizes, "layer_types": types, "rope_parameters": ropes})
    assert old == new
    assert [n for n in range(12) if not old.is_sliding(n)] == [5, 11]
    assert old.layer_rope(0) == Rope(1e4, 16) and old.layer_rope(5).divisors == (8.0,) * 8
    assert old.tied and old.post_norms and old.embedding_scale == 8.0


def test_text_model_of_a_multimodal_checkpoint() -> None:
    text = {**BASE, "model_type": "gemma3_text", "head_dim": 16, "sliding_window": 512}
    assert from_hf({"model_type": "gemma3", "text_config": text}) == from_hf(text)


@pytest.mark.parametrize(("family", "options", "sliding"), [
    ("mistral", {"sliding_window": 64}, 12), ("mistral", {"sliding_window": None}, 0),
    ("qwen2", {"sliding_window": 64, "use_sliding_window": False}, 0),
    ("qwen2", {"sliding_window": 64, "use_sliding_window": True, "max_window_layers": 8}, 4),
    ("llama", {"sliding_window": 64}, 0),
])  # fmt: skip
def test_which_layers_have_a_window(family: str, options: dict[str, Any], sliding: int) -> None:
    config = from_hf({**BASE, "model_type": family, **options})
    assert sum(config.is_sliding(n) for n in range(12)) == sliding


def test_tables_are_angles_of_positions() -> None:
    cos, sin = Rope(10000.0, 4).tables(8)
    np.testing.assert_allclose(cos[:, 1], np.cos(np.arange(8) * 0.01), 1e-6)
    np.testing.assert_allclose(sin[:, 0], np.sin(np.arange(8)), 1e-6, 1e-6)
    np.testing.assert_allclose(Rope(10000.0, 4, amplitude=2.0).tables(8)[0], 2 * cos, 1e-6)


def test_long_contexts_have_other_factors() -> None:
    scaling = {"rope_type": "longrope", "short_factor": [1.0, 2.0], "long_factor": [3.0, 4.0],
               "original_max_position_embeddings": 32}  # fmt: skip
    rope = scaled_rope(10000.0, 4, scaling, 128)
    np.testing.assert_allclose(rope.frequencies(32), [1, 0.005])
    np.testing.assert_allclose(rope.frequencies(33), [1 / 3, 0.0025])
    assert rope.amplitude == math.sqrt(1 + math.log(4) / math.log(32))


@pytest.mark.parametrize("scaling", [
    {"rope_type": "dynamic"}, {"rope_type": "linear"}, {"rope_type": "linear", "factor": "8"},
    {"rope_type": "longrope", "short_factor": [1.0], "long_factor": [1.0], "original_max_position_embeddings": 4},
    {"rope_type": "longrope", "short_factor": 1, "long_factor": [1.0], "original_max_position_embeddings": 4},
    {"rope_type": "llama3", "factor": float("nan")}, {"rope_type": ["yarn"]},
])  # fmt: skip
def test_scalings_that_are_rejected(scaling: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        scaled_rope(10000.0, 4, scaling, 128)


VALUES: list[Any] = [
    None,
    0,
    1,
    -1,
    7,
    10**30,
    10**400,
    1e-300,
    0.5,
    -2.0,
    math.nan,
    math.inf,
    True,
    "x",
    [],
    ["x"],
    [1, 2],
    {},
    {"x": 1},
]
KEYS = (
    "model_type", "text_config", "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "head_dim", "intermediate_size", "rms_norm_eps", "max_position_embeddings", "hidden_act",
    "hidden_activation", "rope_theta", "rope_scaling", "rope_parameters", "rope_local_base_freq", "sliding_window",
    "sliding_window_pattern", "use_sliding_window", "layer_types", "max_window_layers", "query_pre_attn_scalar",
    "final_logit_softcapping", "tie_word_embeddings", "partial_rotary_factor", "original_max_position_embeddings",
    "attn_logit_softcapping", "num_local_experts", "pretraining_tp", "quantization_config",
)  # fmt: skip
ROPE_KEYS = (
    "rope_type", "rope_theta", "factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings",
    "attention_factor", "beta_fast", "beta_slow", "mscale", "truncate", "short_factor", "long_factor",
    "partial_rotary_factor",
)  # fmt: skip


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "gemma3_text", "phi3", "mistral"])
def test_any_config_is_a_decoder_or_an_error(family: str) -> None:
    base = {**BASE, "model_type": family, "sliding_window": 64, "use_sliding_window": True}
    changes = [{key: value} for key in KEYS for value in VALUES]
    for kind in ("linear", "llama3", "yarn", "longrope"):
        factors = {"short_factor": [1.0] * 8, "long_factor": [2.0] * 8}
        rope = {**LLAMA3, **factors, "rope_type": kind}
        changes += [{"rope_parameters": {**rope, key: value}} for key in ROPE_KEYS for value in VALUES]
        changes += [{"rope_parameters": {"full_attention": {**rope, key: 0}}} for key in ROPE_KEYS]
    for change in changes:
        try:
            config = from_hf({**base, **change})
        except EdgewrightError:
            continue
        for layer in {0, 11} & set(range(config.layers)):
            assert np.isfinite(config.layer_rope(layer).tables(16)).all(), change


@pytest.mark.parametrize("types", [["full_attention"] * 3, ["other"] * 12, "full_attention"])
def test_types_of_layers_are_one_for_each_layer(types: Any) -> None:
    with pytest.raises(UsageError, match=r"layer_types: must have one of .* for each of 12 layers"):
        from_hf({**BASE, "model_type": "mistral", "sliding_window": 64, "layer_types": types})
