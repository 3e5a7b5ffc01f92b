"""Delegates: what executes the subgraphs that a backend compiled. ``backends/registry.py`` finds them by id."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from edgewright.backends import registry
from edgewright.errors import ExecutionError, MissingDelegateError, UsageError
from edgewright.formats.flatbuffer import Buffer
from edgewright.ir.graph import Graph
from edgewright.runtime.arguments import check_callable, check_instance

if TYPE_CHECKING:
    from edgewright.engine.profile import Profile

Array = np.ndarray[Any, Any]


class Delegate(Protocol):
    """A loaded blob."""

    @property
    def input_count(self) -> int:
        """How many arguments of a call are inputs; the others are outputs."""
        ...

    def execute(self, inputs: Sequence[Array]) -> Sequence[Array]:
        """The outputs for ``inputs``."""
        ...

    def close(self) -> None:
        """Release the delegate's resources."""
        ...


@dataclass(frozen=True)
class DelegateBlob:
    """One delegate of a file: its bytes, compile specs, and the named data it may look up.

    ``memory``: limit in bytes for its values. ``twin``: returns the host twin of the blob with a SHA-256, or None; for
    backends whose blobs run only on a device. ``twins_digest``: digest of everything that twins are read from, empty if
    unknown. ``threads``: how many to use, None for the default. ``dynamic``: shapes are dynamic. ``method``: the method
    that calls it, for backends whose blobs serve several. ``deferred``: compilation is deferred to ``prepare``, because
    a segment may inline the delegate's graph.
    """

    backend: str
    blob: Buffer
    compile_specs: Mapping[str, bytes]
    named_data: Mapping[str, Buffer]
    memory: int = 4 << 30
    twin: Callable[[str], Graph | None] = lambda digest: None
    threads: int | None = None
    dynamic: bool = False
    method: str = "forward"
    deferred: bool = False
    twins_digest: Callable[[], str] = lambda: ""


@dataclass(frozen=True)
class ResultSpec:
    """A tensor that a delegate writes: dtype, shape, and dim order."""

    dtype: Any
    shape: tuple[int, ...]
    order: tuple[int, ...]


def invoke(
    delegate: Delegate, inputs: Sequence[Array], orders: Sequence[Sequence[int]], results: Sequence[ResultSpec]
) -> list[Array]:
    """Execute a delegate on inputs and outputs in logical dimension order.

    A delegate with ``storage_order`` works on tensors in memory order. One with ``raw_outputs`` returns integers of the
    element size, which are reinterpreted as the result's dtype.
    """
    storage_order = getattr(delegate, "storage_order", False)
    if storage_order:
        inputs = [x.transpose(order) for x, order in zip(inputs, orders, strict=True)]
    outputs = list(delegate.execute(inputs))
    if len(outputs) != len(results):
        raise ExecutionError("delegate", f"must return {len(results)} outputs", value=len(outputs))
    if getattr(delegate, "raw_outputs", False):
        outputs = [_reinterpret(array, result) for array, result in zip(outputs, results, strict=True)]
    if storage_order:
        outputs = [array.transpose(np.argsort(r.order)) for array, r in zip(outputs, results, strict=True)]
    return outputs


def invoke_into(
    delegate: Any, inputs: Sequence[Array], orders: Sequence[Sequence[int]], results: Sequence[ResultSpec],
    targets: Sequence[Array | None], profile: Profile | None = None,
) -> list[Array | None]:  # fmt: skip
    """Like ``invoke``, for a delegate with ``execute_into``: an output written to its target is returned as None."""
    storage_order = getattr(delegate, "storage_order", False)
    stored_targets = list(targets)
    if storage_order:
        inputs = [x.transpose(order) for x, order in zip(inputs, orders, strict=True)]
        stored_targets = [t if t is None else t.transpose(r.order) for t, r in zip(targets, results, strict=True)]
    outputs = delegate.execute_into(inputs, stored_targets, profile)
    if len(outputs) != len(results):
        raise ExecutionError("delegate", f"must return {len(results)} outputs", value=len(outputs))
    if getattr(delegate, "raw_outputs", False):
        outputs = [_reinterpret(array, result) for array, result in zip(outputs, results, strict=True)]
    return [
        None if array is target else array.transpose(np.argsort(r.order)) if storage_order else array
        for array, target, r in zip(outputs, stored_targets, results, strict=True)
    ]


def _reinterpret(array: Array, result: ResultSpec) -> Array:
    """Reinterpret raw integers as the result's dtype, in its shape in memory order."""
    shape = [result.shape[dim] for dim in result.order]
    if array.dtype.itemsize != result.dtype.itemsize or array.size != math.prod(shape):
        rule = f"must return {list(result.shape)} of {result.dtype}"
        raise ExecutionError("delegate", rule, value=f"{array.size} elements of {array.dtype.itemsize} bytes")
    typed = array != 0 if result.dtype == np.bool_ else array.view(result.dtype)
    return np.asarray(typed.reshape(shape))


Factory = Callable[[DelegateBlob], Delegate]


def register_delegate(backend: str, factory: Factory) -> None:
    """Use ``factory`` for blobs whose backend id is ``backend``."""
    check_instance("register_delegate: backend", backend, str)
    check_callable("register_delegate: factory", factory)
    if not backend:
        raise UsageError("register_delegate: backend", "must be the id that files have, such as 'MyBackend'")
    registry.register_delegate(backend, factory)


def require_delegate(backend: str) -> Factory:
    """The factory for a backend id; raises if there is none."""
    factory = registry.find_delegate(backend)
    if factory is None:
        raise MissingDelegateError(registry.describe_backend(backend), "is not installed")
    return factory
