"""Random graphs: whatever Vela makes of them, the simulated NPU and the TOSA reference model agree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tosa_serializer as ts
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from tests.backends.ethos_u.tosa_graphs import SIMULATED, Graph, Tensor, assert_equal

Draw = Callable[[Any], Any]


def zero(x: Tensor) -> int:
    return -3 if x.dtype == "i8" else 0


def back(graph: Graph, sums: Tensor, x: Tensor, scale: Any, rounding: str = "single") -> Tensor:
    """A convolution's sums in the type of its input; those of 48 bits take scales of 16."""
    wide = x.dtype == "i16"
    return graph.rescale(sums, scale, zero=(0, zero(x)), to=x.dtype, rounding="single" if wide else rounding,
                         scale32=not wide)  # fmt: skip


def not_after(graph: Graph, *kinds: str, lines: int = 1) -> None:
    """Keep out of the pairs of operators that Vela 5.2 gets wrong: the stream is then not what the graph means."""
    assume(not any(f" {kind}(" in line for line in graph.lines[-lines:] for kind in kinds))


def scale_of(draw: Draw, taps: float) -> float:
    return draw(st.floats(0.3, 1.5)) / 60 / taps**0.5


def weights_for(draw: Draw, shape: tuple[int, ...]) -> np.ndarray:
    rng = np.random.default_rng(draw(st.integers(0, 1 << 16)))
    weights = rng.integers(-127, 127, shape, endpoint=True)
    return weights * (rng.random(shape) < draw(st.sampled_from((0.1, 0.7, 1.0))))


def conv(draw: Draw, graph: Graph, x: Tensor) -> Tensor:
    kernel = [draw(st.integers(1, min(5, n))) for n in x.shape[1:3]]
    stride = [draw(st.integers(1, 3)) for _ in kernel]
    pad = [draw(st.integers(0, k - 1)) for k in kernel for _ in range(2)]
    pad[1] += -(x.shape[1] + pad[0] + pad[1] - kernel[0]) % stride[0]  # TOSA wants kernels to fit exactly
    pad[3] += -(x.shape[2] + pad[2] + pad[3] - kernel[1]) % stride[1]
    channels = draw(st.integers(1, 40))
    weights = weights_for(draw, (channels, *kernel, x.shape[3]))
    sums = graph.conv(x, weights, np.arange(channels) * 37 - 500, pad=pad, stride=stride, zero=zero(x))
    scales = scale_of(draw, weights[0].size) * np.linspace(0.5, 1, channels)
    return back(graph, sums, x, scales, draw(st.sampled_from(("single", "double"))))


def depthwise(draw: Draw, graph: Graph, x: Tensor) -> Tensor:
    size, channels = draw(st.sampled_from((1, 3, 5))), x.shape[3]
    assume(min(x.shape[1:3]) >= size)
    weights = weights_for(draw, (size, size, channels, 1))
    sums = graph.conv(x, weights, np.arange(channels) * 7, kind="DEPTHWISE_CONV2D", pad=(size // 2,) * 4, zero=zero(x))
    return back(graph, sums, x, scale_of(draw, size * size))


def transposed(draw: Draw, graph: Graph, x: Tensor) -> Tensor:
    size, channels = draw(st.integers(2, 4)), draw(st.integers(1, 20))
    assume(max(x.shape[1:3]) < 16)
    not_after(graph, "SLICE", lines=3)  # padded on the wrong side
    weights = weights_for(draw, (channels, size, size, x.shape[3]))
    sums = graph.conv(x, weights, np.zeros(channels), kind="TRANSPOSE_CONV2D", stride=(2, 2), zero=zero(x))
    return back(graph, sums, x, scale_of(draw, weights[0].size))


def pool(draw: Draw, graph: Graph, x: Tensor) -> Tensor:
    size = draw(st.integers(2, 4))
    assume(min(x.shape[1:3]) >= size)
    pad = [draw(st.integers(0, size - 1)) for _ in range(4)]
    kind = draw(st.sampled_from(("MAX_POOL2D", "AVG_POOL2D")))
    return graph.pool(x, kind, (size, size), pad=pad, zero=(zero(x), zero(x)))


def combine(draw: Draw, graph: Graph, x: Tensor) -> Tensor:
    """The sum or difference with another tensor, whole or spread over some axes."""
    shape = [n if draw(st.booleans()) else 1 for n in x.shape]
    other, room = graph.input(tuple(shape), x.dtype), 20 if x.dtype == "i8" else 15
    # Of one scale it would be several operations, and the parts of a concat before them are written over each other
    scales = draw(st.permutations((1.0, 0.37, 1.9, 0.05)))[:2]
    unit = 2 * max(scales)
    wide = [graph.rescale(t, s / unit * 2**room, zero=(zero(x), 0), to="i32")
            for t, s in zip((x, other), scales, strict=True)]  # fmt: skip
    kind = draw(st.sampled_from(("ADD", "SUB")))
    result = graph.binary(kind, *(wide if draw(st.booleans()) else wide[::-1]))
    scale = unit / 2**room / draw(st.sampled_from((1.0, 2.2)))
    return graph.rescale(result, scale, zero=(0, zero(x)), to=x.dtype)


def multiply(draw: Draw, graph: Graph, x: Tensor) -> Tensor:
    other = graph.input((1, 1, 1, x.shape[3]) if draw(st.booleans()) else x.shape, x.dtype)
    wide = [graph.rescale(t, 1, zero=(zero(x), 0), to="i32") for t in (x, other)]
    scale = draw(st.floats(0.005, 0.03)) / (1 if x.dtype == "i8" else 256)
    return graph.rescale(graph.binary("MUL", *wide), scale, zero=(0, zero(x)), to=x.dtype)


def move(draw: Draw, graph: Graph, x: Tensor) -> Tensor:
    kind = draw(st.sampled_from(("transpose", "reverse", "pad", "slice", "concat", "resize")))
    if kind == "transpose":
        return graph.transpose(x, (0, *draw(st.permutations((1, 2, 3)))))
    if kind == "reverse":
        return graph.op("REVERSE", [x], x.shape, x.dtype, draw(st.sampled_from((1, 2))))
    if kind in ("pad", "concat"):  # a rescale that is an operation of its own is put at its start
        not_after(graph, "TRANSPOSE_CONV2D", lines=3)
    if kind == "pad":
        amounts = [0, 0, *(draw(st.integers(0, 2)) for _ in range(6))]
        shape = [n + a + b for n, a, b in zip(x.shape, amounts[::2], amounts[1::2], strict=True)]
        return graph.op("PAD", [x, graph.sizes(*amounts), graph.const([zero(x)], x.dtype)], shape, x.dtype)
    if kind == "slice":
        starts = [draw(st.integers(0, n - 1)) for n in x.shape]
        sizes = [draw(st.integers(1, n - s)) for n, s in zip(x.shape, starts, strict=True)]
        return graph.op("SLICE", [x, graph.sizes(*starts), graph.sizes(*sizes)], sizes, x.dtype)
    if kind == "concat":
        axis = draw(st.integers(1, 3))
        shape = [n * 2 if i == axis else n for i, n in enumerate(x.shape)]
        return graph.op("CONCAT", [x, graph.input(x.shape, x.dtype)], shape, x.dtype, axis)
    operands = [x, graph.sizes(4, 2, 4, 2), graph.sizes(-1, -1), graph.sizes(1, 1)]
    shape = (1, 2 * x.shape[1], 2 * x.shape[2], x.shape[3])
    return graph.op("RESIZE", operands, shape, x.dtype, ts.ResizeMode.NEAREST)


def curve(draw: Draw, graph: Graph, x: Tensor) -> Tensor:
    not_after(graph, "TRANSPOSE")  # the table is loaded beyond the memory of u55-32 and u55-64, and Vela says so
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    if x.dtype == "i16":  # a table of 16 bits answers in 23
        return graph.rescale(graph.table(x, rng.integers(-16000, 16000, 513)), 1 / 128, to="i16")
    return graph.table(x, rng.integers(-128, 127, 256, endpoint=True))


def clamp(draw: Draw, graph: Graph, x: Tensor) -> Tensor:
    not_after(graph, "TRANSPOSE")  # dropped together with transposes that cancel
    wide = 1 if x.dtype == "i8" else 256
    return graph.clamp(x, wide * draw(st.integers(-120, -10)), wide * draw(st.integers(10, 120)))


STEPS = (conv, conv, depthwise, transposed, pool, combine, combine, multiply, move, move, curve, clamp)


@st.composite
def graphs(draw: Draw) -> Graph:
    graph = Graph()
    shape = (1, *(draw(st.integers(3, 14)) for _ in range(2)), draw(st.integers(1, 36)))
    x = graph.input(shape, draw(st.sampled_from(("i8", "i8", "i16"))))
    for _ in range(draw(st.integers(1, 5))):
        x = draw(st.sampled_from(STEPS))(draw, graph, x)
        assume(np.prod(x.shape) < 20000)
    return graph.output(x)


ROOM = "arena_size_limit=100000\n"
LIMITS = ("", ROOM, "arena_size_limit=6000\n", "arena_size_limit=1500\n")


def check(graph: Graph, accelerator: str, options: str) -> None:
    if any(f" {kind}(" in line for line in graph.lines for kind in ("ADD", "SUB", "MUL")):
        options = ROOM  # in a cascade Vela 5.2 works in place, on rows that the next layer still needs
    try:
        assert_equal(graph, accelerator, options=options, varied=False)
    except RuntimeError as error:  # Vela's no: a graph it does not take shows nothing
        assume("could not run on NPU" not in str(error))
        raise


@settings(max_examples=80, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(graphs(), st.sampled_from(SIMULATED), st.sampled_from(LIMITS))
def test_random_graphs(graph: Graph, accelerator: str, options: str) -> None:
    check(graph, accelerator, options)


@pytest.mark.slow
@settings(
    max_examples=1500, deadline=None, phases=[Phase.generate, Phase.shrink], suppress_health_check=list(HealthCheck)
)
@given(graphs(), st.sampled_from(SIMULATED), st.sampled_from(LIMITS))
def test_many_random_graphs(graph: Graph, accelerator: str, options: str) -> None:
    check(graph, accelerator, options)
