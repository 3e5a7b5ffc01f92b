"""Vendors' operators that pick elements, resize, or find the largest: bit for bit, with and without borders."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgewright.backends.ethos_u.dialect import DIALECT
from edgewright.backends.ethos_u.dialect.numerics import TOSA_NUMERICS
from edgewright.engine import compile
from edgewright.errors import ExecutionError
from edgewright.ir.graph import Graph, Op, Value
from tests.backends.ethos_u.dialect.test_to_core import rescale
from tests.engine.graphs import cpus
from tests.engine.vendors import anything, graph, numbers, plain, same, stored, tflite, tosa

BOTH = pytest.mark.parametrize("numerics", ["tflite", "xnnpack"])
WHOLE = ("int8", "int16", "int32", "bool")


def several(*ops: Op) -> Graph:
    return graph([v for op in ops for v in op.outputs if v is not None], *ops)


@pytest.mark.parametrize("dtype", WHOLE)
def test_repeated_and_reversed(dtype: str) -> None:
    x = plain("x", (2, 3, 5, 7), dtype)
    ops = []
    for times in ([1, 2, 1, 1], [3, 1, 1, 1], [1, 1, 4, 3], [2, 2, 2, 2]):
        shape = [n * m for n, m in zip(x.bound, times, strict=True)]
        ops.append(tosa("tile", plain(f"{times}", shape, dtype), input=x, multiples=times))
    ops += [tosa("reverse", plain(f"axis {axis}", x.bound, dtype), input=x, axis=axis) for axis in range(4)]
    same(several(*ops), "tosa")


@pytest.mark.parametrize("dtype", ["int16", "int32", "bool"])
@pytest.mark.parametrize("fill", [0, 1, 77])
def test_padded_by_any_number(dtype: str, fill: int) -> None:
    x, y = plain("x", (2, 3, 5), dtype), plain("y", (3, 3, 9), dtype)
    value = numbers([fill], dtype)
    same(several(tosa("pad", y, input=x, value=value, padding=[1, 0, 0, 0, 1, 3])), "tosa")


def test_padding_that_single_precision_does_not_have_is_left_to_the_reference() -> None:
    x, y = plain("x", (2, 3), "int32"), plain("y", (3, 3), "int32")
    same(several(tosa("pad", y, input=x, value=numbers([2**24 + 1]), padding=[1, 0, 0, 0])), "tosa", native=False)


@pytest.mark.sample(4)
@pytest.mark.parametrize("dtype", ["int8", "int16", "int32"])
@pytest.mark.parametrize("channels", [1, 5, 16, 70])
def test_rows_by_lists(dtype: str, channels: int) -> None:
    values, rows = plain("values", (2, 9, channels), dtype), plain("rows", (2, 6, channels), dtype)
    places, made = plain("places", (2, 6), "int32"), plain("made", values.bound, dtype)
    rng = np.random.default_rng(1)
    given = np.stack([rng.permutation(9)[:6] for _ in range(2)]).astype(np.int32)
    given[1, 2] = -1  # the last one, as numpy has it
    same(several(tosa("gather", rows, values=values, indices=places)), "tosa", [anything(values), given])
    ops = several(tosa("scatter", made, values=values, indices=places, input=rows))
    same(ops, "tosa", [anything(values), given, anything(rows, 3)])


@pytest.mark.parametrize("kind", ["gather", "scatter"])
@pytest.mark.parametrize("place", [2**31 - 1, -(2**31), 4, -5])
def test_out_of_range_indices_are_an_error_and_touch_nothing_else(kind: str, place: int) -> None:
    values, places, made = plain("v", (2, 4, 3), "int16"), plain("p", (2, 4), "int32"), plain("m", (2, 4, 3), "int16")
    given, args = [anything(values), np.array([[0, 1, 2, 3], [3, -1, place, 0]], np.int32)], {}
    if kind == "scatter":
        args["input"] = plain("rows", (2, 4, 3), "int16")
        given.append(anything(args["input"]))
    made_graph = several(tosa(kind, made, values=values, indices=places, **args))
    words = f"indices must be from -4 to 3; got {place}"
    with pytest.raises(ExecutionError, match=words):
        DIALECT.execute(made_graph, given)
    unchanged = [array.copy() for array in given]
    for cpu in cpus():
        memory = np.full((3, *made.bound), 0x5A5A, np.int16)  # the output is the middle one
        with pytest.raises(ExecutionError, match=words):
            compile(made_graph, threads=1, numerics=TOSA_NUMERICS, cpu=cpu).run(given, [memory[1]])
        assert (memory[::2] == 0x5A5A).all()
        for array, before in zip(given, unchanged, strict=True):
            np.testing.assert_array_equal(array, before)


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32"])
@pytest.mark.parametrize("few", [False, True])
def test_where_the_largest_is(dtype: str, few: bool) -> None:
    """``few``: so few different numbers that there are several largest."""
    x, ops = plain("x", (2, 5, 4, 19), dtype), []
    for axis in range(4):
        left = tuple(n for d, n in enumerate(x.bound) if d != axis)
        ops.append(tosa("argmax", plain(f"axis {axis}", left, "int32"), input=x, axis=axis))
    given = anything(x)
    same(several(*ops), "tosa", [(given % 3).astype(dtype) if few else given])


def test_where_the_largest_real_number_is() -> None:
    x, y = plain("x", (3, 37), "float32"), plain("y", (3,), "int32")
    given = np.random.default_rng(1).standard_normal(x.bound).astype(np.float32)
    given[1, 20:22], given[2, 5] = np.nan, np.inf
    same(several(tosa("argmax", y, input=x, axis=1)), "tosa", [given])


# ------------------------------------------------------------------------------------------------------- resizing

SCALES = [[4, 2, 4, 2], [9, 4, 7, 3], [1, 2, 1, 3], [16, 1, 2, 1]]


def resized(size: tuple[int, ...], scale: list[int], edges: list[int]) -> tuple[int, ...]:
    return tuple(((n - 1) * scale[2 * i] - edges[0] + edges[1]) // scale[2 * i + 1] + 1 for i, n in enumerate(size))


@pytest.mark.sample(6)
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("edges", [[0, 0], [-1, 1]])
@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_tosa_resizes(scale: list[int], edges: list[int], dtype: str) -> None:
    x = plain("x", (2, 5, 7, 19), dtype)
    size = resized(x.bound[1:3], scale, edges)
    args = {"input": x, "scale": scale, "offset": [edges[0]] * 2, "border": [edges[1]] * 2}
    wide = plain("wide", (2, *size, 19), "int32" if dtype == "int8" else "int64")
    near = plain("near", (2, *size, 19), dtype)
    ops = [tosa("resize", wide, mode="bilinear", **args), tosa("resize", near, mode="nearest", **args)]
    same(several(*ops), "tosa")
    small = plain("small", near.bound, dtype)
    narrowed = rescale(wide, small, 1 << 14, 19)
    same(graph([small], ops[0], narrowed), "tosa")


def test_real_images_are_resized() -> None:
    """In double precision, as numpy has it."""
    x, y = plain("x", (2, 5, 7, 3), "float32"), plain("y", (2, 17, 10, 3), "float32")
    op = tosa("resize", y, input=x, scale=[8, 2, 3, 2], offset=[0, 0], border=[0, 0], mode="bilinear")
    given = np.random.default_rng(1).standard_normal(x.bound).astype(np.float32)
    same(several(op), "tosa", [given])


@pytest.mark.sample(4)
@BOTH
@pytest.mark.parametrize("size", [(10, 14), (3, 11), (5, 7), (1, 1)])
@pytest.mark.parametrize("options", [(False, True), (True, False), (False, False)])
def test_tflite_resizes(numerics: str, size: tuple[int, int], options: tuple[bool, bool]) -> None:
    x, y = stored("x", (2, 5, 7, 19), 0.05, 3), stored("y", (2, *size, 19), 0.05, 3)
    if numerics == "xnnpack" and options == (False, False):
        options = (False, True)
    given = {"align_corners": options[0], "half_pixel_centers": options[1]}
    same(several(tflite("RESIZE_BILINEAR", [x, numbers(size)], y, **given)), numerics)
    plain_options = {"align_corners": False, "half_pixel_centers": False}
    same(several(tflite("RESIZE_NEAREST_NEIGHBOR", [x, numbers(size)], y, **plain_options)), numerics)


@BOTH
@pytest.mark.parametrize("mode", [0, 1])
def test_tflite_mirrors(numerics: str, mode: int) -> None:
    x, y = stored("x", (2, 4, 5, 6), 0.05, 3), stored("y", (2, 7, 9, 8), 0.05, 3)
    same(several(tflite("MIRROR_PAD", [x, numbers([[0, 0], [1, 2], [3, 1], [1, 1]])], y, mode=mode)), numerics)


@pytest.mark.sample(2)
@pytest.mark.parametrize("out", [(0.05, 7), (0.0003, 3)])
@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
def test_products_of_computed_matrices_as_xnnpack_rounds_them(out: Any, batch: tuple[int, ...]) -> None:
    a, b = stored("a", (*batch, 5, 37), 0.03, -5), stored("b", (*batch, 37, 19), 0.02, 90)
    same(several(tflite("BATCH_MATMUL", [a, b], stored("y", (*batch, 5, 19), *out))), "xnnpack")


# ----------------------------------------------------------------------------------------------------- hostile graphs


def _tile() -> Graph:
    x, y = plain("x", (2, 3, 5), "int16"), plain("y", (2, 6, 5), "int16")
    return several(tosa("tile", y, input=x, multiples=[1, 2, 1]))


def _gather() -> Graph:
    values, places, rows = plain("v", (2, 9, 4), "int8"), plain("p", (2, 6), "int32"), plain("r", (2, 6, 4), "int8")
    return several(tosa("gather", rows, values=values, indices=places))


def _resize() -> Graph:
    x, y = plain("x", (1, 4, 4, 3), "int8"), plain("y", (1, 7, 7, 3), "int32")
    return several(tosa("resize", y, input=x, scale=[4, 2, 4, 2], offset=[0, 0], border=[0, 0], mode="bilinear"))


def _argmax() -> Graph:
    x, y = plain("x", (3, 7, 4), "int8"), plain("y", (3, 4), "int32")
    return several(tosa("argmax", y, input=x, axis=1))


HOSTILE = {"tile": _tile, "gather": _gather, "resize": _resize, "argmax": _argmax}


@pytest.mark.parametrize("name", HOSTILE)
def test_results_that_are_not_as_large_as_they_say(name: str) -> None:
    from edgewright.errors import EdgewrightError

    def outcome(made: Graph) -> None:
        given = [np.zeros(v.bound, v.dtype) for v in made.inputs]
        compile(made, threads=1, numerics=TOSA_NUMERICS, memory=1 << 28).run(given)

    outcome(HOSTILE[name]())
    for dim in range(len(HOSTILE[name]().outputs[0].bound)):
        for by in (-1, 1, 1000):
            made = HOSTILE[name]()
            out: Value = made.outputs[0]
            out.shape = tuple(n + by if d == dim else n for d, n in enumerate(out.bound))
            if 0 not in out.bound:
                with pytest.raises(EdgewrightError):
                    outcome(made)


def test_meaning_of_what_is_made_here() -> None:
    """The graphs above are what the reference runs too."""
    for make in HOSTILE.values():
        made = make()
        (result,) = DIALECT.execute(made, [np.zeros(v.bound, v.dtype) for v in made.inputs])
        assert result.shape == made.outputs[0].bound
