"""Records what transformers computes for small models of each family: ``python -m tests.llm.record``, in the zoo's
environment (``tests/zoo/setup.sh``)."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from tests.support.language_models import DATA, GENERATED, PROMPT, seeded_weight

_SIZES = {
    "vocab_size": 61, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 128, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
_LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}  # fmt: skip
_LONGROPE = {
    "rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0, 1.5], "long_factor": [1.25, 4.0],
    "original_max_position_embeddings": 16, "partial_rotary_factor": 0.5,
}  # fmt: skip
_TYPES = ["sliding_attention", "sliding_attention", "full_attention"]
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {"rope_parameters": _LLAMA3, "attention_bias": True, "mlp_bias": True}),
    "smollm2": ("llama", {"tie_word_embeddings": True, "rms_norm_eps": 1e-5}),
    "qwen2": ("qwen2", {"tie_word_embeddings": True}),
    "qwen2_yarn": ("qwen2", {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0,
                                                 "original_max_position_embeddings": 32}}),
    "qwen3": ("qwen3", {"head_dim": 16}),
    "gemma3": ("gemma3_text", {"head_dim": 16, "sliding_window": 8, "layer_types": _TYPES,
                               "query_pre_attn_scalar": 24, "final_logit_softcapping": 5.0}),
    "phi3": ("phi3", {"rope_parameters": _LONGROPE, "sliding_window": 16, "original_max_position_embeddings": 16}),
    "mistral": ("mistral", {"sliding_window": 12, "head_dim": 8}),
}  # fmt: skip


def record(name: str) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    kind, options = MODELS[name]
    config = AutoConfig.for_model(kind, **{**_SIZES, **options})
    config._attn_implementation = "eager"
    model = AutoModelForCausalLM.from_config(config).float().eval()
    for key, parameter in model.named_parameters():
        parameter.data = torch.from_numpy(seeded_weight(key, tuple(parameter.shape)))
    model.tie_weights()
    tokens = torch.from_numpy(np.random.default_rng(0).integers(3, 61, (1, PROMPT)))
    logits = []
    with torch.no_grad():
        for _ in range(GENERATED):
            logits.append(model(tokens, use_cache=False).logits[0, -1])
            tokens = torch.cat([tokens, logits[-1].argmax()[None, None]], 1)
    shapes = {key: list(parameter.shape) for key, parameter in model.named_parameters()}
    DATA.mkdir(exist_ok=True)
    np.savez_compressed(
        DATA / f"{name}.npz", config=json.dumps(config.to_dict()), shapes=json.dumps(shapes),
        tokens=tokens[0].numpy(), logits=torch.stack(logits).numpy(),
    )  # fmt: skip
    print(name, len(set(tokens[0, PROMPT:].tolist())), "distinct tokens")


if __name__ == "__main__":
    for model_name in MODELS:
        record(model_name)
