"""Attention as one node: within a bound of the reference, whatever its shapes, masks and numbers; on bytes nearer still
to what exact arithmetic gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgewright.backends.xnnpack.numerics import XNNPACK
from edgewright.engine import make_plan
from edgewright.engine.graph.match_attention import match_attention
from edgewright.ir.graph import Graph, Op, Value
from tests.engine.graphs import (
    U8,
    compare,
    constant,
    cpus,
    graph,
    quantized,
    random,
    real,
    run,
    steps_in_python,
)

Shape = tuple[int, int, int, int, int]  # heads, queries, keys, depth, width


def scalar(kind: str, x: Value, number: float, out: Value) -> Op:
    return Op(f"core.{kind}", {"self": x, "other": constant(np.float32([number]))}, [out])


def attention(shape: Shape, mask: Value | None = None, scale: float = 0.2, first: list[Op] | None = None,
              given: list[Value] | None = None) -> Graph:  # fmt: skip
    """As exported: heads are a batch in the products, and one of two dimensions between them."""
    heads, queries, keys, depth, width = shape
    q, k, v = given or (real("q", heads, queries, depth), real("k", heads, depth, keys), real("v", heads, keys, width))
    matches, scaled, wide = real("s", heads, queries, keys), real("t", heads, queries, keys), (1, heads, queries, keys)
    viewed, masked, shares = (real(n, *wide) for n in "uwp")
    flat, out = real("f", heads, queries, keys), real("o", heads, queries, width)
    ops = [*(first or []), Op("core.bmm", {"self": q, "other": k}, [matches]), scalar("mul", matches, scale, scaled),
           Op("core.view", {"self": scaled, "size": list(wide)}, [viewed])]  # fmt: skip
    if mask is not None:
        ops.append(Op("core.add", {"self": viewed, "other": mask}, [masked]))
    ops += [
        Op("core.softmax", {"self": viewed if mask is None else masked}, [shares]),
        Op("core.view", {"self": shares, "size": [heads, queries, keys]}, [flat]),
        Op("core.bmm", {"self": flat, "other": v}, [out]),
    ]
    inputs = [next(iter(op.inputs())) for op in first or ()] or [q, k, v]
    return graph([*inputs, *([mask] if mask is not None and not mask.constant else [])], [out], *ops)


def close(made: Graph, cpu: str, bound: float = 3e-6, seed: int = 0) -> None:
    assert steps_in_python(made, cpu) == []
    assert len(match_attention(made)) == 1
    compare(made, [random(v, i + seed) for i, v in enumerate(made.inputs)], cpu, bound)


SHAPES: list[Shape] = [
    (1, 5, 7, 4, 3),
    (3, 29, 37, 16, 20),
    (2, 64, 64, 32, 64),
    (2, 15, 197, 64, 64),
    (1, 33, 16, 80, 96),
    (2, 9, 1, 8, 8),
    (1, 6, 300, 128, 48),
]


@pytest.mark.sample(5)
@pytest.mark.parametrize("cpu", cpus())
@pytest.mark.parametrize("shape", SHAPES)
def test_shapes(cpu: str, shape: Shape) -> None:
    close(attention(shape), cpu)


@pytest.mark.sample(4)
@pytest.mark.parametrize("cpu", cpus())
@pytest.mark.parametrize("mask", [(1, 1, 21, 40), (21, 40), (1, 3, 1, 40), (40,), (1, 3, 21, 40)])
@pytest.mark.parametrize("fixed", [True, False])
def test_masks(cpu: str, mask: tuple[int, ...], fixed: bool) -> None:
    data = np.where(np.random.default_rng(3).random(mask) < 0.3, -np.inf, 0.5).astype(np.float32)
    data[..., 0] = 0.25  # something is left of every row
    made = attention((3, 21, 40, 16, 24), constant(data) if fixed else real("mask", *mask))
    assert len(match_attention(made)) == 1
    given = [random(v, i) for i, v in enumerate(made.inputs[:3])]
    compare(made, [*given, *([] if fixed else [data])], cpu, 3e-6)


@pytest.mark.parametrize("cpu", cpus())
def test_rows_that_are_no_numbers(cpu: str) -> None:
    """Infinite scores, rows where everything is masked, NaN: what the reference makes of them, row by row."""
    mask = real("mask", 1, 1, 20, 24)
    made = attention((2, 20, 24, 8, 16), mask)
    q, k, v = (random(x, i) for i, x in enumerate(made.inputs[:3]))
    given = np.zeros((1, 1, 20, 24), np.float32)
    given[..., 3, :], given[..., 5, 2], given[..., 7, 1], given[..., 9, 4] = -np.inf, np.inf, np.nan, 3e38
    given[..., 11, :] = -3e38
    compare(made, [q, k, v, given], cpu, 3e-6)
    assert np.isnan(run(made, [q, k, v, given], cpu)[0][:, [3, 5, 7]]).all()


@pytest.mark.parametrize("cpu", cpus())
def test_queries_without_keys_get_zeros(cpu: str) -> None:
    """As PyTorch's own attention has it: shares of rows that are masked as a whole are 0."""
    mask = real("mask", 1, 1, 20, 24)
    made = attention((2, 20, 24, 8, 16), mask)
    at = next(i for i, op in enumerate(made.ops) if op.kind == "core.softmax")
    scores, shares = made.ops[at].args["self"], made.ops[at].outputs[0]
    assert shares is not None
    flags = [Value(n, np.dtype(bool), (1, 2, 20, k), (0, 1, 2, 3)) for n, k in zip("efgh", (24, 24, 1, 1), strict=True)]
    safe, zeros = real("z", 1, 2, 20, 24), constant(np.zeros((1, 2, 20, 24), np.float32))
    made.ops[at + 1].args["self"] = safe
    made.ops[at + 1 : at + 1] = [
        Op("core.eq", {"self": scores, "other": constant(np.float32(-np.inf))}, [flags[0]]),
        Op("core.logical_not", {"self": flags[0]}, [flags[1]]),
        Op("core.amax", {"self": flags[1], "dim": [3], "keepdim": True}, [flags[2]]),
        Op("core.logical_not", {"self": flags[2]}, [flags[3]]),
        Op("core.where", {"condition": flags[3], "self": zeros, "other": shares}, [safe]),
    ]
    (found,) = match_attention(made)
    assert found.safe
    data = np.zeros((1, 1, 20, 24), np.float32)
    data[..., 3, :], data[..., 5, 1:], data[..., 7, 2] = -np.inf, -np.inf, np.nan
    given = [*(random(x, i) for i, x in enumerate(made.inputs[:3])), data]
    compare(made, given, cpu, 3e-6)
    got = run(made, given, cpu)[0]
    assert not got[:, 3].any() and np.isnan(got[:, 7]).all()


@pytest.mark.parametrize("size", [0.0, 1e-30, 1e3])
def test_scores_of_any_size(size: float) -> None:
    made = attention((2, 17, 50, 16, 16))
    q, k, v = (random(x, i) for i, x in enumerate(made.inputs))
    compare(made, [q * np.float32(size), k, v], cpus()[-1], 3e-6 if size < 1 else 2e-4)  # as near as their last places


def from_bytes(shape: Shape, factor: float = 0.5, dtype: Any = np.int8, rows: bool = True) -> Graph:
    """Queries, keys and values that were bytes; keys as they are made (``rows``), or as they are multiplied."""
    heads, queries, keys, depth, width = shape
    bytes_ = [quantized("qb", heads, queries, depth, scale=0.05, zero=3, dtype=dtype),
              quantized("kb", heads, *((keys, depth) if rows else (depth, keys)), scale=0.03, zero=9, dtype=dtype),
              quantized("vb", heads, keys, width, scale=0.04, zero=7, dtype=dtype)]  # fmt: skip
    q, half, k, v = (real(n, heads, *s) for n, s in zip("qhkv", ((queries, depth), (queries, depth), (depth, keys),
                                                                 (keys, width)), strict=True))  # fmt: skip
    turned = quantized("kt", heads, depth, keys, scale=0.03, zero=9, dtype=dtype)
    first = [Op("core.convert", {"self": bytes_[0]}, [q]), Op("core.convert", {"self": bytes_[2]}, [v])]
    source = bytes_[1]
    if rows:
        first.append(Op("core.permute", {"self": bytes_[1], "dims": [0, 2, 1]}, [turned]))
        source = turned
    first += [Op("core.convert", {"self": source}, [k]), scalar("mul", q, factor, half)]
    made = attention(shape, scale=0.1, first=first, given=[half, k, v])
    made.inputs = bytes_
    return made


@pytest.mark.sample(3)
@pytest.mark.parametrize("cpu", cpus())
@pytest.mark.parametrize("rows", [True, False])
@pytest.mark.parametrize("dtype", [np.int8, U8])
@pytest.mark.parametrize("shape", [(2, 19, 65, 48, 5), (3, 40, 64, 32, 48), (1, 7, 30, 16, 64), (2, 197, 197, 64, 64)])
def test_bytes(cpu: str, rows: bool, dtype: Any, shape: Shape) -> None:
    made = from_bytes(shape, dtype=dtype, rows=rows)
    assert steps_in_python(made, cpu) == []
    assert not any(s.label == "convert" for s in make_plan(made, 1).steps), "bytes are multiplied as they are"
    given = [random(v, i) for i, v in enumerate(made.inputs)]
    compare(made, given, cpu, 3e-5)  # the reference rounds large scores
    q, k, v = (XNNPACK.dequantize(x, i.q).astype(np.float64) for x, i in zip(given, made.inputs, strict=True))
    scores = q @ (k.swapaxes(1, 2) if rows else k) * 0.5 * np.float32(0.1)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    exact = powers / powers.sum(-1, keepdims=True) @ v
    assert np.abs(run(made, given, cpu)[0] - exact).max() <= 2e-6 * np.abs(exact).max()


def test_what_is_seen_elsewhere_stays_whole() -> None:
    """Scores or shares that something else reads, few queries, and factors that are not positive."""
    made = attention((2, 8, 12, 8, 8))
    shares = made.ops[3].outputs[0]
    assert shares is not None
    seen = Graph("seen", made.inputs, [*made.outputs, shares], made.ops)
    assert match_attention(seen) == [] and match_attention(made)
    assert match_attention(attention((2, 4, 12, 8, 8))) == []
    given = [random(v, i) for i, v in enumerate(made.inputs)]
    compare(seen, given, cpus()[-1], 3e-6)
    for factor in (-0.5, 0.0):
        turned = from_bytes((2, 20, 24, 16, 16), factor)
        assert not match_attention(turned)[0].bytes
        compare(turned, [random(v, i) for i, v in enumerate(turned.inputs)], cpus()[-1], 5e-6)


@pytest.mark.parametrize("threads", [1, 2])
def test_any_number_of_threads_gives_the_same(threads: int) -> None:
    made = attention((4, 50, 60, 32, 32))
    given = [random(v, i) for i, v in enumerate(made.inputs)]
    alone = run(made, given, cpus()[-1], 1)[0]
    np.testing.assert_array_equal(run(made, given, cpus()[-1], threads)[0], alone)
