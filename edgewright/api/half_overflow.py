"""Overflow of half-precision floats as the reason why a layer of a file differs from its graph.

Devices with half-precision floats return infinity or the largest number for a value beyond 65,504, which is a property
of the model. A wrong program can return anything, infinity and NaN too, so a difference counts as an overflow only if
the graph computed with that range differs as well, or if its result is infinite or NaN and a sum inside an operator,
which the graph does not show, can be that large.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import fx

from edgewright.api.deviation import compare_values, is_discrete, step_of, to_float64
from edgewright.api.graph_interpreter import GraphInterpreter, Visitor
from edgewright.api.quantized_graph import operator_name
from edgewright.backends.table import Rounding
from edgewright.ir.aten.ops import OPS
from edgewright.ir.aten.table import OpClass

_HALF = torch.finfo(torch.float16)
HALF_MAX = _HALF.max


class HalfRange:
    """Examines layers of a half-precision device, on the inputs that showed the difference."""

    def __init__(self, reference: GraphInterpreter, calls: Sequence[Sequence[Any]], rounding: Rounding) -> None:
        self._reference, self._calls, self._rounding = reference, calls, rounding

    def overflow(self, node: Any, operators: Sequence[fx.Node], expected: Any, actual: Any) -> str:
        """What exceeds the range in the layer of ``operators`` that ends with ``node``; empty if nothing does."""
        is_float = not is_discrete(node, expected) and step_of(node) is None
        if self._rounding.real < _HALF.eps or not is_float or not isinstance(node, fx.Node):
            return ""
        runs = self._record(operators, math.inf)
        largest, name = max((_magnitude(run[n.name]), operator_name(n)) for run in runs for n in operators)
        if largest > HALF_MAX and self._is_lost(node, operators, runs):
            return f"{largest:,.6g} (result of {name})"
        if not is_nonfinite(expected, actual):
            return ""
        bound = max(_bound(n, run) for run in runs for n in operators)
        if bound <= HALF_MAX:
            return ""
        return f"infinity or NaN, probably because sums or squares inside it, which may reach {bound:,.6g}, overflow"

    def _record(self, operators: Sequence[fx.Node], largest: float, limit: float = math.inf) -> list[dict[str, Any]]:
        """The operands and results of the operators in each call, with those beyond ``largest`` set to ``limit``."""
        visitors = [_RangeLimit(operators, largest, limit) for _ in self._calls]
        self._reference.run(self._calls, visitors)
        return [v.values for v in visitors]

    def _is_lost(self, node: fx.Node, operators: Sequence[fx.Node], runs: Sequence[dict[str, Any]]) -> bool:
        """True if the layer's result is another one where its operators overflow, to infinity or the largest number."""
        limited = [self._record(operators, HALF_MAX, limit) for limit in (math.inf, HALF_MAX)]
        return any(
            compare_values(node, exact[node.name], other[node.name], [], self._rounding).exceeds
            for others in limited
            for exact, other in zip(runs, others, strict=True)
        )


def is_nonfinite(expected: Any, actual: Any) -> bool:
    """True if a result is infinite or NaN where the expected one is finite.

    >>> is_nonfinite(torch.tensor([6e4, 1.0]), torch.tensor([float("nan"), 1.0]))
    True
    """
    a, b = to_float64(expected), to_float64(actual)
    return bool(a.shape == b.shape and np.any(np.isfinite(a) & ~np.isfinite(b)))


def _bound(node: fx.Node, values: dict[str, Any]) -> float:
    """The largest sum inside a product, in any order; the largest square of what norms and variances read."""
    classes = OPS.classes(node.target)
    if OpClass.OTHER in classes:
        return max((_magnitude(values[n.name]) ** 2 for n in node.all_input_nodes), default=0.0)
    if OpClass.PRODUCT not in classes:
        return 0.0
    args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: _absolute(values[n.name]))
    with torch.no_grad():
        return _magnitude(node.target(*args, **kwargs))  # type: ignore[operator]


def _absolute(value: Any) -> Any:
    return value.abs() if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def _magnitude(value: Any) -> float:
    """The largest finite magnitude of a float tensor; 0 for anything else."""
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return 0.0
    finite = value[torch.isfinite(value)]
    return float(finite.abs().max()) if finite.numel() else 0.0


class _RangeLimit(Visitor):
    """Records the operands and results of some operators. Results beyond ``largest`` become ``limit``."""

    def __init__(self, operators: Sequence[fx.Node], largest: float, limit: float) -> None:
        self._operators = {n.name for n in operators}
        self._names = self._operators | {n.name for operator in operators for n in operator.all_input_nodes}
        self._largest, self._limit = largest, limit
        self.values: dict[str, Any] = {}

    def visit(self, node: fx.Node, value: Any) -> Any:
        if node.name not in self._names or not isinstance(value, torch.Tensor):
            return value
        if node.name in self._operators and value.is_floating_point() and _magnitude(value) > self._largest:
            value = torch.where(value.abs() > self._largest, value.sign() * self._limit, value)
        self.values[node.name] = value.clone()
        return value

    def inside(self) -> Visitor:
        return Visitor()
