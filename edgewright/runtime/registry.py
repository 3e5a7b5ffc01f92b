"""The kernel registry: one entry per operator, stock or custom."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgewright.errors import UsageError
from edgewright.formats.operator_signatures import operators, parse_signature
from edgewright.runtime.arguments import check_callable, check_instance
from edgewright.runtime.kernel import REGISTERED, Function, Kernel

_KERNELS = REGISTERED


def all_kernels() -> dict[str, Kernel]:
    """The registry, loaded on first use. A program of delegates only needs none of it."""
    import edgewright.runtime.llama_kernels
    import edgewright.runtime.stock_kernels  # noqa: F401

    return _KERNELS


if TYPE_CHECKING:
    KERNELS: dict[str, Kernel]


def __getattr__(name: str) -> dict[str, Kernel]:
    if name == "KERNELS":
        return all_kernels()
    raise AttributeError(name)


def register_kernel(operator: str, fn: Function, *, shape: Function | None = None) -> None:
    """Add a kernel for a custom operator, or replace one.

    ``operator`` is a name (``"my::op.out"``) or a full signature (``"my::op.out(x: Tensor, out: Tensor!)"``). With a
    name alone the arguments are passed as they are in the file. ``fn`` takes the inputs as numpy arrays and Python
    values and returns the result.

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
