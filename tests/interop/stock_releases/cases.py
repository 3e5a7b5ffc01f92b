"""What every release runs: operators one by one, in portable kernels and in XNNPACK, and networks.

A case is made when it is run; its name is known before, so that a run can continue where another stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from edgewright.backends.xnnpack.ops import BACKEND
from edgewright.backends.xnnpack.partitioner import XnnpackPartitioner
from edgewright.formats import read_program, schema, write_program
from edgewright.ir.aten.ops import OPS
from edgewright.program.edge import to_edge_transform_and_lower
from edgewright.runtime import Runtime
from tests.backends import device, node_cases, quantized
from tests.backends.float_cases import CASES
from tests.backends.lowered import Lowered, relative
from tests.interop.stock_releases.networks import NETWORKS, network
from tests.interop.test_stock_kernels import INCOMPARABLE, LOOSER, comparable
from tests.ir.aten.harness import Sample, all_samples, assert_close, eager, to_array
from tests.support.build import arrays_of, one_call
from tests.support.rows import One, moderate, samples

Arrays = Sequence[Any]


@dataclass(frozen=True)
class Built:
    """A program, what it is called with, and what our runtime gives; ``check`` raises AssertionError if they differ."""

    program: bytes
    calls: Sequence[Arrays]
    outputs: Sequence[Arrays]
    check: Callable[[Arrays, Arrays], None]

    def operators(self) -> set[str]:
        """The kernels that the program calls."""
        return {o.key for plan in read_program(self.program).execution_plan for o in plan.operators or ()}


@dataclass(frozen=True)
class Case:
    group: str
    name: str
    build: Callable[[], Built] = field(compare=False)


def close(tolerance: float) -> Callable[[Arrays, Arrays], None]:
    """Equal relative to the largest number; infinities and NaNs in the same positions."""

    def check(theirs: Arrays, ours: Arrays) -> None:
        for got, want in zip(map(np.asarray, theirs), map(np.asarray, ours), strict=True):
            assert (got.shape, got.dtype) == (want.shape, want.dtype)
            finite = np.isfinite(want)
            np.testing.assert_array_equal(got[~finite].astype(np.float64), want[~finite].astype(np.float64))
            error = relative(got[finite], want[finite])
            assert error <= tolerance, f"relative error {error:.3g}"

    return check


def built(program: bytes, calls: Sequence[Arrays], check: Callable[[Arrays, Arrays], None]) -> Built:
    method = Runtime.get().load_program(program).load_method("forward")
    return Built(program, calls, [list(method.execute(call)) for call in calls], check)


# --------------------------------------------------------------------------------------------------- operators


def _kernel_call(sample: Sample) -> Built:
    def check(theirs: Arrays, ours: Arrays) -> None:
        for got, want in zip(theirs, ours, strict=True):
            assert_close(np.asarray(want), np.asarray(got), sample, LOOSER)

    program = write_program(one_call(sample.key, sample.args, eager(sample), sample.dim_order))
    return built(program, [arrays_of(sample.args)], check)


def _kernels() -> Iterator[Case]:
    """Operator samples as programs of one call."""
    for number, sample in enumerate(all_samples()):
        if comparable(sample) and sample.key not in INCOMPARABLE:
            yield Case("kernels", f"{number} {sample}"[:200], partial(_kernel_call, sample))


def _row(op: str, number: int) -> Built:
    call = samples(op)[number]
    module = One(replace(call, args={n: moderate(v) for n, v in call.args.items()})).eval()  # XNNPACK loses NaNs
    exported = torch.export.export(module, (module.first,), strict=False)
    program = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()]).to_executorch()
    return built(program.buffer, [[_as_declared(program.buffer, to_array(module.first))]], close(1e-4))


def _as_declared(program: bytes, x: np.ndarray) -> np.ndarray:
    """The first input in the layout that the program declares, as apps pass it. Stock takes a few others too."""
    plan = read_program(program).execution_plan[0]
    declared = plan.values[plan.inputs[0]]
    assert isinstance(declared, schema.Tensor)
    order = declared.dim_order
    return np.ascontiguousarray(x.transpose(order)).transpose(np.argsort(order)) if order else x


def _float_case(number: int, half: bool) -> Built:
    case = CASES[number]
    inputs = [i.half() if half else i for i in case.inputs()]
    module = case.module().half() if half else case.module()
    lowered = Lowered(module, inputs, case.dynamic, runtime="wheel")  # for the oldest release
    return built(lowered.buffer, [[i.numpy() for i in inputs]], close(1e-2 if half else 1e-5))


def _node(make: Callable[[], node_cases.Made], tolerance: float) -> Built:
    graph, arrays = make()
    return built(device.program(graph), [arrays], close(tolerance))


def _quantized(name: str, tolerance: float, **options: Any) -> Built:
    model, inputs = quantized.made(name)
    converted = quantized.converted(model, inputs, quantized.quantizer(**options))
    exported = torch.export.export(converted, inputs)
    program = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()]).to_executorch()
    return built(program.buffer, [[i.numpy() for i in inputs]], close(tolerance))


_FOUR_BITS = {"weight_qmin": -8, "weight_qmax": 7}


def _xnnpack() -> Iterator[Case]:
    """XNNPACK's operators: rows on the samples, cases of every row in both precisions, its nodes, quantized models."""
    for op in [name for name in BACKEND.rows if name in OPS]:
        for number in range(len(samples(op))):
            yield Case("xnnpack", f"row {op} {number}", partial(_row, op, number))
    for number, case in enumerate(CASES):
        yield Case("xnnpack", f"float32 {case.op} {number}", partial(_float_case, number, False))
        if case.halves:
            yield Case("xnnpack", f"float16 {case.op} {number}", partial(_float_case, number, True))
    for kind, made in (("float", node_cases.FLOAT), ("int8", node_cases.EXACT), ("dynamic", node_cases.ROWS)):
        for name, make in made.items():
            tolerance = 0 if kind == "int8" else 2e-3 if name.endswith("fp16") else 1e-5
            yield Case("xnnpack", f"node {kind} {name}", partial(_node, make, tolerance))
    for name in quantized.STATIC:
        for per_channel in (False, True):
            build = partial(_quantized, name, 0, is_per_channel=per_channel)
            yield Case("xnnpack", f"quantized {name} {per_channel}", build)
    for bits, weights in ((8, {}), (4, _FOUR_BITS)):
        dynamic = partial(_quantized, "mlp", 1e-3, is_per_channel=True, is_dynamic=True, **weights)
        yield Case("xnnpack", f"quantized mlp dynamic {bits}", dynamic)
        static = partial(_quantized, "mlp", 0, is_per_channel=True, **weights)
        yield Case("xnnpack", f"quantized mlp static {bits}", static)


# ---------------------------------------------------------------------------------------------------- networks


def _network(name: str, backend: str) -> Built:
    made = network(name, backend)
    return built(made.program, made.calls, close(made.tolerance))


def _networks() -> Iterator[Case]:
    for name, backends in NETWORKS.items():
        for backend in backends:
            yield Case("networks", f"{name} {backend}", partial(_network, name, backend))


GROUPS: dict[str, Callable[[], Iterator[Case]]] = {"kernels": _kernels, "xnnpack": _xnnpack, "networks": _networks}


def all_cases(groups: Sequence[str] = tuple(GROUPS)) -> list[Case]:
    return [case for group in groups for case in GROUPS[group]()]
