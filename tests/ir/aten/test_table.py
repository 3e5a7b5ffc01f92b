"""The op table: every row against torch's schemas and against eager torch, and its claims about values and layout."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from edgewright.ir.aten.ops import OPS
from edgewright.ir.aten.table import OpClass, OpDef
from edgewright.ir.graph import Op, Value
from edgewright.ir.ports import Range, Same, Tied
from tests.ir.aten.backend_ops import BACKENDS
from tests.ir.aten.harness import assert_close
from tests.ir.aten.overload_calls import Call, calls_of, eager, overload_named

ROWS = list(OPS.values())
RANDOM = {"rand", "rand_like", "randn", "randn_like"}
CERTAIN = [row for row in ROWS if row.name not in RANDOM]


def schema(overload: str) -> Any:
    return overload_named(overload)._schema


def tensors(overload: str) -> set[str]:
    return {a.name for a in schema(overload).arguments if "Tensor" in str(a.type)}


def calls(row: OpDef) -> Iterator[Call]:
    for overload in row.aten:
        yield from calls_of(row, overload)


def run(row: OpDef, args: dict[str, Any], like: list[np.ndarray]) -> list[np.ndarray]:
    """The row's results in the types of those asked for, as whoever stores them would."""
    with np.errstate(all="ignore"):
        return [np.asarray(r).astype(e.dtype) for r, e in zip(row.call(args), like, strict=False)]


def test_there_is_a_row_for_everything_the_backends_take() -> None:
    known = {overload for row in ROWS for overload in row.aten}
    missing = {name: [o for o in listed if o not in known] for name, listed in BACKENDS.items()}
    assert missing == {name: [] for name in BACKENDS}
    assert len(ROWS) >= 150


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_overloads_exist_and_are_functional(row: OpDef) -> None:
    assert row.aten
    for overload in row.aten:
        assert str(overload_named(overload)) == overload
        assert not schema(overload).is_mutable


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_references_take_the_arguments_of_every_overload_by_name(row: OpDef) -> None:
    for overload in row.aten:
        arguments = {a.name: a for a in schema(overload).arguments}
        for function in (row.reference, row.shape):
            taken = inspect.signature(function)
            taken.bind(**dict.fromkeys(arguments))
            for name, parameter in taken.parameters.items():
                told = arguments.get(name)
                if told is None or parameter.default is inspect.Parameter.empty or not told.has_default_value():
                    continue
                if isinstance(told.default_value, bool | int | float) and not isinstance(parameter.default, tuple):
                    assert parameter.default in (told.default_value, None), f"{overload}: {name}"


BINARY = [row for row in ROWS if row.ports.keys() == {"self", "other", "out"} and row.op_class is OpClass.ELEMENTWISE]


@pytest.mark.parametrize("row", BINARY, ids=str)
def test_rows_that_give_a_tensor_of_it_and_itself_say_so(row: OpDef) -> None:
    samples = [np.array([True, False])]
    if not row.name.startswith("logical"):
        samples.append(np.array([-7, -1, 0, 1, 2, 1 << 20], np.int32))
    if not row.name.startswith(("logical", "bitwise")):
        samples.append(np.array([-1.5, -0.0, 0.0, 3.25, np.inf, np.nan], np.float32))
    with np.errstate(all="ignore"):
        same = [_is_same(x, row) for x in samples]
    assert row.idempotent == all(same)


def _is_same(x: np.ndarray, row: OpDef) -> bool:
    try:
        (made,) = row.call({"self": x, "other": x})
    except (TypeError, ValueError, ZeroDivisionError):  # it has no bools, or no zeros
        return False
    return made.dtype == x.dtype and made.tobytes() == x.tobytes()


def test_rows_that_share_an_overload_say_when() -> None:
    claims: dict[str, list[OpDef]] = {}
    for row in ROWS:
        for overload in row.aten:
            claims.setdefault(overload, []).append(row)
    shared = {overload: rows for overload, rows in claims.items() if len(rows) > 1}
    assert set(shared) == {
        "aten.convolution.default",
        "aten.grid_sampler.default",
        "aten.index_put.default",
        "aten.pad.default",
    }
    assert all(row.when is not None for rows in shared.values() for row in rows)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_ports_are_the_tensors_of_the_overloads(row: OpDef) -> None:
    operands = set().union(*map(tensors, row.aten))
    assert set(row.ports) == operands | {"out"}
    for name, port in row.ports.items():
        if isinstance(port, Same | Tied):
            assert port.port in row.ports and port.port != name
            assert not isinstance(row.ports[port.port], Same | Tied), "one step to the port that decides"


@pytest.mark.sample(73)
@pytest.mark.parametrize("row", CERTAIN, ids=str)
def test_reference_gives_what_eager_torch_gives(row: OpDef) -> None:
    for overload in row.aten:
        found = calls_of(row, overload)
        assert found, f"{overload} has no sample"
        for call in found:
            claiming = [r for r in ROWS if overload in r.aten and (r.when is None or r.when(as_op(call)))]
            assert claiming == [row]
            expected = eager(call)
            actual = run(row, call.args, expected)
            assert len(actual) == len(expected)
            for ours, theirs in zip(actual, expected, strict=True):
                assert_close(ours, theirs, call.sample)


def as_op(call: Call) -> Op:
    values = {n: Value("", v.dtype, v.shape) if isinstance(v, np.ndarray) else v for n, v in call.args.items()}
    return Op(call.overload, values, [])


@pytest.mark.sample(73)
@pytest.mark.parametrize("row", CERTAIN, ids=str)
def test_shape_is_that_of_the_result(row: OpDef) -> None:
    found = list(calls(row))
    assert found
    for call in found:
        shape = row.shape(**call.args)
        shapes = shape if isinstance(shape, list) else [shape]
        with np.errstate(all="ignore"):
            results = row.call(call.args)
        assert [tuple(s) for s in shapes] == [np.shape(r) for r in results], str(call.sample)
        assert [tuple(s) for s in shapes[: len(eager(call))]] == [r.shape for r in eager(call)], str(call.sample)


@pytest.mark.parametrize("name", sorted(RANDOM))
def test_random_rows_have_shape_and_spread(name: str) -> None:
    row, like = OPS[name], np.zeros((40, 50), np.float32)
    args: dict[str, Any] = {"self": like} if name.endswith("_like") else {"size": [40, 50]}
    args = {**dict.fromkeys(a.name for a in schema(row.aten[0]).arguments), **args}
    (result,) = row.call(args)
    assert row.shape(**args) == result.shape == (40, 50)
    spread = 12**-0.5 if name.startswith("rand_") or name == "rand" else 1.0
    assert abs(result.std() - spread) < 0.1 * spread
    assert abs(result.mean() - (0.5 if spread < 1 else 0)) < 0.1


def floats(row: OpDef) -> Iterator[tuple[Call, list[np.ndarray]]]:
    """Calls whose operands are real numbers, with what they give."""
    for call in calls(row):
        expected = eager(call)
        if all(a.dtype == np.float32 and np.isfinite(a).all() for a in [*acts(row, call), expected[0]]):
            yield call, expected


def acts(row: OpDef, call: Call) -> list[np.ndarray]:
    """The operands with the result's scale."""
    out = row.ports["out"]
    names = [n for n, p in row.ports.items() if isinstance(out, Same) and out.port in (n, getattr(p, "port", None))]
    return [a for n in names for a in _arrays(call.args.get(n))]


def _arrays(value: Any) -> list[np.ndarray]:
    items = value if isinstance(value, list) else [value]
    return [v for v in items if isinstance(v, np.ndarray)]


@pytest.mark.parametrize("row", [r for r in CERTAIN if isinstance(r.ports["out"], Same)], ids=str)
def test_what_shares_a_scale_has_the_very_values(row: OpDef) -> None:
    tried = 0
    for call, expected in floats(row):
        constant = [np.float32(v) for n in ("value",) for v in [call.args.get(n) or 0] if isinstance(v, int | float)]
        allowed = {float(v) for a in acts(row, call) for v in a.flat} | set(map(float, constant))
        pieces = expected if row.name in ("split", "split_with_sizes", "chunk", "unbind") else expected[:1]
        assert {float(v) for piece in pieces for v in piece.flat} <= allowed, str(call.sample)
        tried += bool(allowed)
    assert tried


@pytest.mark.parametrize("row", [r for r in CERTAIN if isinstance(r.ports["out"], Range)], ids=str)
def test_fixed_ranges_hold(row: OpDef) -> None:
    bounds: Any = row.ports["out"]
    seen = np.concatenate([r[0].astype(np.float64).ravel() for _, r in floats(row)])
    assert seen.size and bounds.lo <= seen.min() and seen.max() <= bounds.hi
    assert np.ptp(seen) > (bounds.hi - bounds.lo) / 4


@pytest.mark.parametrize("row", [r for r in CERTAIN if r.op_class is OpClass.ELEMENTWISE], ids=str)
def test_elementwise_operators_do_not_see_the_order_of_dimensions(row: OpDef) -> None:
    """If the dimensions of all operands are reversed, those of the result are."""
    tried = 0
    for call in calls(row):
        arrays = [v for v in call.args.values() if isinstance(v, np.ndarray) and v.ndim]
        expected = eager(call)
        if len({a.ndim for a in arrays}) != 1 or any(r.ndim != arrays[0].ndim for r in expected):
            continue
        turned = {n: v.T if isinstance(v, np.ndarray) else v for n, v in call.args.items()}
        for ours, theirs in zip(run(row, turned, expected), expected, strict=True):
            assert_close(np.ascontiguousarray(ours.T), theirs, call.sample)
        tried += 1
    assert tried or not any(tensors(o) for o in row.aten)


def test_the_table_needs_no_torch() -> None:
    code = "import sys; from edgewright.ir.aten.ops import OPS; sys.exit(len(OPS) < 150 or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_what_no_row_takes_has_none() -> None:
    image = Value("x", np.dtype(np.float32), (1, 2, 3, 3))
    assert OPS.of(Op("aten.svd.default", {"self": image}, [])) is None
    assert OPS.of(Op("aten.batch_norm.default", {"input": image, "training": True}, [])) is None
    assert OPS.of(Op("aten.dropout.default", {"input": image, "p": 0.5, "train": True}, [])) is None
    filters = Value("w", np.dtype(np.float32), (2, 2, 3, 3))
    args = {"input": image, "weight": filters, "transposed": True}
    assert str(OPS.of(Op("aten.convolution.default", args, []))) == "conv_transpose2d"
    assert str(OPS.of(Op("aten.convolution.default", {**args, "transposed": False}, []))) == "conv2d"
