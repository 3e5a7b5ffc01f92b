"""TOSA's operators in the engine, bit for bit what ``backends/ethos_u/dialect`` says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgewright.backends.ethos_u.dialect import DIALECT
from edgewright.backends.ethos_u.dialect.numerics import TOSA_NUMERICS
from edgewright.engine import Specialized, make_plan
from edgewright.ir.graph import Graph, Op, Value
from tests.backends.nxp.dialect.test_to_core import EVERY, window
from tests.engine.vendors import anything, graph, numbers, plain, same, tosa


def rescale(
    x: Value, out: Value, by: Any, bits: Any, in_zero: int = 0, out_zero: int = 0, rounding: str = "single"
) -> Op:
    multiplier = numbers(np.atleast_1d(by), "int16" if x.dtype == np.int64 else "int32")
    return tosa("rescale", out, input=x, multiplier=multiplier, shift=numbers(np.atleast_1d(bits), "int8"),
                input_zp=in_zero, output_zp=out_zero, dtype=str(out.dtype), rounding=rounding,
                per_channel=np.size(by) > 1)  # fmt: skip


def computing_steps(made: Graph) -> list[tuple[str, str]]:
    """Label and kernel of each step of a plan, but for copies at its ends."""
    steps = make_plan(made, 1, numerics=TOSA_NUMERICS).steps
    return [(s.label, s.kernel.rpartition("_")[0]) for s in steps if s.label != "clone"]


def weights(*shape: int) -> Value:
    return numbers(np.random.default_rng(1).integers(-127, 128, shape), "int8")


def factors(channels: int, gain: float) -> tuple[Any, Any]:
    """Multipliers of 31 bits and shifts, for factors up to ``gain``."""
    real = np.random.default_rng(3).random(channels) * gain + gain / 50
    mantissa, exponent = np.frexp(real)
    return np.rint(mantissa * 2**31 - 1).astype(np.int32), 31 - exponent


def convolution(kind: str, gain: float, rounding: str, pad: int, zero: int, last: bool, stride: int = 1) -> Graph:
    x, deep = plain("x", (2, 8, 9, 21 if kind == "depthwise_conv2d" else 6), "int8"), kind == "depthwise_conv2d"
    w = weights(3, 3, 21, 1) if deep else weights(19, 3, 3, 6)
    channels = 21 if deep else 19
    size = [window(n + 2 * pad, 3, stride) for n in x.bound[1:3]]
    acc, out = plain("acc", (2, *size, channels), "int32"), plain("out", (2, *size, channels), "int8")
    bias = numbers(np.random.default_rng(2).integers(-4000, 4000, channels))
    ops = [
        tosa(kind, acc, input=x, weight=w, bias=bias, input_zp=zero, weight_zp=0, pad=[pad] * 4, stride=[stride] * 2,
             dilation=[1, 1]),
        rescale(acc, out, *factors(channels, gain), 0, 11, rounding),
    ]  # fmt: skip
    if last:
        clamped = plain("clamped", out.bound, "int8")
        ops.append(tosa("clamp", clamped, input=out, min_val=-20, max_val=90))
        out = clamped
    return graph([out], *ops)


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", ["conv2d", "depthwise_conv2d"])
@pytest.mark.parametrize("gain", [0.004, 1.5])
@pytest.mark.parametrize("rounding", ["single", "double"])
@pytest.mark.parametrize(("pad", "stride"), [(0, 1), (1, 2)])
@pytest.mark.parametrize("zero", [0, -128, 9])
@pytest.mark.parametrize("last", [False, True])
def test_convolutions(kind: str, gain: float, rounding: str, pad: int, stride: int, zero: int, last: bool) -> None:
    same(convolution(kind, gain, rounding, pad, zero, last, stride), "tosa")


@pytest.mark.parametrize("edges", [[0, 0, 0, 0], [-1, 0, -1, -1], [0, 1, 0, 0]])
def test_transposed_convolutions(edges: list[int]) -> None:
    x = plain("x", (2, 4, 5, 6), "int8")
    size = [(n - 1) * 2 + 3 + a + b for n, a, b in zip(x.bound[1:3], edges[::2], edges[1::2], strict=True)]
    acc, out = plain("acc", (2, *size, 16), "int32"), plain("out", (2, *size, 16), "int8")
    product = tosa("transpose_conv2d", acc, input=x, weight=weights(16, 3, 3, 6), bias=numbers([7]), input_zp=5,
                   weight_zp=0, out_pad=edges, stride=[2, 2])  # fmt: skip
    same(graph([out], product, rescale(acc, out, *factors(16, 0.01))), "tosa")


@pytest.mark.sample(5)
@pytest.mark.parametrize("rounding", ["single", "double"])
@pytest.mark.parametrize(("given", "made"), [("int8", "int8"), ("int8", "int32"), ("int16", "int8"), ("int32", "int16"),
                                             ("int32", "int8"), ("int16", "int32"), ("uint8", "int8")])  # fmt: skip
def test_rescaling(rounding: str, given: str, made: str) -> None:
    x = plain("x", (3, 7, 33), given)
    zeros = (5, -9) if given in ("int8", "uint8") and made in ("int8", "int16") else (0, 0)
    ops = [rescale(x, plain(f"{by} >> {bits}", x.bound, made), by, bits, *zeros, rounding) for by, bits in
           ((1 << 30, 31), (1 << 30, 30), (3 << 29, 33), (1 << 30, 40), (1518500250, 25))]  # fmt: skip
    same(graph([op.outputs[0] for op in ops], *ops), "tosa")


def test_a_factor_for_each_channel() -> None:
    x, y = plain("x", (2, 5, 19), "int32"), plain("y", (2, 5, 19), "int8")
    same(graph([y], rescale(x, y, *factors(19, 0.01), 0, 3)), "tosa")


def test_a_rescaled_sum_is_one_step() -> None:
    """Both operands and the result rescaled, as networks add."""
    a, b, y = (plain(n, (2, 5, 6, 24), "int8") for n in "aby")
    left, right, both = (plain(n, a.bound, "int32") for n in ("l", "r", "s"))
    made = graph([y], rescale(a, left, 1 << 30, 11, 5), rescale(b, right, 1234567890, 12, -7),
                 tosa("add", both, a=left, b=right), rescale(both, y, 1987654321, 51, 0, 4))  # fmt: skip
    assert computing_steps(made) == [("tosa.rescale+tosa.rescale+tosa.add+tosa.rescale", "int_elementwise")]
    same(made, "tosa")


OPTIONS: dict[str, list[dict[str, Any]]] = {
    "mul": [{"shift": 0}, {"shift": 14}], "arithmetic_right_shift": [{"round": False}, {"round": True}],
}  # fmt: skip


@pytest.mark.sample(3)
@pytest.mark.parametrize("shape", [(2, 5, 19), (1, 1, 19), (2, 1, 1)])
@pytest.mark.parametrize("kinds", [
    ("add", "sub", "maximum", "minimum", "mul", "bitwise_and", "bitwise_or", "bitwise_xor"),
    ("greater", "greater_equal", "equal"),
    ("arithmetic_right_shift", "logical_left_shift", "logical_right_shift"),
])  # fmt: skip
def test_arithmetic_of_32_bits(kinds: tuple[str, ...], shape: tuple[int, ...]) -> None:
    a, b = plain("a", (2, 5, 19), "int32"), plain("b", shape, "int32")
    dtype = "bool" if "equal" in kinds else "int32"
    ops = [tosa(kind, plain(kind, a.bound, dtype), a=a, b=b, **chosen) for kind in kinds
           for chosen in OPTIONS.get(kind, [{}])]  # fmt: skip
    given = [anything(a), anything(b, 1)]
    if "logical_left_shift" in kinds:
        given[1] = np.random.default_rng(1).integers(-2, 40, shape).astype(np.int32)
    elif "equal" in kinds:
        given[1] = given[0][: shape[0], : shape[1], : shape[2]].copy()
    same(graph([op.outputs[0] for op in ops], *ops), "tosa", given)


def test_functions_of_32_bits() -> None:
    x = plain("x", (3, 37), "int32")
    given = anything(x)
    given[0, :9] = [0, 1, -1, 2, 255, 256, 2**31 - 1, -(2**31) + 1, 2**30]
    options: dict[str, dict[str, Any]] = {
        "clz": {}, "abs": {}, "bitwise_not": {}, "negate": {"input_zp": 0, "output_zp": 0},
        "clamp": {"min_val": -1000, "max_val": 7},
    }  # fmt: skip
    ops = [tosa(kind, plain(kind, x.bound, "int32"), input=x, **chosen) for kind, chosen in options.items()]
    same(graph([op.outputs[0] for op in ops], *ops), "tosa", [given])


def test_choices() -> None:
    which, a, b, y = (plain(n, (3, 19), t) for n, t in zip("cabs", ("bool", "int8", "int8", "int8"), strict=True))
    other = plain("o", (3, 19), "bool")
    ops = [tosa("select", y, condition=which, on_true=a, on_false=b)]
    ops += [tosa(kind, plain(kind, (3, 19), "bool"), a=which, b=other) for kind in
            ("logical_and", "logical_or", "logical_xor")]  # fmt: skip
    ops.append(tosa("logical_not", plain("not", (3, 19), "bool"), input=which))
    same(graph([op.outputs[0] for op in ops], *ops), "tosa")


def test_tables() -> None:
    entries = np.random.default_rng(4).integers(-128, 128, 256)
    x, y = plain("x", (1, 256), "int8"), plain("y", (1, 256), "int8")
    same(graph([y], tosa("table", y, input=x, table=numbers(entries, "int8"))), "tosa", [EVERY[None]])
    wide, made = plain("x", (256, 256), "int16"), plain("y", (256, 256), "int32")
    every = np.arange(-32768, 32768).reshape(256, 256).astype(np.int16)
    slopes = np.random.default_rng(5).integers(-32768, 32768, 513)
    same(graph([made], tosa("table", made, input=wide, table=numbers(slopes, "int16"))), "tosa", [every])


def test_functions_of_int8_are_one_table() -> None:
    """Of any operators of one operand: here a product with itself."""
    x, y = plain("x", (1, 256), "int8"), plain("y", (1, 256), "int8")
    wide, square = plain("w", (1, 256), "int32"), plain("q", (1, 256), "int32")
    made = graph([y], rescale(x, wide, 1 << 30, 30, 3), tosa("mul", square, a=wide, b=wide, shift=0),
                 rescale(square, y, 1 << 30, 37, 0, -128))  # fmt: skip
    assert computing_steps(made) == [("tosa.rescale+tosa.mul+tosa.rescale", "int8_table")]
    same(made, "tosa", [EVERY[None]])


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", ["reduce_sum", "reduce_max", "reduce_min"])
@pytest.mark.parametrize("dtype", ["int8", "int16", "int32"])
def test_reductions(kind: str, dtype: str) -> None:
    x, ops = plain("x", (2, 5, 4, 19), dtype), []
    for axis in range(4):
        y = plain(f"axis {axis}", tuple(1 if d == axis else n for d, n in enumerate(x.bound)), dtype)
        ops.append(tosa(kind, y, input=x, axis=axis))
    same(graph([op.outputs[0] for op in ops], *ops), "tosa", native=kind != "reduce_sum" or dtype == "int32")


@pytest.mark.sample(4)
@pytest.mark.parametrize("pad", [[0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 1, 0]])
@pytest.mark.parametrize("zero", [0, -128, 17])
@pytest.mark.parametrize(("kernel", "stride"), [([3, 3], [1, 1]), ([2, 3], [2, 1]), ([7, 6], [1, 1])])
def test_pools(pad: list[int], zero: int, kernel: list[int], stride: list[int]) -> None:
    x = plain("x", (2, 7, 8, 21), "int8")
    size = [window(n + pad[2 * i] + pad[2 * i + 1], kernel[i], stride[i]) for i, n in enumerate(x.bound[1:3])]
    mean, most = (plain(n, (2, *size, 21), "int8") for n in ("mean", "most"))
    sizes = {"kernel": kernel, "stride": stride, "pad": pad}
    averaged = tosa("avg_pool2d", mean, input=x, input_zp=zero, output_zp=-3, **sizes)
    same(graph([mean], averaged), "tosa")
    if zero == 0:
        same(graph([most], tosa("max_pool2d", most, input=x, **sizes)), "tosa")


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32"])
def test_moves(dtype: str) -> None:
    x, a, b = (plain(n, (2, 3, 4, 5), dtype) for n in "xab")
    turned, flat, part = plain("t", (2, 5, 3, 4), dtype), plain("f", (2, 60), dtype), plain("s", (1, 20), dtype)
    same(graph([turned], tosa("transpose", turned, input=x, perms=[0, 3, 1, 2])), "tosa")
    reshaped = tosa("reshape", flat, input=x, shape=[2, 60])
    same(graph([part], reshaped, tosa("slice", part, input=flat, start=[1, 7], size=[1, 20])), "tosa")
    joined = plain("j", (2, 3, 4, 10), dtype)
    same(graph([joined], tosa("concat", joined, inputs=[a, b], axis=3)), "tosa")
    wide = plain("w", (2, 6, 4, 5), dtype)
    padded = tosa("pad", wide, input=x, value=numbers([77], dtype), padding=[0, 0, 1, 2, 0, 0, 0, 0])
    same(graph([wide], padded), "tosa")


@pytest.mark.parametrize(
    ("dtype", "by", "bits"), [("int8", 1518500250, 41), ("int8", 1518500250, 33), ("int16", 20011, 31)]
)
def test_products_of_computed_matrices(dtype: str, by: int, bits: int) -> None:
    a, b = plain("a", (2, 5, 37), dtype), plain("b", (2, 37, 19), dtype)
    acc, y = plain("acc", (2, 5, 19), "int32" if dtype == "int8" else "int64"), plain("y", (2, 5, 19), dtype)
    zeros = (3, -90) if dtype == "int8" else (0, 0)
    product = tosa("matmul", acc, a=a, b=b, a_zp=zeros[0], b_zp=zeros[1])
    same(graph([y], product, rescale(acc, y, by, bits, 0, 4 if dtype == "int8" else 0)), "tosa")


def test_products_with_a_factor_for_each_column_are_left_to_the_reference() -> None:
    a, b = plain("a", (2, 5, 37), "int8"), plain("b", (2, 37, 19), "int8")
    acc, y = plain("acc", (2, 5, 19), "int32"), plain("y", (2, 5, 19), "int8")
    product = tosa("matmul", acc, a=a, b=b, a_zp=3, b_zp=-90)
    same(graph([y], product, rescale(acc, y, *factors(19, 0.002))), "tosa", native=False)


def test_a_graph_can_be_compiled_twice() -> None:
    """Legalization replaces the operators that zero points come from: it must leave the given graph as it is."""
    made = convolution("conv2d", 0.01, "single", 1, -77, False)
    x = anything(made.inputs[0])
    (want,) = DIALECT.execute(made, [x])
    kinds = [op.kind for op in made.ops]
    for _ in range(2):
        (got,) = Specialized(made, 1, TOSA_NUMERICS).run([x])
        np.testing.assert_array_equal(got, want)
    assert [op.kind for op in made.ops] == kinds
    mixed = graph([y := plain("y", made.outputs[0].bound, "int32")], *made.ops,
                  tosa("cast", y, input=made.outputs[0], dtype="int32"))  # fmt: skip
    np.testing.assert_array_equal(Specialized(mixed, 1, TOSA_NUMERICS).run([x])[0], DIALECT.execute(mixed, [x])[0])
