"""Delegates: what runs the parts of a program that a backend took. ``backends/registry.py`` finds them by id."""

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
    from edgewright.engine.profile import EngineProfile

Array = np.ndarray[Any, Any]


class Delegate(Protocol):
    """A blob made ready to run."""

    @property
    def input_count(self) -> int:
        """How many arguments of a call are inputs; the rest are outputs."""
        ...

    def execute(self, inputs: Sequence[Array]) -> Sequence[Array]:
        """The outputs for ``inputs``."""
        ...

    def close(self) -> None:
        """Give back what the delegate holds."""
        ...


@dataclass(frozen=True)
class DelegateBlob:
    """What the file says about one delegate: its bytes, compile specs, and the data it may look up by name.

    ``memory``: bytes that its values may take at a time. ``twin``: gives the host twin of the blob with a SHA-256, or
    None if there is none; for backends whose blobs only a device can run. ``twins``: a digest of all that these are
    read from, empty if it is not known. ``threads``: how many to use, None for as many as are useful. ``varies``:
    shapes are known only when it is called. ``method``: the one that calls it, for backends whose blobs serve several.
    ``waits``: it may yet be joined with its neighbours, so what takes long is left to ``prepare``, which is called if
    it was not.
    """

    backend: str
    blob: Buffer
    compile_specs: Mapping[str, bytes]
    named_data: Mapping[str, Buffer]
    memory: int = 4 << 30
    twin: Callable[[str], Graph | None] = lambda digest: None
    threads: int | None = None
    varies: bool = False
    method: str = "forward"
    waits: bool = False
    twins: Callable[[], str] = lambda: ""


@dataclass(frozen=True)
class Result:
    """A tensor that a delegate fills: element type, shape, and the order its dimensions lie in memory."""

    dtype: Any
    shape: tuple[int, ...]
    order: tuple[int, ...]


def invoke(
    delegate: Delegate, inputs: Sequence[Array], orders: Sequence[Sequence[int]], results: Sequence[Result]
) -> list[Array]:
    """The outputs for ``inputs``, both as everyone sees them, whatever the delegate sees.

    A delegate with ``storage_order`` sees tensors as they lie in memory; one with ``raw_outputs`` gives integers of the
    right size, and the result says what they are.
    """
    in_memory = getattr(delegate, "storage_order", False)
    if in_memory:
        inputs = [x.transpose(order) for x, order in zip(inputs, orders, strict=True)]
    made = list(delegate.execute(inputs))
    if len(made) != len(results):
        raise ExecutionError("delegate", f"must give {len(results)} outputs", value=len(made))
    if getattr(delegate, "raw_outputs", False):
        made = [_typed(array, result) for array, result in zip(made, results, strict=True)]
    if in_memory:
        made = [array.transpose(np.argsort(r.order)) for array, r in zip(made, results, strict=True)]
    return made


def invoke_into(
    delegate: Any, inputs: Sequence[Array], orders: Sequence[Sequence[int]], results: Sequence[Result],
    targets: Sequence[Array | None], profile: EngineProfile | None = None,
) -> list[Array | None]:  # fmt: skip
    """Like ``invoke``, by a delegate with ``execute_into``: an output is None where it was written to its target."""
    in_memory = getattr(delegate, "storage_order", False)
    offered = list(targets)
    if in_memory:
        inputs = [x.transpose(order) for x, order in zip(inputs, orders, strict=True)]
        offered = [t if t is None else t.transpose(r.order) for t, r in zip(targets, results, strict=True)]
    made = delegate.execute_into(inputs, offered, profile)
    if len(made) != len(results):
        raise ExecutionError("delegate", f"must give {len(results)} outputs", value=len(made))
    if getattr(delegate, "raw_outputs", False):
        made = [_typed(array, result) for array, result in zip(made, results, strict=True)]
    return [
        None if array is target else array.transpose(np.argsort(r.order)) if in_memory else array
        for array, target, r in zip(made, offered, results, strict=True)
    ]


def _typed(array: Array, result: Result) -> Array:
    """Integers as the elements they are, in the result's shape as it lies in memory."""
    shape = [result.shape[dim] for dim in result.order]
    if array.dtype.itemsize != result.dtype.itemsize or array.size != math.prod(shape):
        rule = f"must give {list(result.shape)} of {result.dtype}"
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
    found = registry.find_delegate(backend)
    if found is None:
        raise MissingDelegateError(registry.describe_backend(backend), "is not installed")
    return found
