"""Operators that move elements, and graphs of several, on the simulated NPU and in the TOSA reference model."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import permutations
from typing import Any

import numpy as np
import pytest
import tosa_serializer as ts

from tests.backends.ethos_u.tosa_graphs import SIMULATED, Graph, Tensor, assert_equal

IMAGE = (1, 6, 7, 20)


def transposed(perms: Any, *, shape: Any = (1, 6, 7, 20), dtype: str = "i8") -> Graph:
    graph = Graph()
    return graph.output(graph.transpose(graph.input(shape, dtype), perms))


def reversed_(axis: int, *, dtype: str = "i8") -> Graph:
    graph = Graph()
    return graph.output(graph.op("REVERSE", [graph.input(IMAGE, dtype)], IMAGE, dtype, axis))


def joined(axis: int, *sizes: int, dtype: str = "i8") -> Graph:
    graph = Graph()
    shapes = [[size if i == axis else n for i, n in enumerate(IMAGE)] for size in sizes]
    parts = [graph.input(tuple(shape), dtype) for shape in shapes]
    result = [sum(sizes) if i == axis else n for i, n in enumerate(IMAGE)]
    return graph.output(graph.op("CONCAT", parts, result, dtype, axis))


def sliced(start: Any, size: Any, *, dtype: str = "i8") -> Graph:
    graph = Graph()
    x = graph.input(IMAGE, dtype)
    return graph.output(graph.op("SLICE", [x, graph.sizes(*start), graph.sizes(*size)], size, dtype))


def padded(amounts: Any, value: int, *, dtype: str = "i8") -> Graph:
    graph = Graph()
    x = graph.input(IMAGE, dtype)
    shape = [n + a + b for n, a, b in zip(IMAGE, amounts[::2], amounts[1::2], strict=True)]
    return graph.output(graph.op("PAD", [x, graph.sizes(*amounts), graph.const([value], dtype)], shape, dtype))


def tiled(*times: int) -> Graph:
    graph = Graph()
    shape = [n * t for n, t in zip(IMAGE, times, strict=True)]
    return graph.output(graph.op("TILE", [graph.input(IMAGE), graph.sizes(*times)], shape, "i8"))


def resized(times: int, *, size: Any, dtype: str = "i8", aligned: bool = False) -> Graph:
    """Nearest neighbours: the one resize Vela takes for U55 and U65."""
    graph = Graph()
    x = graph.input((1, 5, 5, 12), dtype)
    scale, edge = (times, 1) if aligned else (2 * times, 2), 0 if aligned else times - 1
    operands = [x, graph.sizes(*scale, *scale), graph.sizes(-edge, -edge), graph.sizes(edge, edge)]
    return graph.output(graph.op("RESIZE", operands, (1, *size, 12), dtype, ts.ResizeMode.NEAREST))


def reshaped(*shape: int) -> Graph:
    graph = Graph()
    return graph.output(graph.reshape(graph.transpose(graph.input((1, 6, 8, 20)), (0, 2, 1, 3)), *shape))


CASES: dict[str, Callable[[], Graph]] = {
    **{f"transpose {perms}": partial(transposed, perms) for perms in permutations(range(4)) if perms[0] == 0},
    **{f"transpose {perms} of a batch": partial(transposed, perms, shape=(3, 4, 5, 6))
       for perms in ((1, 0, 2, 3), (3, 2, 1, 0), (2, 3, 0, 1), (1, 2, 3, 0))},
    "transpose a matrix": partial(transposed, (1, 0), shape=(17, 30)),
    "transpose int16": partial(transposed, (0, 3, 1, 2), dtype="i16"),
    "transpose int32": partial(transposed, (0, 2, 3, 1), dtype="i32"),
    "reverse rows": partial(reversed_, 1),
    "reverse columns": partial(reversed_, 2),
    "reverse rows int16": partial(reversed_, 1, dtype="i16"),
    "concat rows": partial(joined, 1, 2, 3),
    "concat columns": partial(joined, 2, 4, 1, 2),
    "concat channels": partial(joined, 3, 5, 16, 3),
    "concat channels int16": partial(joined, 3, 5, 16, dtype="i16"),
    "concat channels int32": partial(joined, 3, 5, 16, dtype="i32"),
    "slice rows": partial(sliced, (0, 2, 0, 0), (1, 3, 7, 20)),
    "slice channels": partial(sliced, (0, 0, 0, 3), (1, 6, 7, 11)),
    "slice all": partial(sliced, (0, 1, 2, 17), (1, 4, 3, 3)),
    "slice int16": partial(sliced, (0, 1, 2, 3), (1, 4, 3, 12), dtype="i16"),
    "pad": partial(padded, (0, 0, 1, 2, 3, 1, 0, 0), 0),
    "pad with a value": partial(padded, (0, 0, 1, 2, 3, 1, 0, 0), -77),
    "pad channels": partial(padded, (0, 0, 0, 0, 0, 0, 2, 5), 13),
    "pad int16": partial(padded, (0, 0, 1, 2, 3, 1, 0, 0), 1234, dtype="i16"),
    "tile": partial(tiled, 1, 2, 1, 3),
    "nearest to double": partial(resized, 2, size=(10, 10)),
    "nearest to double, corners aligned": partial(resized, 2, aligned=True, size=(9, 9)),
    "nearest to fourfold": partial(resized, 4, size=(20, 20)),
    "nearest to eightfold": partial(resized, 8, size=(40, 40)),
    "nearest int16": partial(resized, 2, size=(10, 10), dtype="i16"),
    "reshape": partial(reshaped, 1, 16, 3, 20),
    "reshape to rank 2": partial(reshaped, 8, 120),
}  # fmt: skip


@pytest.mark.sample(65)
@pytest.mark.parametrize("accelerator", SIMULATED)
@pytest.mark.parametrize("case", CASES)
def test_move(case: str, accelerator: str) -> None:
    assert_equal(CASES[case](), accelerator)


def layer(graph: Graph, x: Tensor, channels: int, size: int = 3, stride: int = 1) -> Tensor:
    rng = np.random.default_rng(channels + size + stride)
    pad = (0, 0, 0, 0) if size == 1 else (1, 1, 1, 1) if stride == 1 else (0, 1, 0, 1)
    weights = rng.integers(-127, 127, (channels, size, size, x.shape[3]), endpoint=True)
    sums = graph.conv(x, weights, rng.integers(-999, 999, channels), pad=pad, stride=(stride, stride), zero=-3)
    scale = 1.5 / 127 / (size * x.shape[3] ** 0.5)
    return graph.clamp(graph.rescale(sums, scale * rng.uniform(0.5, 1, channels), zero=(0, -3)), -100, 120)


def depthwise(graph: Graph, x: Tensor) -> Tensor:
    rng = np.random.default_rng(x.shape[3])
    weights = rng.integers(-127, 127, (3, 3, x.shape[3], 1), endpoint=True)
    sums = graph.conv(
        x, weights, rng.integers(-999, 999, x.shape[3]), kind="DEPTHWISE_CONV2D", pad=(1, 1, 1, 1), zero=-3
    )
    return graph.rescale(sums, rng.uniform(0.001, 0.005, x.shape[3]), zero=(0, -3))


def residual(graph: Graph, x: Tensor, y: Tensor) -> Tensor:
    a = graph.rescale(x, 2**19, zero=(-3, 0), to="i32")
    b = graph.rescale(y, 0.37 * 2**20, zero=(-3, 0), to="i32")
    return graph.rescale(graph.binary("ADD", a, b), 1.1 / 2**19, zero=(0, -3))


def network(side: int = 24) -> Graph:
    """A little of everything that image networks are made of."""
    graph = Graph()
    stem = layer(graph, graph.input((1, side, side, 3)), 24, stride=2)
    block = layer(graph, depthwise(graph, layer(graph, stem, 40, 1)), 24, 1)
    joined = residual(graph, stem, block)
    pooled = graph.pool(joined, "MAX_POOL2D", (2, 2), (2, 2))
    curve = graph.table(pooled, np.round(100 * np.tanh(np.linspace(-3, 3, 256))))
    mean = graph.pool(curve, "AVG_POOL2D", curve.shape[1:3], zero=(0, 0))
    return graph.output(layer(graph, mean, 10, 1))


def stack(side: int = 32) -> Graph:
    graph = Graph()
    x = graph.input((1, side, side, 8))
    for channels in (24, 16, 32):
        x = depthwise(graph, layer(graph, x, channels))
    return graph.output(layer(graph, x, 8, 1))


def softmax() -> Graph:
    """exp(x - max) / sum, with tables, as compilers write it for integers."""
    graph = Graph()
    x = graph.input((1, 1, 12, 40))
    wide = graph.rescale(x, 1, to="i32")
    largest = graph.rescale(graph.reduce("REDUCE_MAX", x, 3), 1, to="i32")
    lowered = graph.binary("SUB", wide, largest)
    index = graph.rescale(lowered, 1, zero=(0, 127), to="i8")
    power = graph.table(index, np.round(127 * np.exp((np.arange(-128, 128) - 127) / 40)))
    wide_power = graph.rescale(power, 1, to="i32")
    total = graph.reduce("REDUCE_SUM", wide_power, 3)
    leading = graph.op("CLZ", [total], total.shape, "i32")
    room = graph.binary("SUB", leading, graph.const(np.full((1, 1, 1, 1), 1), "i32"))
    unit = graph.binary("LOGICAL_LEFT_SHIFT", total, room)
    share = graph.binary("MUL", wide_power, graph.rescale(unit, 2**-16, to="i32"))
    return graph.output(graph.rescale(share, 2**-14, to="i8"))


NETWORKS: dict[str, tuple[Callable[[], Graph], str]] = {
    "network": (network, ""),
    "network in 8 KB": (network, "arena_size_limit=8192\n"),
    "network in 3 KB": (network, "arena_size_limit=3000\n"),
    "network for size": (partial(network, 40), "optimize=Size\n"),
    "stack": (stack, ""),
    "stack in 12 KB": (stack, "arena_size_limit=12000\n"),
    "wide stack in 20 KB": (partial(stack, 64), "arena_size_limit=20000\n"),
    "softmax": (softmax, ""),
}


@pytest.mark.sample(14)
@pytest.mark.parametrize("accelerator", SIMULATED)
@pytest.mark.parametrize("case", NETWORKS)
def test_network(case: str, accelerator: str) -> None:
    make, options = NETWORKS[case]
    assert_equal(make(), accelerator, options=options)
