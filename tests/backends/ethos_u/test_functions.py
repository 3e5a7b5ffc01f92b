"""Functions of our own making: softmax, norms, quotients and tables, where the op table's samples are not enough."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgewright.backends.ethos_u.lookup_table import fit_pieces
from edgewright.backends.ethos_u.ops import BACKEND
from edgewright.backends.ethos_u.target import EthosUCompileSpec
from edgewright.ir.aten.ops import OPS
from edgewright.ir.graph import Array, Graph, Op, QParams, Value
from tests.backends.ethos_u.hand_written import case
from tests.backends.ethos_u.rows import check
from tests.support.quantized_calls import Case, load, store

TARGETS = ("ethos-u55-128", "ethos-u65-256", "ethos-u85-256")
MOST = {8: 1, 16: 4}


def known(kind: str, x: Array, q: QParams, out: QParams, **args: Any) -> Case:
    """An operator on stored integers of our choosing."""
    name = "input" if "norm" in kind and kind != "linalg_vector_norm" else "self"
    wanted = np.asarray(OPS[kind].call({name: load(x, q).astype(np.float64), **args})[0])
    order = tuple(range(x.ndim))
    given = Value("x", q.dtype, x.shape, order, q=q)
    made = Value("out", out.dtype, wanted.shape, tuple(range(wanted.ndim)), q=out)
    graph = Graph("case", [given], [made], [Op(kind, {name: given, **args}, [made])])
    return Case(graph, [x], store(wanted, out), kind, np.ones(wanted.shape, np.bool_))


def parameters(bits: int, scale: float, zero: int = 0) -> QParams:
    last = 127 if bits == 8 else 32767
    return QParams(scale, zero if bits == 8 else 0, np.dtype(f"int{bits}"), -last - (bits == 8), last)


# ---------------------------------------------------------------------------------------------------------- softmax


def rows_of(bits: int, count: int) -> Array:
    """A row with one value far above all others, one of equals, one half masked, and one of noise."""
    limits = np.iinfo(f"int{bits}")
    low, high = limits.min + (bits == 16), limits.max
    x = np.clip(np.random.default_rng(count).normal(0, high / 3, (4, count)), low, high).astype(limits.dtype)
    x[0], x[1], x[2, count // 2 :] = low, 5, low
    x[0, 3] = high
    return x


@pytest.mark.sample(4)
@pytest.mark.parametrize("count", [4, 10, 100, 1000, 3000])
@pytest.mark.parametrize("bits", [8, 16])
def test_softmax_of_masked_equal_and_lonely_values(bits: int, count: int) -> None:
    steps = 1 if bits == 8 else 256
    for scale in (0.002, 0.03, 0.3):
        out = parameters(bits, 1 / 256, -128) if bits == 8 else parameters(bits, 1 / 32767)
        made = known("softmax", rows_of(bits, count), parameters(bits, scale / steps, -7), out, dim=1)
        assert check(made, TARGETS[count % 3]).steps <= bits // 8


def test_many_small_exponentials_count() -> None:
    """Each of 9000 is far below a step of the result; together they are half of it."""
    x = np.full((1, 9001), -128, np.int8)
    x[0, 0] = 127
    scale = np.log(9000) / 255
    made = known("softmax", x, parameters(8, float(scale), 0), parameters(8, 1 / 256, -128), dim=1)
    assert made.wanted[0, 0] == 0
    assert check(made, TARGETS[0]).steps <= 1


@pytest.mark.parametrize("count", [10, 1000, 5000])
@pytest.mark.parametrize("bits", [8, 16])
def test_log_softmax(bits: int, count: int) -> None:
    q = parameters(bits, 0.05 / (1 if bits == 8 else 256), -7)
    deepest = 255 * 0.05 + np.log(count)
    out = parameters(8, deepest / 255, 127) if bits == 8 else parameters(16, deepest / 32767)
    assert check(known("log_softmax", rows_of(bits, count), q, out, dim=1), TARGETS[count % 3]).steps <= 1


@pytest.mark.parametrize("dim", range(5))
def test_softmax_over_any_axis_of_five(dim: int) -> None:
    assert check(case("aten.softmax.int", (2, 3, 2, 4, 5), dim), TARGETS[dim % 3]).steps <= 1


# ------------------------------------------------------------------------------------------------------------ norms


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("kind", ["layer_norm", "rms_norm"])
def test_norms_of_small_and_large_spreads(kind: str, bits: int) -> None:
    """Rows that use all of the range, a few steps of it, or stand far off zero."""
    random = np.random.default_rng(1)
    top = 127 if bits == 8 else 32767
    wide = random.integers(-top, top, (1, 64))
    few = random.integers(-3, 4, (1, 64))
    far = top - 10 + random.integers(-4, 5, (1, 64))
    x = np.concatenate([wide, few, far]).astype(f"int{bits}")
    for scale in (1e-4, 0.02):
        q = parameters(bits, scale / (1 if bits == 8 else 256))
        most = 3.0
        made = known(kind, x, q, parameters(bits, most / top), normalized_shape=[64], eps=1e-5)
        assert check(made, TARGETS[bits % 3]).steps <= MOST[bits]


@pytest.mark.sample(6)
@pytest.mark.parametrize(
    ("overload", "args"),
    {
        "layer_norm": ("aten.layer_norm.default", ((2, 3, 24), [24], (24,), (24,))),
        "layer_norm of two": ("aten.layer_norm.default", ((2, 4, 6), [4, 6], (4, 6), (4, 6))),
        "group_norm": ("aten.group_norm.default", ((2, 8, 5, 5), 4, (8,), (8,))),
        "group_norm of a row": ("aten.group_norm.default", ((3, 8), 2, (8,), (8,))),
        "instance_norm": ("aten.instance_norm.default", ((2, 4, 9, 9), (4,), (4,), None, None, True, 0.1, 1e-5, False)),
        "rms_norm": ("aten.rms_norm.default", ((2, 3, 40), [40], (40,))),
        "vector norm": ("aten.linalg_vector_norm.default", ((3, 50), 2, [1])),
        "sum of magnitudes": ("aten.linalg_vector_norm.default", ((3, 50), 1, [1])),
    }.values(),
)
@pytest.mark.parametrize("bits", [8, 16])
def test_norms(overload: str, args: tuple[Any, ...], bits: int) -> None:
    for target in TARGETS[:: 2 if bits == 8 else 1]:
        assert check(case(overload, *args, bits=bits), target).steps <= MOST[bits]


def test_a_vector_of_zeros_has_no_length() -> None:
    q = parameters(8, 0.01, 3)
    made = known("linalg_vector_norm", np.full((2, 8), 3, np.int8), q, q, ord=2, dim=[1])
    assert check(made, TARGETS[0]).steps == 0


# ------------------------------------------------------------------------------------------------- arithmetic, tables


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize(
    ("overload", "args"),
    [
        ("aten.div.Tensor", ((3, 40), (3, 40))),
        ("aten.div.Tensor", ((2, 3, 2, 4, 5), (2, 3, 2, 4, 5))),
        ("aten.div.Tensor_mode", ((3, 40), 0.3)),
        ("aten.remainder.Scalar", ((3, 40), -0.7)),
        ("aten.reciprocal.default", ((3, 40),)),
        ("aten.rsub.Scalar", ((3, 40), 1.5)),
        ("aten.pow.Tensor_Scalar", ((3, 40), 3)),
        ("aten.maximum.default", ((3, 40), (40,))),
        ("aten.prelu.default", ((2, 4, 3, 3), (4,))),
        ("aten.glu.default", ((2, 8, 4), 1)),
        ("aten.var.correction", ((3, 40), [1])),
    ],
)
def test_arithmetic(overload: str, args: tuple[Any, ...], bits: int) -> None:
    keyword = {"rounding_mode": "floor"} if overload.endswith("_mode") else {}
    for target in TARGETS[bits // 16 :: 2]:
        assert check(case(overload, *args, bits=bits, **keyword), target).steps <= MOST[bits]


@pytest.mark.parametrize("alpha", [0.5, -2.0])
@pytest.mark.parametrize("kind", ["add", "sub", "rsub"])
def test_alpha_belongs_to_the_operand_that_is_taken(kind: str, alpha: float) -> None:
    assert check(case(f"aten.{kind}.Tensor", (3, 20), (3, 20), alpha=alpha), TARGETS[0]).steps <= 1


def test_over_zero_is_the_end() -> None:
    numbers = np.array([[-5, 0, 7, 100]], np.int16)
    q, out = parameters(16, 1.0), parameters(16, 1 / 16384)
    with np.errstate(divide="ignore"):
        made = known("reciprocal", numbers, q, out)
    assert made.wanted.tolist() == [[-3277, 32767, 2341, 164]]
    assert check(made, TARGETS[0]).steps <= 1


@pytest.mark.parametrize(
    "function", [np.tanh, np.exp, lambda v: np.sqrt(np.abs(v)), lambda v: np.where(v < 0, -1.0, 1.0)]
)
def test_pieces_of_a_function_know_how_far_off_they_are(function: Any) -> None:
    stored = np.arange(-32768, 32768)
    wanted = np.clip(function(stored / 4096) * 4000, -32767, 32767)
    plan, worst = fit_pieces(wanted)
    total = sum(piece.value(stored) for piece in plan)
    off = np.abs(np.floor(np.asarray(total) / 128 + 0.5) - wanted)
    assert off.max() == worst <= 8
    for piece in plan:
        entries = np.asarray(piece.entries)
        assert np.abs(np.diff(entries)).max() < 1 << 15 and np.abs(entries).max() <= 1 << 15


def test_what_no_table_reaches_is_refused() -> None:
    made = case("aten.cos.default", (40,), bits=16)
    made.op.args["self"].q = parameters(16, 1.0)
    said = [str(r) for r in BACKEND.rejections(made.op, EthosUCompileSpec("ethos-u85-256"))]
    assert len(said) == 1 and "16-bit functions must be within 8 steps with 16 tables of 512 intervals; got" in said[0]


# ---------------------------------------------------------------------------------- tensors that are parts of others


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", ["slice", "cat"])
@pytest.mark.parametrize("bits", [8, 16])
def test_parts_of_tensors_are_read_as_such(kind: str, bits: int, target: str) -> None:
    """Vela forgets the part when it takes a change of width (or a maximum) apart."""
    q, out = parameters(bits, 0.02), parameters(bits, 1 / 256, -128) if bits == 8 else parameters(bits, 1 / 32767)
    x = np.random.default_rng(0).integers(-100, 100, (1, 4, 8)).astype(q.dtype)
    shape = (1, 4, 4) if kind == "slice" else (1, 4, 16)
    given = Value("x", q.dtype, x.shape, (0, 1, 2), q=q)
    part = Value("part", q.dtype, shape, (0, 1, 2), q=q)
    made = Value("out", out.dtype, shape, (0, 1, 2), q=out)
    moved = (
        {"self": given, "dim": 2, "start": 4, "end": 8, "step": 1}
        if kind == "slice"
        else {"tensors": [given, given], "dim": 2}
    )
    ops = [Op(kind, moved, [part]), Op("softmax", {"self": part, "dim": 2}, [made])]
    held = x[:, :, 4:] if kind == "slice" else np.concatenate([x, x], 2)
    wanted = np.asarray(OPS["softmax"].call({"self": load(held, q), "dim": 2})[0])
    whole = Case(Graph("case", [given], [made], ops), [x], store(wanted, out), kind, np.ones(shape, np.bool_))
    assert check(whole, target).steps <= 1
