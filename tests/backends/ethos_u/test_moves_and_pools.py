"""Movement, pools, resizing and reductions beyond the op table's samples: sizes and forms in which NPUs differ."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgewright.backends.ethos_u.dialect import DIALECT
from edgewright.backends.ethos_u.lower import TosaLowering
from edgewright.backends.ethos_u.ops import BACKEND, argmax_size
from edgewright.backends.ethos_u.partitioner import to_tosa
from edgewright.backends.ethos_u.pool import window_runs
from edgewright.backends.ethos_u.slice_concat import concat, slice_axis, strided_runs, take, tile
from edgewright.backends.ethos_u.target import EthosUCompileSpec
from edgewright.backends.ethos_u.tosa_file import write_tosa
from edgewright.backends.ethos_u.vela import compile_tosa
from edgewright.ir.graph import Graph, Op, QParams, Value
from tests.backends.ethos_u.hand_written import case
from tests.backends.ethos_u.rows import check, simulate
from tests.support.quantized_calls import weights

U55, U65, U85 = "ethos-u55-128", "ethos-u65-256", "ethos-u85-256"
MAX, AVERAGE, NEAREST = "aten.max_pool2d.default", "aten.avg_pool2d.default", "aten.upsample_nearest2d.vec"
BILINEAR, ADAPTIVE = "aten.upsample_bilinear2d.vec", "aten.adaptive_avg_pool2d.default"

TAKEN: list[tuple[Any, ...]] = [
    (MAX, (1, 3, 21, 21), [5, 5], [4, 4], [2, 2]),  # strides over 3, with padding
    (MAX, (1, 3, 112, 112), [112, 112]),
    (MAX, (1, 3, 20, 20), [3, 3], [2, 2], [1, 1], [3, 3], True),
    (MAX, (2, 3, 6, 7), [3, 3], [2, 3], [0, 1], [2, 1], False),  # of several images, one row too many
    (AVERAGE, (2, 3, 21, 21), [5, 5], [4, 4], [2, 2], False, False),
    (AVERAGE, (1, 3, 40, 40), [8, 8], [8, 8]),
    (AVERAGE, (1, 3, 80, 80), [80, 80]),
    (AVERAGE, (1, 3, 40, 40), [20, 20], [4, 4], [10, 10], True, False),
    (ADAPTIVE, (1, 3, 112, 112), [1, 1]),
    (ADAPTIVE, (1, 8, 10, 13), [7, 7]),
    (NEAREST, (1, 5, 4, 6), None, [2.0, 2.0]),
    (NEAREST, (1, 5, 4, 6), None, [8.0, 8.0]),
    (NEAREST, (2, 5, 4, 6), None, [4.0, 3.0]),
    (NEAREST, (1, 5, 4, 6), [9, 13], None),
    ("aten.mean.dim", (1, 8, 112, 112), [2, 3]),
    ("aten.mean.dim", (1, 65536, 2), [1]),
    ("aten.sum.dim_IntList", (2, 3, 4, 2, 3, 2), [0, 3, 5]),
    ("aten.cumsum.default", (2, 7, 3), 1),
    ("aten.amin.default", (2, 3, 4, 2), [1, 3]),
    ("aten.argmax.default", (3, 127), 1),
    ("aten.slice.Tensor", (2, 7000), 1, 5, 6900, 3),
    ("aten.flip.default", (2, 3, 4, 5), [0, 1, 3]),
    ("aten.constant_pad_nd.default", (2, 3, 4, 5, 2), [1, 2, 0, 0, 3, 1, 1, 1], 0.3),
    ("aten.pixel_shuffle.default", (1, 36, 4, 4), 3),
]


@pytest.mark.sample(17)
@pytest.mark.parametrize("call", TAKEN, ids=lambda c: f"{c[0][5:]}{list(c[1:])}")
@pytest.mark.parametrize("target", [U55, U85])
def test_forms_that_the_npu_has_not_are_made_of_those_it_has(call: tuple[Any, ...], target: str) -> None:
    outcome = check(case(*call), target)
    assert not outcome.rejections
    assert outcome.steps <= 1


@pytest.mark.parametrize(
    ("call", "target", "words"),
    [
        ((AVERAGE, (1, 3, 80, 80), [65, 65]), U85, "64x64, or cover the entire image; got [65, 65]"),
        ((BILINEAR, (1, 5, 8, 8), [16, 16], False, None), U65, "needs a U85; got ethos-u65-256"),
        ((BILINEAR, (1, 5, 40, 40), [2, 2], False, None), U85, "above 1/16"),
        ((BILINEAR, (1, 5, 5, 5), None, False, [1.5, 1.5]), U85, "output size divided by input size; got [1.5, 1.5]"),
        (("aten.argmax.default", (3, 128), 1), U55, "of one dimension; got 128 of int8"),
        (("aten.mean.dim", (1, 70000, 2), [1]), U55, "65536 along a dimension"),
        (("aten.gt.Scalar", (3, 4), 0.5), U55, "need a U85; got ethos-u55-128"),
    ],
)
def test_refusals_say_the_rule_and_the_value(call: tuple[Any, ...], target: str, words: str) -> None:
    assert any(words in text for text in check(case(*call), target).rejections)


def test_argmax_of_a_number_has_one_reason() -> None:
    """Torch takes its dimension for 0, which no size belongs to."""
    x, out = (Value(name, np.dtype(dtype), (), ()) for name, dtype in (("x", np.float32), ("out", np.int64)))
    assert argmax_size.check(Op("argmax", {"self": x, "dim": 0}, [out]), EthosUCompileSpec(U55)) is None


def test_places_become_few_slices() -> None:
    assert strided_runs([0, 1, 2, 3]) == [(0, 4, 1)]
    assert strided_runs([2, 1, 0, 1, 2, 3]) == [(2, 3, -1), (1, 3, 1)]
    assert strided_runs([0, 0, 0, 1, 2]) == [(0, 3, 0), (1, 2, 1)]
    assert strided_runs([0, 3, 6]) == [(0, 3, 3)]
    for places in ([5], [1, 1], [4, 2, 0, 0, 1, 2, 7, 7], [0, 2, 3, 4]):
        assert [f + i * s for f, n, s in strided_runs(places) for i in range(n)] == places


@pytest.mark.parametrize(("size", "count"), [(6, 4), (7, 3), (10, 7), (5, 5), (3, 7), (300, 2)])
def test_runs_of_adaptive_windows_are_all_the_windows(size: int, count: int) -> None:
    windows = [(r.first + i * r.step, r.length) for r in window_runs(size, count) for i in range(r.windows)]
    assert windows == [(o * size // count, -(-(o + 1) * size // count) - o * size // count) for o in range(count)]


# -------------------------------------------------------------------------------------------- several operators


Q = QParams(0.05, 3, np.dtype(np.int8), -128, 127)


def _value(name: str, shape: tuple[int, ...]) -> Value:
    return Value(name, np.dtype(np.int8), shape, tuple(range(len(shape))), q=Q)


def _flattened(read_again: bool) -> tuple[Graph, Value]:
    """A pooled image, flattened, into a linear layer; and, perhaps, to somebody who wants it as it is."""
    x, pooled, flat, kept, out = (
        _value(n, s)
        for n, s in (("x", (2, 3, 4, 6)), ("p", (2, 3, 2, 3)), ("f", (2, 18)), ("d", (2, 18)), ("o", (2, 5)))
    )
    weight, _ = weights(np.random.default_rng(1).standard_normal((5, 18)).astype(np.float32), 0)
    ops = [
        Op("max_pool2d", {"self": x, "kernel_size": [2, 2]}, [pooled]),
        Op("view", {"self": pooled, "size": [2, 18]}, [flat]),
        Op("dropout", {"input": flat, "p": 0.1, "train": False}, [kept]),
        Op("linear", {"input": kept, "weight": weight, "bias": None}, [out]),
    ]
    return Graph("flattened", [x], [out, flat] if read_again else [out], ops), weight


@pytest.mark.parametrize("read_again", [False, True])
def test_flattened_images_meet_reordered_weights(read_again: bool) -> None:
    graph, weight = _flattened(read_again)
    device = to_tosa(graph, EthosUCompileSpec(U55))
    data = np.random.default_rng(2).integers(-128, 128, (2, 3, 4, 6)).astype(np.int8)
    made = DIALECT.execute(device, [data])
    pooled = data.reshape(2, 3, 2, 2, 3, 2).max((3, 5)).reshape(2, 18)
    assert weight.q is not None and weight.data is not None
    acc = (pooled.astype(np.int64) - 3) @ weight.data.T.astype(np.int64)
    exact = acc * 0.05 * np.asarray(weight.q.scale) / 0.05 + 3
    assert np.abs(made[0] - np.clip(exact, -128, 127)).max() <= 0.51
    moves = [op for op in device.ops if op.kind == "tosa.transpose"]
    assert len(moves) == (2 if read_again else 1)  # the input's, and the one that somebody else asked for
    if read_again:
        assert np.array_equal(made[1], pooled)


def _check_device(low: TosaLowering, x: Value, out: Value, target: str) -> None:
    """What Vela makes of a device graph gives the graph's own integers."""
    low.graph.outputs.append(out)
    data = np.random.default_rng(3).integers(-100, 100, x.bound).astype(np.int8)
    wanted = DIALECT.execute(low.graph, [data])
    compiled = compile_tosa(
        write_tosa(low.graph), EthosUCompileSpec(target), inputs=[data.nbytes], outputs=[wanted[0].nbytes]
    )
    assert np.array_equal(simulate(compiled, [data], wanted)[0], wanted[0])


MOVES = {
    "slice": lambda low, x: slice_axis(low, x, 2, 1, 3),
    "join": lambda low, x: concat(low, [x, x], 2),
    "repeat": lambda low, x: tile(low, x, [1, 1, 2, 1]),
    "every other": lambda low, x: take(low, x, 2, [0, 2, 4]),
    "pad": lambda low, x: low.node("pad", [*x.bound[:2], 6, 3], x.dtype, input=x, padding=[0, 0, 0, 0, 0, 1, 0, 0],
                                   value=low.const([7], np.int8)),
}  # fmt: skip


def _tripled(low: TosaLowering, x: Value) -> Value:
    wide, three = low.rescale(x, np.int32, 1.0, 3), low.const(np.full([1] * 4, 3), np.int32)
    return low.rescale(low.node("mul", x.bound, np.int32, a=wide, b=three, shift=0), np.int8, 1 / 9, 0, 3)


@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("target", [U55, U65])
def test_vela_keeps_what_is_moved_before_and_after_arithmetic(move: str, first: bool, target: str) -> None:
    """Left to itself it forgets slices that a change of type follows, and where in a padded tensor a product goes."""
    low = TosaLowering(Graph("moved"), BACKEND.rows, EthosUCompileSpec(target))
    x = Value("x", np.dtype(np.int8), (1, 4, 5, 3), (0, 1, 2, 3))
    low.graph.inputs.append(x)
    out = _tripled(low, MOVES[move](low, x)) if first else MOVES[move](low, _tripled(low, x))
    _check_device(low, x, out, target)


@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("target", [U55, U65])
def test_vela_multiplies_matrices_that_were_moved(move: str, target: str) -> None:
    """Left to itself it forgets that the first one is a slice, as the queries of attention are of one linear layer."""
    low = TosaLowering(Graph("moved"), BACKEND.rows, EthosUCompileSpec(target))
    x = Value("x", np.dtype(np.int8), (1, 4, 5, 3), (0, 1, 2, 3))
    low.graph.inputs.append(x)
    moved = MOVES[move](low, _tripled(low, x))
    left = low.reshape(moved, [4, *moved.bound[2:]])
    right = low.const(np.random.default_rng(4).integers(-100, 100, (4, 3, 6)), np.int8)
    product = low.node("matmul", [4, left.bound[1], 6], np.int32, a=left, b=right, a_zp=3, b_zp=0)
    _check_device(low, x, low.rescale(product, np.int8, 1 / 300), target)
