"""Infinity and NaN during calibration, which integers cannot represent.

Observers record the range of finite elements and count the others, which are reported with the module that computes
them before a model is converted. A value without any finite element has no range, which is an error.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import fx
from torchao.quantization.pt2e import MinMaxObserver

from edgewright.errors import AccuracyError
from edgewright.frontend.origin import describe_node, module_path

log = logging.getLogger("edgewright.quantize")
aten = torch.ops.aten

_REMEDY = (
    "Integers cannot represent infinity or NaN: look for log(0), a division by 0 or an overflow, and clamp it; or "
    "leave the module in floating point."
)


class FiniteRange:
    """Mixin for observers: observes finite elements only; ``left_out`` counts the others."""

    left_out = 0
    seen = 0  # finite elements
    reported = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        finite = x.detach().isfinite()
        count = int(finite.count_nonzero())
        self.seen += count
        if count == x.numel():
            return super().forward(x)  # type: ignore[misc, no-any-return]
        self.left_out += x.numel() - count
        if count:
            super().forward(x.detach()[finite])  # type: ignore[misc]
        return x

    def calculate_qparams(self) -> Any:
        self.report_unnamed()
        return super().calculate_qparams()  # type: ignore[misc]

    def report_unnamed(self) -> None:
        """Report without a name, for models that torchao itself converts: an observer does not know its node."""
        if self.left_out and not self.seen:
            raise _no_range("a value")
        if self.left_out and not self.reported:
            _warn("a value", self, "")


class FiniteMinMaxObserver(FiniteRange, MinMaxObserver):  # type: ignore[misc]
    """``MinMaxObserver`` of finite elements."""


def report_nonfinite(prepared: fx.GraphModule) -> None:
    """Warn of each value that was partly infinite or NaN during calibration, with its module; raise if no element was
    finite, or if an observer of another kind has an infinite range. The borders of a maximum are no fault."""
    values_of: dict[Any, list[fx.Node]] = {}
    for value, observer in observed_values(prepared):
        values_of.setdefault(observer, []).append(value)
    for observer, values in values_of.items():
        name, where = value_name(values[0]), describe_node(values[0])[1]
        if isinstance(observer, FiniteRange):
            if observer.left_out and not observer.seen:
                raise _no_range(name, where)
            observer.reported |= observer.left_out <= _border_elements(observer, values)
            if observer.left_out and not observer.reported:
                _warn(name, observer, where)
        elif not _has_range(observer):
            raise _no_range(name, where)


def _border_elements(observer: FiniteRange, values: Sequence[fx.Node]) -> int:
    """How many of an observer's elements padded a maximum with minus infinity, which integers do with the smallest."""
    shapes = [tuple(value.meta["val"].shape) for value in values if "val" in value.meta]
    if len(shapes) != len(values) or not all(isinstance(size, int) for shape in shapes for size in shape):
        return 0
    added = sum(_border_size(value, shape) for value, shape in zip(values, shapes, strict=True) if _pads_maximum(value))
    calls = (observer.left_out + observer.seen) // max(1, sum(map(math.prod, shapes)))
    return calls * added


def _pads_maximum(value: fx.Node) -> bool:
    if value.target not in (aten.pad.default, aten.constant_pad_nd.default) or value.args[-1] != -math.inf:
        return False
    readers = [reader for user in value.users for reader in (user.users if user.op == "call_module" else (user,))]
    return all("max_pool" in str(reader.target) for reader in readers)


def _border_size(pad: fx.Node, shape: tuple[int, ...]) -> int:
    """How many elements a padding adds."""
    widths: Any = pad.args[1]
    inner = list(shape)
    for at in range(0, len(widths), 2):
        inner[-1 - at // 2] -= widths[at] + widths[at + 1]
    return math.prod(shape) - math.prod(inner)


def observed_values(prepared: fx.GraphModule) -> Iterator[tuple[fx.Node, Any]]:
    """The observed nodes and their observers, also in branches and loop bodies."""
    for module in prepared.modules():
        for node in module.graph.nodes if isinstance(module, fx.GraphModule) else ():
            if node.op == "call_module" and node.args and isinstance(node.args[0], fx.Node):
                called = module.get_submodule(node.target)
                observer = getattr(called, "activation_post_process", called)  # a fake quantizer contains an observer
                if hasattr(observer, "calculate_qparams"):
                    yield node.args[0], observer


def _has_range(observer: Any) -> bool:
    """False if a bound is infinite or NaN; an unused observer's range is from infinity to minus infinity."""
    low, high = (getattr(observer, name, None) for name in ("min_val", "max_val"))
    if not isinstance(low, torch.Tensor) or not isinstance(high, torch.Tensor):
        return True
    unused = (low == torch.inf) & (high == -torch.inf)
    return bool((unused | (low.isfinite() & high.isfinite())).all())


def value_name(value: fx.Node) -> str:
    path = module_path(value)
    if value.op == "placeholder":
        return f"input {value.name!r}"
    if value.op == "get_attr":
        return f"constant {value.target!r}"
    return f"{value.name!r} in module {path!r}" if path else f"{value.name!r}"


def _warn(subject: str, observer: FiniteRange, where: str) -> None:
    observer.reported = True
    total = observer.left_out + observer.seen
    message = "%s was infinite or NaN in %d of %d elements during calibration; its range is that of the others. %s"
    log.warning(message, subject, observer.left_out, total, " ".join(filter(None, (_REMEDY, where))))


def _no_range(subject: str, where: str = "") -> AccuracyError:
    rule = "must be finite to be quantized"
    value = "infinity or NaN during calibration"
    return AccuracyError(subject, rule, value=value, remedy=" ".join(filter(None, (_REMEDY, where))))
