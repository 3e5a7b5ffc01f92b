"""What a checkpoint says about text: its tokenizer, chat template, special tokens and generation defaults."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgewright.errors import FormatError, UsageError
from edgewright.files import open_source
from edgewright.llm.checkpoint import Checkpoint, read_json
from edgewright.llm.description import MAX_TOKENIZER_BYTES
from edgewright.llm.gguf_tokenizer import (
    end_of_generation_from_gguf,
    special_tokens_from_gguf,
    tokenizer_from_gguf,
)
from edgewright.llm.sampling import default_sampling
from edgewright.llm.tokenizer import Tokenizer

_SPECIAL = ("bos_token", "eos_token", "unk_token", "pad_token")
_GENERATION = (
    "do_sample", "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "bos_token_id", "eos_token_id",
    "pad_token_id",
)  # fmt: skip
_GGUF_SAMPLING = {"temp": "temperature", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p"}


@dataclass(frozen=True)
class Vocabulary:
    """``tokenizer``: a tokenizer.json; None if the checkpoint has none."""

    tokenizer: bytes | None = None
    chat_template: str | None = None
    special_tokens: Mapping[str, str] = field(default_factory=dict)
    generation: Mapping[str, Any] = field(default_factory=dict)
    bos_id: int | None = None
    eos_ids: tuple[int, ...] = ()


def read_vocabulary(checkpoint: Checkpoint) -> Vocabulary:
    """The vocabulary of a checkpoint, checked against the size of its model."""
    folder, size = checkpoint.folder, checkpoint.config.vocab_size
    vocabulary = _from_gguf(checkpoint.metadata, size) if folder is None else _from_folder(folder, size)
    _check_ids(vocabulary, size)
    _check_texts(vocabulary)
    default_sampling(vocabulary.generation, "generation defaults")
    return vocabulary


def _check_ids(vocabulary: Vocabulary, size: int) -> None:
    ids = [*vocabulary.eos_ids, *([] if vocabulary.bos_id is None else [vocabulary.bos_id])]
    for number in ids:
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < size:
            raise UsageError("special token", f"must be an id of the model, 0 to {size - 1}", value=number)


def _check_texts(vocabulary: Vocabulary) -> None:
    """Raise unless the program can hold all texts. JSON and GGUF files may contain lone surrogates, as escapes or as
    bytes that are not UTF-8."""
    defaults = json.dumps(dict(vocabulary.generation), ensure_ascii=False)
    texts = {"chat template": vocabulary.chat_template or "", "generation defaults": defaults}
    for name, text in {**texts, **vocabulary.special_tokens}.items():
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise FormatError("must be text in UTF-8", value=ascii(text[:64]), where=name)


# ---------------------------------------------------------------------------------------------------------------- GGUF


def _from_gguf(metadata: Mapping[str, Any], size: int) -> Vocabulary:
    sampling = {ours: metadata.get(f"general.sampling.{theirs}") for theirs, ours in _GGUF_SAMPLING.items()}
    generation = {name: value for name, value in sampling.items() if isinstance(value, int | float)}
    template = metadata.get("tokenizer.chat_template")
    template = template if isinstance(template, str) else None
    if "tokenizer.ggml.tokens" not in metadata:
        return Vocabulary(chat_template=template, generation=generation)
    bos = metadata.get("tokenizer.ggml.bos_token_id")
    return Vocabulary(
        tokenizer=_fit(tokenizer_from_gguf(metadata), size),
        chat_template=template,
        special_tokens=special_tokens_from_gguf(metadata),
        generation=generation,
        bos_id=bos if isinstance(bos, int) else None,
        eos_ids=tuple(end_of_generation_from_gguf(metadata)),
    )


# -------------------------------------------------------------------------------------------------------- Hugging Face


def _from_folder(folder: Path, size: int) -> Vocabulary:
    config = read_json(folder / "config.json") or {}
    recommended = read_json(folder / "generation_config.json") or {}
    settings = read_json(folder / "tokenizer_config.json") or {}
    generation = {name: recommended[name] for name in _GENERATION if recommended.get(name) is not None}
    special = {name: text for name in _SPECIAL if (text := _token_text(settings.get(name))) is not None}
    ids = recommended if recommended.get("eos_token_id") is not None else config
    return Vocabulary(
        tokenizer=_read_tokenizer(folder / "tokenizer.json", size),
        chat_template=_chat_template(folder, settings),
        special_tokens=special,
        generation=generation,
        bos_id=recommended.get("bos_token_id", config.get("bos_token_id")),
        eos_ids=tuple(_as_list(ids.get("eos_token_id"))),
    )


def _as_list(ids: Any) -> Iterable[Any]:
    return ids if isinstance(ids, list) else () if ids is None else (ids,)


def _token_text(token: Any) -> str | None:
    """A token is its text, or an object with it."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None


def _chat_template(folder: Path, settings: Mapping[str, Any]) -> str | None:
    """The template of a file of its own, else of tokenizer_config.json, which may have several by name."""
    path = folder / "chat_template.jinja"
    if path.exists():
        view, name = open_source(path, path.name)
        try:
            return bytes(view).decode("utf-8")
        except UnicodeDecodeError as error:
            raise FormatError("must be UTF-8", file=name) from error
    template = settings.get("chat_template")
    if isinstance(template, list):
        named = {item.get("name"): item.get("template") for item in template if isinstance(item, dict)}
        template = named.get("default")
    return template if isinstance(template, str) else None


def _read_tokenizer(path: Path, size: int) -> bytes | None:
    if not path.exists():
        return None
    view, name = open_source(path, path.name)
    if len(view) > MAX_TOKENIZER_BYTES:
        raise FormatError(f"may have {MAX_TOKENIZER_BYTES} bytes", value=len(view), file=name)
    data = bytes(view)
    Tokenizer(data, name)
    return _fit(data, size)


def _fit(data: bytes, size: int) -> bytes:
    """A tokenizer without added tokens that the model has no row for, such as that of images in text-only models.

    ExecuTorch's runner chooses the next token among the tokenizer's, and would read past the model's logits.
    """
    content = json.loads(data)
    added, vocabulary = content.get("added_tokens") or [], (content.get("model") or {}).get("vocab")
    if isinstance(vocabulary, dict) and any(type(n) is int and n >= size for n in vocabulary.values()):
        largest = max(n for n in vocabulary.values() if type(n) is int)
        raise UsageError("tokenizer", f"must have tokens below {size}, the size of the model", value=largest)
    kept = [token for token in added if not (isinstance(token, dict) and int(token.get("id", 0)) >= size)]
    if len(kept) == len(added):
        return data
    return json.dumps({**content, "added_tokens": kept}, ensure_ascii=False, separators=(",", ":")).encode()
