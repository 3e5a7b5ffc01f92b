"""Kernels: the adapter that calls an operator's implementation, and the registration of the stock ones.

A kernel is a function of numpy arrays and Python values: the operator's inputs in order, without its ``out`` arguments.
It returns the result (or a tuple of them), which the adapter stores in the planned output, with that output's dtype,
shape and dim order. ``shape`` computes the result's shape from the same arguments; it runs first, so that a kernel
never computes more than the planned memory holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from edgewright.formats.operator_signatures import Signature, operators, parse_signature
from edgewright.runtime.tensor import TensorSlot

Function = Callable[..., Any]
F = TypeVar("F", bound=Function)


@dataclass(frozen=True)
class Kernel:
    """An entry: key, signature (None: inferred from the call), implementation, and shape function."""

    key: str
    signature: Signature | None
    fn: Function
    shape: Function | None
    raw: bool = False  # fn takes TensorSlots, not arrays
    stock: bool = False  # built in, so the engine may replace it

    @cached_property
    def pure(self) -> bool:
        """True if a call writes nothing but its outputs."""
        signature = self.signature
        return signature is not None and bool(signature.outputs) and not any(a.is_write for a in signature.inputs)

    def __call__(self, inputs: Sequence[Any], outputs: Sequence[TensorSlot]) -> Any:
        """Run on ``inputs`` and store the results in ``outputs``; an operator without outputs returns its result."""
        if self.raw:
            return self.fn(*inputs, *outputs)
        if self.shape is not None:
            shapes = self.shape(*inputs)
            shapes = shapes if isinstance(shapes, list) else [shapes]
            for slot, shape in zip(outputs, shapes, strict=True):
                if shape is not None:  # None: an output that was not requested
                    slot.resize(tuple(map(int, shape)))
            if self.pure and all(shape is None or 0 in shape for shape in shapes):
                return None  # empty results: no planned memory bounds the cost of computing them
        result = self.fn(*inputs)
        if not outputs:
            return result
        results = result if isinstance(result, tuple | list) else (result,)
        for slot, value in zip(outputs, results, strict=True):
            if value is not None:
                slot.store(value)
        return None


REGISTERED: dict[str, Kernel] = {}  # read it through ``registry.all_kernels``, which fills it


def register(key: str, fn: Function, shape: Function | None, *, raw: bool = False) -> None:
    """Register a kernel for an operator of the stock list. ``shape`` is None only if the result's shape depends on
    data."""
    assert key not in REGISTERED, f"{key} has a kernel already"
    REGISTERED[key] = Kernel(key, operators()[key], fn, shape, raw, stock=True)


def register_signature(signature: str, fn: Function, shape: Function) -> None:
    """Register a kernel for an operator outside the stock list, of which this is the full signature."""
    parsed = parse_signature(signature)
    REGISTERED[parsed.key] = Kernel(parsed.key, parsed, fn, shape)


def kernel(key: str, shape: Function | None) -> Callable[[F], F]:
    """Decorator form of ``register``."""

    def decorate(fn: F) -> F:
        register(key, fn, shape)
        return fn

    return decorate
