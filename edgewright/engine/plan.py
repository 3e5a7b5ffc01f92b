"""The plan, the compiler's output: steps, kernels as LLVM IR, packed weights, and memory sizes.

A kernel is one external function ``void @name(ptr args, i64 begin, i64 end, ptr scratch)`` in a
module of its own; it executes units ``begin`` to ``end`` of a step. ``args`` points to 8-byte argument slots.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Union

from edgewright.engine.jit.elf import CodeImage
from edgewright.ir.core.index_bounds import OutOfRangePolicy
from edgewright.ir.dtypes import DType
from edgewright.ir.graph import Array

ALIGN = 64  # bytes, of the arena, weights, per-thread scratch, and the tensors in them
ROW_GATHER = "row_gather"  # how the names of kernels begin that read rows by run-time indices
SLACK = 256  # readable bytes after every tensor: vector loads may overrun, their extra lanes are ignored


@dataclass(frozen=True)
class Address:
    """A buffer-relative address. ``buffer``: ``arena``, ``weights``, ``shared``, ``input`` or ``output``."""

    buffer: str
    offset: int
    index: int = 0  # of the input, output or shared array


# An int is passed as i64, a float as float32 in the low 32 bits.
KernelArg = Union[int, float, Address]


@dataclass(frozen=True)
class TensorView:
    """A strided tensor in a buffer; strides in bytes."""

    address: Address
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True)
class PythonCall:
    """An operator without a kernel: ``run(reads, writes)`` receives numpy views of the buffers."""

    run: Callable[[Sequence[Array], Sequence[Array]], None]
    reads: tuple[TensorView, ...]
    writes: tuple[TensorView, ...]


@dataclass(frozen=True)
class Step:
    """A kernel invocation over ``units`` units of work; threads claim ``grain`` units at a time.

    With ``barrier`` all earlier steps complete before this one starts; without it, the step may overlap the previous
    one. A step with ``python`` has no kernel; it and the step after it always have a barrier.
    """

    kernel: str
    args: tuple[KernelArg, ...]
    units: int
    grain: int
    barrier: bool = True
    label: str = ""  # name in profiles
    layer: str = ""  # the modules of the user's model that it computes
    macs: int = 0
    bytes: int = 0  # of its operands and results
    python: PythonCall | None = None


@dataclass(frozen=True)
class TensorSpec:
    """An input or output of the compiled graph: dense, row-major."""

    name: str
    dtype: DType
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class BoundsCheck:
    """A bounds check in generated code: indices must be below ``size``; ``outside`` makes the error."""

    outside: OutOfRangePolicy
    size: int


@dataclass(frozen=True)
class Plan:
    """A compiled graph before machine code. Kernels never write to ``weights``.

    ``kernels`` maps a name to its module's IR, or to a function that generates it; the name then determines the IR.
    Plans from the plan cache have an ``image`` instead.
    """

    steps: tuple[Step, ...]
    kernels: Mapping[str, str | Callable[[], str]]
    weights: Array  # uint8; see ``constant_buffer.make_resident``
    arena_size: int
    scratch_size: int  # bytes for each thread
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    cpu: str = ""  # target CPU, as LLVM names it
    features: str = ""
    image: CodeImage | None = None
    shared: Sequence[Array] = ()  # packed weights shared with other plans
    updates: tuple[
        tuple[int, int], ...
    ] = ()  # (output, input) updated in place: the input is copied to the output first
    code_limit: int = 1 << 30  # characters of IR
    checks: tuple[
        BoundsCheck, ...
    ] = ()  # the arena's last ``ALIGN`` bytes: the number of one that failed, from 1, and why
