"""Chat templates: real ones, and hostile ones."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any

import pytest

from edgewright.errors import EdgewrightError, FormatError, InputError, LimitError
from edgewright.llm import template_sandbox
from edgewright.llm.chat_template import MAX_MESSAGES, ChatTemplate, check_messages

USER: dict[str, Any] = {"role": "user", "content": "Hi"}
CHATML = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou help.<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
GEMMA = """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- set first = messages[0]['content'] + '\n\n' -%}
    {%- set rest = messages[1:] -%}
{%- else -%}
    {%- set first = "" -%}
    {%- set rest = messages -%}
{%- endif -%}
{%- for message in rest -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("Conversation roles must alternate user/assistant") }}
    {%- endif -%}
    {%- set role = "model" if message['role'] == 'assistant' else message['role'] -%}
    {{ '<start_of_turn>' + role + '\n' + (first if loop.first else "") + (message['content'] | trim) }}
    {{- '<end_of_turn>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<start_of_turn>model\n' }}{%- endif -%}
"""


def render(source: str, messages: list[dict[str, Any]] | None = None, **variables: Any) -> str:
    return ChatTemplate(source, {"bos_token": "<bos>"}).render(messages or [USER], **variables)


def test_chatml() -> None:
    start = "<|im_start|>system\nYou help.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
    assert render(CHATML) == start + "<|im_start|>assistant\n"
    assert render(CHATML, add_generation_prompt=False) == start


def test_gemma() -> None:
    talk = [{"role": "system", "content": "Be brief."}, USER, {"role": "assistant", "content": " Yes? "}, USER]
    assert render(GEMMA, talk) == (
        "<bos><start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n<start_of_turn>model\nYes?<end_of_turn>\n"
        "<start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n"
    )


def test_a_template_that_rejects_messages() -> None:
    with pytest.raises(InputError, match="rejects them: Conversation roles must alternate"):
        render(GEMMA, [USER, USER])


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{% generation %}a{{ 1 }}{% endgeneration %}", "a1"),
        ("{{ {'b': [1, '<é>']} | tojson }}", '{"b": [1, "<é>"]}'),
        ("{{ {'b': 1, 'a': 2} | tojson(indent=2, sort_keys=true) }}", '{\n  "a": 2,\n  "b": 1\n}'),
        ("{% set ns = namespace(n=0) %}{% for i in range(5) %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}", "10"),
        ("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i ~ ',' }}{% endfor %}", "0,1,"),
        ("{% for a, b in {'x': 1}.items() %}{{ a }}{{ b }}{{ loop.last }}{% endfor %}", "x1True"),
        ("{{ messages | map(attribute='role') | join('|') }}", "user"),
        ("{{ messages | selectattr('role', 'equalto', 'user') | list | length }}", "1"),
        ("{% macro f(x) %}[{{ x }}]{% endmacro %}{{ f(messages[0].content) }}", "[Hi]"),
        ("{{ messages[-1]['content'].split('i')[0].strip() | upper }}", "H"),
        ("{{ '%02d:%s' | format(5, 'x') }}", "05:x"),
        ("{{ 'in 2026: %s*' % 'x' ~ '%(a)s 12345' | format(a=1) }}", "in 2026: x*1 12345"),
        ("{{ 'a-b' | replace('-', '+') ~ 'a-b'.replace('-', '.') }}", "a+ba.b"),
        ("{{ ','.join(['a', 'b']) + 'x' * 3 }}", "a,bxxx"),
        ("{{ tools is none and documents is none }}", "True"),
        ("{{ enable_thinking | default(false) }}", "True"),
        ("{{ unknown.missing is defined }}", ""),
        ("{% if true %}\n  x\n{% endif %}", "  x\n"),
    ],
)
def test_what_templates_use(source: str, text: str) -> None:
    if source == "{{ unknown.missing is defined }}":
        with pytest.raises(InputError, match="'unknown' is undefined"):
            render(source)
        return
    assert render(source, enable_thinking=True) == text


def test_today() -> None:
    assert render("{{ strftime_now('%Y') }}") in (str(datetime.now().year), str(datetime.now().year - 1))


NESTED = "{% for i in range(9999) %}" * 4 + "{% endfor %}" * 4
DOUBLED = "{% set ns = namespace(v=VALUE) %}{% for i in range(200) %}{% set ns.v = DOUBLE %}{% endfor %}"


def doubled(value: str, double: str) -> str:
    return DOUBLED.replace("VALUE", value).replace("DOUBLE", double)


@pytest.mark.parametrize(
    "source",
    [
        NESTED,
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
        "{{ range(99999) | map('string') | list }}" * 20,
        "{% for i in range(99999) %}{% set x = range(99999) | sum %}{% endfor %}",
        "{{ 'x' * 10 ** 9 }}",
        "{{ [0] * 10 ** 9 }}",
        "{{ 9 ** (9 ** 9) }}",
        doubled("9", "ns.v * ns.v"),
        doubled("'x'", "ns.v ~ ns.v"),
        doubled("'x'", "ns.v + ns.v"),
        doubled("'x'", "ns.v | replace('x', 'xx')"),
        doubled("'x'", "ns.v.replace('x', 'xx')"),
        doubled("'x'", "[ns.v, ns.v] | join"),
        doubled("'x'", "''.join([ns.v, ns.v])"),
        doubled("'x'", "'%s%s' % (ns.v, ns.v)"),
        doubled("'x'", "'%s%s' | format(ns.v, ns.v)"),
        doubled("[1]", "[ns.v, ns.v]"),
        doubled("[1]", "(ns.v, ns.v)"),
        doubled("[1]", "{'a': ns.v, 'b': ns.v}"),
        doubled("[1]", "dict(a=ns.v, b=ns.v)"),
        doubled("[1]", "ns.v + ns.v"),
        doubled("{'a': 1}", "[ns.v, ns.v] | list"),
        "{{ '%999999999d' % 1 }}",
        "{{ '%.999999999f' % 1 }}",
        "{{ '%(a)-999999999d' | format(a=1) }}",
        "{{ '%*d' | format(999999999, 1) }}",
        "{{ 'x\n' | indent(999999999) }}",
        "{{ 1.5 | round(999999999, 'ceil') }}",
        "{{ [1] | tojson(indent=999999999) }}",
        "{{ strftime_now('%999999999Y') }}",
        "{% set x %}{% for i in range(99999) %}{{ 'x' * 99999 }}{% endfor %}{% endset %}",
        "{% for i in range(99999) %}{{ 'x' * 99999 }}{% endfor %}",
    ],
)
def test_bombs_are_defused(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, less in {"MAX_STEPS": 1 << 14, "MAX_CHARACTERS": 1 << 22, "MAX_EXTENT": 1 << 18}.items():
        assert getattr(template_sandbox, name) > less
        monkeypatch.setattr(template_sandbox, name, less)
    with pytest.raises(LimitError, match="may use"):
        render(source)


def test_limits_are_reached_within_seconds() -> None:
    start = time.monotonic()
    with pytest.raises(LimitError, match="may use 524288 steps"):
        render(NESTED.replace("}{% endfor", "}{{ 'a' ~ 'b' }}{% endfor", 1))
    assert time.monotonic() - start < 8


def test_time_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_sandbox, "MAX_SECONDS", -1)
    with pytest.raises(LimitError, match="may use -1 seconds"):
        render("{% for i in range(9999) %}{{ i }}{% endfor %}")


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__ }}{{ ''.__class__.__mro__ }}",
        "{{ messages.__init__.__globals__ }}",
        "{{ raise_exception.__globals__['json'] }}",
        "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
        "{{ messages.append(1) }}",
        "{{ messages.clear() }}",
        "{{ messages[0].update({'role': 'x'}) }}",
        "{{ '{0.__class__}'.format(1) }}",
        "{{ (5).to_bytes(999999999, 'big') }}",
        "{{ 'x'.ljust(999999999) }}",
        "{{ '{:{}}'.format('x', 999999999) }}",
        "{{ 'x' | attr('__class__') | string ~ 'x'.encode() }}",
        "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}{{ os }}",
        "{{ lipsum() }}",
        "{{ self.__init__ }}{{ self._TemplateReference__context.environment.filters.clear() }}",
        "{{ range(999999999) }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    ],
)
def test_what_templates_may_not_do(source: str) -> None:
    with pytest.raises(EdgewrightError) as caught:
        render(source)
    assert type(caught.value) in (InputError, FormatError)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{% if %}", r"line 1"),
        ("{{ x | nothing }}", "No filter named 'nothing'"),
        ("{{ 'x' | pprint }}", "No filter named 'pprint'"),
        (
            "x\n{% for i in messages recursive %}{{ loop(i) }}{% endfor %}",
            r"recursive loops are not supported \(line 2\)",
        ),
        ("{{" + "(" * 5000, ""),
        ("{% unknown %}", "unknown tag"),
    ],
)
def test_templates_that_do_not_compile(source: str, message: str) -> None:
    with pytest.raises(FormatError, match=rf"(?s)chat template: cannot be compiled.*{message}"):
        ChatTemplate(source)


def test_a_limit_of_characters() -> None:
    with pytest.raises(LimitError, match="may have 1048576 characters"):
        ChatTemplate("x" * (1 << 21))


def test_parts_of_text_are_joined() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert check_messages([{"role": "user", "content": parts}]) == [{"role": "user", "content": "ab"}]


@pytest.mark.parametrize(
    "messages",
    [
        [], "Hi", None, {"role": "user"}, [1], ["Hi"], [{"content": "Hi"}], [{"role": 1, "content": "Hi"}],
        [{"role": "boss", "content": "Hi"}], [{"role": "user"}], [{"role": "user", "content": 1}],
        [{"role": "user", "content": [{"type": "image_url", "image_url": "file:///etc/passwd"}]}],
        [{"role": "user", "content": [{"type": "text"}]}], [{"role": "user", "content": ["x"]}],
        [{"role": "user", "content": "x", "tool_calls": []}], [{"role": "user", "content": "x", "name": 1}],
    ],
)  # fmt: skip
def test_messages_that_are_none(messages: Any) -> None:
    with pytest.raises(InputError, match="messages"):
        check_messages(messages)


def test_too_many_messages() -> None:
    with pytest.raises(LimitError, match=f"may be {MAX_MESSAGES}; got {MAX_MESSAGES + 1}"):
        check_messages([USER] * (MAX_MESSAGES + 1))


def test_long_conversations_fit() -> None:
    talk = [{"role": ("user", "assistant")[i % 2], "content": "word " * 200} for i in range(1000)]
    assert len(render(CHATML, talk)) > 1_000_000
