"""Tokenizers from GGUF metadata, against the stock runtime's tokenizer and SentencePiece."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
from pytorch_tokenizers import CppHFTokenizer

from edgewright.errors import FormatError, LimitError, MissingError
from edgewright.llm import gguf_tokenizer
from edgewright.llm.gguf_tokenizer import (
    _PRE_TOKENIZERS,
    end_of_generation_from_gguf,
    special_tokens_from_gguf,
    tokenizer_from_gguf,
)
from edgewright.llm.tokenizer import Tokenizer
from tests.llm.tiny import byte_characters, metadata

PAGE = (Path(__file__).parents[2] / "docs" / "run.md").read_text(encoding="utf-8")
TEXTS = [
    "", " ", "  \n\n ", "hello the Inner 12345", "don't I'LL 'S", "x\t\ty\r\n z  ", "中文字 한글 ½ Ⅻ ٣٤",
    "🙂👩‍👩‍👧 é e\u0301",
    "<|im_start|>user\nhi<|im_end|>\n", "CamelCase HTTPServer/path", "a+b=c $5 ~x|y^z`", PAGE[:3000],
]  # fmt: skip


@pytest.mark.parametrize("pre", _PRE_TOKENIZERS)
def test_the_stock_tokenizer_agrees(pre: str, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    data = tokenizer_from_gguf(metadata(pre))
    path.write_bytes(data)
    ours, stock = Tokenizer(data), CppHFTokenizer()
    stock.load(str(path))
    for text in TEXTS:
        assert ours.encode(text, add_special_tokens=False) == list(stock.encode(text, 0, 0))


@pytest.mark.parametrize("pre", _PRE_TOKENIZERS)
def test_text_survives(pre: str) -> None:
    tokenizer = Tokenizer(tokenizer_from_gguf(metadata(pre)))
    for text in TEXTS:
        if "<|" not in text:
            assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text


def pieces(pre: str, text: str) -> list[str]:
    from tokenizers import Tokenizer as Inner

    inner = Inner.from_str(tokenizer_from_gguf(metadata(pre)).decode())
    return [piece.replace("Ġ", " ") for piece, _ in inner.pre_tokenizer.pre_tokenize_str(text)]


def test_pre_tokenizers_split_as_their_models_do() -> None:
    assert pieces("gpt-2", "the year 12345 it's") == ["the", " year", " 12345", " it", "'s"]
    assert pieces("smollm", "the year 12345") == ["the", " year", " ", "1", "2", "3", "4", "5"]
    assert pieces("llama-bpe", "the year 12345 IT'S") == ["the", " year", " ", "123", "45", " IT", "'S"]
    assert pieces("qwen2", "x 123 /path") == ["x", " ", "1", "2", "3", " /", "path"]
    assert pieces("tekken", "HTTPServer 12") == ["HTTPServer", " ", "1", "2"]
    assert pieces("gpt-4o", "camelCase don't 1234") == ["camel", "Case", " don't", " ", "123", "4"]
    assert pieces("default", "x1234, y") == ["x", "123", "4", ",", " y"]


def test_a_word_that_is_a_token_is_not_split_where_the_model_says_so() -> None:
    more = metadata("llama-bpe")
    more["tokenizer.ggml.tokens"] = [*more["tokenizer.ggml.tokens"], "zebra"]
    more["tokenizer.ggml.token_type"] = [*more["tokenizer.ggml.token_type"], 1]
    assert Tokenizer(tokenizer_from_gguf(more)).encode("zebra", add_special_tokens=False) == [
        len(more["tokenizer.ggml.tokens"]) - 1
    ]
    more["tokenizer.ggml.pre"] = "qwen2"
    assert len(Tokenizer(tokenizer_from_gguf(more)).encode("zebra", add_special_tokens=False)) == 5


def test_merges_are_texts_unless_a_token_has_a_space() -> None:
    found = metadata()
    assert json.loads(tokenizer_from_gguf(found))["model"]["merges"] == found["tokenizer.ggml.merges"]
    found["tokenizer.ggml.tokens"] = [*found["tokenizer.ggml.tokens"], "a ", "a b"]
    found["tokenizer.ggml.token_type"] = [*found["tokenizer.ggml.token_type"], 1, 1]
    found["tokenizer.ggml.merges"] = ["a  b"]  # cut after the first space
    with pytest.raises(FormatError, match="out of vocabulary"):
        tokenizer_from_gguf(found)


def test_first_and_last_tokens() -> None:
    def encode(pre: str, **more: Any) -> list[int]:
        return Tokenizer(tokenizer_from_gguf(metadata(pre, **more))).encode("")

    assert encode("smollm") == []
    assert encode("llama-bpe") == [1]
    assert encode("llama-bpe", add_bos_token=False) == []
    assert encode("smollm", add_bos_token=True, add_eos_token=True) == [1, 2]


def test_special_tokens_and_ends() -> None:
    assert special_tokens_from_gguf(metadata()) == {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}
    assert end_of_generation_from_gguf(metadata()) == [2, 0]
    assert end_of_generation_from_gguf(metadata(eot_token_id=7)) == [2, 7, 0]


def spm_metadata(prefix: bool) -> tuple[dict[str, Any], Any]:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(PAGE.splitlines()), model_writer=model, vocab_size=600, model_type="bpe",
        byte_fallback=True, add_dummy_prefix=prefix, remove_extra_whitespaces=False, character_coverage=0.99,
        normalization_rule_name="identity", minloglevel=2,
    )  # fmt: skip
    judge = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    ids = range(judge.get_piece_size())
    kinds = [2 if judge.is_unknown(i) else 3 if judge.is_control(i) else 6 if judge.is_byte(i) else 1 for i in ids]
    found = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [judge.id_to_piece(i) for i in ids],
        "tokenizer.ggml.scores": np.array([judge.get_score(i) for i in ids], np.float32),
        "tokenizer.ggml.token_type": np.array(kinds, np.int32),
        "tokenizer.ggml.add_space_prefix": prefix,
    }
    return found, judge


@pytest.mark.parametrize("prefix", [True, False])
def test_sentencepiece_agrees(prefix: bool, tmp_path: Path) -> None:
    found, judge = spm_metadata(prefix)
    data = tokenizer_from_gguf(found)
    tokenizer = Tokenizer(data)
    texts = [*(t for t in TEXTS if t and "<|" not in t), *PAGE.split("\n\n")]
    for text in texts:
        tokens = tokenizer.encode(text, add_special_tokens=False)
        assert tokens == judge.encode(text)
        assert tokenizer.decode(tokens) == text
    assert tokenizer.encode("the") == [1, *judge.encode("the")]
    (tmp_path / "tokenizer.json").write_bytes(data)
    CppHFTokenizer().load(str(tmp_path / "tokenizer.json"))  # raises if a part is unknown


def test_a_complete_tokenizer_json_is_taken() -> None:
    data = tokenizer_from_gguf(metadata())
    assert tokenizer_from_gguf({"tokenizer.huggingface.json": data.decode()}) == data
    with pytest.raises(FormatError, match="cannot be loaded"):
        tokenizer_from_gguf({"tokenizer.huggingface.json": "{}"})


def test_bytes_are_complete() -> None:
    assert len(set(byte_characters())) == 256


def test_kinds_that_no_table_has() -> None:
    with pytest.raises(MissingError, match="must be one of gpt2, llama; got bert"):
        tokenizer_from_gguf({"tokenizer.ggml.model": "bert", "tokenizer.ggml.tokens": ["a"]})
    with pytest.raises(MissingError, match=r"qwen2.*got qwen9") as caught:
        tokenizer_from_gguf(metadata("qwen9"))
    assert "Did you mean" in caught.value.remedy and "Hugging Face folder" in caught.value.remedy


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"tokens": None}, "tokens"),
        ({"tokens": "abc"}, "tokens"),
        ({"tokens": []}, "tokens"),
        ({"tokens": [1, 2]}, "tokens"),
        ({"tokens": ["x" * 5000]}, "tokens"),
        ({"token_type": [1]}, "token_type"),
        ({"token_type": ["a"] * 300}, "token_type"),
        ({"token_type": 3}, "token_type"),
        ({"bos_token_id": 300}, "bos_token_id"),
        ({"eos_token_id": -1}, "eos_token_id"),
        ({"eos_token_id": "2"}, "eos_token_id"),
        ({"merges": ["ab"]}, "merges"),
        ({"merges": None}, "merges"),
        ({"model": "llama"}, "scores"),
        ({"model": "llama", "scores": [float("nan")] * 272}, "scores"),
    ],
)
def test_hostile_metadata(change: dict[str, Any], where: str) -> None:
    found = {k: v for k, v in metadata(**change).items() if v is not None}
    if where == "token_type" and isinstance(change["token_type"], list) and len(change["token_type"]) > 1:
        found["tokenizer.ggml.token_type"] = ["a"] * len(found["tokenizer.ggml.tokens"])
    with pytest.raises(FormatError) as caught:
        tokenizer_from_gguf(found)
    assert caught.value.where == f"tokenizer.ggml.{where}"


def test_merges_of_unknown_tokens() -> None:
    with pytest.raises(FormatError, match="out of vocabulary"):
        tokenizer_from_gguf(metadata(merges=["zz yy"]))


def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf_tokenizer, "_MAX_TOKENS", 100)
    with pytest.raises(LimitError, match="may have 100 entries; got 2"):
        tokenizer_from_gguf(metadata())
