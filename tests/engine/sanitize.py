"""Runs a compiled graph one node at a time, with memory that says what kernels read and write beyond what they declare.

Before each node, every byte of the arena that is not part of its operands is overwritten, once with NaN and once with
another pattern. Its results must be the same both times, and no byte of another live value may change. Together with
``verify_plan``, which checks what is declared, this is an address sanitizer for generated code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest import mock

import numpy as np

from edgewright.backends.xnnpack.numerics import XNNPACK
from edgewright.engine import CompiledGraph
from edgewright.engine.compiler import make_plan
from edgewright.engine.graph import schedule
from edgewright.engine.graph.layout import Storage
from edgewright.engine.graph.verify_plan import Access, verify_plan
from edgewright.engine.jit.driver import _Segment
from edgewright.engine.jit.driver_ir import ROW
from edgewright.engine.jit.threads import address_of, driver
from edgewright.engine.kernels.dynamic_gemm import QuantizedRows
from edgewright.ir.graph import Graph, Value
from edgewright.ir.numerics import Numerics

PATTERNS = (0xFF, 0x3C)  # NaN in every float type, and an ordinary number


def sanitize(
    graph: Graph, given: Sequence[Any], cpu: str | None = None, numerics: Numerics | str = XNNPACK
) -> list[Any]:
    """The graph's outputs; AssertionError names the node that reads or writes what is not its own."""
    accesses: list[Access] = []

    def keep(found: Sequence[Access], arena: int, inputs: Sequence[Storage]) -> None:
        verify_plan(found, arena, inputs)
        accesses.extend(found)

    with mock.patch.object(schedule, "verify_plan", keep):
        compiled = CompiledGraph(make_plan(graph, 1, numerics, cpu), 1)
    return _Run(compiled, given).all(accesses)


def _mark_border(mask: Any, home: Storage) -> None:
    """The pixels around every image; alignment before the first and padded channels are nobody's."""
    layout, border = home.layout, home.layout.border
    batch, high, wide, _ = layout.shape
    for n in range(batch):
        base = home.address.offset + n * layout.image
        mask[base - border.top * layout.row - border.left * layout.pixel : base] = True
        for y in range(high):
            mask[base + y * layout.row + wide * layout.pixel : base + (y + 1) * layout.row] = True
        mask[base + high * layout.row : base + (high + border.bottom) * layout.row] = True


class _Run:
    def __init__(self, compiled: CompiledGraph, given: Sequence[Any]) -> None:
        self.compiled, self.given = compiled, [np.ascontiguousarray(x) for x in given]
        self.outputs = [np.empty(t.shape, t.dtype) for t in compiled.plan.outputs]
        compiled._copy_updates(self.given, self.outputs)
        addresses = [address_of(array) for array in (*self.given, *self.outputs)]
        for at, which, offset in compiled._patches:
            compiled._args[at] = addresses[which] + offset
        self.arena = compiled._buffers["arena"]
        self.rows: dict[int, int] = {}  # a step's address in the driver's tables
        self._find_rows()

    def _find_rows(self) -> None:
        step = 0
        for part in self.compiled._segments:
            if isinstance(part, _Segment):
                for k in range(len(part.steps)):
                    self.rows[step + k] = part.address + k * ROW
                step += len(part.steps)
            else:
                step += 1

    def all(self, accesses: Sequence[Access]) -> list[Any]:
        self.compiled._reset_checks()
        made: set[Value] = set()
        for at, access in enumerate(accesses):
            if access.same is None:
                later = [home for after in accesses[at + 1 :] for home in after.reads if home.value in made]
                self.node(access, later)
            made |= {home.value for home in access.writes}
        self.compiled._raise_failed_check()
        return self.outputs

    def node(self, access: Access, live: Sequence[Storage]) -> None:
        """``live``: values made before that later nodes read."""
        reads, writes = self.mask(access.reads), self.mask(access.writes)
        before, others = self.arena.copy(), self.mask(live)
        results = []
        for pattern in PATTERNS:
            self.arena[~reads] = pattern
            self.arena[reads] = before[reads]
            if self.compiled._check_result is not None:
                self.compiled._reset_checks()
            kept = self.arena.copy()
            self.run(access)
            assert np.array_equal(self.arena[others], kept[others]), f"{access.label} writes to another value"
            made = [self.arena[writes].copy()]
            made += [self.outputs[h.address.index].copy() for h in access.writes if h.address.buffer == "output"]
            results.append(made)
        for one, other in zip(*results, strict=True):
            assert one.tobytes() == other.tobytes(), f"{access.label} depends on memory that is not its operands'"
        self.arena[:] = before
        self.arena[writes] = results[0][0]

    def mask(self, homes: Sequence[Storage]) -> Any:
        """The bytes of values in the arena, with their borders."""
        mask = np.zeros(self.arena.size, bool)
        for home in homes:
            layout = home.layout
            if home.address.buffer != "arena":
                continue
            if layout.border:
                _mark_border(mask, home)
            if home.value.q is not None and home.value.q.dynamic is not None:  # each row's scale and zero point
                rows = QuantizedRows(layout.shape[-1])
                strides = (*layout.strides[:-1], 1)
                np.ndarray((*layout.shape[:-1], 12), bool, mask, home.address.offset + rows.notes, strides)[...] = True
            shape, strides = (*layout.shape, layout.item), (*layout.strides, 1)
            np.ndarray(shape, bool, mask, home.address.offset, strides)[...] = True
        return mask

    def run(self, access: Access) -> None:
        compiled = self.compiled
        for at in range(access.first, access.last):
            step = compiled.plan.steps[at]
            if step.python is not None:
                compiled._run_python(step, {"input": self.given, "output": self.outputs}, None)
            else:
                driver().run_alone(self.rows[at], 1, compiled._scratch_address)
