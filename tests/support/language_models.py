"""Small language models for tests: weights from a seed, as Hugging Face folders and as GGUF files."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from tests.support.gguf_writer import gguf_bytes

DATA = Path(__file__).parent.parent / "data" / "language_models"
PROMPT, GENERATED = 20, 64  # tokens of a recorded run


def seeded_weight(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """The same weights for the same name and shape, wherever they are made."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    norm = len(shape) == 1 and not name.endswith("bias")
    return (rng.standard_normal(shape) * (0.2 if len(shape) == 1 else 0.25) + norm).astype(np.float32)


class RecordedModel:
    """A model whose tokens and logits transformers recorded (``tests/llm/record.py``)."""

    def __init__(self, name: str) -> None:
        with np.load(DATA / f"{name}.npz") as data:
            self.config: dict[str, Any] = json.loads(str(data["config"]))
            shapes = json.loads(str(data["shapes"]))
            self.tokens, self.logits = data["tokens"], data["logits"]  # [PROMPT + GENERATED], [GENERATED, vocabulary]
        self.weights = {key: seeded_weight(key, tuple(shape)) for key, shape in shapes.items()}

    def save(self, folder: Path, files: int = 1) -> Path:
        """Write a folder with config.json and safetensors, in several files if asked."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(self.config))
        if files == 1:
            (folder / "model.safetensors").write_bytes(safetensors(self.weights))
            return folder
        index: dict[str, str] = {}
        for part in range(files):
            names = sorted(self.weights)[part::files]
            file = f"model-{part + 1:05}-of-{files:05}.safetensors"
            (folder / file).write_bytes(safetensors({n: self.weights[n] for n in names}))
            index |= dict.fromkeys(names, file)
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
        return folder


def safetensors(tensors: Mapping[str, np.ndarray]) -> bytes:
    header: dict[str, Any] = {}
    at = 0
    for name, array in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + b"".join(a.tobytes() for a in tensors.values())


# A byte-level tokenizer of 61 tokens: three special ones, letters and digits, and two merges.
_TOKENS = ["<unk>", "<|im_start|>", "<|im_end|>", *"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRST0123456789", "ab"]
_TOKENS.insert(3, "\u0120")  # a space
TOKENIZER: dict[str, Any] = {
    "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm", "tokenizer.ggml.tokens": _TOKENS,
    "tokenizer.ggml.token_type": [3] * 3 + [1] * (len(_TOKENS) - 3), "tokenizer.ggml.merges": ["a b"],
    "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2, "tokenizer.ggml.unknown_token_id": 0,
    "tokenizer.ggml.add_bos_token": False,
    "tokenizer.chat_template": "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}",
}  # fmt: skip


_LAYER = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "self_attn.qkv_proj": "attn_qkv", "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.gate_up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm",
}  # fmt: skip


def gguf_of(model: RecordedModel, kind: str = "F32") -> bytes:
    """The file that llama.cpp's converter writes for a model, with weights of a block format."""
    config = model.config
    arch = {"gemma3_text": "gemma3", "mistral": "llama"}.get(config["model_type"], config["model_type"])
    tensors: dict[str, tuple[int, tuple[int, ...], bytes]] = {}
    for name, weights in model.weights.items():
        base, suffix = name.removeprefix("model.").rsplit(".", 1)
        if base.startswith("layers."):
            _, layer, rest = base.split(".", 2)
            gemma_post = arch == "gemma3" and rest == "post_attention_layernorm"
            base = f"blk.{layer}.{'post_attention_norm' if gemma_post else _LAYER[rest]}"
        else:
            base = {"embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output"}[base]
        if arch == "gemma3" and base.endswith("norm"):
            weights = weights + np.float32(1)
        if arch == "llama" and base.endswith(("attn_q", "attn_k")):
            heads = config["num_attention_heads" if base.endswith("q") else "num_key_value_heads"]
            weights = weights.reshape(heads, 2, -1, *weights.shape[1:]).swapaxes(1, 2).reshape(weights.shape)
        number = gguf.GGMLQuantizationType[kind if weights.ndim == 2 else "F32"]
        tensors[f"{base}.{suffix}"] = int(number), weights.shape, gguf.quantize(weights, number).tobytes()
    dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    metadata: dict[str, Any] = {
        "general.architecture": arch, f"{arch}.embedding_length": config["hidden_size"],
        f"{arch}.block_count": config["num_hidden_layers"], f"{arch}.context_length": 128,
        f"{arch}.feed_forward_length": config["intermediate_size"], f"{arch}.vocab_size": config["vocab_size"],
        f"{arch}.attention.head_count": config["num_attention_heads"], f"{arch}.attention.key_length": dim,
        f"{arch}.attention.value_length": dim, f"{arch}.attention.head_count_kv": config["num_key_value_heads"],
        f"{arch}.attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
    }  # fmt: skip
    if arch == "gemma3":
        metadata |= {"gemma3.attention.sliding_window": 8, "gemma3.attention.sliding_window_pattern": 3,
                     "gemma3.rope.freq_base": 1e6, "gemma3.attention.scale": 24**-0.5,
                     "gemma3.final_logit_softcapping": 5.0}  # fmt: skip
    return gguf_bytes({**metadata, **TOKENIZER}, tensors)
