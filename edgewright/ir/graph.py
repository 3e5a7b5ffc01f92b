"""The graph IR: values, operators and their source locations. No torch here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Union

import numpy as np

from edgewright.errors import EdgewrightError
from edgewright.ir.dtypes import DType

Array = np.ndarray[Any, Any]
SEQUENCES = (list, tuple)  # of values and literals in arguments; `list | tuple` would be evaluated again at each check


@dataclass(frozen=True)
class Dim:
    """A dynamic size: its symbolic expression and its range."""

    expr: str
    min: int
    max: int

    def __str__(self) -> str:
        return self.expr


Size = Union[int, Dim]


@dataclass(frozen=True)
class QParams:
    """Affine quantization parameters: ``real = scale * (stored - zero_point)``.

    Per tensor, per channel along ``axis``, or, with ``block``, per group of that many elements of the other dimension.
    ``dynamic`` (``per_token``, ``per_tensor``): computed at run time.
    """

    scale: float | tuple[float, ...]
    zero_point: int | tuple[int, ...]
    dtype: DType
    qmin: int
    qmax: int
    axis: int | None = None
    block: int | None = None
    dynamic: str | None = None


@dataclass(eq=False)
class Value:
    """An SSA value: a tensor, or a scalar computed at run time (``dtype`` None).

    ``data`` is a constant's contents, or the initial contents of mutable state. ``kind`` of a scalar is
    ``int``, ``bool`` or ``float``.
    """

    name: str
    dtype: DType | None = None
    shape: tuple[Size, ...] = ()
    dim_order: tuple[int, ...] = ()
    data: Array | None = field(default=None, repr=False)
    state: bool = False  # persists between calls
    qualified_name: str = ""  # of a parameter or buffer, in the model
    kind: str = "tensor"
    q: QParams | None = None  # ``dtype`` is then that of the stored integers

    @property
    def constant(self) -> bool:
        return self.data is not None and not self.state

    @property
    def dynamic(self) -> bool:
        for size in self.shape:  # noqa: SIM110  (asked of every value again and again: any() takes three times as long)
            if isinstance(size, Dim):
                return True
        return False

    @property
    def bound(self) -> tuple[int, ...]:
        """The largest shape the tensor may take."""
        return tuple([s.max if isinstance(s, Dim) else s for s in self.shape])

    @property
    def nbytes(self) -> int:
        """Bytes at the largest shape."""
        size = self.dtype.itemsize if self.dtype is not None else 0
        for extent in self.bound:
            size *= extent
        return size


@dataclass(frozen=True, eq=False)
class Origin:
    """The source location of an operator in the user's model. Operators derived from it share the same object."""

    node: str = ""
    module: str = ""
    frames: tuple[tuple[str, int, str, str], ...] = ()  # file, line, function, code; outermost first
    classes: tuple[str, ...] = ()  # of the modules it is in, outermost first
    source: str = ""  # the user's own line
    exported_nodes: tuple[str, ...] = ()  # the nodes of the exported program that it represents

    @property
    def line(self) -> str:
        """The user's own line, as errors show it."""
        return f"From {self.source}" if self.source else ""


@dataclass(eq=False)
class Op:
    """An operator call. ``args`` by name, in signature order: Values, literals, and lists of them."""

    kind: str
    args: dict[str, Any]
    outputs: list[Value | None]
    origin: Origin = field(default_factory=Origin, repr=False)
    graphs: dict[str, Graph] = field(default_factory=dict)  # branches and bodies of control flow

    @property
    def name(self) -> str:
        """The kind as profiles, plans and errors show it: without ``core.``, but with the names of other dialects."""
        return self.kind.removeprefix("core.")

    def inputs(self) -> Iterator[Value]:
        """Every Value the call reads, in order."""
        return iter(nested_values(list(self.args.values())))


def argument_name(op: Op, value: Value) -> str:
    """What a value is to an operator that reads it: the name of the argument."""
    return next((name for name, argument in op.args.items() if value in nested_values(argument)), "constant")


def nested_values(tree: Any) -> list[Value]:
    """The Values in nested lists, in order."""
    if isinstance(tree, Value):
        return [tree]
    values: list[Value] = []
    if isinstance(tree, SEQUENCES):
        for item in tree:
            if isinstance(item, Value):
                values.append(item)
            elif isinstance(item, SEQUENCES):
                values += nested_values(item)
    return values


@dataclass(eq=False)
class Graph:
    """A method, a branch or a loop body.

    ``inputs`` and ``outputs`` hold Values and baked-in literals. ``updates`` are writes to state (or to inputs) that
    take effect after the graph has run. ``weights`` are trainable state, exposed to the caller.
    """

    name: str
    inputs: list[Any] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    updates: list[tuple[Value, Value]] = field(default_factory=list)
    weights: list[Value] = field(default_factory=list)

    def values(self) -> Iterator[Value]:
        """Every Value once, in the order of first appearance."""
        used = [v for op in self.ops for v in (*op.inputs(), *(o for o in op.outputs if o is not None))]
        updates = nested_values([list(u) for u in self.updates])
        yield from dict.fromkeys((*nested_values(self.inputs), *used, *nested_values(self.outputs), *updates))


class GraphError(EdgewrightError):
    """An invalid graph: a bug in the compiler, not in the model."""

    stage = "verify graph"
    exit_code = 70
