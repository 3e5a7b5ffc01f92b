"""Elementwise steps over tensors with dynamic shapes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from edgewright.engine.codegen.builder import Module
from edgewright.engine.graph.layout import Storage
from edgewright.engine.kernels.dynamic_loops import emit_dynamic_loop_kernel, plan_dynamic_loops
from edgewright.engine.kernels.elementwise import Body, LoopOperand
from edgewright.engine.lower.base import LoweringContext


def emit_dynamic_loops(
    context: LoweringContext,
    kind: str,
    storages: Sequence[Storage],
    shape: Sequence[int],
    operands: Sequence[LoopOperand],
    key: object,
    body: Body,
    lanes: int,
) -> None:
    """Emit a step over all elements; the last of ``storages`` is the output. Sizes and strides are kernel arguments."""
    loops, sizes, units = plan_dynamic_loops(shape, operands)

    def build(module: Module, name: str) -> None:
        emit_dynamic_loop_kernel(module, name, lanes, loops, body)

    name = context.kernel(f"dynamic_{kind}", (loops, lanes, key), build)
    context.step(name, [*(h.at() for h in storages), *sizes], units, math.prod(shape) * 0.15)
