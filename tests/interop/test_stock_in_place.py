"""Kernels that the compiler lets write over an operand: the same result as into memory of its own, in both runtimes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgewright.formats import schema, write_program
from edgewright.formats.operator_signatures import OPERATORS
from edgewright.program.inplace import IN_PLACE
from edgewright.runtime import Runtime
from tests.interop.test_stock_kernels import BY_OPERATOR, one_layout
from tests.ir.aten.harness import Sample, eager
from tests.support.build import arrays_of, dim_order_of, one_call
from tests.support.stock import StockError, stock

CASES = [(key, name) for key, names in sorted(IN_PLACE.items()) for name in names]


def position(key: str, name: str) -> int | None:
    return next((i for i, a in enumerate(OPERATORS[key].inputs) if a.name == name and a.kind.value == "Tensor"), None)


def large(sample: Sample) -> Sample:
    """A sample whose arrays are long enough for vector code and several threads."""
    grown = [np.tile(a, (37, *[1] * (a.ndim - 1))) if isinstance(a, np.ndarray) and a.ndim else a for a in sample.args]
    return Sample(sample.key, grown, sample.out)


def fits(sample: Sample, operand: Any, result: np.ndarray) -> bool:
    """True if the compiler would let this result take the operand's memory."""
    alike = isinstance(operand, np.ndarray) and (operand.shape, operand.dtype) == (result.shape, result.dtype)
    order = tuple(sample.dim_order or range(result.ndim))
    return alike and operand.size > 0 and dim_order_of(operand) == order


def normalised() -> dict[str, Sample]:
    """Large samples of the kernels that see more than one element at a time."""
    chance = np.random.default_rng(5)
    image, rows = (chance.normal(size=s).astype(np.float32) for s in ((3, 6, 33, 17), (65, 259)))
    channels = [chance.uniform(0.5, 2, 6).astype(np.float32) for _ in range(4)]
    columns = [chance.uniform(0.5, 2, 259).astype(np.float32) for _ in range(2)]
    batch, layer = "aten::_native_batch_norm_legit_no_training.out", "aten::native_layer_norm.out"
    return {
        batch: Sample(batch, [image, *channels, 0.1, 1e-5]),
        layer: Sample(layer, [rows, [259], *columns, 1e-5]),
    }


def same_types(key: str) -> list[Sample]:
    """Samples of two-operand kernels whose operands both have the shape and the dtype of the result."""
    chance = np.random.default_rng(6)
    tensors = [a for a in OPERATORS[key].inputs if a.kind.value == "Tensor"]
    if len(tensors) != len(OPERATORS[key].inputs) or len(tensors) < 2:
        return []
    dtype = np.int32 if "bitwise" in key else np.float32 if "clamp" in key else np.bool_
    return [Sample(key, [chance.integers(0, 2, (65, 37)).astype(dtype) for _ in tensors])]


def samples(key: str, at: int) -> list[tuple[Sample, list[np.ndarray]]]:
    found = []
    wide = normalised()
    for sample in (*BY_OPERATOR[key], *same_types(key)):
        wider = [wide[key] if key in wide else large(sample)] if sample.shapes is None and sample.expect is None else []
        for each in (sample, *wider):
            if not (each.stock and one_layout(each)):
                continue
            try:
                expected = eager(each)
            except RuntimeError:  # operands that no longer fit each other
                continue
            if fits(each, each.args[at], expected[0]):
                found.append((each, expected))
    return found


def in_place(program: schema.Program, at: int) -> schema.Program:
    """The program with its first result in the memory of one of its operands."""
    plan = program.execution_plan[0]
    call = plan.chains[0].instructions[0]
    result, operand = plan.values[plan.outputs[0]], plan.values[call.args[at]]
    assert isinstance(result, schema.Tensor)
    assert isinstance(operand, schema.Tensor)
    result.allocation_info = operand.allocation_info
    return program


@pytest.mark.sample(14)
@pytest.mark.parametrize(("key", "name"), CASES, ids=lambda v: str(v))
def test_kernels_may_write_over_an_operand(key: str, name: str) -> None:
    at = position(key, name)
    if at is None:  # the other operand is a number
        assert "Scalar" in key or "other" not in {a.name for a in OPERATORS[key].inputs}
        return
    compared = 0
    for sample, expected in samples(key, at):
        inputs = arrays_of(sample.args)
        program = one_call(key, sample.args, expected, sample.dim_order)
        apart = write_program(program)
        together = write_program(in_place(program, at))
        assert apart != together
        ours = [Runtime.get().load_program(p).load_method().execute(inputs)[0] for p in (apart, together)]
        assert ours[0].tobytes() == ours[1].tobytes(), str(sample)
        try:
            theirs = stock().run(apart, "forward", inputs)[0]
        except StockError:
            continue
        assert stock().run(together, "forward", inputs)[0].tobytes() == theirs.tobytes(), str(sample)
        compared += 1
    assert compared, f"no sample of {key} has a result like {name!r}"
