"""The kernel registry: one row per operator, and the one adapter that calls them all.

A kernel is a plain function of numpy arrays and Python values: the operator's inputs in order, without its
``out`` arguments. It returns the result (or a tuple of them), and the adapter stores that in the planned
output, in the output's type, shape and dim order. ``shape`` computes the result's shape from the same
arguments and is asked first, so that nothing larger than the planned memory is ever computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from edgewright.errors import UsageError
from edgewright.formats.operator_signatures import Signature, operators, parse_signature
from edgewright.runtime.arguments import check_callable, check_instance
from edgewright.runtime.tensor import TensorSlot

Function = Callable[..., Any]
F = TypeVar("F", bound=Function)


@dataclass(frozen=True)
class Kernel:
    """One row: the operator's key and signature (None: taken from the call), its meaning, its result's shape."""

    key: str
    signature: Signature | None
    fn: Function
    shape: Function | None
    raw: bool = False  # fn works on the tensors of the plan themselves, not on arrays
    stock: bool = False  # it is ours, so anything that computes the same may take its place

    @cached_property
    def pure(self) -> bool:
        """True if a call changes nothing but its outputs."""
        signature = self.signature
        return signature is not None and bool(signature.outputs) and not any(a.written for a in signature.inputs)

    def __call__(self, inputs: Sequence[Any], outputs: Sequence[TensorSlot]) -> Any:
        """Run on ``inputs`` and leave the results in ``outputs``; an operator without outputs returns its result."""
        if self.raw:
            return self.fn(*inputs, *outputs)
        if self.shape is not None:
            shapes = self.shape(*inputs)
            shapes = shapes if isinstance(shapes, list) else [shapes]
            for slot, shape in zip(outputs, shapes, strict=True):
                if shape is not None:  # None: an output the call did not ask for
                    slot.resize(tuple(map(int, shape)))
            if self.pure and all(shape is None or 0 in shape for shape in shapes):
                return None  # nothing to compute, and no memory that would bound what the other sizes cost
        result = self.fn(*inputs)
        if not outputs:
            return result
        results = result if isinstance(result, tuple | list) else (result,)
        for slot, value in zip(outputs, results, strict=True):
            if value is not None:
                slot.store(value)
        return None


_KERNELS: dict[str, Kernel] = {}


def all_kernels() -> dict[str, Kernel]:
    """The registry, filled. A program that is all delegates needs none of it."""
    import edgewright.runtime.kernels  # noqa: F401

    return _KERNELS


if TYPE_CHECKING:
    KERNELS: dict[str, Kernel]


def __getattr__(name: str) -> dict[str, Kernel]:
    if name == "KERNELS":
        return all_kernels()
    raise AttributeError(name)


def row(key: str, fn: Function, shape: Function | None, *, raw: bool = False) -> None:
    """Add a kernel for an operator of the stock list. ``shape`` is None only where the data decides."""
    _KERNELS[key] = Kernel(key, operators()[key], fn, shape, raw, stock=True)


def kernel(key: str, shape: Function | None) -> Callable[[F], F]:
    """``row`` as a decorator, for a kernel that is written where it is registered."""

    def register(fn: F) -> F:
        row(key, fn, shape)
        return fn

    return register


def register_kernel(operator: str, fn: Function, *, shape: Function | None = None) -> None:
    """Add a kernel of your own, or replace one.

    ``operator`` is a name (``"my::op.out"``) or a full signature (``"my::op.out(x: Tensor, out: Tensor!)"``).
    With a name alone the arguments are passed as the file has them. ``fn`` takes the inputs as numpy arrays and
    Python values and returns the result.

    >>> register_kernel("doc::twice.out", lambda x: 2 * x)
    """
    check_instance("register_kernel: operator", operator, str)
    check_callable("register_kernel: fn", fn)
    if shape is not None:
        check_callable("register_kernel: shape", shape)
    signature = parse_signature(operator) if "(" in operator else operators().get(operator)
    key = signature.key if signature else operator
    if "::" not in key:
        raise UsageError("register_kernel", "an operator is named 'namespace::op.overload'", value=operator)
    all_kernels()[key] = Kernel(key, signature, fn, shape)
