"""The table of layer names: small, the same bytes every time, and harmless if a file lies."""

from __future__ import annotations

import json
from typing import Any

import pytest

from edgewright.formats.layer_table import (
    DelegateLayers,
    MethodLayers,
    delegate_layers,
    parse_layers,
    write_layers,
)
from edgewright.formats.pte_reader import read_program
from edgewright.ir.graph import Op, Origin
from tests.support import golden

MODULES = ["features.0.0", "features.0", "features.1.conv.0", "features.1.conv.1.0", "features.1", "head", ""]
MEAN = Origin(node="mean_1", exported_nodes=("mean",))


def table() -> dict[str, MethodLayers]:
    modules = [Origin(module=name) for name in MODULES]
    passes = [modules[2]] * 500 + [modules[0], MEAN]
    delegates = [
        DelegateLayers(modules), DelegateLayers(passes, {499: 1152, 501: 8}),
        DelegateLayers(modules[:2], ordered=False), DelegateLayers(),
    ]  # fmt: skip
    return {"forward": MethodLayers([[*modules, MEAN], []], delegates), "encode": MethodLayers([[modules[0]]])}


def names(origins: Any) -> list[str]:
    return [o.module or o.node for o in origins]


def test_what_is_written_is_read() -> None:
    methods = parse_layers(write_layers(table()))
    assert methods is not None
    forward = methods["forward"]
    assert [names(chain) for chain in forward.chains] == [[*MODULES, "mean"], []]
    assert names(forward.delegates[0].origins) == MODULES
    assert names(forward.delegates[1].origins) == ["features.1.conv.0"] * 500 + ["features.0.0", "mean"]
    assert forward.delegates[1].cycles == {499: 1152, 501: 8}
    assert [d.ordered for d in forward.delegates] == [True, True, False, True]
    assert forward.delegates[3].origins == [] and names(methods["encode"].chains[0]) == ["features.0.0"]
    assert forward.delegate(9) == DelegateLayers() and forward.instruction(5, 5).module == ""
    assert forward.instruction(0, 7).node == "mean" and forward.instruction(0, 7).module == ""


def test_a_delegate_without_a_table_has_no_layers() -> None:
    program = read_program(golden.path("linear_fp32_xnnpack").read_bytes())
    (delegate,) = program.execution_plan[0].delegates
    assert delegate_layers(program)(delegate) == DelegateLayers()


def test_the_table_is_small_and_deterministic() -> None:
    data = write_layers(table())
    assert data == write_layers(table())
    assert len(data) < 500
    assert write_layers({"forward": MethodLayers([[Origin(), Origin(node="n")]])}) == b"", "nothing to name"


def test_origins_are_assigned_only_if_there_is_one_for_each() -> None:
    ops = [Op("core.add", {}, []) for _ in range(2)]
    origins = [Origin(module="a"), Origin(module="b")]
    DelegateLayers(origins[:1]).assign(ops)
    DelegateLayers(origins, ordered=False).assign(ops)
    assert [op.origin.module for op in ops] == ["", ""]
    DelegateLayers(origins).assign(ops)
    assert [op.origin.module for op in ops] == ["a", "b"]
    assert DelegateLayers(origins).key() != DelegateLayers(origins[::-1]).key()


def valid() -> dict[str, Any]:
    entry = {"chains": [[1]], "delegates": [{"ops": [1, [0, 2]], "cycles": [[0, 5]]}]}
    return {"version": 1, "names": [[0, "a"]], "methods": {"forward": entry}}


def changed(**fields: Any) -> Any:
    return {**valid(), **fields}


HOSTILE = {
    "version": changed(version=2),
    "no object": [],
    "no names": {"version": 1, "methods": {}},
    "name of no text": changed(names=[[0, 3]]),
    "control characters": changed(names=[[0, "a\x1b[31m"]]),
    "direction of text": changed(names=[[0, "a\u202eb"]]),
    "long name": changed(names=[[0, "a" * 513]]),
    "names that grow": changed(names=[[n, "ab"] for n in range(400)]),
    "negative share": changed(names=[[-1, "a"]]),
    "methods of no object": changed(methods=[]),
    "unknown name": changed(methods={"forward": {"chains": [[2]], "delegates": []}}),
    "negative name": changed(methods={"forward": {"chains": [[-1]], "delegates": []}}),
    "a name of a fraction": changed(methods={"forward": {"chains": [[1.0]], "delegates": []}}),
    "endless repetition": changed(methods={"forward": {"chains": [[[1, 10**12]]], "delegates": []}}),
    "many repetitions": changed(methods={"forward": {"chains": [[[0, 1 << 19]] * 3], "delegates": []}}),
    "negative repetition": changed(methods={"forward": {"chains": [[[1, -1]]], "delegates": []}}),
    "cycles of nothing": changed(methods={"forward": {"chains": [], "delegates": [{"ops": [1], "cycles": [[1, 5]]}]}}),
    "negative cycles": changed(methods={"forward": {"chains": [], "delegates": [{"ops": [1], "cycles": [[0, -5]]}]}}),
    "no list": changed(methods={"forward": {"chains": [], "delegates": [{}]}}),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_table_with_anything_unexpected_is_no_table(name: str) -> None:
    assert parse_layers(json.dumps(valid()).encode()) is not None
    assert parse_layers(json.dumps(HOSTILE[name]).encode()) is None


@pytest.mark.parametrize("data", [b"", b"\xff\xfe", b"{", b"[" * 5000, b" " * ((1 << 20) + 1), b"NaN"])
def test_bytes_that_are_no_table(data: bytes) -> None:
    assert parse_layers(data) is None
