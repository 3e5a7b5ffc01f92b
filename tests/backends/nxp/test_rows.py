"""Every row of Neutron on the op table's samples: LiteRT computes what the host does, and that is the operator's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgewright.ir.aten.ops import OPS
from edgewright.ir.graph import Graph, Op, QParams, Value
from tests.backends.nxp.rows import BACKEND, cases, check
from tests.support.quantized_calls import INT8, Case, load, store, weights

# Rounding twice (or of a mean, half a step off) may be a step away from the rounded real number.
_STEPS = 1
# Their samples are all of sizes, factors or biases that Neutron does not take; others are below.
_REFUSED = {"addmm", "adaptive_avg_pool1d", "expand", "resize_nearest2d", "resize_bilinear2d"}


@pytest.mark.sample(22)
@pytest.mark.parametrize("op", [name for name in BACKEND.rows if name in OPS])
def test_rows_compute_what_litert_does_or_are_refused_by_a_rule(op: str) -> None:
    outcomes = [(case, check(case)) for case in cases(op)]
    taken = [pair for pair in outcomes if not pair[1].rejections]
    assert bool(taken) == (op not in _REFUSED)
    for case, outcome in taken:
        assert outcome.differences == 0, f"{case.name}: {outcome.differences} elements differ from LiteRT's"
        assert outcome.steps <= _STEPS, f"{case.name}: {outcome.steps} steps from the operator's own result"


def _case(op: str, shape: tuple[int, ...], out: tuple[int, ...], **args: Any) -> Case:
    """An operator on random integers whose result has their scale."""
    q = QParams(0.05, -3, INT8, -128, 127)
    x = Value("x", INT8, shape, tuple(range(len(shape))), q=q)
    y = Value("y", INT8, out, tuple(range(len(out))), q=q)
    given = {name: x if item is None else item for name, item in args.items()}
    data = np.random.default_rng(0).integers(-128, 128, shape).astype(np.int8)
    real = {name: load(data, q) if item is None else item for name, item in args.items()}
    real = {n: load_constant(v) if isinstance(v, Value) else v for n, v in real.items()}
    wanted = store(np.asarray(OPS[op].call(real)[0], np.float32), q)
    return Case(Graph("case", [x], [y], [Op(op, given, [y])]), [data], wanted, op, np.ones(out, np.bool_))


def load_constant(value: Value) -> Any:
    assert value.data is not None
    return value.data if value.q is None else load(value.data, value.q)


def _addmm() -> Case:
    rng = np.random.default_rng(1)
    weight, _ = weights(rng.normal(size=(6, 4)).astype(np.float32) / 8, None)
    bias = Value("bias", np.dtype(np.float32), (4,), (0,), rng.normal(size=4).astype(np.float32))
    return _case("addmm", (3, 6), (3, 4), self=bias, mat1=None, mat2=weight, beta=1, alpha=1)


@pytest.mark.parametrize(
    "case",
    [
        _addmm(),
        _case("expand", (2, 3), (2, 3), self=None, size=[2, -1], implicit=False),
        _case("adaptive_avg_pool1d", (2, 3, 8), (2, 3, 4), self=None, output_size=[4]),
        _case("resize_nearest2d", (1, 3, 4, 5), (1, 3, 8, 20), self=None, output_size=[8, 20]),
        _case("resize_bilinear2d", (1, 3, 4, 5), (1, 3, 8, 20), self=None, output_size=[8, 20], align_corners=False),
        _case("resize_bilinear2d", (1, 3, 4, 5), (1, 3, 8, 20), self=None, output_size=[8, 20], align_corners=True),
    ],
    ids=lambda case: case.name,
)
def test_rows_whose_samples_are_all_refused(case: Case) -> None:
    outcome = check(case)
    assert (outcome.rejections, outcome.differences) == ([], 0)
    assert outcome.steps <= _STEPS + 1  # positions between pixels are multiples of 1/1024


@pytest.mark.parametrize(
    ("scale", "refused"), [(0.05, 0), (0.05 / 127, 0), (0.05 / 128, 1), (0.05 * 512, 0), (26.0, 1)]
)
def test_hard_swish_is_refused_where_litert_has_no_meaning_for_it(scale: float, refused: int) -> None:
    """LiteRT does not load the first kind, and gives the same number for every input of the second."""
    case = _case("hardswish", (256,), (256,), self=None)
    case.graph.outputs[0].q = QParams(scale, 3, INT8, -128, 127)
    outcome = check(case)
    assert (len(outcome.rejections), outcome.differences) == (refused, 0)
