"""What a search assigns precisions to: the parts of a model that a recipe can name.

A unit is a module with operators of its own, or an operator outside of any module. An assignment of presets to units
becomes a recipe with as few entries as possible: a module's entry holds for the modules inside it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from edgewright.api.recipe import FLOAT, Recipe
from edgewright.quantize.methods import join_precision

OPERATOR = "operator "  # prefix of units that are operators outside of any module
Assignment = Mapping[str, str]


def unit_of(module: str, operator: str) -> str:
    """
    >>> unit_of("features.0", "conv2d"), unit_of("", "max_pool2d")
    ('features.0', 'operator max_pool2d')
    """
    return module or OPERATOR + operator


@dataclass
class _Node:
    """A module in the tree of modules. ``precision``: of its own operators, if it is a unit."""

    precision: str | None = None
    children: dict[str, _Node] = field(default_factory=dict)

    def precisions(self) -> set[str]:
        own = set() if self.precision is None else {self.precision}
        return own.union(*(child.precisions() for child in self.children.values()))


def recipe_of(
    assignment: Assignment, operators: Mapping[str, Iterable[str]], presets: Sequence[str], methods: Sequence[str] = ()
) -> Recipe:
    """The shortest recipe of an assignment. ``operators``: of each module's unit, by name in the op table. ``presets``:
    those of the target in their order, which decides between equally short recipes. ``methods``: of better rounding;
    they follow a preset, so that floating point is then the exception even if it is what most units have.

    >>> recipe_of({"a.0": "int8", "a.1": "int8", "b": "a16w8", "c": "int8"}, {}, ["int8", "a16w8"]).modules
    {'b': 'a16w8'}
    >>> recipe = recipe_of({"a.0": "a16w8", "a.1": "a16w8", "b": "int8"}, {}, ["int8", "a16w8"])
    >>> recipe.quantize, recipe.modules
    ('a16w8', {'b': 'int8'})
    >>> recipe_of({"a": "float", "b": "float", "c": "int8"}, {}, ["int8"], ["bias"]).quantize
    'int8+bias'
    """
    count = Counter(assignment.values())
    if methods and len(count) > 1:
        del count[FLOAT]
    base = min(count, key=lambda name: (-count[name], [*presets, FLOAT].index(name)), default=FLOAT)
    others = {
        unit.removeprefix(OPERATOR): precision
        for unit, precision in assignment.items()
        if unit.startswith(OPERATOR) and precision != base
    }
    root = _Node()
    for unit, precision in assignment.items():
        if not unit.startswith(OPERATOR):
            node = root
            for part in unit.split("."):
                node = node.children.setdefault(part, _Node())
            node.precision = precision
    exposed = {unit for unit, names in operators.items() if set(names) & others.keys()}
    modules: dict[str, str] = {}
    _add_entries(root, "", None, base, exposed, modules)
    return Recipe(None if base == FLOAT else join_precision(base, tuple(methods)), modules, others)


def _add_entries(
    node: _Node, path: str, inherited: str | None, base: str, exposed: Iterable[str], modules: dict[str, str]
) -> None:
    """Add the entries of a module and those inside it. ``inherited``: the entry that holds for it, if there is one;
    without one, an ``exposed`` module would get the precision of an operator."""
    for name, child in node.children.items():
        at = f"{path}.{name}".lstrip(".")
        inside, entry = child.precisions(), inherited
        only = next(iter(inside)) if len(inside) == 1 else child.precision
        is_exposed = inherited is None and any(unit == at or unit.startswith(f"{at}.") for unit in exposed)
        if only is not None and (only != (inherited or base) or is_exposed):
            entry = modules[at] = only
        _add_entries(child, at, entry, base, exposed, modules)


def pinned(recipe: Recipe, units: Iterable[str], operators: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """The units whose precision a recipe decides by name, with that precision.

    >>> pinned(Recipe("int8", {"a": "float"}, {"softmax": "a16w8"}), ["a.0", "b", "operator softmax"], {})
    {'a.0': 'float', 'operator softmax': 'a16w8'}
    """
    result = {}
    for unit in units:
        inside = [path for path in recipe.modules if unit == path or unit.startswith(f"{path}.")]
        names = [unit.removeprefix(OPERATOR)] if unit.startswith(OPERATOR) else operators.get(unit, ())
        named = [name for name in names if name in recipe.operators]
        if inside:
            result[unit] = recipe.modules[max(inside, key=len)]
        elif named:
            result[unit] = recipe.operators[named[0]]
    return result
