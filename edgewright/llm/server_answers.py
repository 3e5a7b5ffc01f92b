"""Answers of OpenAI's interface: JSON objects for a complete reply, and for the pieces of a stream."""

from __future__ import annotations

import time
from typing import Any
from uuid import uuid4

from edgewright._version import VERSION
from edgewright.llm.generation import LENGTH, Generation, Statistics


class Answer:
    """What all objects of one answer share."""

    def __init__(self, model: str, chat: bool) -> None:
        self._chat = chat
        self._head = {
            "id": f"{'chatcmpl' if chat else 'cmpl'}-{uuid4().hex}",
            "created": int(time.time()),
            "model": model,
            "system_fingerprint": f"edgewright-{VERSION}",
        }

    def complete(self, replies: list[tuple[str, Generation]]) -> dict[str, Any]:
        """All replies with their texts."""
        choices = [self._choice(index, text, reply) for index, (text, reply) in enumerate(replies)]
        name = "chat.completion" if self._chat else "text_completion"
        facts = [reply.statistics for _, reply in replies]
        return {**self._head, "object": name, "choices": choices, "usage": usage(facts), "timings": timings(facts)}

    def _choice(self, index: int, text: str, reply: Generation) -> dict[str, Any]:
        content = {"message": {"role": "assistant", "content": text}} if self._chat else {"text": text}
        return {"index": index, **content, "logprobs": None, "finish_reason": finish_reason(reply)}

    def start(self) -> dict[str, Any] | None:
        """The first object of a stream, if there is one before the text."""
        return self._chunk(0, {"delta": {"role": "assistant", "content": ""}}) if self._chat else None

    def piece(self, index: int, text: str) -> dict[str, Any]:
        return self._chunk(index, {"delta": {"content": text}} if self._chat else {"text": text})

    def end(self, index: int, reply: Generation) -> dict[str, Any]:
        return self._chunk(index, {"delta": {}} if self._chat else {"text": ""}, finish_reason(reply))

    def usage(self, replies: list[Generation]) -> dict[str, Any]:
        """The last object of a stream, if it was asked for."""
        facts = [reply.statistics for reply in replies]
        return {**self._stream_head(), "choices": [], "usage": usage(facts), "timings": timings(facts)}

    def _chunk(self, index: int, content: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        choice = {"index": index, **content, "logprobs": None, "finish_reason": reason}
        return {**self._stream_head(), "choices": [choice]}

    def _stream_head(self) -> dict[str, Any]:
        return {**self._head, "object": "chat.completion.chunk" if self._chat else "text_completion"}


def finish_reason(reply: Generation) -> str:
    return "length" if reply.finish_reason == LENGTH else "stop"


def usage(facts: list[Statistics]) -> dict[str, Any]:
    prompt, generated = sum(f.prompt_tokens for f in facts), sum(f.generated_tokens for f in facts)
    cached = sum(f.cached_tokens for f in facts)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": generated,
        "total_tokens": prompt + generated,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def timings(facts: list[Statistics]) -> dict[str, Any]:
    """As llama.cpp's server reports them."""
    cached, prompt = sum(f.cached_tokens for f in facts), sum(f.prompt_tokens - f.cached_tokens for f in facts)
    generated = sum(f.decode_steps for f in facts)
    prompt_s, generated_s = sum(f.prefill_seconds for f in facts), sum(f.decode_seconds for f in facts)
    return {
        "cache_n": cached,
        **_rates("prompt", prompt, prompt_s),
        **_rates("predicted", generated, generated_s),
    }


def _rates(name: str, count: int, seconds: float) -> dict[str, Any]:
    return {
        f"{name}_n": count,
        f"{name}_ms": seconds * 1e3,
        f"{name}_per_token_ms": seconds * 1e3 / count if count else 0.0,
        f"{name}_per_second": count / seconds if seconds else 0.0,
    }
