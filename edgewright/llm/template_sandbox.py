"""A jinja2 environment for templates from files that nobody vouches for.

jinja2's sandbox keeps a template from Python's internals, but not from using all time and memory. Here every loop,
call, filter and operator that can multiply its operands is charged to a budget first.
"""

from __future__ import annotations

import functools
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import nodes
from jinja2.exceptions import TemplateError, TemplateSyntaxError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from edgewright.errors import LimitError

MAX_STEPS = 1 << 19  # iterations, calls and elements of containers
MAX_CHARACTERS = 1 << 28  # of all values together
MAX_EXTENT = 1 << 24  # characters and elements of one value
MAX_SECONDS = 5.0
_MAX_BITS = 1024
_STEPS_PER_CLOCK = 1024

_TEXT_METHODS = (
    "capitalize", "casefold", "count", "endswith", "find", "index", "isalnum", "isalpha", "isascii", "isdecimal",
    "isdigit", "islower", "isnumeric", "isspace", "istitle", "isupper", "join", "lower", "lstrip", "partition",
    "removeprefix", "removesuffix", "replace", "rfind", "rindex", "rpartition", "rsplit", "rstrip", "split",
    "splitlines", "startswith", "strip", "swapcase", "title", "upper",
)  # fmt: skip
_ATTRIBUTES: dict[type, frozenset[str]] = {
    str: frozenset(_TEXT_METHODS),
    dict: frozenset(["items", "keys", "values", "get"]),
    list: frozenset(["index", "count"]),
    tuple: frozenset(["index", "count"]),
    int: frozenset(),  # to_bytes(10 ** 9)
    float: frozenset(),
}
_FILTERS = (
    "abs", "attr", "capitalize", "count", "default", "d", "dictsort", "escape", "e", "first", "float", "format",
    "groupby", "indent", "int", "items", "join", "last", "length", "list", "lower", "map", "max", "min", "reject",
    "rejectattr", "replace", "reverse", "round", "safe", "select", "selectattr", "sort", "string", "sum", "title",
    "trim", "truncate", "unique", "upper", "wordcount",
)  # fmt: skip
_GLOBALS = ("range", "dict", "namespace", "cycler", "joiner")
_LONG_WIDTH = re.compile(r"%(?:\([^()]*\))?[-#0 +._^\d]*(?:\d{4}|\*)")  # of a format


class Budget:
    """What is left of one rendering's steps, characters and time."""

    def __init__(self) -> None:
        self._steps = MAX_STEPS
        self._characters = MAX_CHARACTERS
        self._end = time.monotonic() + MAX_SECONDS
        self._until_clock = _STEPS_PER_CLOCK

    def step(self, count: int = 1) -> None:
        self._steps -= count
        self._until_clock -= count
        if self._steps < 0:
            exceed("steps", MAX_STEPS)
        if self._until_clock < 0:
            self._until_clock = _STEPS_PER_CLOCK
            if time.monotonic() > self._end:
                exceed("seconds", MAX_SECONDS)

    def characters(self, count: int) -> None:
        if count > MAX_EXTENT:
            exceed("characters in one value", MAX_EXTENT)
        self._characters -= count
        if self._characters < 0:
            exceed("characters", MAX_CHARACTERS)
        self.step(count >> 12)


def exceed(what: str, limit: float) -> NoReturn:
    remedy = "A template for conversations needs far less: use another one (chat_template=...)."
    raise LimitError("chat template", f"may use {limit:g} {what}", remedy=remedy)


class Sandbox(ImmutableSandboxedEnvironment):
    """Set ``budget`` before a template is compiled and before it is rendered."""

    intercepted_binops = frozenset(["+", "*", "**", "%"])

    def __init__(self) -> None:
        self.budget = Budget()
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _Generation])
        plain = {name: self.filters[name] for name in _FILTERS}
        self.filters = {name: self._guard(name, function) for name, function in plain.items()}
        self.filters |= {"tojson": self._to_json, "_counted": self.counted, "_concat": self._join_texts}
        self.filters["_measured"] = self.measured
        self.globals = {name: self.globals[name] for name in _GLOBALS}
        self.globals |= {"raise_exception": _raise, "strftime_now": _now}

    # ------------------------------------------------------------------------------------------- charges

    def counted(self, value: Any) -> Any:
        """What is iterated: charged at once, or while it is consumed."""
        if hasattr(value, "__len__"):
            self.budget.step(len(value))
            return value
        return self._count(value) if isinstance(value, Iterator) else value

    def _count(self, values: Iterator[Any]) -> Iterator[Any]:
        for value in values:
            self.budget.step()
            yield value

    def measured(self, value: Any) -> Any:
        """A new value. Containers may hold the same one twice, and so be larger than the memory they take: what prints
        or compares them would walk through all of it."""
        if isinstance(value, str):
            self.budget.characters(len(value))
        elif isinstance(value, list | tuple | dict):
            self.extent(value)
        return value

    def extent(self, value: Any) -> int:
        """Characters of the texts in a value, and elements."""
        total, pending = 0, [value]
        while pending:
            item = pending.pop()
            total += 1
            if isinstance(item, str):
                total += len(item)
            elif isinstance(item, dict):
                self.budget.step(len(item))
                pending += [*item.keys(), *item.values()]
            elif isinstance(item, list | tuple):
                self.budget.step(len(item))
                pending += item
            if total > MAX_EXTENT:
                exceed("characters in one value", MAX_EXTENT)
        return total

    # ------------------------------------------------------------------------------------------- hooks of jinja2

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        template: nodes.Template = _Charges(self).visit(Parser(self, source, name, filename).parse())
        return template

    def wrap_str_format(self, value: Any) -> None:
        """``str.format`` is refused like other methods: a width may be any number, and an argument itself."""

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        for kind, allowed in _ATTRIBUTES.items():
            if isinstance(obj, kind):
                return attr in allowed
        return super().is_safe_attribute(obj, attr, value)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        self.budget.step()
        if operator == "%" and isinstance(left, str):
            self._check_format(left, right)
        elif operator in ("*", "**"):
            self._check_product(operator, left, right)
        elif isinstance(left, str | list | tuple) and isinstance(right, str | list | tuple):
            self.budget.characters(len(left) + len(right))
        return self.measured(super().call_binop(context, operator, left, right))

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        # Named as in jinja2: a template may pass a keyword argument "self".
        __self.budget.step()
        owner = getattr(__obj, "__self__", None)
        if isinstance(owner, str):
            arguments = [__self.counted(argument) for argument in args]
            name = getattr(__obj, "__name__", "")
            if name == "join" and len(arguments) == 1:
                arguments = [list(arguments[0])]
                __self._check_join(owner, arguments[0])
            elif name == "replace" and len(arguments) >= 2:
                __self._check_replace(owner, *arguments[:2])
            args = tuple(arguments)
        return __self.measured(super().call(__context, __obj, *args, **kwargs))

    def concat(self, parts: Iterable[str]) -> str:
        """Joins the output of a template or a macro."""
        texts = []
        for part in parts:
            self.budget.step()
            self.budget.characters(len(part))
            texts.append(part)
        self.budget.characters(sum(map(len, texts)))
        return "".join(texts)

    # ------------------------------------------------------------------------------------------- operators, filters

    def _guard(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """A filter of jinja2 that is charged for its operand and its result."""
        at = 1 if hasattr(function, "jinja_pass_arg") else 0
        check = getattr(self, f"_before_{name}", None)

        @functools.wraps(function)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            self.budget.step()
            operands = list(args)
            operands[at] = self.counted(operands[at])
            if check is not None:
                operands[at] = check(*operands[at:], **kwargs)
            return self.measured(function(*operands, **kwargs))

        return guarded

    def _before_join(self, value: Any, d: Any = "", attribute: Any = None) -> Any:
        items = list(value)
        self._check_join(str(d), items)
        return items

    def _before_replace(self, value: Any, old: Any, new: Any, count: Any = None) -> Any:
        self._check_replace(str(value), old, new)
        return value

    def _before_indent(self, value: Any, width: Any = 4, first: Any = False, blank: Any = False) -> Any:
        indent = width if isinstance(width, int) else len(str(width))
        self.budget.characters((str(value).count("\n") + 1) * max(indent, 0))
        return value

    def _before_format(self, value: Any, *args: Any, **kwargs: Any) -> Any:
        self._check_format(str(value), [args, kwargs])
        return value

    def _before_round(self, value: Any, precision: Any = 0, method: Any = "common") -> Any:
        if not isinstance(precision, int) or abs(precision) > 100:
            exceed("digits of precision", 100)
        return value

    def _before_string(self, value: Any) -> Any:
        self.budget.characters(self.extent(value))
        return value

    def _join_texts(self, *values: Any) -> str:
        texts = [value if isinstance(value, str) else str(self.measured(value)) for value in values]
        self.budget.characters(sum(map(len, texts)))
        return "".join(texts)

    def _to_json(self, value: Any, indent: Any = None, separators: Any = None, sort_keys: Any = False) -> str:
        """Without jinja2's escapes for HTML."""
        self.budget.characters(self.extent(value) * (1 + (indent if isinstance(indent, int) else 4)))
        text = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators, sort_keys=bool(sort_keys))
        return str(self.measured(text))

    def _check_join(self, separator: str, items: list[Any]) -> None:
        self.budget.characters(self.extent(items) + len(separator) * len(items))

    def _check_replace(self, text: str, old: Any, new: Any) -> None:
        times = text.count(str(old))
        self.budget.characters(len(text) + times * len(str(new)))

    def _check_format(self, text: str, values: Any) -> None:
        if _LONG_WIDTH.search(text):
            exceed("digits in the widths of a format", 3)
        fields = text.count("%")
        self.budget.characters(len(text) + fields * 999 + self.extent(values) * max(1, fields))

    def _check_product(self, operator: str, left: Any, right: Any) -> None:
        for value, times in ((left, right), (right, left)):
            if isinstance(value, str | list | tuple) and isinstance(times, int):
                self.budget.characters(len(value) * max(times, 0))
                return
        if isinstance(left, int) and isinstance(right, int):
            bits = left.bit_length() * max(right, 0) if operator == "**" else left.bit_length() + right.bit_length()
            if bits > _MAX_BITS:
                exceed("bits in a number", _MAX_BITS)


class _Charges(NodeTransformer):
    """Rewrites what no hook of jinja2 sees: loops, ``~`` and literals of containers become calls of our filters."""

    def __init__(self, environment: Sandbox) -> None:
        self._environment = environment

    def _filter(self, node: nodes.Node, name: str, *others: nodes.Expr) -> nodes.Expr:
        made = nodes.Filter(node, name, list(others), [], None, None, lineno=node.lineno)
        return made.set_environment(self._environment)  # type: ignore[return-value]

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        if node.recursive:
            raise TemplateSyntaxError("recursive loops are not supported", node.lineno)
        node.iter = self._filter(node.iter, "_counted")
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        first, *others = node.nodes
        return self._filter(first, "_concat", *others)

    def _visit_literal(self, node: Any) -> nodes.Node:
        self.generic_visit(node)
        stores = getattr(node, "ctx", "load") != "load"  # {% for a, b in ... %}
        return node if stores else self._filter(node, "_measured")

    visit_List = visit_Tuple = visit_Dict = _visit_literal  # noqa: N815


class _Generation(Extension):
    """``{% generation %}``, which marks replies for training: its contents are rendered as they are."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class RejectedError(TemplateError):
    """A template called ``raise_exception``."""


def _raise(message: object = "") -> NoReturn:
    raise RejectedError(str(message))


def _now(format: object) -> str:
    if _LONG_WIDTH.search(str(format)):
        exceed("digits in the widths of a format", 3)
    return datetime.now().strftime(str(format))
