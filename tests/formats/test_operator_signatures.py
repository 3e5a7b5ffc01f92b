"""The stock runtime's operators: out variants and the functional operators that they compute."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.ao.quantization.fx import _decomposed  # noqa: F401  (declares the operators)

from edgewright.formats.operator_signatures import OPERATORS

# Arguments of functional operators that describe the output; out variants read it from the output tensor.
_OUTPUT_ONLY = {"dtype", "layout", "device", "pin_memory"}


def _inputs(op: Any, exact: bool) -> list[tuple[str, str]]:
    arguments = [a for a in op._schema.arguments if not a.is_out and (exact or a.name not in _OUTPUT_ONLY)]
    return [(a.name, str(a.type)) for a in arguments]


def _functional_by_schema(packet: Any, out: Any) -> str:
    """The overload whose inputs are those of an out variant, by torch's schemas."""
    for exact in (True, False):
        for overload in packet.overloads():
            op = getattr(packet, overload)
            if not op._schema.is_mutable and _inputs(op, exact) == _inputs(out, exact):
                return str(op)
    return ""


@pytest.mark.parametrize("key", [key for key in OPERATORS if key.startswith("aten::") and "." in key])
def test_functional_operator_has_the_inputs_of_its_out_variant(key: str) -> None:
    name, _, overload = key.removeprefix("aten::").partition(".")
    packet = getattr(torch.ops.aten, name)
    if name != "sym_size":  # returns a number: it has no out variant
        assert OPERATORS[key].functional == _functional_by_schema(packet, getattr(packet, overload))


def test_quantization_operators_have_functional_operators() -> None:
    library = torch.ops.quantized_decomposed
    for key in ("quantize_per_tensor.Tensor_out", "dequantize_per_channel.out", "choose_qparams.Tensor_out"):
        name, _, overload = OPERATORS[f"quantized_decomposed::{key}"].functional.split(".", 1)[1].partition(".")
        assert overload in getattr(library, name).overloads()


def test_kernels_that_write_their_inputs_have_no_functional_operator() -> None:
    assert OPERATORS["aten::copy_"].functional == OPERATORS["aten::_native_batch_norm_legit.out"].functional == ""
