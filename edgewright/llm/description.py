"""What a ``.pte`` of a language model records for those who talk to it: named data that other runtimes ignore.

``KEY`` holds a JSON object, the fields of ``Description``; ``TOKENIZER_KEY`` the bytes of a ``tokenizer.json``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from edgewright.errors import FormatError, LimitError
from edgewright.formats import schema

KEY = "edgewright.llm"
TOKENIZER_KEY = "edgewright.llm.tokenizer"
MAX_JSON_BYTES = 4 << 20
MAX_TOKENIZER_BYTES = 256 << 20  # Gemma's tokenizer.json has 33 MB


@dataclass(frozen=True)
class Description:
    """``special_tokens``: text by name (``bos_token``, ``eos_token``, ...), as chat templates use them.
    ``generation``: keys of ``generation_config.json`` (``temperature``, ``top_k``, ``eos_token_id``, ...).
    """

    family: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)
    quantization: Mapping[str, Any] = field(default_factory=dict)
    chat_template: str | None = None
    special_tokens: Mapping[str, str] = field(default_factory=dict)
    generation: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> bytes:
        """The same fields always give the same bytes."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def read_description(program: schema.Program) -> Description | None:
    """The description in a program, or None if it has none."""
    data = _named(program, KEY, MAX_JSON_BYTES)
    return None if data is None else parse_description(data)


def read_tokenizer(program: schema.Program) -> bytes | None:
    """The ``tokenizer.json`` in a program, or None if it has none."""
    return _named(program, TOKENIZER_KEY, MAX_TOKENIZER_BYTES)


def _named(program: schema.Program, key: str, limit: int) -> bytes | None:
    for item in program.named_data or ():
        if item.key == key:
            data = program.segment(item.segment_index)
            if len(data) > limit:
                raise LimitError(f"named data {key!r}", f"may have {limit} bytes", value=len(data))
            return bytes(data)
    return None


def parse_description(data: bytes) -> Description:
    """Check the types of all fields; fields of later releases are ignored."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"must be JSON: {error}", where=KEY) from error
    if not isinstance(content, dict):
        raise FormatError("must be a JSON object", value=type(content).__name__, where=KEY)
    known = {f.name: content[f.name] for f in fields(Description) if f.name in content}
    for name, value in known.items():
        _check_type(name, value)
    for name, text in known.get("special_tokens", {}).items():
        if not isinstance(text, str):
            raise FormatError("must be text", value=type(text).__name__, where=f"{KEY}.special_tokens.{name}")
    return Description(**known)


def _check_type(name: str, value: object) -> None:
    if name in ("family", "chat_template"):
        if not isinstance(value, str) and not (value is None and name == "chat_template"):
            raise FormatError("must be text", value=type(value).__name__, where=f"{KEY}.{name}")
    elif not isinstance(value, dict):
        raise FormatError("must be a JSON object", value=type(value).__name__, where=f"{KEY}.{name}")
