"""What every lowering has, and what it may ask of the schedule."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from edgewright.engine.codegen.builder import Module
from edgewright.engine.codegen.requant import storage_offset
from edgewright.engine.graph.constant_buffer import ConstantBuffer
from edgewright.engine.graph.layout import Border, Layout, Storage, dense_layout
from edgewright.engine.graph.nodes import Node
from edgewright.engine.graph.shared_weights import SharedWeights
from edgewright.engine.isa import ISA
from edgewright.engine.plan import Address, BoundsCheck, KernelArg, PythonCall, Step
from edgewright.engine.tuning_params import TuningParams
from edgewright.ir.graph import Array, Value
from edgewright.ir.numerics import Numerics

_LARGE = 64 << 10  # bytes of a constant that is not copied for every size that varies
_CHUNK = 700  # nanoseconds of work that are worth handing to another thread


@dataclass
class LoweringContext:
    """What is known and what has been made so far."""

    isa: ISA
    numerics: Numerics
    threads: int
    memory: int = 4 << 30  # bytes that values may take at a time
    tuning: TuningParams = field(default_factory=TuningParams)
    weights: ConstantBuffer = field(default_factory=ConstantBuffer)
    shared: SharedWeights | None = None  # of graphs whose sizes vary: kernels then do for every size, where they can
    homes: dict[Value, Storage] = field(default_factory=dict)
    kernels: dict[str, Callable[[], str]] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    checks: list[BoundsCheck] = field(default_factory=list)
    error_slot: int = 0  # where in the arena code says which of them failed, and why
    scratch: int = 0
    temporaries: list[int] = field(default_factory=list)  # where the node's own memory is in the arena
    barrier: bool = True  # of the next step
    label: str = ""

    def home(self, value: Value) -> Storage:
        if value not in self.homes:
            assert value.data is not None
            data = encode_constant(value)
            self.homes[value] = Storage(value, self._keep(value, data), dense_layout(data.shape, data.dtype.itemsize))
        return self.homes[value]

    def _keep(self, value: Value, data: Array) -> Address:
        if self.shared is None or data.nbytes < _LARGE:
            return self.weights.add(data)
        flat = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        return self.shared.pack((value.data,), ("as it is", value.q), flat.nbytes, lambda room: np.copyto(room, flat))

    def kernel(self, kind: str, spec: object, build: Callable[[Module, str], None]) -> str:
        """The name of the kernel of this kind for ``spec``, which must say everything it depends on.

        Its text is written when there is no object of that name.
        """
        isa = (self.isa.name, self.isa.dot, self.isa.permute_bytes)  # ``bf16`` has kernels of its own
        name = f"{kind}_{hashlib.blake2b(repr((isa, spec)).encode(), digest_size=12).hexdigest()}"

        def text() -> str:
            module = Module()
            build(module, name)
            return module.text()

        self.kernels.setdefault(name, text)
        return name

    def step(
        self, kernel: str, args: Sequence[KernelArg], units: int, nanoseconds: float, macs: int = 0, pieces: int = 8
    ) -> None:
        """``nanoseconds``: about how long one thread takes for all units; ``pieces``: for each thread, at most."""
        chunks = max(1, min(units, pieces * self.threads, int(nanoseconds / _CHUNK)))
        grain = -(-units // chunks)
        self.steps.append(Step(kernel, tuple(args), units, grain, self.barrier, self.label, macs))
        self.barrier = False

    def call(self, python: PythonCall) -> None:
        self.steps.append(Step("", (), 1, 1, True, self.label, python=python))
        self.barrier = True


def encode_constant(value: Value) -> Array:
    """A constant as the engine stores it."""
    data = np.asarray(value.data)
    if value.q is not None and value.q.dtype == np.dtype(np.int8):
        return (data.astype(np.int16) + storage_offset(value.q)).astype(np.uint8)
    return data


class Lowering:
    """A node, and the steps it becomes.

    ``exact_reads``: nothing beyond an operand's elements is read, so they may be the caller's own arrays.
    ``exact_writes``: nothing beyond the result's elements is written. ``any_strides``: the result may lie in rows with
    gaps; without it, operands and result must be dense, but for an image's border. ``requires_dense``: no
    border either.
    ``anywhere``: bytes too are read where ``takes`` says they may lie, whatever is beside them.
    """

    exact_reads: ClassVar[bool] = False
    exact_writes: ClassVar[bool] = True
    any_strides: ClassVar[bool] = True
    requires_dense: ClassVar[bool] = False
    ignores_channel_padding: ClassVar[bool] = False

    def __init__(self, node: Node) -> None:
        self.node = node

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        """A lowering of the node, or None if it is not of this kind."""
        raise NotImplementedError

    def required_border(self) -> tuple[Value, Border] | None:
        """An input that must have pixels around it."""
        return None

    def prefers_unpadded(self) -> Value | None:
        """An input of bytes whose pixels had better lie without gaps."""
        return None

    def aliased_input(self) -> Value | None:
        """The input that the output is, in other words."""
        return None

    def reads_layout(self, value: Value, layout: Layout) -> bool:
        """Whether an operand may lie so."""
        return layout.dense

    def writes_layout(self, layout: Layout) -> bool:
        """Whether the result may lie so."""
        return layout.dense

    def temporaries(self, context: LoweringContext) -> list[int]:
        """Sizes of memory in the arena that only this node's steps use."""
        return []

    def emit(self, context: LoweringContext) -> None:
        raise NotImplementedError


class DenseLowering(Lowering):
    """Operands and result lie in one piece, and nothing beside them is read."""

    exact_reads = True
    any_strides = False
    requires_dense = True


def is_unfused(node: Node, *kinds: str) -> bool:
    """One operator of these kinds, into which nothing is fused, and whose result is not limited."""
    return node.op.kind in kinds and len(node.ops) == 1 and node.op.args.get("limits") is None
