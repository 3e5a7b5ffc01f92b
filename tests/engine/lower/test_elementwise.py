"""Operators on elements, pools and moves: bytes equal the reference's, real numbers are close."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewright.engine import make_plan
from edgewright.engine.codegen.math_float32 import FUNCTIONS
from edgewright.ir.graph import Graph, Op, Value
from tests.engine.graphs import U8, compare, constant, cpus, graph, quantized, random, real, run, steps_in_python

BINARY = ["add", "sub", "mul", "div", "maximum", "minimum"]
INF = float("inf")


def binary(kind: str, a: Value, b: Value, out: Value, limits: Any = None) -> Graph:
    args = {"self": a, "other": b} | ({} if limits is None else {"limits": limits})
    return graph([v for v in (a, b) if v.data is None], [out], Op(f"core.{kind}", args, [out]))


def check(made: Graph, cpu: str, bound: float = 2e-6, native: bool = True) -> None:
    compare(made, [random(v, i) for i, v in enumerate(made.inputs)], cpu, bound, native)


SHAPES = [((3,), (3,)), ((2, 5, 7), (2, 5, 7)), ((4, 6, 33), (33,)), ((1, 5, 5, 24), (1, 1, 1, 24)), ((7, 1), (1, 9)),
          ((2, 3, 4, 5), (1,)), ((70, 80), (70, 80)), ((1, 9, 9, 17), (1, 9, 9, 1)), ((), ())]  # fmt: skip


@pytest.mark.sample(19)
@pytest.mark.parametrize("cpu", cpus())
@pytest.mark.parametrize("kind", BINARY)
@pytest.mark.parametrize("shapes", SHAPES)
def test_float32(cpu: str, kind: str, shapes: Any) -> None:
    a, b = real("a", *shapes[0]), real("b", *shapes[1])
    check(binary(kind, a, b, real("y", *np.broadcast_shapes(*shapes)), (-1.0, 1.5)), cpu)


@pytest.mark.sample(19)
@pytest.mark.parametrize("cpu", cpus())
@pytest.mark.parametrize("kind", BINARY)
@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_int8_and_uint8(cpu: str, kind: str, shapes: Any, dtype: Any) -> None:
    a = quantized("a", *shapes[0], scale=0.04, zero=5, dtype=dtype)
    b = quantized("b", *shapes[1], scale=0.07, zero=9, dtype=dtype)
    out = quantized("y", *np.broadcast_shapes(*shapes), scale=0.1, zero=17, dtype=dtype)
    check(binary(kind, a, b, out, (-3.0, INF)), cpu)


@pytest.mark.parametrize("cpu", cpus())
@pytest.mark.parametrize("limits", [(-INF, 0.25), (0.0, 6.0)])
def test_a_constant_operand(cpu: str, limits: Any) -> None:
    x, y = real("x", 1, 6, 6, 20), real("y", 1, 6, 6, 20)
    for other in (constant(np.float32([0.5])), constant(np.arange(20, dtype=np.float32))):
        check(binary("mul", x, other, y, limits), cpu)
        check(binary("sub", other, x, y, limits), cpu)


def test_maximum_of_nan_is_nan() -> None:
    a, b, y = real("a", 4), real("b", 4), real("y", 4)
    numbers = [np.array([np.nan, 1, np.inf, -1], np.float32), np.array([1, np.nan, 2, -np.inf], np.float32)]
    for kind in ("maximum", "minimum", "add"):
        compare(binary(kind, a, b, y), numbers, cpus()[-1])
        assert np.isnan(run(binary(kind, a, b, y), numbers, cpus()[-1])[0]).tolist() == [True, True, False, False]


# ------------------------------------------------------------------------------------------------------------ unary

BOUNDS = {"exp": 3e-7, "log": 3e-7}


def unary(kind: str, x: Value, y: Value, **args: Any) -> Graph:
    return graph([x], [y], Op(f"core.{kind}", {"self": x, **args}, [y]))


def test_sine_of_any_angle_is_the_references() -> None:
    """Large angles need many digits of pi."""
    angles = np.array([0, 1, -3, 1e4, 1e6, -3e9, 1e20, np.inf], np.float32)
    for kind in ("sin", "cos"):
        with np.errstate(invalid="ignore"):
            compare(unary(kind, real("x", 8), real("y", 8)), [angles], cpus()[-1])


ARGUMENTS: dict[str, dict[str, Any]] = {"leaky_relu": {"negative_slope": 0.1}, "elu": {"alpha": 0.7}}
NOT_IN_GRAPHS = {"erf", "silu"}  # parts of others, or not in the reference's executor


@pytest.mark.sample(26)
@pytest.mark.parametrize("cpu", cpus())
@pytest.mark.parametrize("kind", sorted(set(FUNCTIONS) - NOT_IN_GRAPHS))
def test_functions(cpu: str, kind: str) -> None:
    made = unary(kind, real("x", 3, 50), real("y", 3, 50), **ARGUMENTS.get(kind, {}))
    x = np.linspace(-20, 20, 150, dtype=np.float32).reshape(3, 50)
    compare(made, [np.abs(x) if kind in ("log", "sqrt", "rsqrt") else x], cpu, 1e-6)


@pytest.mark.parametrize("cpu", cpus())
@pytest.mark.parametrize("kind", ["clamp", "hardswish", "sigmoid", "exp", "leaky_relu", "convert", "gelu"])
@pytest.mark.parametrize("shape", [(5,), (1, 7, 7, 24), (2, 64)])
def test_functions_of_int8_are_tables(cpu: str, kind: str, shape: tuple[int, ...]) -> None:
    x, y = quantized("x", *shape), quantized("y", *shape, scale=0.02, zero=-30)
    made = unary(kind, x, y, **ARGUMENTS.get(kind, {}))
    kernels = {s.kernel.rpartition("_")[0] for s in make_plan(made, 1, cpu=cpu).steps if s.label == kind}
    assert kernels == {"int8_table"}
    check(made, cpu)


@pytest.mark.parametrize("cpu", cpus())
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("shape", [(5,), (1, 7, 7, 24), (2, 3, 64), (1, 4, 4, 3)])
def test_conversions(cpu: str, dtype: Any, shape: tuple[int, ...]) -> None:
    r, q = real("r", *shape), quantized("q", *shape, dtype=dtype, zero=40)
    check(unary("convert", r, q), cpu)
    check(unary("convert", quantized("q", *shape, dtype=dtype, zero=40), real("r", *shape)), cpu)


def test_nan_and_infinities_are_quantized_as_the_reference_does() -> None:
    made = unary("convert", real("r", 6), quantized("q", 6, zero=40))
    compare(made, [np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, 0.1], np.float32)], cpus()[-1])


@pytest.mark.parametrize("cpu", cpus())
def test_a_chain_is_one_step(cpu: str) -> None:
    x, a, b, y = (real(n, 1, 5, 5, 30) for n in "xaby")
    made = graph([x], [y], Op("core.exp", {"self": x}, [a]), Op("core.mul", {"self": constant(np.float32([2])),
                 "other": a}, [b]), Op("core.add", {"self": b, "other": x, "limits": (0.0, 9.0)}, [y]))  # fmt: skip
    assert [s.label for s in make_plan(made, 1, cpu=cpu).steps] == ["exp+mul+add"]
    check(made, cpu)


@pytest.mark.sample(4)
@pytest.mark.parametrize("cpu", cpus())
@pytest.mark.parametrize("shape", [(1,), (3, 5), (2, 4, 33), (1, 1000), (7, 16)])
def test_softmax(cpu: str, shape: tuple[int, ...]) -> None:
    made = unary("softmax", real("x", *shape), real("y", *shape))
    compare(made, [random(made.inputs[0]) * 20], cpu, 1e-6)


@pytest.mark.parametrize("cpu", cpus())
def test_prelu(cpu: str) -> None:
    x, y, slopes = real("x", 1, 5, 5, 20), real("y", 1, 5, 5, 20), constant(np.linspace(-1, 1, 20, dtype=np.float32))
    check(graph([x], [y], Op("core.prelu", {"self": x, "weight": slopes}, [y])), cpu)


@pytest.mark.parametrize("cpu", cpus())
@pytest.mark.parametrize("quantize", [False, True])
@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("sizes", [((4, 5), (8, 10)), ((1, 1), (3, 7)), ((9, 9), (4, 20)), ((6, 7), (6, 7))])
def test_resize(cpu: str, quantize: bool, align: bool, sizes: Any) -> None:
    for channels in (3, 21):
        shape, out = (2, *sizes[0], channels), (2, *sizes[1], channels)
        x, y = (quantized("x", *shape), quantized("y", *out)) if quantize else (real("x", *shape), real("y", *out))
        op = Op("core.upsample_bilinear2d", {"input": x, "output_size": list(sizes[1]), "align_corners": align}, [y])
        check(graph([x], [y], op), cpu)


# ------------------------------------------------------------------------------------------------------------ pools


def pool(kind: str, shape: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, quantize: bool) -> Graph:
    size = [(n + a + b - d * (k - 1) - 1) // s + 1 for n, a, b, d, k, s in
            zip(shape[1:3], padding[::2], padding[1::2], dilation, kernel, stride, strict=True)]  # fmt: skip
    out = (shape[0], *size, shape[3])
    x = quantized("x", *shape, scale=0.05) if quantize else real("x", *shape)
    same = kind == "max_pool2d"
    y = quantized("y", *out, scale=0.05 if same else 0.03, zero=3 if same else -5) if quantize else real("y", *out)
    args = {"kernel_size": list(kernel), "stride": list(stride), "padding": list(padding), "limits": (-1.0, 2.0)}
    return unary(kind, x, y, **args, **({"dilation": list(dilation)} if same else {}))


@pytest.mark.parametrize("cpu", cpus())
@pytest.mark.parametrize("quantize", [False, True])
@pytest.mark.parametrize("kind", ["max_pool2d", "avg_pool2d"])
@pytest.mark.parametrize("channels", [1, 5, 24, 70])
@pytest.mark.parametrize("window", [((2, 2), (2, 2), (0, 0, 0, 0)), ((3, 3), (2, 2), (1, 1, 1, 1)),
                                    ((3, 2), (1, 3), (1, 1, 0, 0))])  # fmt: skip
def test_pools(cpu: str, quantize: bool, kind: str, channels: int, window: Any) -> None:
    check(pool(kind, (2, 9, 8, channels), *window, (1, 1), quantize), cpu)


@pytest.mark.parametrize("cpu", cpus())
def test_dilated_and_uneven_pools(cpu: str) -> None:
    check(pool("max_pool2d", (1, 9, 9, 7), (3, 3), (1, 1), (1, 0, 0, 1), (2, 2), False), cpu)
    check(pool("max_pool2d", (1, 2, 2, 7), (2, 2), (1, 1), (1, 1, 1, 1), (3, 3), False), cpu, native=False)


@pytest.mark.parametrize("cpu", cpus())
@pytest.mark.parametrize("quantize", [False, True])
@pytest.mark.parametrize("shape", [(1, 7, 7, 1280), (2, 3, 5, 17), (1, 1, 1, 3)])
def test_global_means(cpu: str, quantize: bool, shape: Any) -> None:
    out = (shape[0], 1, 1, shape[3])
    x = quantized("x", *shape, scale=0.05, zero=-20) if quantize else real("x", *shape)
    y = quantized("y", *out, scale=0.01, zero=8) if quantize else real("y", *out)
    check(unary("global_avg_pool2d", x, y), cpu)


# ------------------------------------------------------------------------------------------------------------ moves


def moved(value: Value, shape: Any) -> Value:
    return Value("y", value.dtype, tuple(shape), tuple(range(len(shape))), q=value.q)


@pytest.mark.parametrize("cpu", cpus())
@pytest.mark.parametrize("quantize", [False, True])
class TestMoves:
    def value(self, quantize: bool, *shape: int) -> Value:
        return quantized("x", *shape) if quantize else real("x", *shape)

    @pytest.mark.parametrize("dims", [(0, 2, 3, 1), (0, 3, 1, 2), (3, 2, 1, 0), (0, 1, 2, 3)])
    @pytest.mark.parametrize("shape", [(1, 3, 14, 10), (2, 6, 5, 40), (1, 1, 1, 24)])
    def test_permute(self, cpu: str, quantize: bool, dims: Any, shape: Any) -> None:
        x = self.value(quantize, *shape)
        check(unary("permute", x, moved(x, [shape[d] for d in dims]), dims=list(dims)), cpu)

    @pytest.mark.parametrize(
        "shapes", [((2, 12), (4, 6)), ((1, 3, 4, 24), (1, 288)), ((6, 5), (30,)), ((1, 48), (1, 1, 3, 16))]
    )
    def test_view(self, cpu: str, quantize: bool, shapes: Any) -> None:
        x = self.value(quantize, *shapes[0])
        check(unary("view", x, moved(x, shapes[1]), size=list(shapes[1])), cpu)

    def test_slice(self, cpu: str, quantize: bool) -> None:
        x = self.value(quantize, 2, 5, 6, 20)
        check(unary("slice", x, moved(x, (1, 3, 6, 7)), start=[1, 2, 0, 5], length=[1, 3, 0, 7]), cpu)

    @pytest.mark.parametrize("dim", [0, 1, 3, -1])
    def test_cat(self, cpu: str, quantize: bool, dim: int) -> None:
        shapes = [[2, 3, 4, 5], [2, 3, 4, 5], [2, 3, 4, 5]]
        for i, s in enumerate(shapes):
            s[dim] += i
        values = [self.value(quantize, *s) for s in shapes]
        out = list(shapes[0])
        out[dim] = sum(s[dim] for s in shapes)
        y = moved(values[0], out)
        check(graph(values, [y], Op("core.cat", {"tensors": values, "dim": dim}, [y])), cpu)

    def test_pad(self, cpu: str, quantize: bool) -> None:
        x = self.value(quantize, 1, 4, 5, 6)
        made = unary("pad", x, moved(x, (1, 6, 5, 9)), before=[0, 1, 0, 3], after=[0, 1, 0, 0], value=0.7)
        check(made, cpu)


@pytest.mark.parametrize("cpu", cpus())
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_any_broadcast(cpu: str, data: Any) -> None:
    rank = data.draw(st.integers(1, 4))
    shape = data.draw(st.lists(st.integers(1, 20), min_size=rank, max_size=rank))
    some = [[n if data.draw(st.booleans()) else 1 for n in shape] for _ in range(2)]
    out = np.broadcast_shapes(*some)
    quantize = data.draw(st.booleans())
    kind = data.draw(st.sampled_from(BINARY))
    if quantize:
        dtype = data.draw(st.sampled_from([np.int8, U8]))
        a, b, y = (
            quantized(n, *s, dtype=dtype, scale=0.05 * (i + 1))
            for i, (n, s) in enumerate(zip("aby", (*some, out), strict=True))
        )
    else:
        a, b, y = (real(n, *s) for n, s in zip("aby", (*some, out), strict=True))
    check(binary(kind, a, b, y), cpu)


@pytest.mark.parametrize("cpu", cpus())
@pytest.mark.parametrize("quantize", [False, True])
@pytest.mark.parametrize("dim", [0, 1, 3])
@pytest.mark.parametrize("inside", [False, True])
def test_tensors_to_be_joined_are_made_in_place(cpu: str, quantize: bool, dim: int, inside: bool) -> None:
    """But for those that others read too; a joined tensor may be joined again."""
    make = quantized if quantize else real
    x, a, b, c = (make(n, 2, 4, 5, 16) for n in "xabc")
    shapes = [[2, 4, 5, 16] for _ in range(2)]
    for times, shape in zip((2, 4), shapes, strict=True):
        shape[dim] *= times
    pair, four, y = make("p", *shapes[0]), make("f", *shapes[1]), make("y", *shapes[1])
    ops = [Op("core.maximum", {"self": x, "other": x}, [a]), Op("core.minimum", {"self": a, "other": x}, [b]),
           Op("core.mul", {"self": x, "other": x}, [c]), Op("core.cat", {"tensors": [b, c], "dim": dim}, [pair]),
           Op("core.cat", {"tensors": [pair, a, x], "dim": dim}, [four])]  # fmt: skip
    if inside:
        ops.append(Op("core.div", {"self": four, "other": four}, [y]))
    made = graph([x], [y if inside else four], *ops)
    check(made, cpu)
    if not quantize or inside:
        copies = [s for s in make_plan(made, threads=1, cpu=cpu).steps if s.label == "cat"]
        assert len(copies) == 2  # of a, which is read twice, and of x, which is given


@pytest.mark.parametrize("cpu", cpus())
def test_softmax_into_a_padded_window(cpu: str) -> None:
    """Its result is stored with a border then, which it has no kernel for: the reference computes it."""
    x, a, y = real("x", 1, 6, 6, 8), real("a", 1, 6, 6, 8), real("y", 1, 6, 6, 8)
    args = {"input": a, "weight": constant(np.ones((1, 3, 3, 8), np.float32)), "bias": None, "stride": [1, 1],
            "padding": [1] * 4, "dilation": [1, 1], "groups": 8, "output_padding": [0, 0]}  # fmt: skip
    made = graph([x], [y], Op("core.softmax", {"self": x}, [a]), Op("core.depthwise_conv2d", args, [y]))
    assert steps_in_python(made, cpu) == ["softmax"]
    check(made, cpu, native=False)
