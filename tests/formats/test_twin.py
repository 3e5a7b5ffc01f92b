"""The host twin: every graph comes back as it was, and no file can hurt us."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest

from edgewright.backends.xnnpack.blob import read_blob
from edgewright.backends.xnnpack.blob_reader import from_blob
from edgewright.backends.xnnpack.numerics import XNNPACK
from edgewright.errors import FormatError, LimitError, VersionError
from edgewright.formats.twin_reader import read_twin
from edgewright.formats.twin_writer import ALIGNMENT, HEAD, MAGIC, VERSION, write_twin
from edgewright.ir.core.execute import Executor
from edgewright.ir.graph import Dim, Graph, GraphError, Op, Value
from tests.backends.xnnpack.test_blob_reader import DELEGATED, blobs, shown

FLOAT = np.dtype(np.float32)


@cache
def sample(name: str) -> dict[str, Graph]:
    return {f"{name}_{i}": from_blob(read_blob(blob), named) for i, (blob, named) in enumerate(blobs(name))}


def parts(data: bytes) -> tuple[dict[str, Any], bytes]:
    """A file's header and what follows."""
    length = HEAD.unpack_from(data)[2]
    return json.loads(data[HEAD.size : HEAD.size + length]), data[HEAD.size + length + -(HEAD.size + length) % 16 :]


def joined(header: Any, rest: bytes, version: int = VERSION) -> bytes:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return HEAD.pack(MAGIC, version, len(raw)) + raw + bytes(-(HEAD.size + len(raw)) % ALIGNMENT) + rest


def linear(weight: np.ndarray[Any, Any], name: str = "g") -> Graph:
    x, out = Value("x", FLOAT, (Dim("n", 1, 4), 2), (0, 1)), Value("y", FLOAT, (Dim("n", 1, 4), 3), (0, 1))
    held = Value("w", FLOAT, weight.shape, (0, 1), weight)
    limits = (-1.5, float("inf"))
    return Graph(name, [x], [out], [Op("linear", {"input": x, "weight": held, "bias": None, "limits": limits}, [out])])


@pytest.mark.parametrize("name", DELEGATED)
def test_graphs_of_stock_come_back(name: str) -> None:
    data = write_twin(sample(name))
    back = read_twin(data)
    assert {k: shown(g) for k, g in back.items()} == {k: shown(g) for k, g in sample(name).items()}
    assert write_twin(back) == data


def test_a_twin_runs_as_its_graph_does() -> None:
    (graph,) = sample("conv_relu_int8_pc_xnnpack").values()
    (back,) = read_twin(write_twin({"g": graph})).values()
    x = np.random.default_rng(0).standard_normal(graph.inputs[0].bound).astype(np.float32)
    np.testing.assert_array_equal(Executor(back, XNNPACK).run([x])[0], Executor(graph, XNNPACK).run([x])[0])


def test_constants_are_stored_once() -> None:
    weight = np.arange(6, dtype=np.float32).reshape(3, 2)
    data = write_twin({"a": linear(weight), "b": linear(weight.copy(), "other")})
    assert data.count(weight.tobytes()) == 1
    header, _ = parts(data)
    assert [c["sha256"] for c in header["constants"]] == [hashlib.sha256(weight.tobytes()).hexdigest()]
    assert read_twin(data)["a"].ops[0].args["limits"] == (-1.5, float("inf"))


def test_what_a_file_cannot_hold_is_refused() -> None:
    for spoil in (
        lambda g: g.ops[0].args.update(bias=object()),
        lambda g: g.updates.append((g.inputs[0], g.outputs[0])),
        lambda g: setattr(g.inputs[0], "dtype", None),
        lambda g: g.ops[0].graphs.update(body=Graph("body")),
        lambda g: setattr(g.ops[0].args["weight"], "shape", (2, 3)),
    ):
        graph = linear(np.zeros((3, 2), np.float32))
        spoil(graph)
        with pytest.raises(GraphError):
            write_twin({"g": graph})


# ------------------------------------------------------------------------------------------------------- hostile


def attempt(data: bytes) -> None:
    """Read: graphs, or an error of ours. Anything else escapes."""
    with contextlib.suppress(FormatError, LimitError):
        read_twin(data, limit=1 << 20)


def test_every_truncation_and_every_changed_byte() -> None:
    data = write_twin(sample("linear_int8_pc_xnnpack"))
    for cut in range(len(data) - 16):
        with pytest.raises(FormatError):
            read_twin(data[:cut])
    for place in range(len(data)):
        for changed in (0, 0xFF, data[place] ^ 1, ord("9"), ord("]")):
            attempt(data[:place] + bytes([changed]) + data[place + 1 :])


def places(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a tree, the tree itself left out."""
    for key in tree if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ():
        yield (*path, key)
        yield from places(tree[key], (*path, key))


EXTREMES = [
    None, True, -1, 0, 1, 7, 1 << 31, 1 << 63, 10**30, -(1 << 63), 0.5, "", "inf", "int8", "x" * 5000, [], [[]], {},
    {"value": 99}, {"value": -1}, {"tuple": 3}, {"float": "1"}, {"dim": {"expr": "n", "min": 3, "max": 2}},
    {"expr": "n", "min": 0, "max": 1 << 40}, [0, 0], [1 << 31] * 4,
]  # fmt: skip


@pytest.mark.parametrize(
    "name", ["linear_int8_pc_xnnpack", pytest.param("mlp_8da4w_g32_xnnpack", marks=pytest.mark.slow)]
)
def test_every_field_at_its_extremes(name: str) -> None:
    header, rest = parts(write_twin(sample(name)))
    # lists of scales are long and alike: their first two say what the rest would
    chosen = [p for p in places(header) if not (p[-2:-1] in (("scale",), ("zero_point",)) and p[-1] > 1)]
    for path in chosen[:400]:
        for extreme in EXTREMES:
            changed = copy.deepcopy(header)
            holder = changed
            for key in path[:-1]:
                holder = holder[key]
            holder[path[-1]] = extreme
            attempt(joined(changed, rest))
        if isinstance(holder, dict):
            del holder[path[-1]]
            attempt(joined(changed, rest))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda h: h["graphs"]["g"]["values"][0].update(shape=[1 << 31, 2]), "must be an integer from 0"),
        (lambda h: h["graphs"]["g"]["values"][0].update(shape=[(1 << 31) - 1] * 9, order=[*range(9)]), "63 bits"),
        (lambda h: h["graphs"]["g"]["values"][0].update(shape=[1] * 17), "at most 16 dimensions"),
        (lambda h: h["graphs"]["g"]["values"][0].update(order=[1, 1]), "every dimension once"),
        (lambda h: h["graphs"]["g"]["values"][0].update(dtype="object"), "known element type"),
        (lambda h: h["graphs"]["g"]["values"][1].update(shape=[3, 3]), "size of its shape"),
        (lambda h: h["graphs"]["g"].update(inputs=[0, 0]), "different values"),
        (lambda h: h["graphs"]["g"].update(inputs=[1]), "not constant"),
        (lambda h: h["graphs"]["g"].update(inputs=[]), "before it is defined"),
        (lambda h: h["graphs"]["g"].update(outputs=[9]), "from 0 to 2"),
        (lambda h: h["graphs"]["g"]["ops"][0].update(outputs=[1]), "must not be constant"),
        (lambda h: h["graphs"]["g"]["ops"].append(h["graphs"]["g"]["ops"][0]), "defines a value twice"),
        (lambda h: h["graphs"]["g"]["ops"][0]["args"].update(bias=[[[[[[[[[[]]]]]]]]]]), "at most 8 deep"),
        (lambda h: h["constants"].append(dict(h["constants"][0])), "after the constant before"),
        (lambda h: h["constants"][0].update(sha256="00"), "SHA-256"),
        (lambda h: h["constants"][0].update(offset=1), "multiple of 16"),
        (lambda h: h["constants"][0].update(size=1 << 20), "must be an integer"),
    ],
)
def test_what_is_wrong_is_told(change: Any, said: str) -> None:
    header, rest = parts(write_twin({"g": linear(np.zeros((3, 2), np.float32))}))
    change(header)
    with pytest.raises(FormatError, match=said):
        read_twin(joined(header, rest))


def test_headers_that_are_not_what_they_should_be() -> None:
    header, rest = parts(write_twin({"g": linear(np.zeros((3, 2), np.float32))}))
    with pytest.raises(VersionError, match="must be version 1; got 2"):
        read_twin(joined(header, rest, version=2))
    for raw in (b"", b"[]", b"\xff", b'{"a":1,"a":2}', b"[" * 200_000, b'{"constants":NaN}', b"9" * 5000):
        with pytest.raises(FormatError):
            read_twin(joined(raw, rest))
    with pytest.raises(FormatError, match="at most"):
        read_twin(HEAD.pack(MAGIC, VERSION, 1 << 62))


def test_a_graph_larger_than_allowed() -> None:
    data = write_twin({"g": linear(np.zeros((3, 2), np.float32))})
    with pytest.raises(LimitError, match="at most 100 bytes"):
        read_twin(data, limit=100)
