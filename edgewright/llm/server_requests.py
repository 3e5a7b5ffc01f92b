"""Requests of OpenAI's interface: what is supported is checked, what is not is refused, and nothing is ignored."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edgewright.errors import ContextLengthError, EdgewrightError, InputError, LimitError, UsageError
from edgewright.hints import did_you_mean
from edgewright.llm.chat_template import check_messages

MAX_BODY_BYTES = 4 << 20
MAX_PROMPTS = 16
MAX_STOPS = 4
_COMPLETION_TOKENS = 16  # OpenAI's default for /v1/completions

INVALID, NOT_FOUND, SERVER, CONTEXT = (
    "invalid_request_error", "not_found_error", "server_error", "exceed_context_size_error",
)  # fmt: skip


class RequestError(Exception):
    """An answer with an error: ``{"error": {"code", "message", "type", "param"}}``."""

    def __init__(self, status: int, message: str, kind: str = INVALID, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.param = param

    def body(self) -> dict[str, Any]:
        facts = {"code": self.status, "message": str(self), "type": self.kind, "param": self.param}
        return {"error": facts}


def translate(error: EdgewrightError) -> RequestError:
    """An error of ours as an answer. Only those about the request say more than that something failed."""
    message = f"{error.subject}: {error.rule}"
    if isinstance(error, ContextLengthError):
        return RequestError(400, f"{message}; got {error.value}", CONTEXT)
    if isinstance(error, UsageError | InputError | LimitError):
        got = "" if error.value is None else f"; got {str(error.value)[:200]}"
        return RequestError(400, message + got, INVALID, error.subject)
    return RequestError(500, "the model failed; the server's log has the reason", SERVER)


@dataclass(frozen=True)
class Request:
    """``prompts``: one conversation, or one or several texts or lists of tokens."""

    chat: bool
    prompts: Sequence[Any]
    options: Mapping[str, Any]
    stream: bool = False
    include_usage: bool = False
    echo: bool = False
    template_variables: Mapping[str, Any] = field(default_factory=dict)


def parse_request(data: bytes, *, chat: bool, model: str) -> Request:
    """A request of ``/v1/chat/completions`` or ``/v1/completions`` to the model of that name."""
    body = _parse_json(data)
    given = {name: value for name, value in body.items() if value is not None}
    _check_names(given, chat)
    if given.get("model", model) != model:
        raise RequestError(
            404, f"model {given['model']!r} does not exist; this server has {model!r}", NOT_FOUND, "model"
        )
    stream = _flag(given, "stream")
    options = {name: given[name] for name in _PASSED if name in given}
    options.update({ours: given[theirs] for theirs, ours in _RENAMED.items() if theirs in given})
    options.update({name: read(given[name]) for name, read in _READ.items() if name in given})
    for name, (low, high) in _RANGES.items():
        _check_range(name, options.get(name), low, high)
    if chat:
        prompts = [check_messages(_required(given, "messages"))]
    else:
        prompts = _prompts(_required(given, "prompt"))
        options.setdefault("max_tokens", _COMPLETION_TOKENS)
    return Request(
        chat, prompts, options, stream, _include_usage(given, stream), _flag(given, "echo"),
        _mapping(given, "chat_template_kwargs"),
    )  # fmt: skip


def _parse_json(data: bytes) -> dict[str, Any]:
    try:
        body = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise RequestError(400, f"the body must be JSON: {error}") from error
    if not isinstance(body, dict):
        raise RequestError(400, "the body must be a JSON object")
    return body


def _logit_bias(value: Any) -> dict[int, Any]:
    if not isinstance(value, dict) or not all(isinstance(k, str) and k.isdecimal() and len(k) < 10 for k in value):
        raise RequestError(400, "logit_bias: must map token ids to numbers", param="logit_bias")
    return {int(token): bias for token, bias in value.items()}


def _stop(value: Any) -> Any:
    if not isinstance(value, str | list) or (isinstance(value, list) and len(value) > MAX_STOPS):
        raise RequestError(400, f"stop: must be a text, or a list of at most {MAX_STOPS}", param="stop")
    return value


# Parameters that go to the model by their own name, by another, and after a conversion; it checks their types.
_PASSED = (
    "temperature", "top_p", "top_k", "min_p", "frequency_penalty", "presence_penalty", "repetition_penalty", "seed",
    "max_tokens", "ignore_eos",
)  # fmt: skip
_RENAMED = {"max_completion_tokens": "max_tokens", "repeat_penalty": "repetition_penalty"}
_READ: dict[str, Callable[[Any], Any]] = {"logit_bias": _logit_bias, "stop": _stop}
# OpenAI's ranges, which are narrower than ours
_RANGES = {"temperature": (0, 2), "frequency_penalty": (-2, 2), "presence_penalty": (-2, 2)}
# Parameters that are not supported, with the values that ask for nothing.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (1,), "best_of": (1,), "logprobs": (False,), "top_logprobs": (0,), "suffix": ("",), "tools": ([],),
    "tool_choice": ("none", "auto"), "parallel_tool_calls": (True, False), "functions": ([],),
    "function_call": ("none", "auto"), "response_format": ({"type": "text"},), "modalities": (["text"],),
    "audio": (), "prediction": (), "reasoning_effort": ("none",), "verbosity": (), "web_search_options": (),
    "store": (False,), "service_tier": ("auto", "default"),
}  # fmt: skip
_WITHOUT_EFFECT = ("user", "safety_identifier", "prompt_cache_key", "metadata")  # they name the caller, not the reply
_COMMON = ("model", "stream", "stream_options", *_PASSED, *_RENAMED, *_READ, *_NEUTRAL, *_WITHOUT_EFFECT)
_CHAT = ("messages", "chat_template_kwargs")
_TEXT = ("prompt", "echo")


def _check_names(given: Mapping[str, Any], chat: bool) -> None:
    supported = (*_COMMON, *(_CHAT if chat else _TEXT))
    for name, value in given.items():
        if name not in supported:
            hint = did_you_mean(name, supported)
            raise RequestError(400, f"{name[:100]}: is not a parameter. {hint}".rstrip(), param=name[:100])
        if name in _NEUTRAL and not any(value == v and type(value) is type(v) for v in _NEUTRAL[name]):
            raise RequestError(400, f"{name}: is not supported by this server", param=name)


def _check_range(name: str, value: Any, low: float, high: float) -> None:
    if isinstance(value, int | float) and not low <= value <= high:
        raise RequestError(400, f"{name}: must be from {low} to {high}; got {value}", param=name)


def _required(given: Mapping[str, Any], name: str) -> Any:
    if name not in given:
        raise RequestError(400, f"{name}: is required", param=name)
    return given[name]


def _flag(given: Mapping[str, Any], name: str) -> bool:
    value = given.get(name, False)
    if not isinstance(value, bool):
        raise RequestError(400, f"{name}: must be true or false", param=name)
    return value


def _mapping(given: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = given.get(name, {})
    if not isinstance(value, dict):
        raise RequestError(400, f"{name}: must be an object", param=name)
    return value


def _include_usage(given: Mapping[str, Any], stream: bool) -> bool:
    options = _mapping(given, "stream_options")
    if options and not stream:
        raise RequestError(400, "stream_options: needs stream", param="stream_options")
    unknown = [name for name in options if name not in ("include_usage", "include_obfuscation")]
    if unknown or options.get("include_obfuscation"):
        raise RequestError(400, "stream_options: only include_usage is supported", param="stream_options")
    return _flag(options, "include_usage")


def _prompts(prompt: Any) -> list[Any]:
    """A text, tokens, or several texts or lists of tokens."""
    if isinstance(prompt, str):
        return [prompt]
    if isinstance(prompt, list) and prompt:
        if all(_is_token(item) for item in prompt):
            return [prompt]
        several = all(isinstance(p, str) or (isinstance(p, list) and p and all(map(_is_token, p))) for p in prompt)
        if several and len(prompt) <= MAX_PROMPTS:
            return prompt
    rule = f"must be a text, a list of token ids, or a list of at most {MAX_PROMPTS} of them"
    raise RequestError(400, f"prompt: {rule}", param="prompt")


def _is_token(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
