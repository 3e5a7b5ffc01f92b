"""Every row on the op table's own samples: refused by a rule, or lowered to what AI LiteCore is to be told, and right
on this machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from edgewright.backends.samsung.dialect import DIALECT
from edgewright.backends.samsung.graph_record import GraphRecord, record_graph
from edgewright.backends.samsung.ops import BACKEND
from edgewright.backends.samsung.partitioner import EnnPartitioner, to_enn
from edgewright.formats.twin_reader import read_twin
from edgewright.formats.twin_writer import write_twin
from edgewright.ir.aten.ops import OPS
from edgewright.ir.graph import Array, Graph, Op, QParams, Value
from tests.backends.samsung.enn_spec import CALLS, NAMES, expected
from tests.support.quantized_calls import (
    Case,
    Scheme,
    apart,
    cases,
    load,
    one_for_transposed_groups,
    parameters,
    store,
    value,
)

ROWS = [name for name in BACKEND.rows if name in OPS]
TYPES = [None, np.int8, np.uint8, np.int16, np.uint16]  # None: real numbers
LIMITS = {1: 1, 2: 34}  # steps, by bytes; of 16 bits, a two-thousandth of the range
PARTITIONER = EnnPartitioner.for_simulation("E9955")
F32 = np.dtype(np.float32)
LARGEST = 65504  # of half precision


def samples(op: str, dtype: Any) -> list[Case]:
    held = None if dtype is None else np.dtype(dtype)
    scheme = Scheme(held, axis=one_for_transposed_groups, moderate=op != "topk", saturates=False)
    return list(cases(op, scheme, BACKEND.rows[op].ports))


def compare(made: Array, case: Case) -> None:
    """Integers within some steps, real numbers within what half precision does."""
    q, known = case.graph.outputs[0].q, case.known
    if case.wanted.dtype == F32:
        known = known & (np.abs(case.wanted) < LARGEST)
    off = apart(made.reshape(case.wanted.shape)[known], case.wanted[known])
    limit = 5e-3 if case.wanted.dtype.kind == "f" else 0 if q is None else LIMITS[q.dtype.itemsize]
    assert off <= limit, f"{case.name}: off by {off}"


def quantization(held: Value, converted: set[int]) -> Any:
    """What is to be told of a tensor's scales."""
    if held.q is None:
        return ("", [1.0], [0]) if held in converted else None
    name = "AINT8" if held.q.dtype.itemsize == 1 else "AINT16"
    scales = [float(np.float32(s)) for s in np.ravel(held.q.scale)]
    return name, scales, [int(z) for z in np.ravel(held.q.zero_point)]


def check_tensors(made: GraphRecord, graph: Graph) -> None:
    values = list(graph.values())
    assert len({t.name for t in made.tensors}) == len(made.tensors) == len(values)
    ends = [op for op in graph.ops if op.kind in ("enn.QUANTIZE", "enn.DEQUANTIZE")]
    converted = {v for op in ends for v in (*op.inputs(), *op.outputs) if v is not None}
    for held, tensor in zip(values, made.tensors, strict=True):
        dims = list(held.bound) or [1]
        assert (tensor.dims, tensor.dtype) == (dims, NAMES[np.dtype(held.dtype)])  # type: ignore[arg-type]
        assert tensor.layout == ("NCHW" if len(dims) == 4 else "UNDEFINED")
        assert tensor.quantization == quantization(held, converted)
        assert (tensor.data is None) == (held.data is None)
        assert tensor.data is None or tensor.data.tobytes() == np.asarray(held.data).tobytes()
    assert [made.tensors[i].name for i in made.inputs] == [made.tensors[values.index(v)].name for v in graph.inputs]
    assert [made.tensors[i].name for i in made.outputs] == [made.tensors[values.index(v)].name for v in graph.outputs]


def verified(case: Case) -> bool:
    """Refused, or lowered as described and right; True if it was taken."""
    why = PARTITIONER.rejections(case.op)
    if why:
        assert all(why)
        return False
    graph = to_enn(case.copy())
    made = record_graph(graph)
    assert [(node.type, node.params) for node in made.nodes] == expected(case.op), case.name
    check_tensors(made, graph)
    (read,) = read_twin(write_twin({"": graph})).values()
    DIALECT.check(read, 1 << 30)
    compare(DIALECT.execute(read, case.inputs)[0], case)
    return True


def test_every_row_has_a_description() -> None:
    assert set(CALLS) == set(ROWS)


@pytest.mark.sample(26)
@pytest.mark.parametrize("op", ROWS)
def test_rows_are_refused_by_a_rule_or_told_as_described_and_right(op: str) -> None:
    for dtype in TYPES:
        for case in samples(op, dtype):
            verified(case)


# -------------------------------------------------------------------------------------- what samples do not have


def made_case(op: str, dtype: Any, x: Array, args: dict[str, Any], real: dict[str, Any], fixed: QParams | None) -> Case:
    """A call on one computed tensor ``x``; ``args`` has None where it stands, ``real`` what the others mean."""
    held = None if dtype is None else np.dtype(dtype)
    q = fixed or (None if held is None else parameters([x], held))
    stored = store(x, q)
    given = value("x", stored, q)
    means = {n: load(stored, q) if v is None else real.get(n, v) for n, v in args.items()}
    wanted = np.asarray(OPS[op].call(means)[0], np.float32)
    out_q = q if fixed is not None else None if held is None else parameters([wanted], held)
    out = value("y", store(wanted, out_q), out_q)
    filled = {n: given if v is None else v for n, v in args.items()}
    graph = Graph("case", [given], [out], [Op(op, filled, [out])])
    return Case(graph, [stored], store(wanted, out_q), op, np.ones(wanted.shape, np.bool_))


def constant(data: Array, q: QParams | None = None) -> Value:
    return value("held", store(data, q), q, held=True)


def _embedding(dtype: Any) -> Case:
    rng = np.random.default_rng(0)
    table = rng.normal(size=(10, 6)).astype(np.float32)
    q = None if dtype is None else parameters([table], np.dtype(dtype))
    places = np.array([[0, 3], [9, 3]], np.int64)
    wanted = store(table, q)[places]
    index, out = value("places", places), value("y", wanted, q)
    graph = Graph("case", [index], [out], [Op("embedding", {"weight": constant(table, q), "indices": index}, [out])])
    return Case(graph, [places], wanted, "embedding", np.ones(wanted.shape, np.bool_))


def _mm(dtype: Any) -> Case:
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(3, 5)).astype(np.float32), rng.normal(size=(5, 4)).astype(np.float32)
    q = None if dtype is None else parameters([w], np.dtype(dtype))
    weight = constant(w, q)
    assert weight.data is not None
    return made_case("mm", dtype, x, {"self": None, "mat2": weight}, {"mat2": load(weight.data, q)}, None)


def _transposed(dtype: Any, groups: int = 1, **options: Any) -> Case:
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(2, 4, 5, 6)).astype(np.float32), rng.normal(size=(4, 3, 3, 3)).astype(np.float32)
    q = None if dtype is None else QParams(float(np.abs(w).max()) / 127, 0, np.dtype(np.int8), -127, 127)
    weight, bias = constant(w, q), rng.normal(size=3 * groups).astype(np.float32)
    assert weight.data is not None
    args = {
        "input": None, "weight": weight, "bias": constant(bias), "stride": [2, 2], "padding": [1, 1],
        "output_padding": [1, 1], "groups": groups, "dilation": [1, 1], **options,
    }  # fmt: skip
    made = made_case("conv_transpose2d", dtype, x, args, {"weight": load(weight.data, q), "bias": bias}, None)
    made.op.args["transposed"] = True
    return made


def _same(dtype: Any) -> Case:
    """Padding that differs from side to side."""
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(2, 3, 7, 8)).astype(np.float32), rng.normal(size=(4, 3, 2, 4)).astype(np.float32)
    q = None if dtype is None else QParams(float(np.abs(w).max()) / 127, 0, np.dtype(np.int8), -127, 127)
    weight = constant(w, q)
    assert weight.data is not None
    args = {"input": None, "weight": weight, "bias": None, "stride": [1, 1], "padding": "same", "dilation": [1, 1]}
    case = made_case("conv2d", dtype, x, {**args, "groups": 1, "bias": constant(np.zeros(4, np.float32))},
                     {"weight": load(weight.data, q), "bias": np.zeros(4, np.float32)}, None)  # fmt: skip
    case.op.args.update(transposed=False, output_padding=[0, 0])
    return case


def _addmm(dtype: Any) -> Case:
    rng = np.random.default_rng(0)
    x, w, b = (rng.normal(size=n).astype(np.float32) for n in ((3, 5), (5, 4), (4,)))
    args = {"self": constant(b), "mat1": None, "mat2": constant(w), "beta": 1, "alpha": 1}
    return made_case("addmm", None, x, args, {"self": b, "mat2": w}, None)


def _nearest(dtype: Any) -> Case:
    x = np.random.default_rng(0).normal(size=(1, 3, 4, 5)).astype(np.float32)
    q = QParams(0.03, 2, np.dtype(dtype), np.iinfo(dtype).min, np.iinfo(dtype).max) if dtype is not None else None
    return made_case("resize_nearest2d", dtype, x, {"self": None, "output_size": [8, 20]}, {}, q)


MORE: dict[str, Callable[[Any], Case]] = {
    "addmm": _addmm,
    "resize_nearest2d": _nearest,
    "embedding": _embedding,
    "mm": _mm,
    "conv_transpose2d": _transposed,
    "conv2d": _same,
    "grouped": lambda dtype: _transposed(dtype, groups=2),
    "uneven": lambda dtype: _transposed(dtype, output_padding=[1, 0]),
}


@pytest.mark.parametrize("name", MORE)
def test_calls_that_samples_do_not_have(name: str) -> None:
    for dtype in TYPES:
        assert verified(MORE[name](dtype)), PARTITIONER.rejections(MORE[name](dtype).op)


@pytest.mark.parametrize("op", ROWS)
def test_every_row_takes_something(op: str) -> None:
    """A row that refuses all its samples would be no row."""
    given = [*(MORE[op](None) for _ in range(op in MORE)), *samples(op, None), *samples(op, np.int8)]
    assert any(not PARTITIONER.rejections(case.op) for case in given), op
