"""Kernel resolution at compile time: maps functional operators to the out-variant kernels of the target's runtime."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from functools import cache, cached_property
from typing import Any

import torch

from edgewright.backends.table import Backend
from edgewright.errors import UsageError
from edgewright.formats.executorch_releases import (
    BUILDS,
    OLDEST,
    RELEASES,
    RUNTIMES,
    first_release,
    operators_of,
    split_runtime,
)
from edgewright.formats.operator_signatures import OPERATORS, Signature
from edgewright.frontend.custom_ops import is_custom_op, register_host_kernel, signature_of
from edgewright.frontend.decompose.quantized_embedding import KERNELS, NAMESPACE
from edgewright.hints import did_you_mean
from edgewright.ir.aten.ops import OPS
from edgewright.ir.aten.table import OpDef

aten = torch.ops.aten

_QUANTIZED = frozenset(k for k in OPERATORS if k.startswith("quantized_decomposed::"))
_LLAMA = frozenset(k for k in OPERATORS if k.startswith("llama::"))  # extension_llm_custom_ops
_OPTIMIZED = frozenset({"aten::linear.out", "aten::_fft_c2r.out", "aten::_fft_r2c.out"})  # no portable kernel
_COPIES = frozenset(k for k in OPERATORS if k.startswith("et_copy::"))  # between a CPU and a GPU

# What a build of a published runtime leaves out. The wheel registers quantized kernels and those of language models on
# import, the Android package contains them, and iOS apps link the kernels_optimized, kernels_quantized and kernels_llm
# frameworks. The runner for bare metal (examples/arm) links the portable and the quantized kernels.
_LEFT_OUT: dict[str, frozenset[str]] = {
    "wheel": frozenset(), "android": frozenset(), "ios": frozenset(), "cortex-m": _LLAMA | _OPTIMIZED | _COPIES,
    "portable-only": _QUANTIZED | _LLAMA | _OPTIMIZED,
}  # fmt: skip

PRIMS: dict[Any, str] = {
    operator.add: "add", operator.sub: "sub", operator.mul: "mul", operator.truediv: "truediv",
    operator.floordiv: "floordiv", operator.mod: "mod", operator.neg: "neg", operator.eq: "eq", operator.gt: "gt",
    operator.lt: "lt", operator.ge: "ge", operator.le: "le", torch.sym_max: "sym_max", torch.sym_min: "sym_min",
    torch.sym_float: "sym_float", torch.sym_int: "sym_int", torch.sym_not: "sym_not", torch.sym_ite: "sym_ite",
}  # fmt: skip


class KernelSet:
    """The operators of a runtime, and the mapping of functional operators to them. ``name``: ``android-1.0``, with the
    release also if it was left to the default."""

    def __init__(self, keys: Iterable[str], name: str = "custom") -> None:
        self.name = name
        self.keys = frozenset(keys)
        unknown = sorted(self.keys - set(OPERATORS))
        if unknown:
            raise UsageError(f"kernel list {name!r}", "names operators without a known signature", value=unknown[:5])
        self._resolved: dict[Any, Signature | None] = {}

    def supports(self, op: Any) -> bool:
        """True if ``op`` has a kernel (or is arithmetic on sizes). A reshape rarely needs one: it is elided."""
        return self.resolve(op) is not None or op in (operator.getitem, aten.view_copy.default)

    def resolve(self, op: Any) -> Signature | None:
        """The kernel of a functional operator, or None."""
        try:
            return self._resolved[op]
        except KeyError:
            self._resolved[op] = signature = self._search(op)
            return signature

    def by_kind(self, kind: str) -> Signature | None:
        """The kernel of an operator by its ``ir.Op.kind``."""
        return self.resolve(_op_by_kind(kind))

    def remedy(self, op: Any) -> str:
        """How to get a kernel for an operator that has none here: the release that added it, if one did."""
        key = _key(op)
        if key not in OPERATORS or key in self.keys or self.name == "custom":
            return ""
        build, release = split_runtime(self.name)
        first = first_release(key)
        if key in _LEFT_OUT[build] or first == release:
            return ""
        return f"It needs ExecuTorch {first} or newer: pass runtime='{build}-{first}' if your app has that."

    def remedy_by_kind(self, kind: str) -> str:
        """``remedy`` of an operator by its ``ir.Op.kind``."""
        return self.remedy(_op_by_kind(kind))

    def _search(self, op: Any) -> Signature | None:
        if is_custom_op(op):
            signature = signature_of(op)
            if signature is not None:
                register_host_kernel(op, signature)
            return signature
        key = _key(op)
        return OPERATORS[key] if key in self.keys else None

    @cached_property
    def operators(self) -> list[str]:
        return sorted(self.keys)


def kernel_set(runtime: str | Sequence[str]) -> KernelSet:
    """The kernels of a runtime: a build of a release (``android-1.3``; ``android`` is that of the oldest release), or a
    custom list of operators. Quantizing and lowering for a runtime decompose what has no kernel in it."""
    if not isinstance(runtime, str | Sequence):
        rule = "must be the name of a runtime, or a list of operators"
        raise UsageError("runtime", rule, value=type(runtime).__name__, remedy='For example runtime="android".')
    return _kernel_set(runtime if isinstance(runtime, str) else tuple(runtime))


@cache
def _kernel_set(runtime: str | tuple[str, ...]) -> KernelSet:
    if isinstance(runtime, tuple):
        return KernelSet(runtime)
    if runtime not in RUNTIMES:
        rule = f"must be one of {', '.join(BUILDS)}, alone or with a release from {RELEASES[0]} to {RELEASES[-1]}"
        remedy = f"{did_you_mean(runtime, RUNTIMES)} For example android-{RELEASES[-1]}.".lstrip()
        raise UsageError("runtime", rule, value=runtime, remedy=remedy)
    build, release = split_runtime(runtime)
    return KernelSet(operators_of(release) - _LEFT_OUT[build], f"{build}-{release}")


def _key(op: Any) -> str:
    """The key of an operator's kernel, whoever has one; empty if nobody does."""
    if op in PRIMS:
        return f"executorch_prim::{PRIMS[op]}.Scalar"
    if not isinstance(op, torch._ops.OpOverload):
        return ""
    return _functional_keys().get(str(op), "")


@cache
def _functional_keys() -> dict[str, str]:
    """Functional operators, and the keys of their kernels."""
    keys = {signature.functional: key for key, signature in OPERATORS.items() if signature.functional}
    embeddings = {f"{NAMESPACE}.{name}.default": f"quantized_decomposed::{name}.out" for name in KERNELS.values()}
    return {**keys, **embeddings, "aten.item.default": "aten::_local_scalar_dense"}


@cache
def _op_by_kind(kind: str) -> Any:
    for function in PRIMS:
        module = (getattr(function, "__module__", "") or "").lstrip("_")
        if kind == f"{module}.{function.__name__}":
            return function
    namespace, _, rest = kind.partition(".")
    name, _, overload = rest.partition(".")
    packet = getattr(getattr(torch.ops, namespace, None), name, None)
    return getattr(packet, overload, None)


@cache
def composites(backend: Backend) -> frozenset[Any]:
    """The operators of a backend's rows that quantizing and lowering for it do not decompose: composite ones, and those
    that only newer runtimes have kernels for, so that what a backend supports does not depend on the runtime."""
    rows = [(OPS[name], spec) for name, spec in backend.rows.items() if name in OPS]
    kept = [row for row, spec in rows if row.composite or spec.no_decompose or _has_newer_kernel(row)]
    return frozenset(_op_by_kind(overload) for row in kept for overload in row.aten)


def _has_newer_kernel(row: OpDef) -> bool:
    return any(first_release(_functional_keys().get(overload, "")) != OLDEST for overload in row.aten)
