"""``tokenizer.json`` from the metadata of a GGUF file, with parts that the stock runtime's tokenizer has, too."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from edgewright.errors import FormatError, LimitError, MissingError
from edgewright.hints import not_among
from edgewright.llm.tokenizer import END_OF_GENERATION, Tokenizer

_MAX_TOKENS = 1 << 21
_MAX_MERGES = 1 << 22
_MAX_TOKEN_CHARS = 1 << 12
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED = 1, 2, 3, 4
_SPACE = "\u2581"  # SentencePiece's mark of a space
_REMEDY = "Compile from the Hugging Face folder, which has a tokenizer.json."

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_TAIL = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_CL100K = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|" + _TAIL
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+%s|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*%s|\p{{N}}%s"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + _TAIL
)
_BY_DIGIT = (r"\p{N}|\P{N}+", _GPT2)
_BY_THREE_DIGITS = (_CL100K % "{1,3}",)
# Expressions that split a text, one after another, by the name in tokenizer.ggml.pre. Each matches everything: the
# stock runtime's tokenizer drops what an expression does not match.
_PRE_TOKENIZERS: Mapping[str, Sequence[str]] = {
    "default": (
        r"[\p{P}$+<=>^~|]+|[^\p{P}$+<=>^~|]+", _GPT2, r"\p{N}+|\P{N}+", r"[0-9]{3}|(?:(?![0-9]{3})[\s\S])+",
    ),
    "gpt-2": (_GPT2,), "phi-2": (_GPT2,), "olmo": (_GPT2,), "mpt": (_GPT2,),
    "smollm": _BY_DIGIT, "starcoder": _BY_DIGIT, "refact": _BY_DIGIT, "command-r": _BY_DIGIT, "codeshell": _BY_DIGIT,
    "llama3": _BY_THREE_DIGITS, "llama-v3": _BY_THREE_DIGITS, "llama-bpe": _BY_THREE_DIGITS,
    "falcon3": _BY_THREE_DIGITS, "dbrx": _BY_THREE_DIGITS, "smaug-bpe": _BY_THREE_DIGITS,
    "qwen2": (_CL100K % "",), "deepseek-r1-qwen": (_CL100K % "",), "stablelm2": (_CL100K % "",),
    "tekken": (_CASED % ("", "", ""),),
    "gpt-4o": (_CASED % (f"{_CONTRACTIONS}?", f"{_CONTRACTIONS}?", "{1,3}"),),
}  # fmt: skip
_WHOLE_WORDS = {"llama3", "llama-v3", "llama-bpe", "falcon3", "tekken"}  # a word that is a token is not split
_ADDS_BOS = {"llama3", "llama-v3", "llama-bpe", "falcon3", "tekken"}


def tokenizer_from_gguf(metadata: Mapping[str, Any]) -> bytes:
    """The ``tokenizer.json`` of a GGUF file's ``tokenizer.*`` metadata; it loads in the package ``tokenizers``."""
    ready = metadata.get("tokenizer.huggingface.json")
    if isinstance(ready, str):
        data = ready.encode("utf-8", "replace")
    else:
        model = metadata.get("tokenizer.ggml.model")
        builders = {"gpt2": _byte_level, "llama": _sentencepiece}
        if not isinstance(model, str) or model not in builders:
            raise not_among("tokenizer.ggml.model", model, builders, remedy=_REMEDY, error=MissingError)
        parts = builders[model](metadata, _Vocabulary(metadata))
        data = json.dumps(parts, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    Tokenizer(data, "tokenizer of the GGUF file")
    return data


def special_tokens_from_gguf(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Text by name (``bos_token``, ``eos_token``, ...), as chat templates use them."""
    vocabulary = _Vocabulary(metadata)
    names = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
    found = {name: vocabulary.special(key) for name, key in names.items()}
    return {f"{name}_token": vocabulary.tokens[number] for name, number in found.items() if number is not None}


def end_of_generation_from_gguf(metadata: Mapping[str, Any]) -> list[int]:
    """The ids that end a reply: end of sequence, turn and message, then control tokens with such a name."""
    vocabulary = _Vocabulary(metadata)
    ids = [vocabulary.special(key) for key in ("eos", "eot", "eom")]
    by_text = {text: number for number, text in enumerate(vocabulary.tokens) if vocabulary.types[number] == _CONTROL}
    ids += [by_text[name] for name in END_OF_GENERATION if name in by_text and name != "</s>"]
    return list(dict.fromkeys(number for number in ids if number is not None))


class _Vocabulary:
    """Tokens with their types, and the ids of special ones."""

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        self._metadata = metadata
        self.tokens = _texts(metadata, "tokenizer.ggml.tokens", _MAX_TOKENS)
        if not self.tokens:
            raise FormatError("must have tokens", where="tokenizer.ggml.tokens")
        self.types: Sequence[Any] = [_NORMAL] * len(self.tokens)
        if "tokenizer.ggml.token_type" in metadata:
            self.types = self.numbers("token_type")

    def numbers(self, name: str) -> Sequence[Any]:
        """One number for each token."""
        key = f"tokenizer.ggml.{name}"
        values: Any = self._metadata.get(key)
        values = values.tolist() if hasattr(values, "tolist") else values
        if not isinstance(values, list | tuple) or len(values) != len(self.tokens):
            rule = f"must have a number for each of {len(self.tokens)} tokens"
            raise FormatError(rule, value=len(values) if isinstance(values, list | tuple) else None, where=key)
        if not all(isinstance(v, int | float) and math.isfinite(v) for v in values):
            raise FormatError("must be finite numbers", where=key)
        return values

    def special(self, name: str) -> int | None:
        """A special token's id: what the file says, or else the default of its kind of tokenizer."""
        key = f"tokenizer.ggml.{name}_token_id"
        number = self._metadata.get(key)
        if number is None:
            spm = self._metadata.get("tokenizer.ggml.model") == "llama"
            number = ({"bos": 1, "eos": 2, "unknown": 0} if spm else {"bos": 11, "eos": 11}).get(name)
            return number if number is not None and number < len(self.tokens) else None
        if not isinstance(number, int) or not 0 <= number < len(self.tokens):
            raise FormatError(f"must be a token, 0 to {len(self.tokens) - 1}", value=number, where=key)
        return number

    def flag(self, name: str, default: bool) -> bool:
        return bool(self._metadata.get(f"tokenizer.ggml.{name}", default))

    def added_tokens(self) -> list[dict[str, Any]]:
        """Tokens that are recognized in a text before it is split."""
        special = {i for i, kind in enumerate(self.types) if kind == _CONTROL}
        special |= {i for i in (self.special(name) for name in ("bos", "eos", "eot", "eom")) if i is not None}
        literal = {i for i, kind in enumerate(self.types) if kind == _USER_DEFINED}
        plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
        return [
            {"id": i, "content": self.tokens[i], **plain, "special": i in special}
            for i in sorted(special | literal)
            if self.tokens[i]
        ]

    def post_processor(self, add_bos: bool) -> dict[str, Any] | None:
        """Puts the first and last token around a text, if the model expects them."""
        around = {"bos": self.flag("add_bos_token", add_bos), "eos": self.flag("add_eos_token", False)}
        ids = {name: self.special(name) for name, wanted in around.items() if wanted}
        used = {name: number for name, number in ids.items() if number is not None}
        if not used:
            return None
        pieces = {name: {"SpecialToken": {"id": self.tokens[i], "type_id": 0}} for name, i in used.items()}
        template = [*([pieces["bos"]] if "bos" in used else []), {"Sequence": {"id": "A", "type_id": 0}}]
        template += [pieces["eos"]] if "eos" in used else []
        pair = [*template, {"Sequence": {"id": "B", "type_id": 1}}]
        table = {self.tokens[i]: {"id": self.tokens[i], "ids": [i], "tokens": [self.tokens[i]]} for i in used.values()}
        return {"type": "TemplateProcessing", "single": template, "pair": pair, "special_tokens": table}


def _texts(metadata: Mapping[str, Any], key: str, limit: int) -> list[str]:
    values = metadata.get(key)
    if values is None or isinstance(values, str | bytes) or not hasattr(values, "__len__"):
        raise FormatError("must be a list of texts", where=key)
    if len(values) > limit:
        raise LimitError(key, f"may have {limit} entries", value=len(values))
    texts = [v.decode("utf-8", "replace") if isinstance(v, bytes) else v for v in values]
    wrong = next((v for v in texts if not isinstance(v, str) or len(v) > _MAX_TOKEN_CHARS), None)
    if wrong is not None:
        raise FormatError(f"must be texts of at most {_MAX_TOKEN_CHARS} characters", value=wrong, where=key)
    return texts


def _document(vocabulary: _Vocabulary, model: Mapping[str, Any], **parts: Any) -> dict[str, Any]:
    vocab = {text: number for number, text in enumerate(vocabulary.tokens)}
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": vocabulary.added_tokens(), **parts,
        "model": {
            "type": "BPE", "dropout": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
            **model, "vocab": vocab,
        },
    }  # fmt: skip


# --------------------------------------------------------------------------------------------- byte-level BPE


def _byte_level(metadata: Mapping[str, Any], vocabulary: _Vocabulary) -> dict[str, Any]:
    pre = metadata.get("tokenizer.ggml.pre", "default")
    if pre not in _PRE_TOKENIZERS:
        raise not_among("tokenizer.ggml.pre", pre, _PRE_TOKENIZERS, remedy=_REMEDY, error=MissingError)
    splits: list[dict[str, Any]] = [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        for pattern in _PRE_TOKENIZERS[pre]
    ]
    to_bytes = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    model = {
        "unk_token": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": pre in _WHOLE_WORDS,
        "merges": _merges(metadata),
    }  # fmt: skip
    return _document(
        vocabulary,
        model,
        normalizer=None,  # Qwen's is NFC; llama.cpp has none, and the stock runtime's turns composed "é" into "e"
        pre_tokenizer={"type": "Sequence", "pretokenizers": [*splits, to_bytes]},
        post_processor=vocabulary.post_processor(add_bos=pre in _ADDS_BOS),
        decoder={"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
    )


def _merges(metadata: Mapping[str, Any]) -> list[str] | list[list[str]]:
    """Pairs of ``"a b"``; the first space after the first character separates, since a token may be a space."""
    texts = _texts(metadata, "tokenizer.ggml.merges", _MAX_MERGES)
    pairs = []
    for text in texts:
        at = text.find(" ", 1)
        if at < 0:
            raise FormatError("must be two tokens with a space between", value=text, where="tokenizer.ggml.merges")
        pairs.append([text[:at], text[at + 1 :]])
    return _joined(pairs)


def _joined(pairs: list[list[str]]) -> list[str] | list[list[str]]:
    """Merges as texts, which load in two thirds of the time, unless a token has a space."""
    if any(" " in left or " " in right for left, right in pairs):
        return pairs
    return [f"{left} {right}" for left, right in pairs]


# --------------------------------------------------------------------------------------------- SentencePiece


def _sentencepiece(metadata: Mapping[str, Any], vocabulary: _Vocabulary) -> dict[str, Any]:
    prefix = vocabulary.flag("add_space_prefix", True)
    unknown = vocabulary.special("unknown")
    spaces = {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE}
    normalizers = [*([{"type": "Prepend", "prepend": _SPACE}] if prefix else []), spaces]
    decoders: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": _SPACE}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
        *([{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if prefix else []),
    ]
    model = {
        "unk_token": None if unknown is None else vocabulary.tokens[unknown], "fuse_unk": True, "byte_fallback": True,
        "ignore_merges": False, "merges": _merges_by_score(vocabulary),
    }  # fmt: skip
    return _document(
        vocabulary,
        model,
        normalizer={"type": "Sequence", "normalizers": normalizers},
        pre_tokenizer=None,
        post_processor=vocabulary.post_processor(add_bos=True),
        decoder={"type": "Sequence", "decoders": decoders},
    )


def _merges_by_score(vocabulary: _Vocabulary) -> list[str] | list[list[str]]:
    """SentencePiece joins the two neighbors whose join has the highest score: every pair of tokens that makes a token
    is a merge, and the best score comes first."""
    scores = vocabulary.numbers("scores")
    ids = {text: i for i, text in enumerate(vocabulary.tokens) if vocabulary.types[i] == _NORMAL}
    found: list[tuple[float, int, int, int]] = []
    for text, number in ids.items():
        score = -scores[number]
        for at in range(1, len(text)):
            left, right = ids.get(text[:at]), ids.get(text[at:])
            if left is not None and right is not None:
                found.append((score, number, left, right))
        if len(found) > _MAX_MERGES:
            raise LimitError("tokenizer.ggml.tokens", f"may combine in {_MAX_MERGES} ways", value=len(found))
    return _joined([[vocabulary.tokens[left], vocabulary.tokens[right]] for _, _, left, right in sorted(found)])
