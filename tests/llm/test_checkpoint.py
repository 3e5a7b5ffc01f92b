"""Checkpoints: GGUF and Hugging Face files of one model are the same decoder; what is rejected."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgewright.errors import EdgewrightError, FileAccessError, FormatError, UsageError
from edgewright.llm.checkpoint import Checkpoint, open_checkpoint
from edgewright.llm.gguf_file import read_gguf
from tests.support.gguf_writer import gguf_bytes
from tests.support.language_models import RecordedModel, gguf_of


def same_decoder(a: Checkpoint, b: Checkpoint) -> None:
    assert set(a.tensors) == set(b.tensors)
    for name in a.tensors:
        np.testing.assert_allclose(a.load(name), b.load(name), 1e-6, 1e-6, err_msg=name)


@pytest.mark.parametrize("family", ["smollm2", "qwen2", "qwen3", "gemma3", "mistral", "phi3"])
def test_gguf_and_hugging_face_files_are_the_same_decoder(family: str, tmp_path: Path) -> None:
    model = RecordedModel(family)
    folder, file = open_checkpoint(model.save(tmp_path)), tmp_path / "model.gguf"
    file.write_bytes(gguf_of(model))
    other = open_checkpoint(file)
    same_decoder(folder, other)
    if family not in ("mistral", "phi3"):  # whose windows and long contexts GGUF does not say like this
        for name in ("dim", "layers", "heads", "kv_heads", "head_dim", "ffn_dim", "activation", "qk_norm", "post_norms",
                     "embedding_scale", "window", "sliding_layers", "tied", "rope", "local_rope"):  # fmt: skip
            assert getattr(folder.config, name) == getattr(other.config, name), name


def test_weights_in_several_files(tmp_path: Path) -> None:
    model = RecordedModel("qwen3")
    same_decoder(open_checkpoint(model.save(tmp_path / "one")), open_checkpoint(model.save(tmp_path / "many", files=3)))


Change = Callable[[RecordedModel], Any]
REJECTED: dict[str, tuple[Change, str]] = {
    "family": (lambda m: m.config.update(model_type="gpt2"), "not a supported family"),
    "a missing tensor": (lambda m: m.weights.pop("model.norm.weight"), "lacks tensors .* got norm"),
    "an unknown tensor": (lambda m: m.weights.update({"model.extra.weight": np.ones(3, np.float32)}), "does not use"),
    "a shape": (lambda m: m.weights.update({"model.norm.weight": np.ones(3, np.float32)}), "must have shape"),
    "experts": (lambda m: m.config.update(num_local_experts=8), "num_local_experts: is not supported"),
    "heads": (lambda m: m.config.update(num_key_value_heads=3), "must be a multiple"),
    "a size": (lambda m: m.config.update(hidden_size="32"), "hidden_size: must be an integer"),
    "scaling": (lambda m: m.config.update(rope_parameters={"rope_type": "dynamic"}), "not supported"),
    "activation": (lambda m: m.config.update(hidden_act="relu"), "activation: must be one of"),
    "quantized": (lambda m: m.config.update(quantization_config={"bits": 4}), "quantization_config"),
}  # fmt: skip


@pytest.mark.parametrize("name", REJECTED)
def test_rejected(name: str, tmp_path: Path) -> None:
    model = RecordedModel("qwen3")
    change, message = REJECTED[name]
    change(model)
    with pytest.raises(UsageError, match=message):
        open_checkpoint(model.save(tmp_path))


def test_folders_that_are_not_checkpoints(tmp_path: Path) -> None:
    with pytest.raises(FileAccessError, match=r"config\.json"):
        open_checkpoint(tmp_path)
    with pytest.raises(FileAccessError):
        open_checkpoint(tmp_path / "missing.gguf")
    folder = RecordedModel("qwen3").save(tmp_path / "model", files=2)
    index = folder / "model.safetensors.index.json"
    for weight_map in ({"a": "../outside.safetensors"}, {"a": "/etc/passwd"}, ["a"], {"a": 3}):
        index.write_text(json.dumps({"weight_map": weight_map}))
        with pytest.raises(FormatError, match="files of the folder"):
            open_checkpoint(folder)
    index.write_text("[" * 100_000)
    with pytest.raises(FormatError, match="JSON"):
        open_checkpoint(folder)


def test_any_metadata_is_a_decoder_or_an_error(tmp_path: Path) -> None:
    data = gguf_of(RecordedModel("smollm2"))
    file = tmp_path / "model.gguf"
    values = [0, 1, 2**31 - 1, -5, "text", True, 0.0, float("inf"), float("nan"), ["a"], [1, 2]]
    keys = [
        "block_count", "embedding_length", "attention.head_count", "attention.head_count_kv", "attention.key_length",
        "feed_forward_length", "context_length", "vocab_size", "rope.freq_base", "rope.dimension_count",
        "attention.layer_norm_rms_epsilon", "rope.scaling.type", "attention.scale", "final_logit_softcapping",
        "expert_count",
    ]  # fmt: skip
    original = dict(read_gguf(data).metadata)
    tensors = {n: (0, t.shape, t.data.tobytes()) for n, t in read_gguf(data).tensors.items()}
    for key in keys:
        for value in values:
            file.write_bytes(gguf_bytes({**original, f"llama.{key}": value}, tensors))
            try:
                open_checkpoint(file)
            except EdgewrightError:
                continue
