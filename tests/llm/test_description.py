"""The description of a language model in a ``.pte``."""

from __future__ import annotations

import pytest

from edgewright.errors import FormatError, LimitError
from edgewright.formats import schema
from edgewright.llm import Description
from edgewright.llm import description as module
from edgewright.llm.description import KEY, TOKENIZER_KEY, parse_description, read_description, read_tokenizer

FULL = Description(
    "llama", {"layers": 30}, {"weights": "8da4w"}, "{{ messages }}", {"eos_token": "<|im_end|>"}, {"top_k": 40}
)


def program(**named: bytes) -> schema.Program:
    data = list(named.items())
    return schema.Program(
        version=0,
        execution_plan=[],
        segments=[schema.DataSegment(offset=0, size=len(value), data=value) for _, value in data],
        named_data=[schema.NamedData(key=key.replace("__", "."), segment_index=i) for i, (key, _) in enumerate(data)],
    )


def test_it_is_read_back() -> None:
    assert parse_description(FULL.to_json()) == FULL
    assert parse_description(b"{}") == Description()


def test_it_is_found_in_a_program() -> None:
    found = program(**{KEY: FULL.to_json(), TOKENIZER_KEY: b"{}"})
    assert read_description(found) == FULL
    assert read_tokenizer(found) == b"{}"
    assert read_description(program()) is None
    assert read_tokenizer(program(other=b"{}")) is None


def test_fields_of_later_releases_are_ignored() -> None:
    assert parse_description(b'{"family": "llama", "later": 1}') == Description("llama")


@pytest.mark.parametrize(
    ("data", "where"),
    [
        (b"\xff", KEY),
        (b"[" * 100_000, KEY),
        (b"[]", KEY),
        (b'{"family": 1}', f"{KEY}.family"),
        (b'{"family": null}', f"{KEY}.family"),
        (b'{"chat_template": []}', f"{KEY}.chat_template"),
        (b'{"config": "x"}', f"{KEY}.config"),
        (b'{"generation": []}', f"{KEY}.generation"),
        (b'{"special_tokens": {"eos_token": 2}}', f"{KEY}.special_tokens.eos_token"),
    ],
)
def test_hostile_descriptions(data: bytes, where: str) -> None:
    with pytest.raises(FormatError) as caught:
        parse_description(data)
    assert caught.value.where == where


def test_a_limit_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_JSON_BYTES", 10)
    with pytest.raises(LimitError, match=KEY):
        read_description(program(**{KEY: FULL.to_json()}))
