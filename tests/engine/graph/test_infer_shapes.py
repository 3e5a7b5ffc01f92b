"""Graphs that do not hold together are refused before any code is made: compiled code checks nothing."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from edgewright.engine import compile, make_plan
from edgewright.errors import EdgewrightError, ExecutionError, LimitError
from edgewright.ir.graph import Dim, Graph, Op, Value
from tests.engine.graphs import biases, constant, filters, graph, quantized, real
from tests.engine.lower.test_conv import conv, transposed


def spoiled(change: Callable[[Graph, Op], None], quantize: bool = False) -> Graph:
    made = conv((1, 8, 8, 6), 10, (3, 3), padding=(1, 1, 1, 1), quantize=quantize)
    change(made, made.ops[0])
    return made


def resized(*shape: int) -> Callable[[Graph, Op], None]:
    def change(made: Graph, op: Op) -> None:
        out = op.outputs[0]
        assert out is not None
        out.shape = shape

    return change


def with_args(**args: Any) -> Callable[[Graph, Op], None]:
    return lambda _, op: op.args.update(args)


SPOILED = {
    "a larger output": resized(1, 9, 8, 10),
    "a smaller output": resized(1, 4, 8, 10),
    "more channels": resized(1, 8, 8, 16),
    "another rank": resized(8, 8, 10),
    "more images": resized(2, 8, 8, 10),
    "a stride of 0": with_args(stride=[0, 1]),
    "a negative stride": with_args(stride=[-1, 1]),
    "a dilation of 0": with_args(dilation=[1, 0]),
    "a negative padding": with_args(padding=[-1, 3, 1, 1]),
    "padding without end": with_args(padding=[1 << 62, 1, 1, 1]),
    "no groups": with_args(groups=0),
    "groups that do not divide": with_args(groups=4),
    "a short bias": with_args(bias=biases(9, False)),
    "filters of other channels": with_args(weight=filters(10, 3, 3, 7, quantize=False)),
    "a window larger than the image": with_args(weight=filters(10, 30, 3, 6, quantize=False)),
    "filters of another rank": with_args(weight=filters(10, 6, quantize=False)),
}


@pytest.mark.parametrize("name", SPOILED)
def test_convolutions(name: str) -> None:
    with pytest.raises(ExecutionError) as caught:
        compile(spoiled(SPOILED[name]), threads=1)
    assert "conv2d" in str(caught.value)


def test_scales_must_fit_the_channels() -> None:
    weight = filters(7, 3, 3, 6, quantize=True)
    weight.data = filters(10, 3, 3, 6, quantize=True).data
    weight.shape = (10, 3, 3, 6)
    with pytest.raises(ExecutionError, match="one for each slice"):
        compile(spoiled(with_args(weight=weight), quantize=True), threads=1)


def test_transposed_convolutions() -> None:
    made = transposed((1, 5, 6, 10), 20, (3, 3), (2, 2), (0, 0, 0, 0), (0, 0), 1, False)
    made.ops[0].args["output_padding"] = [5, 0]
    with pytest.raises(ExecutionError):
        compile(made, threads=1)


def one(kind: str, out: tuple[int, ...], **args: Any) -> Graph:
    x, y = real("x", 2, 6, 6, 4), real("y", *out)
    return graph([x], [y], Op(f"core.{kind}", {"self": x, "input": x, **args}, [y]))


OTHERS = {
    "a sum": lambda: one("add", (2, 6, 6, 4), other=real("b", 3)),
    "a sum of more": lambda: one("mul", (2, 6, 6, 5), other=constant(np.ones(4, np.float32))),
    "a function": lambda: one("exp", (2, 6, 6, 5)),
    "a slice outside": lambda: one("slice", (2, 6, 6, 3), start=[0, 0, 0, 2], length=[0, 0, 0, 3]),
    "a slice before": lambda: one("slice", (2, 6, 6, 1), start=[0, 0, 0, -1], length=[0, 0, 0, 1]),
    "a view of more": lambda: one("view", (2, 6, 6, 5), size=[2, 6, 6, 5]),
    "dimensions twice": lambda: one("permute", (2, 2, 6, 4), dims=[0, 0, 1, 3]),
    "padding below 0": lambda: one("pad", (2, 5, 6, 4), before=[0, -1, 0, 0], after=[0, 0, 0, 0], value=0.0),
    "a mean of more": lambda: one("global_avg_pool2d", (2, 1, 1, 5)),
    "a pool of more": lambda: one("max_pool2d", (2, 4, 3, 4), kernel_size=[2, 2], stride=[2, 2], padding=[0] * 4),
    "a pool that stays": lambda: one("avg_pool2d", (2, 3, 3, 4), kernel_size=[2, 2], stride=[0, 2], padding=[0] * 4),
    "a larger image": lambda: one("upsample_bilinear2d", (2, 9, 9, 4), output_size=[8, 9], align_corners=False),
    "an image without size": lambda: one("upsample_bilinear2d", (2, 0, 9, 4), output_size=[0, 9], align_corners=False),
    "slopes of more": lambda: one("prelu", (2, 6, 6, 4), weight=constant(np.ones(5, np.float32))),
    "rows of more": lambda: one("linear", (2, 6, 6, 3), weight=filters(3, 5, quantize=False), bias=None),
    "a dimension that is not there": lambda: one("cat", (2, 6, 6, 8), tensors=[real("a", 2, 6, 6, 4)] * 2, dim=-9),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_other_operators(name: str) -> None:
    with pytest.raises(EdgewrightError):
        compile(OTHERS[name](), threads=1)


def test_values_must_be_made_before_they_are_read() -> None:
    x, y, z = real("x", 4), real("y", 4), real("z", 4)
    with pytest.raises(EdgewrightError, match="before it is defined"):
        compile(graph([x], [y], Op("core.add", {"self": x, "other": z}, [y])), threads=1)


def test_sizes_must_be_known() -> None:
    x, y = Value("x", np.dtype(np.float32), (Dim("s0", 1, 9), 4)), real("y", 9, 4)
    with pytest.raises(ExecutionError, match="known sizes"):
        compile(graph([x], [y], Op("core.exp", {"self": x}, [y])), threads=1)


def test_constants_have_the_shape_of_their_data() -> None:
    x, y, wrong = real("x", 4), real("y", 4), constant(np.ones(2, np.float32))
    wrong.shape = (4,)
    with pytest.raises(ExecutionError, match=r"must be float32 \[4\]"):
        compile(graph([x], [y], Op("core.add", {"self": x, "other": wrong}, [y])), threads=1)


@pytest.mark.parametrize(("scale", "zero"), [(0.0, 0), (float("nan"), 0), (float("inf"), 0), (-1.0, 0), (1.0, 300),
                                             (1.0, 1 << 40)])  # fmt: skip
def test_scales_and_zero_points_are_possible_ones(scale: float, zero: int) -> None:
    a, b = quantized("a", 4, scale=scale, zero=zero), quantized("b", 4)
    with pytest.raises(ExecutionError, match=r"scale|must be from -128 to 127"):
        compile(graph([a], [b], Op("core.add", {"self": a, "other": a}, [b])), threads=1)


@pytest.mark.parametrize("limits", [(float("nan"), 1.0), (2.0, 1.0), (0.0, float("nan"))])
def test_limits_are_in_order(limits: Any) -> None:
    made = conv((1, 4, 4, 4), 4, limits=limits)
    with pytest.raises(ExecutionError, match="limits"):
        compile(made, threads=1)


def test_scales_far_apart_are_left_to_the_reference() -> None:
    a, b, y = quantized("a", 4, scale=1e30), quantized("b", 4, scale=1e-30), quantized("y", 4, scale=1e-3)
    plan = make_plan(graph([a, b], [y], Op("core.add", {"self": a, "other": b}, [y])), threads=1)
    assert [s.label for s in plan.steps if s.python is not None] == ["add"]


def test_memory_is_limited() -> None:
    made = conv((1, 64, 64, 16), 64)
    make_plan(made, threads=1)
    with pytest.raises(LimitError, match="may take"):
        make_plan(made, threads=1, memory=1 << 19)


def test_steps_of_the_reference_have_the_graphs_limit() -> None:
    a, b, y = quantized("a", 1000, scale=1e-5), quantized("b", 1000, scale=1e-5), quantized("y", 1000, scale=1.0)
    made = graph([a, b], [y], Op("core.add", {"self": a, "other": b}, [y]))
    given = [np.zeros(1000, np.int8)] * 2
    compile(made, threads=1, memory=1 << 20).run(given)
    with pytest.raises(LimitError, match="6000 bytes at a time"):
        compile(made, threads=1, memory=6000).run(given)


def test_many_groups_are_few_steps() -> None:
    """A file must not ask for a step for each of a million groups."""
    x, y = quantized("x", 1, 1, 1, 4096), quantized("y", 1, 1, 1, 4096)
    args = {"input": x, "weight": filters(4096, 1, 1, 2, quantize=True), "bias": None, "stride": [1, 1], "groups": 2048,
            "padding": [0] * 4, "dilation": [1, 1], "output_padding": [0, 0]}  # fmt: skip
    plan = make_plan(graph([x], [y], Op("core.conv2d", args, [y])), threads=1)
    assert 1 <= sum(s.label == "conv2d" and s.python is None for s in plan.steps) <= 1024


def test_a_constant_that_is_used_often_counts_each_time() -> None:
    """A small file must not make the engine pack its one large constant thousands of times."""
    weight = filters(64, 3, 3, 64, quantize=False)
    values = [real(f"v{i}", 1, 8, 8, 64) for i in range(41)]
    args = {"weight": weight, "bias": None, "stride": [1, 1], "dilation": [1, 1], "padding": [1] * 4, "groups": 1}
    ops = [Op("core.conv2d", {"input": a, **args}, [b]) for a, b in pairwise(values)]
    made = graph([values[0]], [values[-1]], *ops)
    make_plan(made, threads=1, memory=64 << 20)
    with pytest.raises(LimitError, match="packed weights"):
        make_plan(made, threads=1, memory=20 << 20)


@pytest.mark.parametrize("dim", [3, 64, -4])
def test_concatenation_along_a_dimension_that_is_not_there(dim: int) -> None:
    a, b, out = real("a", 2, 1, 3), real("b", 2, 2, 3), real("out", 2, 3, 3)
    joined = graph([a, b], [out], Op("core.cat", {"tensors": [a, b], "dim": dim}, [out]))
    with pytest.raises(ExecutionError, match="the dimension must be one of 3"):
        make_plan(joined)
