"""Infinity and NaN during calibration, which integers cannot represent.

Observers record the range of finite elements and count the others, which are reported with the module that computes
them before a model is converted. A value without any finite element has no range, which is an error.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx
from torchao.quantization.pt2e import MinMaxObserver

from edgewright.errors import AccuracyError
from edgewright.frontend.origin import describe_node, module_path

log = logging.getLogger("edgewright.quantize")

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
    finite, or if an observer of another kind has an infinite range."""
    for value, observer in _observed(prepared):
        if isinstance(observer, FiniteRange):
            if observer.left_out and not observer.seen:
                raise _no_range(_name(value), describe_node(value)[1])
            if observer.left_out and not observer.reported:
                _warn(_name(value), observer, describe_node(value)[1])
        elif not _has_range(observer):
            raise _no_range(_name(value), describe_node(value)[1])


def _observed(prepared: fx.GraphModule) -> Iterator[tuple[fx.Node, Any]]:
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


def _name(value: fx.Node) -> str:
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
