"""Generation: streaming, ends, stop strings, the context's end, conversations."""

from __future__ import annotations

from typing import Any

import pytest

from edgewright.errors import ContextLengthError, InputError, UsageError
from edgewright.llm import LanguageModel, SamplingOptions
from tests.llm.fakes import Rows, Script, model
from tests.llm.tiny import tiny_tokenizer

USER = {"role": "user", "content": "Hi"}


def test_a_reply_in_pieces() -> None:
    reply = model(Script("hello the 🙂 inner")).generate("x=")
    pieces = list(reply)
    assert "".join(pieces) == reply.text == "hello the 🙂 inner" and len(pieces) > 4
    assert reply.finish_reason == "stop"
    assert tiny_tokenizer().decode(reply.tokens) == reply.text
    assert reply.statistics.generated_tokens == len(reply.tokens) == reply.statistics.decode_steps
    assert reply.statistics.prompt_tokens == 2


def test_max_tokens() -> None:
    reply = model(Script("abcdef")).generate("x=", max_tokens=3)
    assert reply.read() == "abc" and reply.finish_reason == "length" and not reply.context_full
    one = model(Script("abcdef")).generate("x=", max_tokens=1)
    assert one.read() == "a" and one.statistics.decode_steps == 0
    exact = model(Script("abc")).generate("x=", max_tokens=3)
    assert exact.read() == "abc" and exact.finish_reason == "length"


def test_stop_strings_are_not_part_of_the_reply() -> None:
    reply = model(Script("one. two. three.")).generate("x=", stop=[". th", "zz"])
    assert [*reply] and reply.text == "one. two" and reply.finish_reason == "stop" and reply.stop_string == ". th"


def test_text_that_only_began_like_a_stop_string_comes_at_the_end() -> None:
    reply = model(Script("abc st")).generate("x=", stop="stop")
    assert reply.read() == "abc st" and reply.finish_reason == "stop" and reply.stop_string is None
    cut = model(Script("abc stop")).generate("x=", stop="stop", max_tokens=6)
    assert cut.read() == "abc st" and cut.finish_reason == "length"


def test_a_reply_that_ends_within_a_character() -> None:
    assert model(Script("a🙂".encode()[:-1])).generate("x=").read() == "a\N{REPLACEMENT CHARACTER}"


def test_ends_can_be_ignored() -> None:
    reply = model(Script("ab")).generate("x=", ignore_eos=True, max_tokens=4)
    assert reply.read() == "ab" and reply.tokens[2:] == [2, 2] and reply.finish_reason == "length"


def test_a_cancelled_reply_keeps_what_it_has() -> None:
    lm = model(Script("abcdef"))
    reply = lm.generate("x=")
    assert next(reply) == "a"
    reply.cancel()
    assert list(reply) == [] and reply.text == "a" and reply.finish_reason == "cancelled"
    early = lm.generate("x=")
    early.cancel()
    assert early.read() == "" and early.finish_reason == "cancelled"


def test_another_generation_ends_the_first() -> None:
    lm = model(Script("abcdef"))
    first = lm.generate("x=")
    assert next(first) == "a"
    assert lm.generate("x=").read() == "abcdef"
    with pytest.raises(UsageError, match="another one was started"):
        next(first)


def test_the_same_seed_gives_the_same_text() -> None:
    def text(seed: int | None) -> str:
        return model(Rows()).generate("x=", temperature=1.0, seed=seed, max_tokens=30).read()

    assert text(1) == text(1)
    assert len({text(seed) for seed in (1, 2, 3)}) == 3
    lm = model(Rows())
    drawn = lm.generate("x=", temperature=1.0, max_tokens=30)
    assert drawn.read() == lm.generate("x=", temperature=1.0, max_tokens=30, seed=drawn.seed).read()


def test_the_cache_changes_nothing() -> None:
    used, prompt = model(Rows()), "x="
    for _ in range(4):
        reply = used.generate(prompt, max_tokens=20)
        fresh = model(Rows()).generate(prompt, max_tokens=20)
        assert reply.read() == fresh.read() and reply.tokens == fresh.tokens
        prompt += reply.text + "y="
    assert reply.statistics.cached_tokens > 0 and fresh.statistics.cached_tokens == 0


def test_turns_of_a_conversation_run_only_what_is_new() -> None:
    decoder = Script("hello")
    lm = model(decoder)
    talk: list[dict[str, Any]] = [USER]
    first = lm.chat(talk)
    talk += [{"role": "assistant", "content": first.read()}, USER]
    decoder.calls.clear()
    second = lm.chat(talk)
    assert second.read() == "hello"
    assert second.statistics.cached_tokens == first.statistics.prompt_tokens - 1  # "assistant=" became "assistant:"
    assert min(start for start, _ in decoder.calls) > 0


def test_chat_uses_the_template() -> None:
    decoder = Script("ok")
    assert model(decoder).chat([{"role": "system", "content": "S"}, USER]).read() == "ok"
    text = "<|im_start|>system:S<|im_end|><|im_start|>user:Hi<|im_end|><|im_start|>assistant="
    expected = tiny_tokenizer().encode(text, add_special_tokens=False)
    assert decoder.rows[: len(expected)] == expected


def test_a_model_without_a_template() -> None:
    lm = LanguageModel(Script(), tiny_tokenizer())
    with pytest.raises(UsageError, match="has no chat template"):
        lm.chat([USER])


def test_a_prompt_beyond_the_context() -> None:
    lm = model(Script("ab", context_length=64))
    with pytest.raises(ContextLengthError, match=r"fewer tokens than the context, 64; got 101") as caught:
        lm.generate("x" * 100 + "=")
    assert "slide" in caught.value.remedy
    longest = lm.generate("x" * 62 + "=")
    assert longest.read() == "ab" and longest.context_full  # 63 rows, one more for "a", and "b" without one


def test_a_reply_that_fills_the_context() -> None:
    decoder = Rows(context_length=32)
    reply = model(decoder).generate("abcdefgh=")
    reply.read()
    assert reply.finish_reason == "length" and reply.context_full
    assert len(decoder.rows) == 32 and len(reply.tokens) == 32 - 9 + 1


def test_a_sliding_context_goes_on() -> None:
    decoder = Rows(context_length=32)
    reply = model(decoder).generate("abcdefgh=", overflow="slide", max_tokens=200)
    reply.read()
    assert len(reply.tokens) == 200 and reply.finish_reason == "length"
    rows = decoder.rows
    assert reply.tokens[-1 - len(rows) : -1] == rows


def test_a_long_prompt_slides() -> None:
    lm = model(Script("ok", context_length=32))
    reply = lm.generate("x" * 100 + "=", overflow="slide")
    assert reply.read() == "ok" and reply.statistics.prompt_tokens == 16


def test_a_long_conversation_forgets_old_turns_and_keeps_the_system_message() -> None:
    decoder = Script("ok", context_length=96)
    lm = model(decoder)
    talk: list[dict[str, Any]] = [{"role": "system", "content": "Sys"}]
    for turn in range(9):
        talk += [{"role": "user", "content": f"turn {turn}"}, {"role": "assistant", "content": "ok"}]
    talk.append({"role": "user", "content": "last"})
    with pytest.raises(ContextLengthError):
        lm.chat(talk)
    assert lm.chat(talk, overflow="slide").read() == "ok"
    text = tiny_tokenizer().decode(decoder.rows)
    assert text.startswith("system:Sysuser:turn ") and "turn 0" not in text
    assert text.endswith("user:lastassistant=ok")


def test_one_message_beyond_the_context() -> None:
    lm = model(Script("ok", context_length=32))
    with pytest.raises(ContextLengthError):
        lm.chat([{"role": "user", "content": "x" * 100}], overflow="slide")


def test_a_sliding_reply_keeps_the_system_message() -> None:
    decoder = Rows(context_length=64)
    talk = [{"role": "system", "content": "Sys"}, USER]
    model(decoder).chat(talk, overflow="slide", max_tokens=120).read()
    start = tiny_tokenizer().encode("<|im_start|>system:Sys<|im_end|><|im_start|>", add_special_tokens=False)
    assert decoder.rows[: len(start) - 1] == start[:-1]


def test_options() -> None:
    lm = LanguageModel(Script(), tiny_tokenizer(), defaults=SamplingOptions(temperature=0.3))
    assert lm.options().sampling.temperature == 0.3
    assert lm.options(temperature=None, top_k=5).sampling == SamplingOptions(temperature=0.3, top_k=5)
    with pytest.raises(UsageError, match=r"(?s)got temprature.*Did you mean temperature"):
        lm.generate("x", temprature=1)
    for wrong in ({"max_tokens": 0}, {"max_tokens": True}, {"overflow": "wrap"}, {"stop": [""]}, {"top_p": 2}):
        with pytest.raises(UsageError, match=next(iter(wrong))):
            lm.generate("x", **wrong)


def test_prompts_of_tokens() -> None:
    tokens = tiny_tokenizer().encode("x=")
    assert model(Script("ab")).generate(tokens).read() == "ab"
    with pytest.raises(InputError, match="list of token ids"):
        model(Script()).generate(["a"])  # type: ignore[list-item]
    with pytest.raises(InputError, match="at least one token"):
        model(Script()).generate("").read()


def test_statistics() -> None:
    reply = model(Script("abcd")).generate("xyz=")
    assert reply.statistics.decode_tokens_per_second == 0.0
    reply.read()
    facts = reply.statistics
    assert facts.prefill_seconds > 0 and facts.decode_seconds > 0
    assert facts.prompt_tokens_per_second == pytest.approx(4 / facts.prefill_seconds)
    assert facts.decode_tokens_per_second == pytest.approx(4 / facts.decode_seconds)


def test_reset_forgets() -> None:
    lm = model(Script("ab"))
    lm.generate("xyz=").read()
    assert lm.generate("xyz=").read() == "ab"
    lm.reset()
    again = lm.generate("xyz=")
    again.read()
    assert again.statistics.cached_tokens == 0
