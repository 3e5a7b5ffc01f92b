"""Calls of the op table's overloads: arguments by name, what eager torch makes of them, and what the row does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
import torchao.quantization.quant_primitives  # noqa: F401  (declares its operators)
from torch.ao.quantization.fx import _decomposed  # noqa: F401  (declares its operators)

from edgewright.formats.executorch_releases import NEWEST
from edgewright.frontend.importer import named_arguments
from edgewright.frontend.tensors import DTYPES
from edgewright.ir.aten.ops import OPS
from edgewright.ir.aten.table import OpDef
from edgewright.ir.dtypes import to_numpy, to_scalar_type
from edgewright.ir.graph import Op, Value
from edgewright.lowering.kernel_resolution import kernel_set
from tests.ir.aten.harness import TORCH, Sample, all_samples, to_array, to_torch
from tests.ir.aten.overload_samples import CALLS


@dataclass(frozen=True)
class Call:
    """One call of one overload; ``args`` as an imported operator has them, but with arrays for values."""

    overload: str
    args: dict[str, Any]
    sample: Sample

    def row(self) -> OpDef | None:
        return OPS.of(Op(self.overload, {n: _value(v) for n, v in self.args.items()}, []))


def _value(arg: Any) -> Any:
    return Value("", arg.dtype, arg.shape) if isinstance(arg, np.ndarray) else arg


def overload_named(name: str) -> Any:
    namespace, packet, overload = name.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), packet), overload)


def torch_argument(value: Any, kind: str) -> Any:
    if "ScalarType" in kind and isinstance(value, int):
        return TORCH[str(to_numpy(value))]
    return to_torch(value)


def _own(value: Any) -> Any:
    return int(to_scalar_type(DTYPES[value])) if isinstance(value, torch.dtype) else value


def named(overload: str, positional: list[Any], keyword: dict[str, Any]) -> dict[str, Any]:
    """By name, defaults filled in by the importer itself; types as numbers."""
    op = overload_named(overload)
    return {n: _own(v) for n, v in named_arguments(op, tuple(positional), keyword).items()}


def eager(call: Call) -> list[np.ndarray]:
    """The results of the overload itself, by its own arguments."""
    op = overload_named(call.overload)
    arguments = {a.name: a for a in op._schema.arguments}
    given = {n: torch_argument(v, str(arguments[n].real_type)) for n, v in call.args.items()}
    if "memory_format" in given and not isinstance(given["memory_format"], torch.memory_format):
        del given["memory_format"]  # a number, as schemas write their default
    positional = [v for n, v in given.items() if not arguments[n].kwarg_only]
    result = op(*positional, **{n: v for n, v in given.items() if arguments[n].kwarg_only})
    results = result if isinstance(result, tuple | list) else [result]
    return [to_array(r) if isinstance(r, torch.Tensor) else np.asarray(r) for r in results]


@cache
def _kernel_samples() -> dict[str, list[Sample]]:
    found: dict[str, list[Sample]] = {}
    for sample in all_samples():
        found.setdefault(sample.key, []).append(sample)
    return found


def _of_kernel(overload: str) -> Iterator[Call]:
    """The samples of the overload's kernel; those of a view are its copy's."""
    kernels = kernel_set(f"wheel-{NEWEST}")
    namespace, packet, name = overload.split(".")
    signature = kernels.by_kind(overload)
    if signature is None and hasattr(torch.ops.aten, f"{packet}_copy"):
        copy = f"{namespace}.{packet}_copy.{name}"
        signature = kernels.by_kind(copy) if name in getattr(torch.ops.aten, f"{packet}_copy").overloads() else None
    if signature is None:
        return
    known = {a.name for a in overload_named(overload)._schema.arguments}
    for sample in _kernel_samples().get(signature.key, []):
        given = {a.name: v for a, v in zip(signature.inputs, sample.args, strict=True) if a.name in known}
        if packet == "view":  # eager's takes no copy
            given["self"] = given["self"].copy(order="C")
        yield Call(overload, named(overload, [], given), sample)


def _own_calls(overload: str) -> Iterator[Call]:
    for args in CALLS.get(overload, []):
        keyword = args[-1] if args and isinstance(args[-1], dict) else {}
        given = named(overload, args[:-1] if keyword else args, keyword)
        yield Call(overload, given, Sample(overload, args))


def calls_of(row: OpDef, overload: str) -> list[Call]:
    """Calls of an overload that belong to the row."""
    return [c for c in (*_of_kernel(overload), *_own_calls(overload)) if c.row() is row]
