"""Delegates: what executes the subgraphs that a backend compiled. ``backends/registry.py`` finds them by id."""

from __future__ import annotations

import inspect
import math
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from edgewright.backends import registry
from edgewright.errors import ExecutionError, MissingDelegateError, UsageError
from edgewright.formats.flatbuffer import Buffer
from edgewright.formats.layer_table import DelegateLayers
from edgewright.ir.graph import Graph
from edgewright.ir.numerics import FLOAT32, Numerics
from edgewright.runtime.arguments import check_callable, check_instance

if TYPE_CHECKING:
    from edgewright.engine.jit.driver import CompiledGraph
    from edgewright.engine.profile import Profile

Array = np.ndarray[Any, Any]


class Delegate(Protocol):
    """A loaded blob: every member that the runtime uses. Inherit from ``DelegateBase``, which has defaults for all but
    ``input_count`` and ``execute``."""

    @property
    def input_count(self) -> int:
        """How many arguments of a call are inputs; the others are outputs."""
        ...

    @property
    def bound_inputs(self) -> Collection[int]:
        """Positions of the inputs that are taken from ``DelegateBlob.constants``: calls do not pass these."""
        ...

    @property
    def how(self) -> str:
        """What executes the blob, for profiles and errors: ``engine, avx512, 2 threads``."""
        ...

    @property
    def storage_order(self) -> bool:
        """Whether inputs and outputs are in memory order rather than in logical dimension order."""
        ...

    @property
    def raw_outputs(self) -> bool:
        """Whether outputs are integers of the element size, which the runtime reinterprets as the planned dtype."""
        ...

    @property
    def deferred(self) -> bool:
        """Whether compilation waits for ``prepare``, so that a segment can inline ``device_graph`` instead."""
        ...

    @property
    def device_graph(self) -> Graph | None:
        """The blob as a graph of the core dialect, to be specialized to shapes or compiled with neighboring calls."""
        ...

    @property
    def numerics(self) -> Numerics:
        """How ``device_graph`` rounds."""
        ...

    @property
    def compiled(self) -> CompiledGraph | None:
        """The machine code that serves every call, for the fast path of a method that is nothing else."""
        ...

    def prepare(self) -> None:
        """Compile the blob unless that is done already. Called once, before the first execution."""
        ...

    def execute(self, inputs: Sequence[Array]) -> Sequence[Array]:
        """The outputs for ``inputs``."""
        ...

    def execute_into(
        self, inputs: Sequence[Array], outputs: Sequence[Array | None], profile: Profile | None
    ) -> Sequence[Array]:
        """Like ``execute``, into those of ``outputs`` that can be written; new arrays for the others. The times of
        the delegate's own steps are added to ``profile``."""
        ...

    def close(self) -> None:
        """Release the delegate's resources."""
        ...


class DelegateBase:
    """Defaults for the members of ``Delegate``. A subclass defines ``execute``, and ``input_count`` as an attribute or
    as a property."""

    how: str = ""
    storage_order: bool = False
    raw_outputs: bool = False
    deferred: bool = False
    bound_inputs: Collection[int] = ()

    @property
    def device_graph(self) -> Graph | None:
        return None

    @property
    def numerics(self) -> Numerics:
        return FLOAT32

    @property
    def compiled(self) -> CompiledGraph | None:
        return None

    def prepare(self) -> None:
        """Nothing to compile."""

    @abstractmethod
    def execute(self, inputs: Sequence[Array]) -> Sequence[Array]:
        """The outputs for ``inputs``."""

    def execute_into(
        self, inputs: Sequence[Array], outputs: Sequence[Array | None], profile: Profile | None
    ) -> Sequence[Array]:
        return self.execute(inputs)

    def close(self) -> None:
        """Nothing to release besides memory."""


_MEMBERS = tuple(name for name in vars(Delegate) if not name.startswith("_"))
_METHODS = tuple(name for name in _MEMBERS if callable(vars(Delegate)[name]))
_REQUIRED = ("input_count", "execute")  # no default


def _check_members(subject: str, delegate: object, names: Sequence[str]) -> None:
    """Raise unless a delegate, or the class of one, has these members. Properties are not evaluated."""
    members = {name: inspect.getattr_static(delegate, name, None) for name in names}
    missing = [n for n, member in members.items() if member is None or member is DelegateBase.execute]
    if missing:
        remedies = ["Inherit from edgewright.runtime.DelegateBase."] if set(missing) - set(_REQUIRED) else []
        remedies += [f"Define {n}, which has no default." for n in missing if n in _REQUIRED]
        raise UsageError(subject, f"must have {', '.join(missing)}", remedy=" ".join(remedies))


@dataclass(frozen=True, eq=False)
class DelegateBlob:
    """One delegate of a file: its bytes, compile specs, and the named data it may look up.

    ``memory``: limit in bytes for its values. ``twin``: returns the host twin of the blob with a SHA-256, or None; for
    backends whose blobs run only on a device. ``twins_digest``: digest of everything that twins are read from, empty if
    unknown. ``threads``: how many to use, None for the default. ``dynamic``: shapes are dynamic. ``method``: the method
    that calls it, for backends whose blobs serve several. ``deferred``: compilation is deferred to ``prepare``, because
    a segment may inline the delegate's graph. ``constants``: arguments of every call that are constants of the program,
    in memory order, by position. ``layers``: where its operators come from in the user's model, if the file says so.
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
    constants: Mapping[int, Array] = field(default_factory=dict)
    layers: DelegateLayers = field(default_factory=DelegateLayers)


class ResultSpec(NamedTuple):
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
    arrays = invoke_into(delegate, inputs, orders, results, [None] * len(results))
    return [array for array in arrays if array is not None]  # all of them: there is no target to write to


def invoke_into(
    delegate: Delegate, inputs: Sequence[Array], orders: Sequence[Sequence[int]], results: Sequence[ResultSpec],
    targets: Sequence[Array | None], profile: Profile | None = None,
) -> list[Array | None]:  # fmt: skip
    """Like ``invoke``; an output that the delegate wrote to its target is returned as None."""
    stored_targets = list(targets)
    if delegate.storage_order:
        inputs = [x.transpose(order) for x, order in zip(inputs, orders, strict=True)]
        stored_targets = [t if t is None else t.transpose(r.order) for t, r in zip(targets, results, strict=True)]
    outputs = list(delegate.execute_into(inputs, stored_targets, profile))
    if len(outputs) != len(results):
        raise ExecutionError("delegate", f"must return {len(results)} outputs", value=len(outputs))
    if delegate.raw_outputs:
        outputs = [_reinterpret(array, result) for array, result in zip(outputs, results, strict=True)]
    return [
        None if array is target else array.transpose(np.argsort(r.order)) if delegate.storage_order else array
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
    if isinstance(factory, type):
        _check_members(f"delegate {factory.__name__}", factory, _METHODS)
    registry.register_delegate(backend, factory)


def make_delegate(blob: DelegateBlob) -> Delegate:
    """The delegate of a blob, by the blob's backend id; raises if none is installed, or if it lacks members."""
    factory = registry.find_delegate(blob.backend)
    if factory is None:
        raise MissingDelegateError(registry.describe_backend(blob.backend), "is not installed")
    delegate: Delegate = factory(blob)
    _check_members(f"delegate {type(delegate).__name__} of {blob.backend!r}", delegate, _MEMBERS)
    return delegate
