"""Conversations to text, by the model's own template."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from edgewright.errors import EdgewrightError, FormatError, InputError, LimitError, MissingError
from edgewright.hints import not_among
from edgewright.llm.tokenizer import INSTALL

MAX_TEMPLATE_CHARACTERS = 1 << 20
MAX_MESSAGES = 4096
ROLES = ("system", "developer", "user", "assistant", "tool")

Message = Mapping[str, Any]


def check_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Messages with a role and a text. Content in parts of text becomes one text; other kinds of parts are refused."""
    if isinstance(messages, str | bytes) or not isinstance(messages, Sequence) or not messages:
        rule = 'must be a list of messages: [{"role": "user", "content": "Hi"}]'
        raise InputError("messages", rule, value=type(messages).__name__)
    if len(messages) > MAX_MESSAGES:
        raise LimitError("messages", f"may be {MAX_MESSAGES}", value=len(messages))
    return [_check_message(f"messages[{i}]", message) for i, message in enumerate(messages)]


def _check_message(subject: str, message: Message) -> dict[str, Any]:
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        raise InputError(subject, 'must have a role and a content: {"role": "user", "content": "Hi"}')
    if message["role"] not in ROLES:
        raise not_among(f"{subject}.role", message["role"], ROLES, error=InputError)
    unknown = sorted(set(map(str, message)) - {"role", "content", "name"})
    if unknown:
        raise InputError(subject, "may have role, content and name", value=", ".join(unknown))
    if not isinstance(message.get("name", ""), str):
        raise InputError(f"{subject}.name", "must be text", value=type(message["name"]).__name__)
    return {**message, "content": _content(f"{subject}.content", message.get("content"))}


def _content(subject: str, content: Any) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list | tuple):
        raise InputError(subject, "must be text or a list of parts of text", value=type(content).__name__)
    texts = []
    for i, part in enumerate(content):
        kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
        if kind != "text" or not isinstance(part.get("text"), str):
            raise InputError(f"{subject}[{i}]", 'must be {"type": "text", "text": ...}', value=kind)
        texts.append(part["text"])
    return "".join(texts)


class ChatTemplate:
    """A template in jinja2's language, compiled and rendered in a sandbox with limits."""

    def __init__(self, source: str, special_tokens: Mapping[str, str] | None = None) -> None:
        try:
            from edgewright.llm.template_sandbox import Budget, Sandbox
        except ModuleNotFoundError as error:
            raise MissingError("chat templates", "need the package jinja2", remedy=INSTALL) from error
        if len(source) > MAX_TEMPLATE_CHARACTERS:
            raise LimitError("chat template", f"may have {MAX_TEMPLATE_CHARACTERS} characters", value=len(source))
        self.source = source
        self._special_tokens = dict(special_tokens or {})
        self._new_budget = Budget
        self._sandbox = Sandbox()
        self._lock = threading.Lock()  # one budget at a time
        try:
            self._template = self._sandbox.from_string(source)
        except EdgewrightError:
            raise
        except Exception as error:  # jinja2's, RecursionError, errors of what it evaluates early
            line = getattr(error, "lineno", None)
            at = "" if line is None else f" (line {line})"
            raise FormatError(
                f"cannot be compiled: {error or type(error).__name__}{at}", file="chat template"
            ) from error

    def render(
        self, messages: Sequence[Message], *, add_generation_prompt: bool = True, **variables: Any
    ) -> str:  # fmt: skip
        """The text of a conversation. ``add_generation_prompt``: ends where the model's reply starts."""
        checked = check_messages(messages)
        values: dict[str, Any] = {"tools": None, "documents": None, **self._special_tokens, **variables}
        values |= {"messages": checked, "add_generation_prompt": add_generation_prompt}
        with self._lock:
            self._sandbox.budget = self._new_budget()
            try:
                for value in values.values():
                    self._sandbox.extent(value)
                return str(self._template.render(values))
            except EdgewrightError:
                raise
            except Exception as error:
                raise _failure(error) from error


def _failure(error: Exception) -> InputError:
    if type(error).__name__ == "RejectedError":
        return InputError("messages", f"the chat template rejects them: {error}")
    remedy = "It may be for another version of jinja2, or for other messages; chat_template= passes another one."
    return InputError("chat template", f"cannot render these messages: {error or type(error).__name__}", remedy=remedy)
