"""The lowering interface, and the context that lowerings emit kernels and steps into."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from edgewright.engine.codegen.builder import Module
from edgewright.engine.codegen.requant import storage_offset
from edgewright.engine.graph.layout import Border, Layout, Storage, dense_layout
from edgewright.engine.graph.memory import ConstantPool, SharedWeights
from edgewright.engine.graph.nodes import Node
from edgewright.engine.isa import ISA
from edgewright.engine.plan import Address, BoundsCheck, KernelArg, PythonCall, Step
from edgewright.engine.tuning_params import TuningParams
from edgewright.ir.graph import Array, Value
from edgewright.ir.numerics import Numerics

_LARGE = 64 << 10  # bytes from which a constant is shared between the plans of a dynamic-shape graph
_MIN_CHUNK_NS = 700  # least work that is worth handing to another thread


@dataclass
class LoweringContext:
    """State of one compilation: target, value placement, and the kernels and steps emitted so far."""

    isa: ISA
    numerics: Numerics
    threads: int
    memory: int = 4 << 30  # bytes that values may occupy at a time
    tuning: TuningParams = field(default_factory=TuningParams)
    weights: ConstantPool = field(default_factory=ConstantPool)
    shared: SharedWeights | None = None  # set for dynamic-shape graphs; kernels then read sizes from arguments
    storages: dict[Value, Storage] = field(default_factory=dict)
    kernels: dict[str, Callable[[], str]] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    checks: list[BoundsCheck] = field(default_factory=list)
    error_slot: int = 0  # arena offset where kernels record a failed check
    scratch: int = 0
    temporaries: list[int] = field(default_factory=list)  # arena offsets of the node's scratch buffers
    barrier: bool = True  # whether the next step waits for all previous ones
    label: str = ""
    layer: str = ""

    def storage(self, value: Value) -> Storage:
        if value not in self.storages:
            assert value.data is not None
            data = encode_constant(value)
            self.storages[value] = Storage(
                value, self._place_constant(value, data), dense_layout(data.shape, data.dtype.itemsize)
            )
        return self.storages[value]

    def _place_constant(self, value: Value, data: Array) -> Address:
        if self.shared is None or data.nbytes < _LARGE:
            return self.weights.add(data)
        flat = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        return self.shared.pack((value.data,), ("as it is", value.q), flat.nbytes, lambda room: np.copyto(room, flat))

    def kernel(self, kind: str, spec: object, build: Callable[[Module, str], None]) -> str:
        """Return the name of the kernel of this kind for ``spec``, which must contain all that its code depends on.

        ``build`` runs only if no compiled object of that name is cached.
        """
        isa = (self.isa.name, self.isa.dot, self.isa.permute_bytes)  # ``bf16`` kernels have kinds of their own
        name = f"{kind}_{hashlib.blake2b(repr((isa, spec)).encode(), digest_size=12).hexdigest()}"

        def text() -> str:
            module = Module(self.isa.arch, self.isa.dsp)
            build(module, name)
            return module.text()

        self.kernels.setdefault(name, text)
        return name

    def step(
        self, kernel: str, args: Sequence[KernelArg], units: int, nanoseconds: float, macs: int = 0, pieces: int = 8
    ) -> None:
        """Append a parallel step.

        ``nanoseconds``: estimated single-threaded time of all units, which sets the grain size. ``pieces``: most chunks
        per thread.
        """
        chunks = max(1, min(units, pieces * self.threads, int(nanoseconds / _MIN_CHUNK_NS)))
        grain = -(-units // chunks)
        self.steps.append(Step(kernel, tuple(args), units, grain, self.barrier, self.label, self.layer, macs))
        self.barrier = False

    def call(self, python: PythonCall) -> None:
        self.steps.append(Step("", (), 1, 1, True, self.label, self.layer, python=python))
        self.barrier = True


def encode_constant(value: Value) -> Array:
    """Return a constant as the engine stores it: int8 values are offset to uint8."""
    data = np.asarray(value.data)
    if value.q is not None and value.q.dtype == np.dtype(np.int8):
        return (data.astype(np.int16) + storage_offset(value.q)).astype(np.uint8)
    return data


class Lowering:
    """Translates one node into plan steps, and declares which memory layouts it supports.

    ``exact_reads``: reads nothing outside an operand's elements, so operands may be the caller's arrays.
    ``exact_writes``: writes nothing outside the result's elements. ``any_strides``: the result's rows may have gaps;
    otherwise operands and result must be dense except for an image border. ``requires_dense``: no border either.
    ``ignores_channel_padding``: int8 operands need no padded channels and may use any layout ``reads_layout`` accepts.
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
        """Return a lowering of the node, or None if this class does not support it."""
        raise NotImplementedError

    def required_border(self) -> tuple[Value, Border] | None:
        """The input that needs a border of padding pixels, and its size."""
        return None

    def prefers_unpadded(self) -> Value | None:
        """An int8 input that is faster to read without channel padding."""
        return None

    def aliased_input(self) -> Value | None:
        """The input whose elements the output shares if both use the same memory."""
        return None

    def reads_layout(self, value: Value, layout: Layout) -> bool:
        """Whether an operand may have this layout."""
        return layout.dense

    def writes_layout(self, layout: Layout) -> bool:
        """Whether the result may have this layout."""
        return layout.dense

    def temporaries(self, context: LoweringContext) -> list[int]:
        """Sizes of arena buffers that only this node's steps use."""
        return []

    def emit(self, context: LoweringContext) -> None:
        raise NotImplementedError


class DenseLowering(Lowering):
    """A lowering whose operands and result are dense, and that reads nothing outside them."""

    exact_reads = True
    any_strides = False
    requires_dense = True


class DescribedLowering(Lowering):
    """Lowers an operator of another dialect by its description (``ir/int_rules.py``)."""

    exact_reads = True

    @classmethod
    def accept_description(cls, node: Node, description: Any) -> Lowering | None:
        """The lowering of the description's type; None, or ``IntRangeError``, if it is not supported."""
        raise NotImplementedError


def is_unfused(node: Node, *kinds: str) -> bool:
    """Whether the node is a single operator of these kinds, without fused operators and output limits."""
    return node.op.kind in kinds and len(node.ops) == 1 and node.op.args.get("limits") is None
