"""Integer operators, which are defined once (``dialect/int_rules.py`` and ``dialect/to_core.py``), against the TOSA
reference model, bit for bit.

The engine compiles the same definitions, so nothing else would notice an error in one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tosa_reference_model

from edgewright.backends.ethos_u.dialect import DIALECT
from edgewright.backends.ethos_u.tosa_file import write_tosa
from edgewright.ir.graph import Graph, Op, Value
from edgewright.ir.int_rules import DESCRIPTIONS, ELEMENTWISE
from tests.backends.ethos_u.capture import quiet
from tests.engine.vendors import graph, numbers, plain, tosa

SHAPE = (2, 5, 7)
IMAGE = (2, 9, 8, 5)
Bounds = tuple[int, int]
Case = tuple[Graph, list[Bounds]]  # bounds of the inputs: the specification leaves overflow open
ANY = {"int8": (-128, 127), "int16": (-(1 << 15), (1 << 15) - 1), "int32": (-(1 << 31), (1 << 31) - 1), "bool": (0, 1)}
HALF = (-(1 << 30), (1 << 30) - 1)
CASES: dict[str, Callable[[str], Iterator[Case]]] = {}


def cases(*names: str) -> Callable[[Callable[[str], Iterator[Case]]], None]:
    return lambda make: CASES.update(dict.fromkeys(names, make))


def unary(name: str, given: str, made: str | None = None, bounds: Bounds | None = None, **args: Any) -> Case:
    x, y = plain("x", SHAPE, given), plain("y", SHAPE, made or given)
    return graph([y], tosa(name, y, input=x, **args)), [bounds or ANY[given]]


def binary(name: str, given: str, made: str, *bounds: Bounds, **args: Any) -> Iterator[Case]:
    """With operands of one shape, and broadcast."""
    for shape in (SHAPE, (1, 5, 1)):
        a, b, y = plain("a", SHAPE, given), plain("b", shape, given), plain("y", SHAPE, made)
        yield graph([y], tosa(name, y, a=a, b=b, **args)), list(bounds) or [ANY[given]] * 2


@cases("add", "sub")
def _(name: str) -> Iterator[Case]:
    yield from binary(name, "int32", "int32", HALF, HALF)


@cases("maximum", "minimum")
def _(name: str) -> Iterator[Case]:
    yield from binary(name, "int32", "int32")


@cases("equal", "greater", "greater_equal")
def _(name: str) -> Iterator[Case]:
    yield from binary(name, "int32", "bool", (-3, 3), (-3, 3))
    yield from binary(name, "int32", "bool")


@cases("bitwise_and", "bitwise_or", "bitwise_xor")
def _(name: str) -> Iterator[Case]:
    for kind in ("int8", "int16", "int32"):
        yield from binary(name, kind, kind)


@cases("logical_and", "logical_or", "logical_xor")
def _(name: str) -> Iterator[Case]:
    yield from binary(name, "bool", "bool")


@cases("mul")
def _(name: str) -> Iterator[Case]:
    yield from binary(name, "int8", "int32", shift=0)
    yield from binary(name, "int16", "int32", (-(1 << 15), (1 << 15) - 1), (-(1 << 15) + 1, (1 << 15) - 1), shift=0)
    for shift in (1, 15, 31):
        small = (-(1 << (15 + shift // 2)), 1 << (15 + shift // 2))
        yield from binary(name, "int32", "int32", small, small, shift=shift)


@cases("arithmetic_right_shift", "logical_left_shift", "logical_right_shift")
def _(name: str) -> Iterator[Case]:
    for kind, bits in (("int8", 8), ("int16", 16), ("int32", 32)):
        for options in ({"round": True}, {"round": False}) if name.startswith("arithmetic") else ({},):
            yield from binary(name, kind, kind, ANY[kind], (0, bits - 1), **options)


@cases("intdiv")
def _(name: str) -> Iterator[Case]:
    for divisors in ((1, 50), (-50, -2), (1, (1 << 31) - 1)):
        yield from binary(name, "int32", "int32", (-(1 << 31) + 1, (1 << 31) - 1), divisors)


@cases("select")
def _(name: str) -> Iterator[Case]:
    for kind in ("bool", "int8", "int16", "int32"):
        c, a, b, y = (plain(n, SHAPE, t) for n, t in zip("caby", ("bool", kind, kind, kind), strict=True))
        yield graph([y], tosa(name, y, condition=c, on_true=a, on_false=b)), [(0, 1), ANY[kind], ANY[kind]]


@cases("abs", "clz")
def _(name: str) -> Iterator[Case]:
    yield unary(name, "int32", bounds=(-(1 << 31) + 1, (1 << 31) - 1))
    yield unary(name, "int32", bounds=(-3, 300))


@cases("bitwise_not", "identity")
def _(name: str) -> Iterator[Case]:
    yield from (unary(name, kind) for kind in ("int8", "int16", "int32"))


@cases("logical_not")
def _(name: str) -> Iterator[Case]:
    yield unary(name, "bool")


@cases("negate")
def _(name: str) -> Iterator[Case]:
    yield unary(name, "int8", input_zp=-128, output_zp=7)
    yield unary(name, "int16", input_zp=0, output_zp=0)
    yield unary(name, "int32", bounds=(-(1 << 31) + 1, (1 << 31) - 1), input_zp=0, output_zp=0)


@cases("clamp")
def _(name: str) -> Iterator[Case]:
    yield unary(name, "int8", min_val=-7, max_val=100)
    yield unary(name, "int16", min_val=-32768, max_val=5)


@cases("cast")
def _(name: str) -> Iterator[Case]:
    for given in ("int8", "int16", "int32", "bool"):
        for made in ("int8", "int16", "int32", "bool"):
            if given != made:
                yield unary(name, given, made, dtype=made)


@cases("rescale")
def _(name: str) -> Iterator[Case]:
    factors = [(1 << 30, 31), (3 << 29, 33), (1 << 30, 40), (1518500250, 25), (2147483647, 62)]
    for given, made, zeros in (("int8", "int8", (5, -9)), ("int8", "int32", (-128, 0)), ("int32", "int8", (0, 3)),
                               ("int16", "int8", (0, 127)), ("int32", "int16", (0, 0))):  # fmt: skip
        for rounding in ("single", "double"):
            for by, bits in factors:
                limit = 1 << min(bits - 1, 31)  # of the specification
                bounds = (max(ANY[given][0], -limit), min(ANY[given][1], limit - 1))
                yield rescale(given, made, [by], [bits], zeros, rounding, bounds)
    every = np.random.default_rng(0).integers(1 << 30, 1 << 31, SHAPE[-1])
    yield rescale("int32", "int8", every, [40, 41, 45, 50, 38, 55, 61], (0, 3), "single", ANY["int32"])


def rescale(given: str, made: str, by: Any, bits: Any, zeros: Bounds, rounding: str, bounds: Bounds) -> Case:
    multiplier = numbers(by, "int32")
    return unary("rescale", given, made, bounds, multiplier=multiplier, shift=numbers(bits, "int8"), input_zp=zeros[0],
                 output_zp=zeros[1], dtype=made, rounding=rounding, per_channel=len(by) > 1)  # fmt: skip


@cases("table")
def _(name: str) -> Iterator[Case]:
    rng = np.random.default_rng(0)
    yield unary(name, "int8", table=numbers(rng.integers(-128, 128, 256), "int8"))
    smooth = np.rint(20000 * np.sin(np.arange(513) / 40))  # the specification bounds the slope
    yield unary(name, "int16", "int32", table=numbers(smooth, "int16"))


@cases("reduce_sum", "reduce_max", "reduce_min", "reduce_any", "reduce_all")
def _(name: str) -> Iterator[Case]:
    types = ("bool",) if name.endswith(("any", "all")) else ("int32",) if name.endswith("sum") else ("int8", "int32")
    for kind in types:
        for axis in range(3):
            x, y = plain("x", SHAPE, kind), plain("y", tuple(1 if d == axis else n for d, n in enumerate(SHAPE)), kind)
            yield graph([y], tosa(name, y, input=x, axis=axis)), [(-9999, 9999) if "sum" in name else ANY[kind]]


@cases("argmax")
def _(name: str) -> Iterator[Case]:
    for axis in range(3):
        x, y = plain("x", SHAPE, "int8"), plain("y", tuple(n for d, n in enumerate(SHAPE) if d != axis), "int32")
        yield graph([y], tosa(name, y, input=x, axis=axis)), [(-2, 2)]


@cases("max_pool2d", "avg_pool2d")
def _(name: str) -> Iterator[Case]:
    for kind in ("int8", "int16"):
        for kernel, stride, pad in (
            ([3, 2], [1, 1], [0] * 4),
            ([3, 3], [2, 1], [1, 1, 1, 0]),
            ([9, 8], [1, 1], [0] * 4),
        ):
            (_, high, wide, _), (top, bottom, left, right) = IMAGE, pad
            size = [
                (high + top + bottom - kernel[0]) // stride[0] + 1,
                (wide + left + right - kernel[1]) // stride[1] + 1,
            ]
            x, y = plain("x", IMAGE, kind), plain("y", (2, *size, 5), kind)
            zeros = {"input_zp": 9 if kind == "int8" else 0, "output_zp": -128 if kind == "int8" else 0}
            args = {"kernel": kernel, "stride": stride, "pad": pad, **(zeros if name.startswith("avg") else {})}
            if (size[0] - 1) * stride[0] + kernel[0] == high + top + bottom:  # the specification leaves no remainder
                yield graph([y], tosa(name, y, input=x, **args)), [ANY[kind]]


@cases("resize")
def _(name: str) -> Iterator[Case]:
    """The reference model does not return 48-bit integers, so they are rescaled."""
    for scale, offset, border in (([4, 2, 4, 2], [0, 0], [2, 2]), ([16, 8, 4, 3], [0, -1], [8, 1]),
                                  ([2, 1, 6, 6], [-1, 0], [1, 0])):  # fmt: skip
        size = [
            ((n - 1) * scale[2 * i] - offset[i] + border[i]) / scale[2 * i + 1] + 1 for i, n in enumerate(IMAGE[1:3])
        ]
        assert all(n == int(n) for n in size), size
        args = {"scale": scale, "offset": offset, "border": border}
        shape = (2, int(size[0]), int(size[1]), 5)
        nearest, bilinear = (("int8", "int8"), ("int16", "int16")), (("int8", "int32"), ("int16", "int64"))
        for given, made, mode in (*((*n, "nearest") for n in nearest), *((*n, "bilinear") for n in bilinear)):
            x, y, z = plain("x", IMAGE, given), plain("y", shape, made), plain("z", shape, "int32")
            ops = [tosa(name, y, input=x, mode=mode, **args)]
            if made == "int64":
                factor = {"multiplier": numbers([12345], "int16"), "shift": numbers([19], "int8"), "per_channel": False}
                ops.append(
                    tosa("rescale", z, input=y, input_zp=0, output_zp=0, dtype="int32", rounding="single", **factor)
                )
            yield graph([ops[-1].outputs[0]], *ops), [ANY[given]]


@cases("tile")
def _(name: str) -> Iterator[Case]:
    x, y = plain("x", SHAPE, "int8"), plain("y", (4, 5, 21), "int8")
    yield graph([y], tosa(name, y, input=x, multiples=[2, 1, 3])), [ANY["int8"]]


@cases("reverse")
def _(name: str) -> Iterator[Case]:
    yield from (unary(name, "int16", axis=axis) for axis in range(3))


@cases("gather", "scatter")
def _(name: str) -> Iterator[Case]:
    rng = np.random.default_rng(0)
    indices = numbers(np.stack([rng.permutation(SHAPE[1])[:3] for _ in range(SHAPE[0])]), "int32")
    values, rows, whole = plain("x", SHAPE, "int8"), plain("r", (2, 3, 7), "int8"), plain("y", SHAPE, "int8")
    if name == "gather":
        yield graph([rows], tosa(name, rows, values=values, indices=indices)), [ANY["int8"]]
    else:
        yield graph([whole], tosa(name, whole, values=values, indices=indices, input=rows)), [ANY["int8"]] * 2


def constant(*shape: int, dtype: str = "int8", bound: int = 127) -> Value:
    made = np.random.default_rng(len(shape)).integers(-bound, bound, shape, np.int64, endpoint=True)
    return numbers(made, dtype)


def convolution(name: str, given: str, image: tuple[int, ...], weight: Value, made: tuple[int, ...], bias: int = 0,
                zero: int = 0, **sizes: Any) -> Case:  # fmt: skip
    sums = "int32" if given == "int8" else "int64"
    x, y = plain("x", image, given), plain("y", made, sums)
    biases = constant(bias or made[-1], dtype=sums, bound=1 << 20)
    zeros = {"input_zp": zero if given == "int8" else 0, "weight_zp": 0}
    return accumulators(tosa(name, y, input=x, weight=weight, bias=biases, **zeros, **sizes)), [ANY[given]]


def accumulators(op: Op, shift: int = 14) -> Graph:
    """The model does not return 48 bits, the accumulators of int16: they are rescaled to int32."""
    (acc,) = op.outputs
    if acc.dtype == np.dtype(np.int32):
        return graph([acc], op)
    out = plain("out", acc.bound, "int32")
    factors = {"multiplier": numbers([1 << 14], "int16"), "shift": numbers([shift], "int8")}
    return graph([out], op, tosa("rescale", out, input=acc, input_zp=0, output_zp=0, rounding="single",
                                 per_channel=False, dtype="int32", **factors))  # fmt: skip


@cases("conv2d")
def _(name: str) -> Iterator[Case]:
    for given, zero in (("int8", 0), ("int8", -7), ("int16", 0)):
        sizes = {"pad": [1, 1, 0, 1], "stride": [2, 1], "dilation": [1, 2]}
        yield convolution(name, given, IMAGE, constant(6, 3, 2, 5), (2, 5, 7, 6), zero=zero, **sizes)
    plain_sizes = {"pad": [0] * 4, "stride": [1, 1], "dilation": [1, 1]}
    yield convolution(name, "int8", IMAGE, constant(3, 1, 1, 5), (2, 9, 8, 3), bias=1, zero=127, **plain_sizes)


@cases("depthwise_conv2d")
def _(name: str) -> Iterator[Case]:
    for given, multiplier in (("int8", 1), ("int8", 3), ("int16", 2)):
        sizes = {"pad": [1, 0, 1, 2], "stride": [1, 2], "dilation": [2, 1]}
        weight = constant(3, 3, 5, multiplier)
        yield convolution(name, given, IMAGE, weight, (2, 6, 5, 5 * multiplier), zero=-128, **sizes)


@cases("conv3d")
def _(name: str) -> Iterator[Case]:
    for given, zero in (("int8", 5), ("int16", 0)):
        sizes = {"pad": [1, 0, 0, 1, 1, 1], "stride": [2, 1, 2], "dilation": [1, 2, 1]}
        yield convolution(name, given, (2, 5, 6, 7, 3), constant(4, 2, 2, 3, 3), (2, 3, 5, 4, 4), zero=zero, **sizes)


@cases("transpose_conv2d")
def _(name: str) -> Iterator[Case]:
    """Cropped, padded, and padded by more than a stride."""
    for given, zero in (("int8", 9), ("int16", 0)):
        for pads in ([0] * 4, [-1, -2, -1, 0], [1, 2, -1, 3], [-2, 1, 4, -1]):
            size = (2 * 4 + 3 + sum(pads[:2]), 3 * 3 + 2 + sum(pads[2:]))
            sizes = {"out_pad": pads, "stride": [2, 3]}
            yield convolution(name, given, (2, 5, 4, 5), constant(4, 3, 2, 5), (2, *size, 4), zero=zero, **sizes)


@cases("matmul")
def _(name: str) -> Iterator[Case]:
    for given, sums, zeros in (("int8", "int32", (-3, 100)), ("int16", "int64", (0, 0))):
        a, b, y = plain("a", (3, 5, 7), given), plain("b", (3, 7, 4), given), plain("y", (3, 5, 4), sums)
        product = tosa(name, y, a=a, b=b, a_zp=zeros[0], b_zp=zeros[1])
        yield accumulators(product, 18), [ANY[given]] * 2
        yield accumulators(product), [(-100, 100)] * 2


def array(value: Value, bounds: Bounds, seed: int) -> Any:
    """Random integers, the extreme ones among them."""
    made = np.random.default_rng(seed).integers(*bounds, value.bound, np.int64, endpoint=True)
    made.reshape(-1)[:2] = bounds
    return made.astype(value.dtype)


@pytest.mark.parametrize("name", sorted(CASES))
def test_definitions_match_the_reference_model(name: str) -> None:
    checked = 0
    for number, (made, bounds) in enumerate(CASES[name](name)):
        DIALECT.check(made, 1 << 24)
        inputs = [array(v, b, 10 * number + i) for i, (v, b) in enumerate(zip(made.inputs, bounds, strict=True))]
        (ours,) = DIALECT.execute(made, inputs)
        with quiet():
            (wanted,), _ = tosa_reference_model.run(write_tosa(made), inputs)
        np.testing.assert_array_equal(ours, wanted, f"{name} {number}")
        checked += 1
    assert checked


def test_every_definition_has_a_case() -> None:
    """Convolutions are translated to others; the reference of matrix products is their definition."""
    defined = {kind.removeprefix("tosa.") for kind in (*ELEMENTWISE, *DESCRIPTIONS) if kind.startswith("tosa.")}
    assert defined | {"conv3d", "transpose_conv2d", "matmul"} == set(CASES)
