"""What the compiler hands to the driver: steps, kernels as LLVM text, packed weights, and the memory they need.

Operators are data. A kernel is one external function ``void @name(ptr args, i64 begin, i64 end, ptr scratch)`` in a
module of its own: it does units ``begin`` to ``end`` of a step. ``args`` points to the step's slots, 8 bytes each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Union

import numpy as np

from edgewright.engine.jit.elf import CodeImage
from edgewright.ir.core.index_bounds import OutOfRangePolicy
from edgewright.ir.dtypes import DType
from edgewright.ir.graph import Array

ALIGN = 64  # of the arena, the weights, each thread's scratch, and what is in them
SLACK = 256  # bytes beyond the arena and the weights that kernels may read and never use


@dataclass(frozen=True)
class Address:
    """An address known when buffers are: ``buffer`` is ``arena``, ``weights``, ``shared``, ``input`` or ``output``."""

    buffer: str
    offset: int
    index: int = 0  # of the input, output or shared array


# An int takes its slot as i64; a float is single precision in the slot's low half, the high half 0.
KernelArg = Union[int, float, Address]


@dataclass(frozen=True)
class TensorView:
    """A tensor in one of the buffers, as numpy sees it: strides in bytes."""

    address: Address
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True)
class PythonCall:
    """An operator without a kernel: ``run(reads, writes)`` is given views of the buffers."""

    run: Callable[[Sequence[Array], Sequence[Array]], None]
    reads: tuple[TensorView, ...]
    writes: tuple[TensorView, ...]


@dataclass(frozen=True)
class Step:
    """``units`` pieces of work; threads claim ``grain`` of them at a time.

    Without ``barrier`` a step may start while the one before it is still running; with it, everything before has been
    completed. A step with ``python`` has no kernel and always has a barrier, as has the step after it.
    """

    kernel: str
    args: tuple[KernelArg, ...]
    units: int
    grain: int
    barrier: bool = True
    label: str = ""  # what the profile calls it
    macs: int = 0
    bytes: int = 0  # read and written at least once
    python: PythonCall | None = None


@dataclass(frozen=True)
class TensorSpec:
    """An input or output of the compiled graph: dense, in the order of its dimensions."""

    name: str
    dtype: DType
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize


@dataclass(frozen=True)
class BoundsCheck:
    """What code looks after: places below ``size``, and whose error it is that there are others."""

    outside: OutOfRangePolicy
    size: int


@dataclass(frozen=True)
class Plan:
    """A compiled graph before machine code. Kernels never write to ``weights``.

    ``kernels`` maps a name to the text of the module that defines it, or to what writes it: a name then says all that
    the text depends on. Plans that were stored have machine code instead.
    """

    steps: tuple[Step, ...]
    kernels: Mapping[str, str | Callable[[], str]]
    weights: Array  # uint8; kernels read it where ``pack.resident`` puts it
    arena_size: int
    scratch_size: int  # bytes for each thread
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    cpu: str = ""  # what the code is generated for, as LLVM names it
    features: str = ""
    image: CodeImage | None = None
    shared: Sequence[Array] = ()  # weights that other plans have too
    updates: tuple[tuple[int, int], ...] = ()  # outputs, and the inputs that must lie in them when steps begin
    code_limit: int = 1 << 30  # characters of text that kernels may have
    checks: tuple[
        BoundsCheck, ...
    ] = ()  # the arena's last ``ALIGN`` bytes: the number of one that failed, from 1, and why
