"""Recipes: the precision of each part of a model, for all targets or for one; in Python or as TOML.

::

    quantize = "int8"               # everything; with methods: "int8+equalize+bias"
    [modules]
    "features.0" = "a16w8"          # a preset of the target, "float", or "higher"
    [operators]
    softmax = "float"
    [targets.ethos-u55-128.modules] # overrides for one target
    "features.3" = "higher"
    [targets.ethos-u55-128.options] # of the target's compiler
    memory_mode = "Sram_Only"
    [compress]                      # weights of the model for all targets (edgewright.compress)
    sparsity = 0.5
    clusters = 32
    exclude = ["features.0"]
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

from edgewright.backends.targets import find_target
from edgewright.errors import FileAccessError, InputError, MissingError, UsageError
from edgewright.hints import did_you_mean, not_among
from edgewright.quantize.methods import BEST, split_precision

FLOAT = "float"
HIGHER = "higher"  # 16-bit activations where the target has them, floating point elsewhere
_PARTS = ("modules", "operators")
_KEYS = {"quantize", "targets", "compress", *_PARTS}


@dataclass(frozen=True)
class Recipe:
    """``quantize``: the preset for everything (None: floating point). ``modules`` and ``operators`` are exceptions, by
    dotted path and by name in the op table. ``targets`` are overrides by target name. ``options``, of a target: for its
    compiler (of Ethos-U: ``backends/ethos_u/target.py`` · ``OPTIONS``). ``compress``: of the model, for all targets."""

    quantize: str | None = None
    modules: Mapping[str, str] = field(default_factory=dict)
    operators: Mapping[str, str] = field(default_factory=dict)
    targets: Mapping[str, Recipe] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    compress: Mapping[str, Any] = field(default_factory=dict)

    @property
    def quantizes(self) -> bool:
        """True if any part is quantized."""
        has_settings = bool(self.quantize or self.modules or self.operators)
        return has_settings or any(target.quantizes for target in self.targets.values())

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods that improve the preset's rounding, in the order of application."""
        return split_precision(self.quantize)[1] if self.quantize else ()

    def for_target(self, name: str) -> Recipe:
        """The recipe for one target, with its overrides applied."""
        overrides = self.targets.get(name)
        if overrides is None:
            return Recipe(self.quantize, self.modules, self.operators)
        return Recipe(
            overrides.quantize or self.quantize,
            {**self.modules, **overrides.modules},
            {**self.operators, **overrides.operators},
            options=overrides.options,
        )

    def to_toml(self) -> str:
        """The recipe in TOML.

        >>> print(Recipe("int8", {"fc": "float"}).to_toml())
        quantize = "int8"
        <BLANKLINE>
        [modules]
        "fc" = "float"
        <BLANKLINE>
        """
        return "\n".join(_toml_lines(self, "")) + "\n"


def _toml_lines(recipe: Recipe, prefix: str) -> Iterable[str]:
    if prefix and recipe.quantize:
        yield f"\n[{prefix.rstrip('.')}]"
    if recipe.quantize:
        yield f'quantize = "{recipe.quantize}"'
    for part in _PARTS:
        entries = getattr(recipe, part)
        if entries:
            yield f"\n[{prefix}{part}]"
            yield from (f'{_quote(name)} = "{precision}"' for name, precision in entries.items())
    if recipe.compress:
        yield "\n[compress]"
        yield from (f"{name} = {_toml_value(value)}" for name, value in recipe.compress.items())
    if recipe.options:
        yield f"\n[{prefix}options]"
        values = {
            name: value if isinstance(value, int) else _quote(str(value)) for name, value in recipe.options.items()
        }
        yield from (f"{_quote(name)} = {value}" for name, value in values.items())
    for name, target_recipe in recipe.targets.items():
        yield from _toml_lines(target_recipe, f"{prefix}targets.{_quote(name)}.")


def _toml_value(value: Any) -> str:
    return f"[{', '.join(map(_quote, value))}]" if isinstance(value, list | tuple) else str(value)


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def as_recipe(source: Any, quantize: str | None) -> Recipe:
    """A recipe from None, a path, a mapping or a ``Recipe``; ``quantize`` overrides its preset."""
    if source is None:
        recipe = Recipe()
    elif isinstance(source, Recipe):
        recipe = source
    elif isinstance(source, Mapping):
        recipe = _parse_recipe("recipe", source)
    elif isinstance(source, str | os.PathLike):
        recipe = read_recipe(source)
    else:
        rule = "must be a Recipe, a mapping, or the path of a TOML file"
        raise UsageError("recipe", rule, value=type(source).__name__)
    if quantize is not None and not isinstance(quantize, str):
        raise UsageError("quantize", "must be the name of a preset, such as int8", value=quantize)
    for name in recipe.targets:
        find_target(name)  # raises for a misspelt name, which would otherwise be ignored
    return recipe if quantize is None else replace(recipe, quantize=quantize)


def read_recipe(path: str | os.PathLike[str]) -> Recipe:
    """A recipe from a TOML file."""
    try:
        tomllib = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    except ImportError as error:
        raise MissingError("tomli", "is needed to read recipes on Python 3.10", remedy="pip install tomli") from error
    try:
        with open(path, "rb") as file:
            content = tomllib.load(file)
    except OSError as error:
        raise FileAccessError(os.fspath(path), f"cannot be opened: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(os.fspath(path), f"must be TOML: {error}") from error
    return _parse_recipe(os.fspath(path), content)


def _parse_recipe(source: str, content: Mapping[str, Any], inner: bool = False) -> Recipe:
    keys = {*_KEYS, "options"} - {"targets", "compress"} if inner else _KEYS
    for key in content:
        if key not in keys:
            raise not_among(source, key, sorted(keys), rule="a key must be one of", error=InputError)
    quantize = content.get("quantize")
    if quantize is not None and not isinstance(quantize, str):
        raise InputError(f"{source}: quantize", "must be the name of a preset", value=quantize)
    parts = {part: _parse_table(f"{source}: {part}", content.get(part, {})) for part in _PARTS}
    targets = content.get("targets", {})
    if not isinstance(targets, Mapping) or not all(isinstance(t, Mapping) for t in targets.values()):
        raise InputError(f"{source}: targets", "must be tables by the name of a target")
    overrides = {str(n).lower(): _parse_recipe(f"{source}: targets.{n}", t, inner=True) for n, t in targets.items()}
    options = content.get("options", {})
    if not isinstance(options, Mapping) or not all(type(value) in (str, int) for value in options.values()):
        raise InputError(f"{source}: options", "must be a table of strings and integers", value=options)
    compress = content.get("compress", {})
    if not isinstance(compress, Mapping) or not set(compress) <= {"sparsity", "clusters", "exclude"}:
        raise InputError(f"{source}: compress", "must be a table of sparsity, clusters and exclude", value=compress)
    return Recipe(quantize, parts["modules"], parts["operators"], overrides, dict(options), dict(compress))


def _parse_table(source: str, table: Any) -> dict[str, str]:
    if not isinstance(table, Mapping) or not all(isinstance(v, str) for v in table.values()):
        raise InputError(source, 'must be a table of names and precisions: "features.0" = "float"')
    return {str(name): precision for name, precision in table.items()}


def apply_recipe(quantizer: Any, recipe: Recipe, modules: Iterable[str], target: str, trained: bool = False) -> None:
    """Configure a backend's quantizer from a recipe. ``modules``: all modules of the model. ``trained``: it is for
    quantization-aware training."""
    named = [*recipe.modules.items(), *recipe.operators.items()]
    for name, precision in named:
        if split_precision(precision)[1] or precision.endswith(BEST):
            rule = "must be a preset: methods are for the complete model"
            raise UsageError(f"recipe: {name!r}", rule, value=precision)
    methods = recipe.methods

    def configured(precision: str) -> Any:
        config = config_of(quantizer, precision, target)
        if config is None:
            return None
        return config.for_training() if trained else config.with_methods(methods)

    require_one_sign(quantizer, [recipe.quantize or FLOAT, *(precision for _, precision in named)], target)
    quantizer.set_global(configured(recipe.quantize or FLOAT))
    paths = set(modules)
    for name, precision in recipe.modules.items():
        if name not in paths:
            remedy = did_you_mean(name, sorted(paths))
            raise UsageError(f"recipe: module {name!r}", "must be a module of the model", remedy=remedy)
        quantizer.set_module_name(name, configured(precision))
    for name, precision in recipe.operators.items():
        quantizer.set_operator_type(name, configured(precision))


def require_one_sign(quantizer: Any, precisions: Iterable[str], target: str) -> None:
    """Reject presets with signed and with unsigned activations, if the target has none of them together."""
    configs = {name: config_of(quantizer, name, target) for name in dict.fromkeys(precisions)}
    signs = {config.is_unsigned for config in configs.values() if config is not None}
    if len(signs) > 1 and not quantizer.mixes_signs:
        rule = f"must have signed or unsigned activations: {target} does not have both in one model"
        names = ", ".join(name for name, config in configs.items() if config is not None)
        raise UsageError("precisions", rule, value=names, remedy="The names of unsigned presets begin with u.")


def config_of(quantizer: Any, precision: str, target: str) -> Any:
    """The config of a preset by name, without the methods that follow it; None for floating point."""
    presets = quantizer.presets
    precision, methods = split_precision(precision)
    precision = precision.removesuffix(BEST)
    if precision == HIGHER:
        precision = higher(presets)
    if precision == FLOAT and methods:
        raise UsageError("quantize", "has methods for integers only, and float has none", value=", ".join(methods))
    if precision == FLOAT:
        return None
    if precision not in presets:
        names = [*presets, FLOAT, HIGHER]
        remedy = (
            _static(precision, presets)
            or _other_word(precision, presets)
            or _same_width(precision, presets, target)
            or did_you_mean(precision, names)
        )
        raise UsageError(
            "quantize", f"must be a preset of {target}: {', '.join(names)}", value=precision, remedy=remedy
        )
    return presets[precision]()


def _static(precision: str, presets: Iterable[str]) -> str:
    """What to write instead of a dynamic preset for a device that needs scales in advance; empty for other names."""
    names = list(presets)
    if not precision.startswith("dynamic") or any(name.startswith("dynamic") for name in names) or "int8" not in names:
        return ""
    return "This device needs the scales of activations in advance: int8, with --calibrate or calibration=."


def _other_word(precision: str, presets: Iterable[str]) -> str:
    """What other tools call a preset; empty for other names.

    >>> _other_word("fp16", ["int8"]), _other_word("W8A8", ["int8"])
    ("Floating point is 'float'; half precision is the target's option, or model.half().", 'Did you mean int8?')
    """
    word = precision.lower()
    if word in ("fp16", "float16", "half", "bf16", "bfloat16"):
        return "Floating point is 'float'; half precision is the target's option, or model.half()."
    if word in ("fp32", "float32", "none"):
        return "Did you mean float?"
    weights = re.fullmatch(r"w(\d+)a(\d+)", word)  # the two the other way around
    name = f"a{weights[2]}w{weights[1]}" if weights else word
    name = "int8" if name in ("a8w8", "ptq", "qint8", "8bit", "8-bit", "static") else name
    return f"Did you mean {name}?" if name in presets else ""


def _same_width(precision: str, presets: Iterable[str], target: str) -> str:
    """The presets whose weights or activations have the width that a wrong name mentions, such as int4; empty if it
    mentions none, or one that every target has.

    >>> _same_width("int4", ["int8", "dynamic", "dynamic-w4"], "xnnpack")
    'With 4-bit weights: dynamic-w4.'
    """
    bits = "".join(filter(str.isdigit, precision))
    if bits not in ("2", "4", "16"):
        return ""
    part, letter = ("activations", "a") if bits == "16" else ("weights", "w")
    same = [name for name in presets if f"{letter}{bits}" in name.split("-")[-1]]
    return f"With {bits}-bit {part}: {', '.join(same)}." if same else f"{target} has no preset with {bits}-bit {part}."


def higher(presets: Iterable[str]) -> str:
    """The most precise preset of a target: 16-bit activations if available, else floating point."""
    return next((name for name in presets if name.startswith("a16")), FLOAT)
