"""Text to tokens and back, by the package ``tokenizers``; pieces of text while tokens arrive."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from edgewright.errors import FormatError, InputError, LimitError, MissingError
from edgewright.llm.description import MAX_TOKENIZER_BYTES

INSTALL = "pip install 'edgewright[llm]'"
# Control tokens that end a reply, in the vocabularies of the families that are supported.
END_OF_GENERATION = (
    "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<|endoftext|>", "<|end_of_text|>", "<end_of_turn>", "<eos>",
    "</s>", "<|end_of_turn|>", "<|return|>", "<EOT>", "<｜end▁of▁sentence｜>",  # noqa: RUF001
)  # fmt: skip
_INCOMPLETE = "\N{REPLACEMENT CHARACTER}"
_MAX_HELD_TOKENS = 8  # a character has at most four bytes: what is still incomplete then is not UTF-8
_CONTEXT_TOKENS = 8


def import_tokenizers() -> Any:
    try:
        return import_module("tokenizers")
    except ModuleNotFoundError as error:
        raise MissingError("language models", "need the package tokenizers", remedy=INSTALL) from error


class Tokenizer:
    """A ``tokenizer.json``."""

    def __init__(self, data: bytes, name: str = "tokenizer.json") -> None:
        tokenizers = import_tokenizers()
        if len(data) > MAX_TOKENIZER_BYTES:
            raise LimitError(name, f"may have {MAX_TOKENIZER_BYTES} bytes", value=len(data))
        try:
            self._inner: Any = tokenizers.Tokenizer.from_str(data.decode())
            self._inner.no_truncation()
            self._inner.no_padding()
            self.size: int = self._inner.get_vocab_size(with_added_tokens=True)
            added = self._inner.get_added_tokens_decoder()
        except BaseException as error:
            raise _invalid(name, error) from error
        self._name = name
        self._special = {token.content: number for number, token in added.items() if token.special}

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """``add_special_tokens``: with what the tokenizer puts around a text, such as its first token. The text of a
        chat template holds them already."""
        try:
            ids: list[int] = self._inner.encode(text, add_special_tokens=add_special_tokens).ids
        except BaseException as error:
            raise _failed("text", "encode", error) from error
        return ids

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, without control tokens. Bytes that are not UTF-8 become U+FFFD."""
        try:
            text: str = self._inner.decode(list(tokens), skip_special_tokens=True)
        except BaseException as error:
            raise _failed("tokens", "decode", error) from error
        return text

    def token_id(self, text: str) -> int | None:
        found: int | None = self._inner.token_to_id(text)
        return found

    def end_of_generation(self) -> tuple[int, ...]:
        """Control tokens whose name says that they end a reply: for programs that do not list theirs."""
        return tuple(self._special[name] for name in END_OF_GENERATION if name in self._special)


def _invalid(name: str, error: BaseException) -> FormatError:
    """``tokenizers`` raises plain Exceptions for bad files, and Rust panics that are no Exceptions."""
    _reraise_foreign(error)
    remedy = "It must be a tokenizer.json as the package tokenizers writes it."
    return FormatError(f"cannot be loaded: {error}", remedy=remedy, file=name)


def _failed(subject: str, action: str, error: BaseException) -> InputError:
    _reraise_foreign(error)
    return InputError(subject, f"the tokenizer cannot {action} it: {error}")


def _reraise_foreign(error: BaseException) -> None:
    if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
        raise error  # Ctrl-C


class TextStream:
    """Text of a growing sequence of tokens, in pieces that never cut a character.

    The tokens before, ``context``, decide whether a word starts with a space.
    """

    def __init__(self, tokenizer: Tokenizer, context: Sequence[int] = ()) -> None:
        self._tokenizer = tokenizer
        self._tokens = list(context[-_CONTEXT_TOKENS:])
        self._start = 0  # of the tokens whose text is compared
        self._emitted = len(self._tokens)  # tokens whose text was returned

    def push(self, token: int) -> str:
        """The text that a token completes, often empty."""
        self._tokens.append(token)
        return self._advance(final=len(self._tokens) - self._emitted > _MAX_HELD_TOKENS)

    def finish(self) -> str:
        """What was held back."""
        return self._advance(final=True)

    def _advance(self, final: bool) -> str:
        before = self._tokenizer.decode(self._tokens[self._start : self._emitted])
        after = self._tokenizer.decode(self._tokens[self._start :])
        if len(after) <= len(before) or (after.endswith(_INCOMPLETE) and not final):
            return ""
        # The text of a token depends on the one before it, so that one stays in the window.
        self._start, self._emitted = self._emitted, len(self._tokens)
        return after[len(before) :]
