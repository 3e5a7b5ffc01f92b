"""Common parts of shape inference."""

from __future__ import annotations

from collections.abc import Callable

from edgewright.errors import FormatError
from edgewright.ir.graph import Op

Shape = tuple[int, ...]
ShapeRule = Callable[[Op, list[Shape]], list[Shape]]


def require(condition: bool, rule: str, value: object) -> None:
    """Raise ``FormatError`` unless ``condition`` holds."""
    if not condition:
        raise FormatError(rule, value=value)


def require_per_axis(op: Op, rank: int, *names: str) -> None:
    """Require one number (a pair for ``pad_amount``) per dimension."""
    for name in names:
        require(len(op.args[name]) == rank, f"must have {rank} numbers", f"{name} {op.args[name]}"[:80])
        if name == "pad_amount":
            require(all(len(pair) == 2 for pair in op.args[name]), "must be pairs", name)


def checked_axes(op: Op, shapes: list[Shape]) -> list[int]:
    """The ``axes`` or ``axis`` of an operator; raises unless they are distinct dimensions of the first operand."""
    axes = op.args["axes"] if "axes" in op.args else [op.args["axis"]]
    require(bool(axes) and len(set(axes)) == len(axes) and max(axes) < len(shapes[0]), "must be dimensions", axes)
    require(min(shapes[0], default=1) > 0, "must have elements", shapes[0])
    return list(axes)
