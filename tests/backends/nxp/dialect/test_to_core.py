"""TFLite's operators in the engine, bit for bit what ``backends/nxp/dialect`` says, under both of its roundings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgewright.backends.nxp.dialect.numerics import TFLITE
from edgewright.ir.graph import Graph, Value
from tests.engine.vendors import graph, numbers, same, stored, tflite

BOTH = pytest.mark.parametrize("numerics", ["tflite", "xnnpack"])
SCALES = [(0.05, 3, 0.04, -10), (0.0392, -128, 0.0235, -128), (0.1, 0, 0.1, 0), (0.031, -20, 0.7, 5)]
EVERY = np.arange(-128, 128, dtype=np.int8)


def filters(shape: tuple[int, ...], axis: int | None, seed: int = 1) -> Value:
    rng = np.random.default_rng(seed)
    count = 1 if axis is None else shape[axis]
    scales: Any = tuple((rng.random(count) * 0.02 + 0.0005).tolist()) if axis is not None else 0.004
    return stored("w", shape, scales, 0, rng.integers(-127, 128, shape).astype(np.int8), axis)


def bias(channels: int, most: int = 4000) -> Value:
    return numbers(np.random.default_rng(2).integers(-most, most, channels))


def window(size: int, kernel: int, stride: int, dilation: int = 1) -> int:
    return (size - (kernel - 1) * dilation - 1) // stride + 1


def convolution(
    channels: int, kernel: int, stride: int, dilation: int, deep: bool, pad: int, out: tuple[float, int], last: str = ""
) -> Graph:
    x = stored("x", (2, 9, 10, 21 if deep else 6), 0.03, -5)
    held, ops = x, []
    if pad:
        shape = (2, 9 + 2 * pad, 10 + 2 * pad, x.bound[3])
        held = stored("p", shape, 0.03, -5)
        widths = numbers([[0, 0], [pad, pad], [pad, pad], [0, 0]])
        ops.append(tflite("PADV2", [x, widths, stored("v", (1,), 0.03, -5, np.array([-5], np.int8))], held))
    channels = 21 if deep else channels
    size = [window(n, kernel, stride, dilation) for n in held.bound[1:3]]
    w = filters((1, kernel, kernel, 21), 3) if deep else filters((channels, kernel, kernel, 6), 0)
    y = stored("y", (2, *size, channels), *out)
    options = {"padding": 1, "stride_h": stride, "stride_w": stride, "dilation_h": dilation, "dilation_w": dilation}
    kind = "DEPTHWISE_CONV_2D" if deep else "CONV_2D"
    ops.append(tflite(kind, [held, w, bias(channels)], y, **options, **({"depth_multiplier": 1} if deep else {})))
    if last:
        z = stored("z", y.bound, *(out if last == "RELU" else (0.004, -128)))
        ops.append(tflite(last, [y], z))
        y = z
    return graph([y], *ops)


@pytest.mark.sample(4)
@BOTH
@pytest.mark.parametrize("last", ["", "RELU", "LOGISTIC"])
@pytest.mark.parametrize("out", [(0.05, 7), (0.0003, -128), (9.0, 0)])  # ordinary, saturating, all but 0
@pytest.mark.parametrize(
    ("kernel", "stride", "dilation", "pad"), [(1, 1, 1, 0), (3, 1, 1, 1), (3, 2, 2, 2), (5, 3, 1, 0)]
)
@pytest.mark.parametrize("deep", [False, True])
def test_convolutions(numerics: str, last: str, out: Any, kernel: int, stride: int, dilation: int, pad: int, deep: bool
                      ) -> None:  # fmt: skip
    made = convolution(19, kernel, stride, dilation, deep, pad, out, last)
    same(made, numerics)


@BOTH
def test_halves_go_where_they_should(numerics: str) -> None:
    """Sums of 1/2 and 3/2 of a step, of both signs."""
    x, y = stored("x", (1, 256), 1.0), stored("y", (1, 256), 2.0)
    w = stored("w", (256, 256), 1.0, 0, np.eye(256, dtype=np.int8))
    same(graph([y], tflite("FULLY_CONNECTED", [x, w, bias(256, 1)], y, keep_num_dims=True)), numerics, [EVERY[None]])
    image, made = stored("x", (1, 1, 256, 1), 1.0), stored("y", (1, 1, 256, 1), 4.0)
    one = stored("w", (1, 1, 1, 1), 1.0, 0, np.ones((1, 1, 1, 1), np.int8))
    options = {"padding": 1, "stride_h": 1, "stride_w": 1, "dilation_h": 1, "dilation_w": 1}
    op = tflite("CONV_2D", [image, one, numbers([2])], made, **options)
    same(graph([made], op), numerics, [EVERY.reshape(1, 1, 256, 1)])


@BOTH
@pytest.mark.parametrize("columns", [1, 10, 70])
@pytest.mark.parametrize("out", [(0.05, 7), (0.0003, 3)])
def test_matrix_products(numerics: str, columns: int, out: Any) -> None:
    x, y = stored("x", (3, 37), 0.03, -5), stored("y", (3, columns), *out)
    w = filters((columns, 37), None)
    same(graph([y], tflite("FULLY_CONNECTED", [x, w, bias(columns)], y, keep_num_dims=True)), numerics)


def test_sums_beyond_what_vectors_hold_are_left_to_the_reference() -> None:
    x, y = stored("x", (1, 1, 1, 4), 0.03, -5), stored("y", (1, 1, 1, 4), 0.05)
    huge = numbers([2**31 - 1, -(2**31), 2**30, 5])
    options = {"padding": 1, "stride_h": 1, "stride_w": 1, "dilation_h": 1, "dilation_w": 1}
    same(graph([y], tflite("CONV_2D", [x, filters((4, 1, 1, 4), 0), huge], y, **options)), "tflite", native=False)


@pytest.mark.sample(2)
@BOTH
@pytest.mark.parametrize("cut", [0, 1])
def test_transposed_convolutions(numerics: str, cut: int) -> None:
    x = stored("x", (2, 4, 5, 6), 0.03, -5)
    shape = (2, 3 * 2 + 3 - cut, 4 * 2 + 3 - cut, 16)
    y = stored("y", shape, 0.06, 4)
    given = [numbers(shape), filters((16, 3, 3, 6), 0), x, bias(16)]
    same(graph([y], tflite("TRANSPOSE_CONV", given, y, padding=1, stride_h=2, stride_w=2)), numerics)


@pytest.mark.sample(3)
@BOTH
@pytest.mark.parametrize("given", SCALES)
def test_every_pair_of_bytes(numerics: str, given: tuple[float, int, float, int]) -> None:
    a, b = (np.ascontiguousarray(n.astype(np.int8)) for n in np.meshgrid(EVERY, EVERY))
    values = [stored("a", a.shape, *given[:2]), stored("b", b.shape, *given[2:])]
    ops = [tflite(kind, values, stored(kind, a.shape, 0.09, 4)) for kind in ("ADD", "SUB", "MUL", "PRELU")]
    same(graph([op.outputs[0] for op in ops], *ops), numerics, [a, b])
    alike = [stored(n, a.shape, *given[:2]) for n in "ab"]
    ops = [tflite(kind, alike, stored(kind, a.shape, *given[:2])) for kind in ("MAXIMUM", "MINIMUM")]
    same(graph([op.outputs[0] for op in ops], *ops), numerics, [a, b])


@BOTH
@pytest.mark.parametrize("shape", [(1, 1, 1, 5), (2, 1, 7, 5), (5,)])
def test_operands_are_spread(numerics: str, shape: tuple[int, ...]) -> None:
    x, other, y = stored("x", (2, 3, 7, 5), 0.05, 3), stored("o", shape, 0.02, -9), stored("y", (2, 3, 7, 5), 0.06, 1)
    for kind in ("ADD", "MUL"):
        same(graph([y], tflite(kind, [x, other], y)), numerics)


def test_sums_and_their_activations_are_done_at_once() -> None:
    a, b, y, z = (stored(n, (1, 4, 4, 24), 0.05, 3) for n in "abyz")
    made = graph([z], tflite("ADD", [a, b], y), tflite("RELU6", [y], z))
    same(made, "tflite")
    assert [s.label for s in plan(made) if s.macs == 0 and "ADD" in s.label] == ["tflite.ADD+tflite.RELU6"]


def plan(made: Graph) -> Any:
    from edgewright.engine import make_plan

    return make_plan(made, threads=1, numerics=TFLITE).steps


KINDS = ("RELU", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1", "LOGISTIC", "TANH", "EXP", "LOG", "ABS", "HARD_SWISH",
         "LEAKY_RELU", "RSQRT")  # fmt: skip


@pytest.mark.sample(3)
@BOTH
@pytest.mark.parametrize("given", SCALES)
def test_functions_of_every_byte(numerics: str, given: tuple[float, int, float, int]) -> None:
    x = stored("x", (1, 256), *given[:2])
    options: dict[str, Any] = {"LEAKY_RELU": {"alpha": 0.3}}
    ops = [tflite(kind, [x], stored(kind, (1, 256), *given[2:]), **options.get(kind, {})) for kind in KINDS]
    same(graph([op.outputs[0] for op in ops], *ops), numerics, [EVERY[None]])


@pytest.mark.sample(3)
@BOTH
@pytest.mark.parametrize("kind", ["MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN"])
def test_reductions(numerics: str, kind: str) -> None:
    x, ops = stored("x", (2, 7, 9, 21), 0.05, 3), []
    out = {"MEAN": (0.03, -9), "SUM": (0.9, 2)}.get(kind, (0.05, 3))
    for axes in ([1, 2], [3], [2], [0, 1, 2, 3]):
        for keep in (True, False):
            shape = tuple(1 if d in axes else n for d, n in enumerate(x.bound) if keep or d not in axes)
            ops.append(tflite(kind, [x, numbers(axes)], stored(f"{axes}", shape, *out), keep_dims=keep))
    same(graph([op.outputs[0] for op in ops], *ops), numerics)


@BOTH
@pytest.mark.parametrize(("kernel", "stride"), [((2, 2), (2, 2)), ((3, 2), (1, 2)), ((7, 9), (1, 1))])
@pytest.mark.parametrize("kind", ["AVERAGE_POOL_2D", "MAX_POOL_2D"])
def test_pools(numerics: str, kernel: tuple[int, int], stride: tuple[int, int], kind: str) -> None:
    x = stored("x", (2, 7, 9, 21), 0.05, 3)
    size = [window(n, k, s) for n, k, s in zip(x.bound[1:3], kernel, stride, strict=True)]
    y = stored("y", (2, *size, 21), 0.05, 3)
    options = dict(zip(("filter_h", "filter_w", "stride_h", "stride_w"), (*kernel, *stride), strict=True))
    same(graph([y], tflite(kind, [x], y, padding=1, **options)), numerics)


def test_moves() -> None:
    x, a, b = (stored(n, (2, 3, 4, 5), 0.05, 3) for n in "xab")
    turned = stored("t", (2, 5, 3, 4), 0.05, 3)
    flat, part = stored("f", (2, 60), 0.05, 3), stored("s", (1, 20), 0.05, 3)
    same(graph([turned], tflite("TRANSPOSE", [x, numbers([0, 3, 1, 2])], turned)), "tflite")
    reshaped = tflite("RESHAPE", [x, numbers([2, 60])], flat, new_shape=[2, 60])
    same(graph([part], reshaped, tflite("SLICE", [flat, numbers([1, 7]), numbers([1, 20])], part)), "tflite")
    joined, wide = stored("j", (2, 3, 4, 10), 0.05, 3), stored("w", (2, 6, 4, 5), 0.05, 3)
    same(graph([joined], tflite("CONCATENATION", [a, b], joined, axis=-1)), "tflite")
    value = stored("v", (1,), 0.05, 3, np.array([77], np.int8))
    widths = numbers([[0, 0], [1, 2], [0, 0], [0, 0]])
    same(graph([wide], tflite("PADV2", [x, widths, value], wide)), "tflite")


@BOTH
@pytest.mark.parametrize("given", SCALES)
@pytest.mark.parametrize("shape", [(1, 10), (300, 3), (2, 3, 4, 37), (1, 4000)])
def test_softmax(numerics: str, given: tuple[float, int, float, int], shape: tuple[int, ...]) -> None:
    x, y = stored("x", shape, *given[:2]), stored("y", shape, 1 / 256, -128)
    same(graph([y], tflite("SOFTMAX", [x], y, beta=1.0)), numerics)
    same(graph([y], tflite("SOFTMAX", [x], y, beta=3.0)), numerics, [np.full(shape, 127, np.int8)])


@pytest.mark.sample(2)
@pytest.mark.parametrize("out", [(0.05, 7), (0.0003, 3)])
@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
def test_products_of_computed_matrices(out: Any, batch: tuple[int, ...]) -> None:
    a, b = stored("a", (*batch, 5, 37), 0.03, -5), stored("b", (*batch, 37, 19), 0.02, 90)
    y = stored("y", (*batch, 5, 19), *out)
    same(graph([y], tflite("BATCH_MATMUL", [a, b], y)), "tflite")
