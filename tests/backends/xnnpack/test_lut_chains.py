"""Chains of 8-bit functions that stock's runtime crashes on are split, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

import edgewright as ew
from edgewright.backends.xnnpack.lut_chains import split_chains
from edgewright.ir.graph import Graph, Op, QParams, Value
from tests.backends.device import constant, q8, value
from tests.support.stock import stock


def functions(x: Tensor) -> Tensor:
    for _ in range(4):
        x = torch.tanh(F.hardswish(x))
    return x


def sums(x: Tensor) -> Tensor:
    for _ in range(8):
        x = torch.relu(x + x)
    return x


def numbers(x: Tensor) -> Tensor:
    for n in range(6):
        x = (x + 0.1 * n) * 0.9
    return x


class Between(nn.Module):
    """A function between two layers that are quantized."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function, self.first, self.last = function, nn.Conv2d(3, 4, 1), nn.Conv2d(4, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.function(self.first(x)))  # type: ignore[no-any-return]


@pytest.mark.parametrize("function", [functions, sums, numbers])
def test_long_chains_run_in_stock(function: Callable[[Tensor], Tensor]) -> None:
    data = [(torch.randn(1, 3, 4, 4),) for _ in range(4)]
    result = ew.compile(Between(function), data[0], "xnnpack", quantize="int8", calibration=data, quiet=True)
    x = data[0][0].numpy()
    ours, theirs = result.run(data[0][0]).numpy(), stock().run(bytes(result.program.buffer), "forward", [x])[0]
    step = float(np.abs(ours).max()) / 100
    assert np.abs(ours - np.asarray(theirs)).max() <= step


def chain(length: int, q: QParams | None) -> Graph:
    values = [value((1, 3), q=q) for _ in range(length + 1)]
    ops = [Op("core.clamp", {"self": a, "limits": (-1.0, 1.0)}, [b]) for a, b in pairwise(values)]
    return Graph("chain", [values[0]], [values[-1]], ops)


def kinds(graph: Graph) -> list[str]:
    split_chains(graph)
    return [op.name for op in graph.ops]


def test_the_ninth_node_begins_another_chain() -> None:
    assert kinds(chain(8, q8(0.1, 0))) == ["clamp"] * 8
    assert kinds(chain(17, q8(0.1, 0))) == [*["clamp"] * 8, "permute"] * 2 + ["clamp"]


def test_limits_of_a_sum_are_a_node() -> None:
    values = [value((1, 3), q=q8(0.1, 0)) for _ in range(6)]
    ops = [Op("core.add", {"self": a, "other": a, "limits": (0.0, 6.0)}, [b])
           for a, b in pairwise(values)]  # fmt: skip
    assert kinds(Graph("sums", [values[0]], [values[-1]], ops)) == ["add"] * 4 + ["permute", "add"]


@pytest.mark.parametrize(("shape", "split"), [((1,), True), ((1, 1), True), ((1, 3), False)])
def test_a_number_beside_a_value_is_no_second_value(shape: tuple[int, ...], split: bool) -> None:
    values = [value((1, 3), q=q8(0.1, 0)) for _ in range(11)]
    other = constant(np.full(shape, 4, np.int8), q8(0.1, 0))
    ops = [Op("core.mul", {"self": a, "other": other}, [b]) for a, b in pairwise(values)]
    assert ("permute" in kinds(Graph("numbers", [values[0]], [values[-1]], ops))) is split


def test_float_chains_and_functions_of_two_values_stay() -> None:
    assert kinds(chain(20, None)) == ["clamp"] * 20
    x, other = value((1, 3), q=q8(0.1, 0)), value((1, 3), q=q8(0.1, 0))
    values: list[Value] = [x, *(value((1, 3), q=q8(0.1, 0)) for _ in range(12))]
    ops = [Op("core.add", {"self": a, "other": other}, [b]) for a, b in pairwise(values)]
    assert kinds(Graph("two", [x, other], [values[-1]], ops)) == ["add"] * 12
