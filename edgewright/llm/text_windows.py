"""Windows of a text: tokens [windows, length], each with the tokens that the tokenizer puts before a text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from edgewright.errors import UsageError
from edgewright.files import open_source
from edgewright.llm.tokenizer import Tokenizer
from edgewright.llm.vocabulary import Vocabulary

Array = np.ndarray[Any, Any]

LENGTH = 512
OWN_TEXT_LENGTH = 256  # of windows of our texts, which are not much longer
_MAX_BYTES = 256 << 20


def read_tokens(path: str | Path, vocabulary: Vocabulary) -> tuple[list[int], list[int]]:
    """The tokens that precede a text, and those of a UTF-8 file."""
    view, name = open_source(path, "text")
    if len(view) > _MAX_BYTES:
        raise UsageError(name, f"may have {_MAX_BYTES} bytes", value=len(view))
    try:
        text = bytes(view).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(name, "must be UTF-8", value=f"byte {error.start}") from error
    return tokens_of(text, vocabulary)


def tokens_of(text: str, vocabulary: Vocabulary) -> tuple[list[int], list[int]]:
    """The tokens that precede a text, and its own."""
    if vocabulary.tokenizer is None:
        raise UsageError("checkpoint", "must have a tokenizer, to read a text", remedy="Add tokenizer.json.")
    tokenizer = Tokenizer(vocabulary.tokenizer)
    tokens, with_special = (tokenizer.encode(text, add_special_tokens=special) for special in (False, True))
    start = with_special[: len(with_special) - len(tokens)]
    return (start if with_special[len(start) :] == tokens else []), tokens


def windows_of(start: list[int], tokens: list[int], length: int, limit: int, *, spread: bool = False) -> Array:
    """Up to ``limit`` tokens as windows: the first ones, or spread over the text. A shorter text is one window."""
    body = min(length - len(start), len(tokens))
    available = len(tokens) // body if body > 0 else 0
    if available < 1 or len(start) + body < 2:
        raise UsageError("text", "must have at least two tokens, and be longer than nothing", value=len(tokens))
    count = min(available, max(limit // body, 1))
    chosen = np.linspace(0, available - 1, count).astype(int) if spread else np.arange(count)
    return np.array([[*start, *tokens[i * body : (i + 1) * body]] for i in chosen], np.int64)
