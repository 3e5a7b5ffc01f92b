"""Tokenizers, and text in pieces."""

from __future__ import annotations

import json
from typing import Any

import pytest

from edgewright.errors import FormatError, InputError, LimitError, MissingError
from edgewright.llm import tokenizer as module
from edgewright.llm.gguf_tokenizer import tokenizer_from_gguf
from edgewright.llm.tokenizer import TextStream, Tokenizer
from tests.llm.test_gguf_tokenizer import spm_metadata
from tests.llm.tiny import byte_characters, tiny_json, tiny_tokenizer

BYTE = {b: 3 + b for b in range(256)}  # the tiny vocabulary's token of each byte


def test_control_tokens_are_recognized_and_not_decoded() -> None:
    tokens = tiny_tokenizer().encode("<|im_start|>hello<|im_end|>")
    assert tokens[0] == 1 and tokens[-1] == 2
    assert tiny_tokenizer().decode(tokens) == "hello"
    assert tiny_tokenizer().token_id("<|im_end|>") == 2
    assert tiny_tokenizer().token_id("<none>") is None
    assert tiny_tokenizer().end_of_generation() == (2, 0)


def test_truncation_and_padding_of_the_file_do_not_apply() -> None:
    content = json.loads(tiny_json())
    content["truncation"] = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    content["padding"] = {
        "strategy": {"Fixed": 50}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0,
        "pad_token": "<|endoftext|>",
    }  # fmt: skip
    assert len(Tokenizer(json.dumps(content).encode()).encode("zxyw")) == 4


def stream(tokens: list[int], context: list[int] | None = None, tokenizer: Tokenizer | None = None) -> list[str]:
    text = TextStream(tokenizer or tiny_tokenizer(), context or [])
    return [*(text.push(token) for token in tokens), text.finish()]


@pytest.mark.parametrize("text", ["hello the inner", "é", "中文", "🙂 👩‍👩‍👧!", "a\n\n b"])
def test_pieces_are_whole_characters_and_add_up(text: str) -> None:
    pieces = stream([BYTE[b] for b in text.encode()])
    assert "".join(pieces) == text
    assert not any("\N{REPLACEMENT CHARACTER}" in piece for piece in pieces)
    assert pieces[-1] == ""


def test_a_character_comes_with_its_last_byte() -> None:
    assert stream([BYTE[b] for b in "🙂x".encode()]) == ["", "", "", "🙂", "x", ""]


def test_bytes_that_are_no_text() -> None:
    assert stream([BYTE[0xFF], BYTE[ord("a")]]) == ["", "\N{REPLACEMENT CHARACTER}a", ""]
    assert stream([BYTE[0xF0], BYTE[0x9F]])[-1] == "\N{REPLACEMENT CHARACTER}"  # the reply ends within a character
    endless = stream([BYTE[0xFF]] * 30)
    assert "".join(endless) == "\N{REPLACEMENT CHARACTER}" * 30
    assert all(len(piece) <= 9 for piece in endless)


def test_spaces_of_sentencepiece() -> None:
    tokenizer = Tokenizer(tokenizer_from_gguf(spm_metadata(prefix=True)[0]))
    tokens = tokenizer.encode("the program runs 🙂🙂 in the runtime", add_special_tokens=False)
    for at in range(1, len(tokens)):
        before, after = tokens[:at], tokens[at:]
        pieces = stream(after, before, tokenizer)
        assert not any("\N{REPLACEMENT CHARACTER}" in piece for piece in pieces[:-1]) or "🙂" in tokenizer.decode(
            tokens
        )
        if not tokenizer.decode(before).endswith("\N{REPLACEMENT CHARACTER}"):
            assert tokenizer.decode(before) + "".join(pieces) == tokenizer.decode(tokens)
    assert "".join(stream(tokens, [], tokenizer)) == "the program runs 🙂🙂 in the runtime"


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"\xff", b"[1]", tiny_json()[:-10], tiny_json().replace(b'"BPE"', b'"X"')]
)
def test_hostile_files(data: bytes) -> None:
    with pytest.raises(FormatError, match=r"mine\.json: cannot be loaded"):
        Tokenizer(data, "mine.json")


def test_a_limit_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_TOKENIZER_BYTES", 10)
    with pytest.raises(LimitError, match="may have 10 bytes"):
        Tokenizer(tiny_json())


def test_panics_and_interrupts(monkeypatch: pytest.MonkeyPatch) -> None:
    class PanicException(BaseException):
        """As Rust's panics arrive in Python."""

    class Inner:
        error: BaseException = PanicException("index out of bounds")

        def encode(self, *_: Any, **__: Any) -> None:
            raise self.error

        decode = encode

    broken = Tokenizer(tiny_json())
    monkeypatch.setattr(broken, "_inner", Inner())
    with pytest.raises(InputError, match="cannot encode it: index out of bounds"):
        broken.encode("x")
    with pytest.raises(InputError, match="cannot decode it"):
        broken.decode([1])
    Inner.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        broken.encode("x")


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(module, "import_module", missing)
    with pytest.raises(MissingError, match=r"pip install 'edgewright\[llm\]'"):
        Tokenizer(b"{}")


def test_the_tiny_vocabulary_starts_with_bytes() -> None:
    assert tiny_tokenizer().encode("A", add_special_tokens=False) == [BYTE[ord("A")]]
    assert byte_characters()[ord("A")] == "A"
