"""The manifest: complete, never over its limit, and harmless whatever a file puts in its place."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from edgewright.cli import main
from edgewright.formats import read_program, schema, write_program
from edgewright.program import manifest
from tests.support.build import PlanBuilder, program
from tests.support.examples import given_examples
from tests.support.stock import stock


def method(name: str, operators: int = 1, delegates: int = 0) -> schema.ExecutionPlan:
    builder = PlanBuilder(name)
    for index in range(operators):
        builder.operators.append(schema.Operator(name=f"aten::operator_{index}", overload="out"))
    where = schema.BackendDelegateDataReference(location=1, index=0)
    for index in range(delegates):
        builder.delegates.append(schema.BackendDelegate(id=f"Backend{index}", processed=where))
    return builder.plan()


def described(*plans: schema.ExecutionPlan, targets: tuple[str, ...] = ("portable",), runtime: str = "wheel") -> Any:
    data = manifest.build(program(*plans), targets, runtime)
    assert len(data) <= manifest.MAX_BYTES
    return json.loads(data)


def test_it_says_what_the_file_is() -> None:
    made = program(method("forward", 2, 1), method("other"))
    made.add_segment(b"weights")
    found = json.loads(manifest.build(made, ["portable"], "ios", versions={"torch": "2.13.0"}))
    assert found["edgewright"] and found["torch"]
    assert (found["schema"], found["targets"], found["runtime"]) == (0, ["portable"], "ios")
    assert found["operators"] == ["aten::operator_0.out", "aten::operator_1.out"]
    assert found["delegates"] == {"Backend0": {"calls": 1, "bytes": 0}}
    assert found["methods"]["forward"] == {"instructions": 0, "arena": 0, "delegates": 1}
    assert found["segments"][1] == {"bytes": 7, "sha256": hashlib.sha256(b"weights").hexdigest()}


@pytest.mark.parametrize(
    "plans",
    [
        [method("forward", 900)],
        [method(f"method_{i}") for i in range(500)],
        [method("m" * 9000)],
        [method("forward", 1, 400)],
        [method(f"method_{i}", 40, 40) for i in range(200)],
    ],
    ids=["operators", "methods", "long name", "delegates", "everything"],
)
def test_it_stays_within_its_limit(plans: list[schema.ExecutionPlan]) -> None:
    found = described(*plans)
    counted = {key: value for key, value in found.items() if isinstance(value, int) and key != "schema"}
    assert counted, "something was too long to list"
    names = {"operators": {o.key for p in plans for o in p.operators or ()}, "methods": {p.name for p in plans}}
    assert all(counted[key] == len(names[key]) for key in names if key in counted)


def test_long_targets_and_runtimes_are_counted_too() -> None:
    found = described(method("forward"), targets=("t" * 3000, "u" * 3000), runtime="r" * 5000)
    assert (found["targets"], found["runtime"]) == (2, 5000)


def test_the_same_program_has_the_same_manifest() -> None:
    plans = [method(f"method_{i}", 5) for i in range(9)]
    assert manifest.build(program(*plans), ["a"], "b") == manifest.build(program(*plans), ["a"], "b")


# ------------------------------------------------------------------------------------------------ what files may say

HOSTILE = [
    b"", b"{", b"null", b"[]", b'"text"', b"3", b"\xff\xfe", b"\x00" * 50, b"[" * 4096, b'{"a":' * 800, b" " * 4097,
    b'{"edgewright":NaN}', b'{"edgewright":1e999}', b'{"edgewright":-Infinity}', b'{"edgewright":' + b"9" * 4000 + b"}",
    b'{"targets":"' + b"x" * 5000 + b'"}',
]  # fmt: skip
STRANGE = [
    {}, {"edgewright": {"a": []}, "torch": [[1]], "targets": {"x": 1}, "runtime": None},
    {"edgewright": "\x1b[2J\x07", "targets": ["\n\r\u202e", 5, None, {}], "runtime": "\u0000"},
    {"edgewright": "[red]x[/]", "torch": "y" * 3000, "targets": ["z"] * 100}, {"edgewright": "\ud800"},
]  # fmt: skip


def with_manifest(data: bytes) -> schema.Program:
    made = program(PlanBuilder().plan())
    made.named_data = [schema.NamedData(key=manifest.KEY, segment_index=made.add_segment(data))]
    return made


@pytest.mark.parametrize("data", HOSTILE, ids=lambda d: repr(d[:12]))
def test_what_is_no_manifest_is_none(data: bytes) -> None:
    assert manifest.read(read_program(write_program(with_manifest(data)))) is None


@given_examples(st.binary(max_size=200), few=80, many=1000)
def test_bytes_of_any_kind_are_harmless(data: bytes) -> None:
    found = manifest.parse(data)
    assert found is None or isinstance(found, dict)


@pytest.mark.parametrize("content", STRANGE, ids=range(len(STRANGE)))
@pytest.mark.parametrize("options", [(), ("--json",)])
def test_inspect_shows_strange_ones_safely(
    content: Any, options: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "strange.pte"
    path.write_bytes(write_program(with_manifest(json.dumps(content).encode())))
    assert main(["inspect", str(path), *options]) == 0
    shown = capsys.readouterr().out
    if options:
        assert json.loads(shown)["manifest"] == content
    else:
        (line,) = [line for line in shown.splitlines() if line.startswith("compiled by Edgewright")]
        assert line.isprintable()
        assert len(line) < 400


@pytest.mark.parametrize("data", HOSTILE[:8], ids=lambda d: repr(d[:12]))
def test_inspect_shows_nothing_where_there_is_none(
    data: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "hostile.pte"
    path.write_bytes(write_program(with_manifest(data)))
    assert main(["inspect", str(path)]) == 0
    assert "compiled by Edgewright" not in capsys.readouterr().out


def test_stock_does_not_mind_it() -> None:
    made = with_manifest(manifest.build(program(PlanBuilder().plan()), ["portable"], "wheel"))
    assert stock().methods(write_program(made)) == ["forward"]
