"""Renames: operators that have an equivalent of the same arguments."""

from __future__ import annotations

from typing import Any

import torch

from edgewright.formats.operator_signatures import OPERATORS
from edgewright.ir.aten.ops import OPS

aten = torch.ops.aten


def _view_copy_ops() -> dict[Any, Any]:
    """View operators and their copying variants: the memory planner shares storage later where that is safe."""
    copies = {}
    for signature in OPERATORS.values():
        namespace, _, name = signature.functional.partition(".")
        packet, _, overload = name.partition(".")
        view = getattr(aten, packet.removesuffix("_copy"), None)
        if namespace == "aten" and packet.endswith("_copy") and view is not None:
            copies[getattr(view, overload)] = getattr(getattr(aten, packet), overload)
    return copies


RENAMES: dict[Any, Any] = _view_copy_ops()
RENAMES[aten._unsafe_view.default] = aten.view_copy.default
RENAMES[aten.reshape.default] = aten.view_copy.default
RENAMES[aten.adaptive_avg_pool2d.default] = aten._adaptive_avg_pool2d.default
RENAMES[aten.clip.default] = aten.clamp.default
RENAMES[aten.true_divide.Tensor] = aten.div.Tensor
for _op in (aten.detach.default, aten.alias.default, aten.lift_fresh.default):  # identities
    RENAMES.pop(_op, None)
for _row in OPS.values():
    for _namespace, _name, _overload in (overload.split(".") for overload in _row.aten):
        if _name.startswith("__"):  # Python's operators: ``__and__`` is ``bitwise_and``
            _packet = getattr(aten, _row.name)
            RENAMES[getattr(getattr(aten, _name), _overload)] = (
                getattr(_packet, _overload) if _overload in _packet.overloads() else _packet.Tensor_Scalar
            )
