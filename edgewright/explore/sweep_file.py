"""The description of a sweep in TOML: models, targets, precisions, options, data, metric and limits.

::

    targets = ["xnnpack", "ethos-u55-128"]
    quantize = ["float", "int8"]     # presets of the targets
    recipes = ["raised.toml"]        # besides the presets
    calibrate = "calib.npz"          # as for `edgewright compile`
    metric = "net:accuracy"

    [models]
    small = "net:small"
    large = {model = "net:large", calibrate = "large.npz"}

    [options]                        # of `edgewright.compile`; of a list, every element
    integer_io = [false, true]

    [limits]
    seconds = 600
    memory = "4G"
    retries = 3

    [[exclude]]                      # combinations to leave out
    target = "xnnpack"
    quantize = "a16w8"

Every error names the file, the line and, for a misspelt name, the most similar one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from edgewright.errors import EdgewrightError, FileAccessError, InputError
from edgewright.explore.toml_lines import Key, find_line, parse_toml
from edgewright.hints import did_you_mean
from edgewright.units import parse_size

_DATA = {
    "calibrate": (str,),
    "evaluate": (int, str),
    "samples": (int,),
    "metric": (str,),
    "mean": (list,),
    "std": (list,),
}
_LISTS = ("targets", "quantize", "recipes")
_KEYS = (*_LISTS, *_DATA, "better", "models", "options", "limits", "exclude")
OPTIONS = {"integer_io": (bool,), "simulate": (bool,), "check": (bool,), "runtime": (str,)}
_LIMITS = {"seconds": (int, float), "memory": (str, int), "retries": (int,)}
_EXCLUDE = ("model", "target", "quantize", "recipe", *OPTIONS)
_NAMES = {bool: "true or false", str: "text", int: "an integer", float: "a number", list: "a list", dict: "a table"}


@dataclass(frozen=True)
class Limits:
    """``seconds``: of a row. ``memory``: bytes of a worker. ``retries``: of a row whose worker died."""

    seconds: float | None = None
    memory: int | None = None
    retries: int = 3


@dataclass(frozen=True)
class ModelEntry:
    """A model of a sweep: its name, what names it (``net:small``, ``m.pt2``), and its data."""

    name: str
    spec: str
    key: Key
    data: Mapping[str, Any] = field(default_factory=dict)


class SweepFile:
    """A sweep as its author wrote it, checked as far as that needs neither models nor targets."""

    def __init__(self, text: str, name: str) -> None:
        self.text, self.name = text, name
        self.content = parse_toml(text, name)
        self._check_keys((), self.content, _KEYS)
        self.targets = self._texts("targets", required=True)
        self.recipes = self._texts("recipes")
        self.quantize = self._texts("quantize") or ([] if self.recipes else ["float"])
        self.better = self.content.get("better", "higher")
        if self.better not in ("higher", "lower"):
            raise self.error(("better",), "must be higher or lower", self.better)
        self.models = self._models()
        self.options = self._options()
        self.limits = self._limits()
        self.exclude = self._exclude()

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> SweepFile:
        try:
            with open(path, encoding="utf-8") as file:
                return cls(file.read(), os.fspath(path))
        except OSError as error:
            raise FileAccessError(os.fspath(path), f"cannot be opened: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise InputError(os.fspath(path), f"must be UTF-8: {error}") from error

    # -------------------------------------------------------------------------------------------------------- errors

    def error(self, key: Key, rule: str, value: object = None, remedy: str = "") -> InputError:
        """The error of a key, with its line; ``value`` finds the line of an element."""
        where = f"{self.name}:{find_line(self.text, key, value)}"
        return InputError(where, f"{key[-1]} {rule}", **({} if value is None else {"value": value}), remedy=remedy)

    @contextmanager
    def at(self, key: Key, value: object = None) -> Iterator[None]:
        """Name the line in errors that are raised inside."""
        try:
            yield
        except EdgewrightError as error:
            where = f"{self.name}:{find_line(self.text, key, value)}"
            got = {} if error.value is None else {"value": error.value}
            subject = error.subject
            if key == ("recipes",) and str(value) not in subject:  # what is wrong is in that file
                subject = f"{value}: {subject}"
            raise InputError(where, f"{subject}: {error.rule}", **got, remedy=error.remedy) from error

    # -------------------------------------------------------------------------------------------------------- parts

    def _check_keys(self, key: Key, table: Mapping[str, Any], names: Any) -> None:
        for name in table:
            if name not in names:
                remedy = did_you_mean(name, names)
                rule = f"is not a key{f' of {key[0]}' if key else ''}: {', '.join(names)}"
                raise self.error((*key, name), rule, remedy=remedy)

    def _check_type(self, key: Key, value: Any, types: tuple[type, ...]) -> None:
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            raise self.error(key, f"must be {' or '.join(_NAMES[t] for t in types)}", value)

    def _texts(self, name: str, required: bool = False) -> list[str]:
        value = self.content.get(name, [])
        texts = [value] if isinstance(value, str) else value
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise self.error((name,), "must be a list of names", value)
        if required and not texts:
            raise InputError(self.name, f"must have {name}: a list of names")
        twice = next((text for text in texts if texts.count(text) > 1), None)
        if twice is not None:
            raise self.error((name,), "must name each once", twice)
        return texts

    def _models(self) -> list[ModelEntry]:
        table = self.content.get("models")
        if not isinstance(table, Mapping) or not table:
            remedy = 'Write [models], and below it: small = "net:small".'
            raise InputError(self.name, "must have models: a table of names", remedy=remedy)
        shared = {name: self.content[name] for name in _DATA if name in self.content}
        self._check_data((), shared)
        entries = []
        for name, value in table.items():
            key: Key = ("models", name)
            own = {"model": value} if isinstance(value, str) else value
            self._check_type(key, own, (dict,))
            self._check_keys(key, own, ("model", *_DATA))
            if not isinstance(own.get("model"), str):
                raise self.error(key, 'must name a model: "package.module:factory", or a .pt2')
            data = {k: v for k, v in own.items() if k != "model"}
            self._check_data(key, data)
            entries.append(ModelEntry(name, own["model"], key, {**shared, **data}))
        return entries

    def _check_data(self, key: Key, data: Mapping[str, Any]) -> None:
        for name, value in data.items():
            self._check_type((*key, name), value, _DATA[name])
            if isinstance(value, list) and not all(isinstance(v, int | float) for v in value):
                raise self.error((*key, name), "must be a list of numbers", value)

    def _options(self) -> dict[str, list[Any]]:
        table = self.content.get("options", {})
        self._check_type(("options",), table, (dict,))
        self._check_keys(("options",), table, tuple(OPTIONS))
        options = {name: value if isinstance(value, list) else [value] for name, value in table.items()}
        for name, values in options.items():
            for value in values:
                self._check_type(("options", name), value, OPTIONS[name])
        return options

    def _limits(self) -> Limits:
        table = self.content.get("limits", {})
        self._check_type(("limits",), table, (dict,))
        self._check_keys(("limits",), table, tuple(_LIMITS))
        for name, value in table.items():
            self._check_type(("limits", name), value, _LIMITS[name])
            if not isinstance(value, str) and value < (name != "retries"):
                raise self.error(("limits", name), "must be positive", value)
        limits = dict(table)
        if "memory" in limits:
            limits["memory"] = self._bytes(limits["memory"])
        return Limits(**limits)

    def _bytes(self, value: str | int) -> int:
        try:
            return parse_size(str(value))
        except ValueError as error:
            raise self.error(("limits", "memory"), "must be a size: 512M, 4G", value) from error

    def _exclude(self) -> list[Mapping[str, Any]]:
        tables = self.content.get("exclude", [])
        self._check_type(("exclude",), tables, (list,))
        known = {"model": [m.name for m in self.models], "target": self.targets, "quantize": self.quantize}
        known["recipe"] = self.recipes
        for number, table in enumerate(tables):
            self._check_type(("exclude", number), table, (dict,))
            self._check_keys(("exclude", number), table, _EXCLUDE)
            for name, value in table.items():
                if name in known and value not in known[name]:
                    remedy = did_you_mean(value, known[name])
                    rule = f"must be one of this sweep: {', '.join(known[name])}"
                    raise self.error(("exclude", number, name), rule, value, remedy)
        return list(tables)

    def excludes(self, row: Mapping[str, Any]) -> bool:
        """True if a combination is left out."""
        return any(all(row.get(name) == value for name, value in table.items()) for table in self.exclude)
