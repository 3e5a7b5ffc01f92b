"""Common parts of shape inference."""

from __future__ import annotations

from collections.abc import Callable

from edgewright.errors import FormatError
from edgewright.ir.graph import Op

Shape = tuple[int, ...]
Rule = Callable[[Op, list[Shape]], list[Shape]]


def need(condition: bool, rule: str, value: object) -> None:
    """Refuse what breaks a rule."""
    if not condition:
        raise FormatError(rule, value=value)


def per_axis(op: Op, rank: int, *names: str) -> None:
    """These arguments have a number, or a pair, for each dimension."""
    for name in names:
        need(len(op.args[name]) == rank, f"must have {rank} numbers", f"{name} {op.args[name]}"[:80])
        if name == "pad_amount":
            need(all(len(pair) == 2 for pair in op.args[name]), "must be pairs", name)


def axes_of(op: Op, given: list[Shape]) -> list[int]:
    """The dimensions an operator names, which there are."""
    axes = op.args["axes"] if "axes" in op.args else [op.args["axis"]]
    need(bool(axes) and len(set(axes)) == len(axes) and max(axes) < len(given[0]), "must be dimensions", axes)
    need(min(given[0], default=1) > 0, "must have elements", given[0])
    return list(axes)
