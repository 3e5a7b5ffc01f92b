"""A byte-level vocabulary of 300 tokens, as the metadata of a GGUF file has it."""

from __future__ import annotations

from functools import cache
from typing import Any

from edgewright.llm.gguf_tokenizer import tokenizer_from_gguf
from edgewright.llm.tokenizer import Tokenizer

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
WORDS = ["Ġt", "he", "Ġthe", "in", "er", "Ġa", "on", "ll", "llo", "hello", "12", "123", "ĠĠ", "Ċ", "um"]


def byte_characters() -> list[str]:
    """GPT-2's printable character for each byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    return [chr(b) if b in plain else chr(256 + others.index(b)) for b in range(256)]


def metadata(pre: str = "smollm", **more: Any) -> dict[str, Any]:
    words = [w for w in WORDS if len(w) > 1]
    tokens = [*SPECIAL, *byte_characters(), *words]
    merges = [f"{w[:at]} {w[at:]}" for w in words for at in [_split(w, tokens)]]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3] * len(SPECIAL) + [1] * (len(tokens) - len(SPECIAL)),
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        **{f"tokenizer.ggml.{key}": value for key, value in more.items()},
    }


def _split(word: str, tokens: list[str]) -> int:
    return next(at for at in range(len(word) - 1, 0, -1) if word[:at] in tokens and word[at:] in tokens)


@cache
def tiny_json() -> bytes:
    return tokenizer_from_gguf(metadata())


@cache
def tiny_tokenizer() -> Tokenizer:
    return Tokenizer(tiny_json())
