"""``edgewright inspect``: every golden file as tables and as JSON, and the facts they must state."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from edgewright.backends import registry
from edgewright.cli.inspect import gather
from edgewright.cli.render import show
from edgewright.formats import read_program, write_program
from edgewright.formats.schema import CompileSpec
from tests.cli.cli import GOLDEN, Cli
from tests.support.mutate import mutations

FILES = sorted(p.name for p in GOLDEN.iterdir() if p.suffix in (".pte", ".ptd", ".bpte", ".etdp"))


def facts(cli: Cli, name: str | Path, *options: object) -> dict[str, Any]:
    result = cli("inspect", GOLDEN / name, "--json", *options)
    assert (result.code, result.err) == (0, "")
    loaded: dict[str, Any] = json.loads(result.out)
    return loaded


def test_integer_inputs_say_which_numbers_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    shown = gather(str(GOLDEN / "linear_fp32_portable.pte"), [])
    recorded = {"type": "int8", "scale": 0.25, "zero_point": -3}
    shown["manifest"] = {"quantized_io": {"input0": recorded, "output0": {"scale": "no", "zero_point": 2}, "x": 1}}
    show(shown, everything=False)
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    (first,) = (line for line in lines if line.startswith("in0"))
    (last,) = (line for line in lines if line.startswith("out0"))
    assert first.endswith("x = 0.25 * (q + 3)") and last.endswith("planned")


@pytest.mark.sample(22)
@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("width", ["80", "120"])
def test_tables_fit(cli: Cli, monkeypatch: pytest.MonkeyPatch, name: str, width: str) -> None:
    monkeypatch.setenv("COLUMNS", width)
    result = cli("inspect", GOLDEN / name)
    assert (result.code, result.err) == (0, "")
    assert max(map(len, result.out.splitlines())) <= int(width)
    assert "…" not in result.out  # nothing cut off


@pytest.mark.parametrize("name", FILES)
def test_json(cli: Cli, name: str) -> None:
    found = facts(cli, name, "--values", "--instructions")
    assert found["format"] == Path(name).suffix[1:]
    assert found["file"] == name
    assert found["bytes"] == (GOLDEN / name).stat().st_size


def test_program_facts(cli: Cli) -> None:
    found = facts(cli, "linear_fp32_portable.pte")
    layout = {"header_bytes": 40, "flatbuffer_bytes": 1464, "segment_base": 1536, "segment_bytes": 60}
    assert found["layout"] == layout
    (method,) = found["methods"]
    assert method["name"] == "forward"
    assert method["inputs"] == [
        {"name": "in0", "kind": "tensor", "type": "float32", "shape": [2, 4], "dim_order": [0, 1], "dynamic": False,
         "planned": True, "bytes": 32}
    ]  # fmt: skip
    assert method["operators"] == [
        {"name": "aten::addmm.out", "calls": 1, "kernel": True},
        {"name": "aten::permute_copy.out", "calls": 1, "kernel": True},
    ]
    assert method["memory"] == [{"arena": 1, "bytes": 112, "device": "cpu"}]
    assert [(t["bytes"], t["shape"], t["segment"], t["offset"]) for t in found["tensors"]] == [
        (48, [3, 4], 0, 0), (12, [3], 0, 48),
    ]  # fmt: skip
    assert found["tensors"][1]["used_by"] == {"operator": "aten::addmm.out", "argument": "self", "layer": ""}
    assert found["segments"] == [{"index": 0, "offset": 1536, "bytes": 60, "holds": ["2 constants"], "shared": False}]


def test_delegates_segments_and_named_data(cli: Cli) -> None:
    found = facts(cli, "linear_fp32_xnnpack.pte")
    (delegate,) = found["methods"][0]["delegates"]
    assert (delegate["id"], delegate["bytes"], delegate["available"], delegate["calls"]) == (
        "XnnpackBackend", 720, "XnnpackBackend" in registry.available_delegates(), 1,
    )  # fmt: skip
    holds = [s["holds"][0] for s in found["segments"]]
    assert holds[:2] == ["0 constants", "XnnpackBackend blob (forward delegate 0)"]
    assert holds[2] == f"named data {found['named_data'][0]['key']}"
    assert [n["bytes"] for n in found["named_data"]] == [48, 12]


def test_registered_delegate_is_named_but_never_loaded(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(_: object) -> Any:
        raise AssertionError("inspect must not load delegates")

    monkeypatch.setattr(registry, "_REGISTERED", {})
    registry.register_delegate("XnnpackBackend", load)
    assert facts(cli, "linear_fp32_xnnpack.pte")["methods"][0]["delegates"][0]["available"] is True


def test_compile_specs(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = read_program(GOLDEN / "linear_fp32_xnnpack.pte")
    specs = [CompileSpec(key="chip", value=b"u55\0"), CompileSpec(key="bits", value=b"\xff\x00")]
    program.execution_plan[0].delegates[0].compile_specs = specs
    write_program(program, tmp_path / "m.pte")
    (delegate,) = facts(cli, tmp_path / "m.pte")["methods"][0]["delegates"]
    assert delegate["compile_specs"] == [
        {"key": "chip", "bytes": 4, "text": "u55", "hex": "75353500"},
        {"key": "bits", "bytes": 2, "text": None, "hex": "ff00"},
    ]
    assert "chip=u55, bits (2 B)" in cli("inspect", tmp_path / "m.pte").out


def test_dynamic_bounds(cli: Cli) -> None:
    edge = facts(cli, "mlp_dynshape_portable.pte")["methods"][0]["inputs"][0]
    assert edge["dynamic"] is True
    assert edge["shape"] == [16, 32]
    assert "[<=16, <=32]" in cli("inspect", GOLDEN / "mlp_dynshape_portable.pte").out


def test_external_tensors(cli: Cli) -> None:
    name = "mlp_ptd_portable.pte"
    assert {t["found"] for t in facts(cli, name)["tensors"]} == {None}
    right = facts(cli, name, "--data", GOLDEN / "mlp_portable_weights.ptd")["tensors"]
    assert {t["found"] for t in right} == {True}
    assert [t["name"] for t in right] == ["a.weight", "b.weight", "a.bias", "b.bias"]
    wrong = cli("inspect", GOLDEN / name, "--data", GOLDEN / "mlp_xnn_weights.ptd")
    assert "not in --data" in wrong.out


def test_missing_operator_is_shown(cli: Cli, tmp_path: Path) -> None:
    program = read_program(GOLDEN / "linear_fp32_portable.pte")
    assert program.execution_plan[0].operators
    program.execution_plan[0].operators[0].name = "my::op"
    write_program(program, tmp_path / "m.pte")
    rows = facts(cli, tmp_path / "m.pte")["methods"][0]["operators"]
    assert {"name": "my::op.out", "calls": 1, "kernel": False} in rows
    assert "missing" in cli("inspect", tmp_path / "m.pte").out


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("linear_fp32_portable", ["%3 = aten::permute_copy.out(%0, dims=[1, 0])",
                                  "%7 = aten::addmm.out(%1, %2, %3, beta=1, alpha=1)"]),
        ("mix_portable", ["[%3, %4] = aten::split_with_sizes_copy.out(%2, split_sizes=[2, 4], dim=1)",
                          "%25, %26 = aten::topk.values(%18, k=2, dim=-1, largest=true, sorted=true)",
                          "%32 = aten::clamp.out(%20, min=-0.5, max=null)"]),
        ("cond", ["if not %0 goto 5", "%2 = %7"]),
        ("symint_portable", ["%4 = executorch_prim::mul.Scalar(a=%2, b=2)",
                             "%7 = executorch_prim::et_view.default(%0, size=[%4, -1])"]),
        ("linear_fp32_xnnpack", ["XnnpackBackend[0](%0, %1)"]),
    ],
)  # fmt: skip
def test_instructions(cli: Cli, name: str, lines: list[str]) -> None:
    result = cli("inspect", GOLDEN / f"{name}.pte", "--instructions")
    for line in lines:
        assert f"  {line}\n" in result.out


def test_values(cli: Cli) -> None:
    out = cli("inspect", GOLDEN / "linear_fp32_portable.pte", "--values").out
    for line in ("%0 float32[3, 4] constant 1", "%2 float32[2, 4] at arena 1 + 80  <- in0", "%6 ints [1, 0]"):
        assert f"  {line}\n" in out


def test_names_from_the_file_are_made_safe(cli: Cli, tmp_path: Path) -> None:
    program = read_program(GOLDEN / "linear_fp32_portable.pte")
    assert program.execution_plan[0].operators
    program.execution_plan[0].name = "for\x1b[31mward"
    program.execution_plan[0].operators[0].name = "my::\x1b]0;op"
    write_program(program, tmp_path / "m.pte")
    for options in ((), ("--instructions", "--values"), ("--json",)):
        assert "\x1b" not in cli("inspect", tmp_path / "m.pte", *options).out


def test_other_files(cli: Cli) -> None:
    data = facts(cli, "mlp_portable_weights.ptd")["entries"]
    assert data[0] == {"name": "a.weight", "kind": "tensor", "type": "float32", "shape": [64, 32], "bytes": 8192}
    bundle = facts(cli, "linear_relu.bpte")
    assert [len(s["cases"]) for s in bundle["suites"]] == [2]
    assert bundle["program"]["methods"][0]["name"] == "forward"
    runs = facts(cli, "portable.etdp")["runs"]
    assert [r["name"] for r in runs] == ["Default", "Execute", "Execute"]
    assert "native_call_addmm.out" in [e["name"] for e in runs[1]["events"]]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["handmade_add.pte", "xnnpack.etdp"])
def test_hostile_files_get_our_errors(cli: Cli, tmp_path: Path, name: str) -> None:
    """What the reader lets through must not break the listing, the sums or the tables either."""
    path = tmp_path / name
    for number, (label, data) in enumerate(mutations((GOLDEN / name).read_bytes())):
        if number % 3 == 0:
            path.write_bytes(data)
            options = ("--json", "--values") if number % 2 else ("--instructions",)
            assert cli("inspect", path, *options).code in (0, 4), label


@pytest.mark.parametrize(
    ("content", "code", "words"),
    [(b"", 4, "at least 64 bytes"), (b"PK\x03\x04" + bytes(80), 4, "zip archive"), (bytes(80), 4, "identifier")],
)
def test_what_is_no_file_of_ours(cli: Cli, tmp_path: Path, content: bytes, code: int, words: str) -> None:
    (tmp_path / "m.pte").write_bytes(content)
    result = cli("inspect", tmp_path / "m.pte")
    assert result.code == code
    assert words in result.err
    assert cli("inspect", tmp_path).code == 3  # a folder


def test_hashes_are_short_also_behind_a_prefix() -> None:
    from edgewright.cli.render import _contents

    digest = "0123456789abcdef" * 4
    assert _contents([f"named data {digest}", f"named data scale_{digest}"]) == (
        "named data 0123456789ab..., named data scale_0123456789ab..."
    )
