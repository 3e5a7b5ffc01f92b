"""Custom operators (``torch.library``): a call becomes a call of the operator's out variant in the file.

The application provides the kernel, as with ExecuTorch. On the host, the process that compiled the model runs the
operator with torch; other processes need ``register_kernel``.
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import torch

from edgewright.formats.operator_signatures import Signature, parse_signature
from edgewright.runtime.registry import all_kernels, register_kernel

log = logging.getLogger("edgewright.compile")
# Namespaces of torch and the runtimes, whose operators the kernel set lists.
_BUILTIN_NAMESPACES = frozenset({
    "aten", "dim_order_ops", "edgewright", "executorch_prim", "higher_order", "inductor", "prim", "prims", "quantized",
    "quantized_decomposed", "rngprims", "torchao",
})  # fmt: skip
_TYPE_NAMES = {"Scalar": "number", "SymInt": "int", "List[SymInt]": "list[int]"}


def is_custom_op(op: Any) -> bool:
    """True for an operator outside the built-in namespaces."""
    return isinstance(op, torch._ops.OpOverload) and op.namespace not in _BUILTIN_NAMESPACES


def out_variant(op: Any) -> Any:
    """The overload that writes the same results to ``out`` arguments, or None."""
    packet = getattr(getattr(torch.ops, op.namespace), op._schema.name.partition("::")[2])
    types = _input_types(op)
    for name in packet.overloads():
        overload = getattr(packet, name)
        outputs = [a for a in overload._schema.arguments if a.is_out]
        if len(outputs) == len(op._schema.returns) > 0 and _input_types(overload) == types:
            return overload
    return None


def signature_of(op: Any) -> Signature | None:
    """The runtime signature of a custom operator; None if it has no out variant or mutates its arguments."""
    variant = None if op._schema.is_mutable else out_variant(op)
    if variant is None:
        return None
    schema = variant._schema
    key = f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name
    inputs = [f"{a.name}: {_signature_type(str(a.type))}" for a in schema.arguments if not a.is_out]
    outputs = [f"{a.name}: Tensor!" for a in schema.arguments if a.is_out]
    return parse_signature(f"{key}({', '.join([*inputs, *outputs])})")


def missing_out_variant(op: Any) -> str:
    """The error message for a custom operator that cannot be called from a file."""
    name = op._schema.name
    if op._schema.is_mutable:
        return "writes to its arguments: custom operators must be functional, with an out variant"
    return f"is a custom operator and needs an out variant: define {name}.out(..., *, Tensor(a!) out) beside it"


def register_host_kernel(op: Any, signature: Signature) -> None:
    """Register a torch kernel for the operator in this process, unless one is registered, and warn that the
    application must provide its own."""
    if signature.key not in all_kernels():
        log.warning("%s is a custom operator: the application has to provide its kernel", signature.key)
        arguments = ", ".join(f"{a.name}: {_argument_text(a)}" for a in signature.args)
        register_kernel(f"{signature.key}({arguments})", lambda *inputs: _run_with_torch(op, inputs))


def _run_with_torch(op: Any, inputs: tuple[Any, ...]) -> Any:
    with torch.no_grad():
        result = op(*(_to_tensors(value) for value in inputs))
    arrays = [r.contiguous().numpy() for r in (result if isinstance(result, tuple | list) else (result,))]
    return arrays[0] if len(arrays) == 1 else tuple(arrays)


def _to_tensors(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return torch.from_numpy(np.ascontiguousarray(value))
    return [_to_tensors(v) for v in value] if isinstance(value, list | tuple) else value


def _input_types(op: Any) -> list[tuple[str, str]]:
    return [(a.name, str(a.type)) for a in op._schema.arguments if not a.is_out]


def _signature_type(kind: str) -> str:
    """A torch schema type in the notation of runtime signatures."""
    if kind.startswith("Optional["):
        return f"opt[{_signature_type(kind[9:-1])}]"
    if kind.startswith("List["):
        return _TYPE_NAMES.get(kind) or f"list[{_signature_type(kind[5:-1])}]"
    return _TYPE_NAMES.get(kind, kind)


def _argument_text(argument: Any) -> str:
    kind = f"opt[{argument.kind.value}]" if argument.optional else argument.kind.value
    return f"{kind}!" if argument.is_write else kind
