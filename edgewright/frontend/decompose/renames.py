"""Renames: operators that have an equivalent of the same arguments."""

from __future__ import annotations

from typing import Any

import torch

from edgewright.formats.operator_signatures import OPERATORS

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
RENAMES.update(
    {
        aten.__lshift__.Scalar: aten.bitwise_left_shift.Tensor_Scalar,
        aten.__rshift__.Scalar: aten.bitwise_right_shift.Tensor_Scalar,
        aten.__lshift__.Tensor: aten.bitwise_left_shift.Tensor,
        aten.__rshift__.Tensor: aten.bitwise_right_shift.Tensor,
        aten.__and__.Scalar: aten.bitwise_and.Scalar,
        aten.__or__.Scalar: aten.bitwise_or.Scalar,
        aten.__xor__.Scalar: aten.bitwise_xor.Scalar,
        aten.__and__.Tensor: aten.bitwise_and.Tensor,
        aten.__or__.Tensor: aten.bitwise_or.Tensor,
        aten.__xor__.Tensor: aten.bitwise_xor.Tensor,
    }
)
