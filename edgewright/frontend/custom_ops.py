"""Operators of the user's own (``torch.library``): a call of one becomes a call of its out variant in the file.

The application brings the kernel, as with ExecuTorch; this machine computes the operator with torch while the process
that compiled it lasts, and elsewhere with ``register_kernel``.
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import torch

from edgewright.formats.operator_signatures import Signature, parse_signature
from edgewright.runtime.registry import all_kernels, register_kernel

log = logging.getLogger("edgewright.compile")
# Operators that come with torch and the runtimes: for them the runtime's list says what there is.
_KNOWN = frozenset({
    "aten", "dim_order_ops", "executorch_prim", "higher_order", "inductor", "prim", "prims", "quantized",
    "quantized_decomposed", "rngprims", "torchao",
})  # fmt: skip
_TYPES = {"Scalar": "number", "SymInt": "int", "List[SymInt]": "list[int]"}


def is_own(op: Any) -> bool:
    """True of an operator that a library of the user's defines."""
    return isinstance(op, torch._ops.OpOverload) and op.namespace not in _KNOWN


def out_variant(op: Any) -> Any:
    """The overload that computes the same into tensors it is given, or None."""
    packet = getattr(getattr(torch.ops, op.namespace), op._schema.name.partition("::")[2])
    wanted = _inputs(op)
    for name in packet.overloads():
        found = getattr(packet, name)
        outputs = [a for a in found._schema.arguments if a.is_out]
        if len(outputs) == len(op._schema.returns) > 0 and _inputs(found) == wanted:
            return found
    return None


def signature_of(op: Any) -> Signature | None:
    """How files call an operator of the user's own: None if it has no out variant, or takes what files cannot hold."""
    found = None if op._schema.is_mutable else out_variant(op)
    if found is None:
        return None
    schema = found._schema
    key = f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name
    inputs = [f"{a.name}: {_kind(str(a.type))}" for a in schema.arguments if not a.is_out]
    outputs = [f"{a.name}: Tensor!" for a in schema.arguments if a.is_out]
    return parse_signature(f"{key}({', '.join([*inputs, *outputs])})")


def missing_variant(op: Any) -> str:
    """The rule that an operator of the user's own breaks if it cannot be called from a file."""
    name = op._schema.name
    if op._schema.is_mutable:
        return "writes to its arguments: operators of your own must be functional, with an out variant"
    return f"is an operator of your own, and needs an out variant: define {name}.out(..., *, Tensor(a!) out) beside it"


def compute_here(op: Any, signature: Signature) -> None:
    """Let this process run the operator, by torch, unless a kernel is registered already; say whose kernel it is."""
    if signature.key not in all_kernels():
        log.warning("%s is an operator of your own: the application has to bring its kernel", signature.key)
        shown = ", ".join(f"{a.name}: {_text(a)}" for a in signature.args)
        register_kernel(f"{signature.key}({shown})", lambda *given: _computed(op, given))


def _computed(op: Any, given: tuple[Any, ...]) -> Any:
    with torch.no_grad():
        result = op(*(_tensors(value) for value in given))
    arrays = [r.contiguous().numpy() for r in (result if isinstance(result, tuple | list) else (result,))]
    return arrays[0] if len(arrays) == 1 else tuple(arrays)


def _tensors(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return torch.from_numpy(np.ascontiguousarray(value))
    return [_tensors(v) for v in value] if isinstance(value, list | tuple) else value


def _inputs(op: Any) -> list[tuple[str, str]]:
    return [(a.name, str(a.type)) for a in op._schema.arguments if not a.is_out]


def _kind(kind: str) -> str:
    """A type of torch's, as signatures of the runtime write it."""
    if kind.startswith("Optional["):
        return f"opt[{_kind(kind[9:-1])}]"
    if kind.startswith("List["):
        return _TYPES.get(kind) or f"list[{_kind(kind[5:-1])}]"
    return _TYPES.get(kind, kind)


def _text(argument: Any) -> str:
    kind = f"opt[{argument.kind.value}]" if argument.optional else argument.kind.value
    return f"{kind}!" if argument.written else kind
