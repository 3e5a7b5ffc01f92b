"""Checkpoints for the benchmarks of language models: SmolLM2 in other formats, and other shapes with random weights.

``python llm_models.py shape|source.gguf out.gguf``: one of the shapes below, or a copy of a file with its linear layers
in Q4_0. Random weights are random blocks, so that a file of a gigabyte takes seconds.

``python llm_models.py source.gguf folder/``: a llama or qwen2 file as a Hugging Face folder, for the model builder of
ONNX Runtime GenAI, which does not read GGUF files without torch's quantization packages:
``python -m onnxruntime_genai.models.builder -i folder -o out -p int4 -e cpu -c cache --extra_options
int4_accuracy_level=4 int4_block_size=32``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from edgewright.llm.checkpoint import open_checkpoint
from edgewright.llm.vocabulary import read_vocabulary

Q4_0, Q8_0, F32 = gguf.GGMLQuantizationType.Q4_0, gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.F32

# Family, vocabulary, width, layers, heads, key and value heads, feed-forward width, theta.
SHAPES: dict[str, tuple[str, int, int, int, int, int, int, float]] = {
    "qwen2.5-0.5b": ("qwen2", 151936, 896, 24, 14, 2, 4864, 1e6),
    "llama-3.2-1b": ("llama", 128256, 2048, 16, 32, 8, 8192, 5e5),
}


def random_blocks(rng: np.random.Generator, rows: int, columns: int, kind: Any) -> np.ndarray:
    """Weights of about the size of a trained model's, as rows of blocks of 32: a float16 scale, then integers."""
    blocks = rows * columns // 32
    if kind == Q4_0:
        data = rng.integers(0, 256, (blocks, 18), np.uint8)
        scale = np.float16(columns**-0.5 / 4.6)  # deviation of integers from -8 to 7
    else:
        data = rng.integers(-127, 128, (blocks, 34), np.int8).view(np.uint8)
        scale = np.float16(columns**-0.5 / 73)
    data[:, :2] = np.frombuffer(scale.tobytes(), np.uint8)
    return data.reshape(rows, -1)


def write_random(shape: str, path: Path) -> None:
    """A file without a tokenizer: 4-bit linear layers, an 8-bit embedding that is the head as well."""
    family, vocabulary, dim, layers, heads, kv_heads, ffn, theta = SHAPES[shape]
    writer, rng = gguf.GGUFWriter(path, family), np.random.default_rng(0)
    writer.add_context_length(4096)
    writer.add_embedding_length(dim)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(ffn)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_rope_freq_base(theta)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_vocab_size(vocabulary)
    writer.add_tokenizer_model("none")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_0)
    keys = dim // heads * kv_heads
    matrices = {"attn_q": (dim, dim), "attn_k": (keys, dim), "attn_v": (keys, dim), "attn_output": (dim, dim),
                "ffn_gate": (ffn, dim), "ffn_up": (ffn, dim), "ffn_down": (dim, ffn)}  # fmt: skip
    writer.add_tensor("token_embd.weight", random_blocks(rng, vocabulary, dim, Q8_0), raw_dtype=Q8_0)
    writer.add_tensor("output_norm.weight", np.ones(dim, np.float32))
    for layer in range(layers):
        for name, (rows, columns) in matrices.items():
            writer.add_tensor(f"blk.{layer}.{name}.weight", random_blocks(rng, rows, columns, Q4_0), raw_dtype=Q4_0)
            if family == "qwen2" and name in ("attn_q", "attn_k", "attn_v"):
                writer.add_tensor(f"blk.{layer}.{name}.bias", np.zeros(rows, np.float32))
        for name in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{layer}.{name}.weight", np.ones(dim, np.float32))
    _finish(writer)


def write_q4_0(source: Path, path: Path) -> None:
    """A copy with the matrices of layers in Q4_0, rounded from the values of the source as llama.cpp rounds them."""
    reader = gguf.GGUFReader(source)
    architecture = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(path, architecture)
    for name, item in reader.fields.items():
        if not name.startswith("GGUF.") and name not in ("general.architecture", "general.file_type"):
            sub_type = item.types[-1] if item.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(name, item.contents(), item.types[0], sub_type=sub_type)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_0)
    for tensor in reader.tensors:
        if tensor.name.startswith("blk.") and len(tensor.shape) == 2:
            blocks = gguf.quantize(gguf.dequantize(tensor.data, tensor.tensor_type), Q4_0)
            writer.add_tensor(tensor.name, blocks, raw_dtype=Q4_0)
        else:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    _finish(writer)


def write_folder(source: Path, folder: Path) -> None:
    """A Hugging Face folder with the same values in float32, and the tokenizer."""
    checkpoint = open_checkpoint(source)
    config, vocabulary = checkpoint.config, read_vocabulary(checkpoint)
    tensors = {hugging_face_name(name): checkpoint.load(name) for name in checkpoint.tensors}
    description = {
        "architectures": [{"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM"}[config.family]],
        "model_type": config.family, "vocab_size": config.vocab_size, "hidden_size": config.dim,
        "intermediate_size": config.ffn_dim, "num_hidden_layers": config.layers, "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads, "head_dim": config.head_dim, "rms_norm_eps": config.norm_eps,
        "hidden_act": "silu", "max_position_embeddings": config.context_length, "tie_word_embeddings": config.tied,
        "rope_theta": config.rope.theta, "torch_dtype": "float32",
        **({"eos_token_id": vocabulary.eos_ids[0]} if vocabulary.eos_ids else {}),
    }  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    header, at = {}, 0
    for name, tensor in tensors.items():
        header[name] = {"dtype": "F32", "shape": tensor.shape, "data_offsets": [at, at + tensor.nbytes]}
        at += tensor.nbytes
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors.values():
            file.write(np.ascontiguousarray(tensor, np.float32).tobytes())
    for part, content in (
        ("config", description), ("generation_config", {}),
        ("tokenizer_config", {"tokenizer_class": "PreTrainedTokenizerFast", **vocabulary.special_tokens}),
    ):  # fmt: skip
        (folder / f"{part}.json").write_text(json.dumps(content))
    if vocabulary.tokenizer is not None:
        (folder / "tokenizer.json").write_bytes(vocabulary.tokenizer)


_NAMES = {
    "embedding": "model.embed_tokens", "norm": "model.norm", "head": "lm_head", "q": "self_attn.q_proj",
    "k": "self_attn.k_proj", "v": "self_attn.v_proj", "o": "self_attn.o_proj", "gate": "mlp.gate_proj",
    "up": "mlp.up_proj", "down": "mlp.down_proj", "attention_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}  # fmt: skip


def hugging_face_name(name: str) -> str:
    prefix, _, part = name.removesuffix(".bias").rpartition(".")
    kind = "bias" if name.endswith(".bias") else "weight"
    return f"{'model.' + prefix + '.' if prefix else ''}{_NAMES[part]}.{kind}"


def _finish(writer: Any) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    origin, target = sys.argv[1], Path(sys.argv[2])
    if origin in SHAPES:
        write_random(origin, target)
    elif target.suffix != ".gguf":
        write_folder(Path(origin), target)
    else:
        write_q4_0(Path(origin), target)
