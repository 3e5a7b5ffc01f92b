"""Checkpoints: GGUF files and Hugging Face folders, with their tensors under the decoder's own names.

Names: ``embedding``, ``norm``, ``head``, and ``layers.N.`` with ``attention_norm``, ``q``, ``k``, ``v``, ``o``,
``q_norm``, ``k_norm``, ``attention_post_norm``, ``ffn_norm``, ``gate``, ``up``, ``down``, ``ffn_post_norm``. A bias has
``.bias`` after its layer's name. Tensors are views of mapped files until they are loaded, one at a time.
"""

from __future__ import annotations

import json
import mmap
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from edgewright.errors import FileAccessError, FormatError, UsageError
from edgewright.files import open_source
from edgewright.formats.safetensors import read_entries
from edgewright.llm.config import DecoderConfig, from_gguf, from_hf
from edgewright.llm.gguf_file import GgufFile, read_gguf
from edgewright.llm.stored_tensor import BLOCKS, Array, LazyRows, StoredTensor

_MAX_JSON = 64 << 20
_MAX_LISTED = 5


@dataclass(frozen=True)
class Checkpoint:
    """A model's configuration and weights. ``metadata``: a GGUF file's; ``folder``: of a Hugging Face checkpoint."""

    config: DecoderConfig
    tensors: Mapping[str, StoredTensor]
    norm_offset: float = 0.0  # added to the weights of norms
    metadata: Mapping[str, Any] = field(default_factory=dict)
    folder: Path | None = None

    def load(self, name: str) -> Array:
        """A tensor's values."""
        values = self.tensors[name].float32()
        return values + np.float32(self.norm_offset) if self.norm_offset and name.endswith("norm") else values

    @property
    def parameters(self) -> int:
        return sum(tensor.elements for tensor in self.tensors.values())

    def matrix(self, name: str) -> LazyRows:
        """A matrix, whose rows are loaded when they are read."""
        return LazyRows(self.tensors[name])

    @cached_property
    def _mappings(self) -> list[mmap.mmap]:
        """The mapped files that the tensors are views of."""
        found: dict[int, mmap.mmap] = {}
        for tensor in self.tensors.values():
            base: Any = tensor.data
            while isinstance(base, np.ndarray):
                base = base.base
            file = base.obj if isinstance(base, memoryview) else None
            if isinstance(file, mmap.mmap):
                found[id(file)] = file
        return list(found.values())

    def release(self) -> None:
        """Return the memory of mapped pages: each tensor is read once or twice, and the file may be larger than it."""
        for mapping in self._mappings:
            if sys.platform != "win32":
                mapping.madvise(mmap.MADV_DONTNEED)

    def bias(self, name: str) -> Array | None:
        """The bias of a linear layer, if it has one."""
        return self.load(f"{name}.bias") if f"{name}.bias" in self.tensors else None


def open_checkpoint(path: str | Path) -> Checkpoint:
    """A GGUF file, or a folder with config.json and safetensors."""
    path = Path(path)
    checkpoint = _open_folder(path) if path.is_dir() else _from_gguf(read_gguf(path))
    _check_tensors(checkpoint)
    return checkpoint


# -------------------------------------------------------------------------------------------------------- expectations


def expected_shapes(config: DecoderConfig) -> dict[str, tuple[int, ...]]:
    """The tensors of a decoder and their shapes, without biases."""
    dim, query, keys = config.dim, config.heads * config.head_dim, config.kv_heads * config.head_dim
    shapes: dict[str, tuple[int, ...]] = {"embedding": (config.vocab_size, dim), "norm": (dim,)}
    if not config.tied:
        shapes["head"] = (config.vocab_size, dim)
    layer = {
        "attention_norm": (dim,), "q": (query, dim), "k": (keys, dim), "v": (keys, dim), "o": (dim, query),
        "ffn_norm": (dim,), "gate": (config.ffn_dim, dim), "up": (config.ffn_dim, dim), "down": (dim, config.ffn_dim),
    }  # fmt: skip
    if config.qk_norm:
        layer |= {"q_norm": (config.head_dim,), "k_norm": (config.head_dim,)}
    if config.post_norms:
        layer |= {"attention_post_norm": (dim,), "ffn_post_norm": (dim,)}
    return shapes | {f"layers.{n}.{name}": shape for n in range(config.layers) for name, shape in layer.items()}


def _check_tensors(checkpoint: Checkpoint) -> None:
    """Raise unless the checkpoint has the decoder's tensors, in its shapes, and nothing that it would ignore."""
    shapes = expected_shapes(checkpoint.config)
    biases = {f"{n}.bias": (s[0],) for n, s in shapes.items() if len(s) == 2 and n not in ("embedding", "head")}
    found = checkpoint.tensors
    _raise_names(set(shapes) - set(found), "lacks tensors of its family")
    _raise_names(set(found) - set(shapes) - set(biases), "has tensors that its family does not use")
    for name, tensor in found.items():
        expected = shapes.get(name) or biases[name]
        if tensor.shape != expected:
            raise UsageError(f"checkpoint: {name}", f"must have shape {list(expected)}", value=list(tensor.shape))


def _raise_names(names: Iterable[str], rule: str) -> None:
    listed = sorted(names)
    if listed:
        more = f" and {len(listed) - _MAX_LISTED} more" if len(listed) > _MAX_LISTED else ""
        raise UsageError("checkpoint", rule, value=", ".join(listed[:_MAX_LISTED]) + more)


# ---------------------------------------------------------------------------------------------------------------- GGUF

_GGUF_TOP = {"token_embd": "embedding", "output_norm": "norm", "output": "head"}
_GGUF_LAYER = {
    "attn_norm": "attention_norm", "attn_q": "q", "attn_k": "k", "attn_v": "v", "attn_output": "o",
    "attn_q_norm": "q_norm", "attn_k_norm": "k_norm", "post_attention_norm": "attention_post_norm",
    "ffn_norm": "ffn_norm", "ffn_gate": "gate", "ffn_up": "up", "ffn_down": "down", "post_ffw_norm": "ffn_post_norm",
}  # fmt: skip
_ROPE_TENSORS = ("rope_freqs", "rope_factors_long", "rope_factors_short")


def _from_gguf(file: GgufFile) -> Checkpoint:
    if file.metadata.get("split.count", 0) not in (0, 1):
        remedy = "Merge the parts first: llama-gguf-split --merge FIRST OUT."
        raise UsageError("GGUF", "must be one file", value=f"{file.metadata['split.count']} parts", remedy=remedy)
    tensors = dict(file.tensors)
    divisors = {}
    for name in _ROPE_TENSORS:
        for stored in (f"{name}.weight", *(f"blk.{n}.{name}.weight" for n in range(len(tensors)))):
            if stored in tensors:
                divisors[name] = tuple(tensors.pop(stored).float32().reshape(-1).tolist())
    config = from_gguf(file.metadata, tied="output.weight" not in tensors, divisors=divisors)
    named = {_gguf_name(name): tensor for name, tensor in tensors.items()}
    named = _split_fused(named, config)
    if config.family == "llama":
        named = {name: _halves_order(name, tensor, config) for name, tensor in named.items()}
    return Checkpoint(config, named, metadata=file.metadata)


def _gguf_name(name: str) -> str:
    """The decoder's name of a tensor, or its own if it has none."""
    base, _, suffix = name.rpartition(".")
    end = {"weight": "", "bias": ".bias"}.get(suffix)
    layer = re.fullmatch(r"blk\.(\d+)\.(\w+)", base)
    if end is None:
        return name
    if layer and layer[2] in _GGUF_LAYER:
        return f"layers.{layer[1]}.{_GGUF_LAYER[layer[2]]}{end}"
    if layer and layer[2] == "attn_qkv":
        return f"layers.{layer[1]}.qkv{end}"
    return f"{_GGUF_TOP[base]}{end}" if base in _GGUF_TOP else name


def _halves_order(name: str, tensor: StoredTensor, config: DecoderConfig) -> StoredTensor:
    """Rows of q and k in the order of Hugging Face: GGUF's llama files interleave the two halves of each head."""
    kind = name.removesuffix(".bias").rpartition(".")[2]
    if kind not in ("q", "k"):
        return tensor
    if config.rope.dim != config.head_dim:
        raise UsageError("GGUF: llama.rope.dimension_count", f"must be {config.head_dim}", value=config.rope.dim)
    heads = config.heads if kind == "q" else config.kv_heads
    if tensor.shape[0] != heads * config.head_dim:
        return tensor  # the check of shapes reports it
    rows = np.arange(tensor.shape[0]).reshape(heads, config.head_dim // 2, 2).swapaxes(1, 2).reshape(-1)
    return tensor.rows(rows)


def _split_fused(tensors: Mapping[str, StoredTensor], config: DecoderConfig) -> dict[str, StoredTensor]:
    """Rows of fused projections as tensors of their own: q, k and v; gate and up."""
    query, keys, ffn = config.heads * config.head_dim, config.kv_heads * config.head_dim, config.ffn_dim
    result: dict[str, StoredTensor] = {}
    for name, tensor in tensors.items():
        base, end = (name[:-5], ".bias") if name.endswith(".bias") else (name, "")
        layer, _, kind = base.rpartition(".")
        parts: dict[str, int] = {}
        if kind == "qkv" and tensor.shape[0] == query + 2 * keys:
            parts = {"q": query, "k": keys, "v": keys}
        elif kind in ("gate_up", "up") and tensor.shape[0] == 2 * ffn and f"{layer}.gate" not in tensors:
            parts = {"gate": ffn, "up": ffn}
        start = 0
        for part, size in parts.items():
            result[f"{layer}.{part}{end}"] = tensor.rows(slice(start, start + size))
            start += size
        if not parts:
            result[name] = tensor
    return result


# -------------------------------------------------------------------------------------------------------- Hugging Face

_HF_TOP = {"embed_tokens": "embedding", "norm": "norm", "lm_head": "head"}
_HF_LAYER = {
    "input_layernorm": "attention_norm", "self_attn.q_proj": "q", "self_attn.k_proj": "k", "self_attn.v_proj": "v",
    "self_attn.o_proj": "o", "self_attn.q_norm": "q_norm", "self_attn.k_norm": "k_norm", "self_attn.qkv_proj": "qkv",
    "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "gate", "mlp.up_proj": "up", "mlp.down_proj": "down",
    "mlp.gate_up_proj": "gate_up",
}  # fmt: skip
_HF_LAYER_GEMMA = {
    **_HF_LAYER, "post_attention_layernorm": "attention_post_norm", "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "ffn_post_norm",
}  # fmt: skip
_HF_PREFIXES = ("model.language_model.", "language_model.model.", "language_model.", "model.", "")
_HF_IGNORED = re.compile(r".*rotary_emb\.inv_freq|(model\.)?(vision_tower|multi_modal_projector)\..*")


def _open_folder(folder: Path) -> Checkpoint:
    description = read_json(folder / "config.json")
    if description is None:
        raise FileAccessError(str(folder), "must contain config.json")
    config = from_hf(description)
    gemma = config.family == "gemma3"
    layer_names = _HF_LAYER_GEMMA if gemma else _HF_LAYER
    stored = _safetensors(folder)
    named = {_hf_name(name, layer_names): t for name, t in stored.items() if not _HF_IGNORED.fullmatch(name)}
    if config.tied:
        named.pop("head", None)  # a copy of the embedding
    return Checkpoint(config, _split_fused(named, config), 1.0 if gemma else 0.0, folder=folder)


def _hf_name(name: str, layer_names: Mapping[str, str]) -> str:
    base, _, suffix = name.rpartition(".")
    end = {"weight": "", "bias": ".bias"}.get(suffix)
    base = base.removeprefix(next(p for p in _HF_PREFIXES if base.startswith(p)))
    layer = re.fullmatch(r"layers\.(\d+)\.([\w.]+)", base)
    if end is None:
        return name
    if layer and layer[2] in layer_names:
        return f"layers.{layer[1]}.{layer_names[layer[2]]}{end}"
    return f"{_HF_TOP[base]}{end}" if base in _HF_TOP else name


def _safetensors(folder: Path) -> dict[str, StoredTensor]:
    """The tensors of a folder: of one file, or of the files of an index."""
    index = read_json(folder / "model.safetensors.index.json")
    if index is None:
        return _read_safetensors(folder / "model.safetensors")
    names = index.get("weight_map")
    if not isinstance(names, dict) or not all(_is_file_name(file) for file in names.values()):
        raise FormatError("must map tensors to files of the folder", where="weight_map", file=str(folder))
    files = {file: _read_safetensors(folder / file) for file in sorted(set(names.values()))}
    missing = [name for name, file in names.items() if name not in files[file]]
    if missing:
        raise FormatError("lists a tensor that its file lacks", value=missing[0], where="weight_map", file=str(folder))
    return {name: files[file][name] for name, file in names.items()}


def _is_file_name(name: object) -> bool:
    return isinstance(name, str) and name == Path(name).name and name.endswith(".safetensors")


def _read_safetensors(path: Path) -> dict[str, StoredTensor]:
    view, name = open_source(path, "checkpoint")
    try:
        start, entries = read_entries(view)
        tensors = {}
        for key, entry in entries.items():
            if entry.dtype not in BLOCKS:
                rule = "must have weights of F16, BF16, F32 or F64"
                raise FormatError(rule, value=entry.dtype, where=key)
            if not entry.shape or 0 in entry.shape:
                raise FormatError("must have weights of one or more dimensions", value=entry.shape, where=key)
            data = np.frombuffer(view[start + entry.begin : start + entry.end], np.uint8)
            rows = data.reshape(-1, entry.shape[-1] * BLOCKS[entry.dtype][1])
            tensors[key] = StoredTensor(entry.dtype, tuple(entry.shape), rows)
        return tensors
    except FormatError as error:
        error.file = name
        raise


def read_json(path: Path) -> dict[str, Any] | None:
    """An object of a JSON file; None if there is no such file."""
    if not path.exists():
        return None
    view, name = open_source(path, path.name)
    if len(view) > _MAX_JSON:
        raise FormatError(f"may have {_MAX_JSON} bytes", value=len(view), file=name)
    try:
        content = json.loads(bytes(view).decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise FormatError(f"must be JSON: {error}", file=name) from error
    if not isinstance(content, dict):
        raise FormatError("must be a JSON object", value=type(content).__name__, file=name)
    return content
