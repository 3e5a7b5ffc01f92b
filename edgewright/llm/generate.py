"""``LanguageModel``: a loaded ``.pte`` that completes texts and answers in conversations."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from edgewright.errors import FormatError, InputError, MissingDataError, UsageError
from edgewright.files import Source, open_source, text_path
from edgewright.hints import not_among
from edgewright.llm.chat_template import ChatTemplate, Message, check_messages
from edgewright.llm.decoder_method import Decoder, constants
from edgewright.llm.decoders import open_decoder
from edgewright.llm.description import KEY, Description, read_description, read_tokenizer
from edgewright.llm.generation import Generation, GenerationOptions, context_exceeded
from edgewright.llm.prompt_cache import PromptCache
from edgewright.llm.sampling import SAMPLING_NAMES, SamplingOptions, default_sampling
from edgewright.llm.tokenizer import Tokenizer
from edgewright.runtime.program import LoadedProgram, Runtime

OPTION_NAMES = (*(f.name for f in fields(GenerationOptions) if f.name != "sampling"), *SAMPLING_NAMES)


def load(
    path: Source, *, tokenizer: Source | None = None, chat_template: str | None = None, threads: int | None = None,
    data: Source | Sequence[Source] | None = None,
) -> LanguageModel:  # fmt: skip
    """Load a language model.

    ``tokenizer``: a ``tokenizer.json``, for files without one. ``chat_template``: in jinja2's language, instead of the
    file's. ``threads`` and ``data``: as for other programs.
    """
    place = text_path(path)
    if place is not None and os.path.isdir(place):
        rule, remedy = "is a folder, not a program", f"Of a checkpoint: edgewright llm compile {place} -o MODEL.pte."
        raise UsageError(place, rule, remedy=remedy)
    program = Runtime(threads).load_program(path, data)
    description = read_description(program.program) or Description()
    name = Path(place or "model").stem
    words = _load_tokenizer(path, program, tokenizer)
    source = description.chat_template if chat_template is None else chat_template
    template = ChatTemplate(source, description.special_tokens) if source else None
    defaults = default_sampling(description.generation, f"{KEY}.generation")
    ends = _ends(program, description, words)
    return LanguageModel(open_decoder(program), words, template, ends, defaults, name, description)


class LanguageModel:
    """A decoder with its tokenizer and chat template.

    It keeps the rows of the last prompt and reply: a prompt that starts with them runs only what is new. One generation
    runs at a time, and starting another one ends it; load the file again to run two.
    """

    def __init__(
        self, decoder: Decoder, tokenizer: Tokenizer, template: ChatTemplate | None = None, ends: Collection[int] = (),
        defaults: SamplingOptions | None = None, name: str = "model", description: Description | None = None,
    ) -> None:  # fmt: skip
        self.tokenizer = tokenizer
        self.template = template
        self.ends = frozenset(ends)
        self.defaults = defaults or SamplingOptions()
        self.name = name
        self.description = description or Description()
        self.context_length = decoder.context_length
        self._decoder = decoder
        self._cache = PromptCache(decoder)

    def generate(self, prompt: str | Sequence[int], **options: Any) -> Generation:
        """Continue a text, or tokens. Options are those of ``GenerationOptions`` and ``SamplingOptions``."""
        chosen = self.options(**options)
        tokens = self.tokenizer.encode(prompt) if isinstance(prompt, str) else _check_tokens(prompt)
        keep = _common(tokens, self.tokenizer.encode(""))
        return Generation(self._cache, self.tokenizer, tokens, chosen, self.ends, keep)

    def chat(
        self, messages: Sequence[Message], *, template_variables: Mapping[str, Any] | None = None, **options: Any
    ) -> Generation:
        """Answer the last of ``messages``: ``[{"role": "user", "content": "Hi"}]``. ``template_variables``: for the
        chat template, such as ``{"enable_thinking": False}``."""
        chosen = self.options(**options)
        variables = dict(template_variables or {})
        checked = check_messages(messages)
        tokens = self._encode_chat(checked, variables)
        while len(tokens) >= self.context_length:
            shorter = _drop_oldest(checked) if chosen.overflow == "slide" else checked
            if len(shorter) == len(checked):
                raise context_exceeded(len(tokens), self.context_length)
            checked = shorter
            tokens = self._encode_chat(checked, variables)
        keep = self._system_length(checked, tokens, variables) if chosen.overflow == "slide" else 0
        return Generation(self._cache, self.tokenizer, tokens, chosen, self.ends, keep)

    def options(self, **options: Any) -> GenerationOptions:
        """Options for a generation: the file's defaults, and ``options`` in their place. None is the default."""
        unknown = next((name for name in options if name not in OPTION_NAMES), None)
        if unknown is not None:
            raise not_among("option", unknown, OPTION_NAMES)
        given = {name: value for name, value in options.items() if value is not None}
        sampling = replace(self.defaults, **{name: given.pop(name) for name in SAMPLING_NAMES if name in given})
        return GenerationOptions(sampling=sampling, **given)

    def reset(self) -> None:
        """Forget the rows of the last prompt and reply."""
        self._cache.clear()

    def _encode_chat(
        self, messages: Sequence[Message], variables: Mapping[str, Any], *, add_generation_prompt: bool = True
    ) -> list[int]:
        if self.template is None:
            remedy = "Pass one (chat_template=..., --chat-template), or continue a text: generate(prompt)."
            raise UsageError(self.name, "has no chat template", remedy=remedy)
        text = self.template.render(messages, add_generation_prompt=add_generation_prompt, **variables)
        return self.tokenizer.encode(text, add_special_tokens=False)

    def _system_length(self, messages: list[dict[str, Any]], tokens: list[int], variables: Mapping[str, Any]) -> int:
        """How many tokens of the prompt are the system message, which a sliding context keeps."""
        try:
            alone = self._encode_chat(messages[:1], variables, add_generation_prompt=False)
        except InputError:  # a template may need a user's message
            return _common(tokens, self.tokenizer.encode(""))
        return _common(tokens, alone) if messages[0]["role"] == "system" else 0


def _drop_oldest(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without the oldest message of the user and the answers to it. System messages and the last question stay."""
    first = next((i for i, message in enumerate(messages) if message["role"] not in ("system", "developer")), 0)
    following = [i for i in range(first + 1, len(messages)) if messages[i]["role"] == "user"]
    return messages[:first] + messages[following[0] :] if following else messages


def _common(first: Sequence[int], second: Sequence[int]) -> int:
    pairs = zip(first, second, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))


def _check_tokens(prompt: Sequence[int]) -> list[int]:
    tokens = list(prompt)
    if any(isinstance(token, bool) or not isinstance(token, int) for token in tokens):
        raise InputError("prompt", "must be text, or a list of token ids", remedy='generate("Once upon a time")')
    return tokens


# --------------------------------------------------------------------------------------------- from a file


def _load_tokenizer(path: Source, program: LoadedProgram, given: Source | None) -> Tokenizer:
    if given is not None:
        view, name = open_source(given, "tokenizer")
        return Tokenizer(bytes(view), name)
    data = read_tokenizer(program.program)
    if data is not None:
        return Tokenizer(data, "tokenizer in the file")
    place = text_path(path)
    beside = None if place is None else str(Path(place).with_suffix(".tokenizer.json"))
    if beside is not None and os.path.isfile(beside):
        return Tokenizer(bytes(open_source(beside, "tokenizer")[0]), beside)
    remedy = "Pass the model's: load(path, tokenizer=...), --tokenizer tokenizer.json."
    raise MissingDataError(place or "model", "has no tokenizer in it or next to it", remedy=remedy)


def _ends(program: LoadedProgram, description: Description, tokenizer: Tokenizer) -> list[int]:
    """The tokens that end a reply: of the program, else of the checkpoint, else by their names."""
    for name in ("get_eos_ids", "get_eos_id"):
        values = constants(program, name)
        if values:
            return [int(value) for value in values]
    listed = description.generation.get("eos_token_id")
    ids = listed if isinstance(listed, list) else [] if listed is None else [listed]
    if not all(isinstance(value, int) for value in ids):
        raise FormatError("must be token ids", value=listed, where="edgewright.llm.generation.eos_token_id")
    return ids or list(tokenizer.end_of_generation())
