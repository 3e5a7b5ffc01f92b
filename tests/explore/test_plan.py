"""From a sweep to rows: names are looked up and recipes checked before any work, and rows are addressed by content."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from edgewright.errors import InputError
from edgewright.explore.model_inputs import (
    load_program,
    load_samples,
    program_digest,
    samples_digest,
    save_program,
    save_samples,
)
from edgewright.explore.plan import make_plan
from edgewright.explore.rows import Row
from edgewright.explore.store import Store
from edgewright.explore.sweep_file import SweepFile
from tests.explore.nets import Net

NETS = "tests.explore.nets"
TEXT = f"""targets = ["xnnpack", "ethos-u55-128"]
quantize = ["float", "int8"]
calibrate = "{NETS}:data"
[models]
small = "{NETS}:small"
"""


def plan(text: str, folder: Path) -> list[Row]:
    with Store(folder, create=True) as store:
        rows = make_plan(SweepFile(text, "s.toml"), store, quiet=True)
        assert store.plan() == rows
        return rows


def test_rows_are_all_combinations_but_the_excluded(tmp_path: Path) -> None:
    more = "[options]\ninteger_io = [false, true]\n[[exclude]]\nquantize = 'float'\ninteger_io = true\n"
    rows = plan(TEXT + more, tmp_path)
    assert [(r.target, r.precision, r.options["integer_io"]) for r in rows] == [
        (target, *rest)
        for target in ("xnnpack", "ethos-u55-128")
        for rest in (("float", False), ("int8", False), ("int8", True))
    ]
    assert len({row.data for row in rows}) == 1  # those in floating point are measured on the same inputs
    assert rows[0].versions["torch"] == torch.__version__ and "ethos-u-vela" in rows[-1].versions


def test_a_rerun_has_the_same_keys_and_a_changed_model_others(tmp_path: Path) -> None:
    first, again = plan(TEXT, tmp_path / "a"), plan(TEXT, tmp_path / "b")
    assert [row.key for row in first] == [row.key for row in again]  # weights that a factory draws are drawn again
    changed = plan(TEXT.replace(":small", ":large"), tmp_path / "a")
    assert not {row.key for row in first} & {row.key for row in changed}
    named = plan(TEXT.replace("small =", "other ="), tmp_path / "a")
    assert [row.key for row in named] == [row.key for row in first]


def test_a_compiler_that_is_no_python_package_is_part_of_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = TEXT.replace('"xnnpack", "ethos-u55-128"', '"e9955"')
    monkeypatch.setattr("edgewright.backends.samsung.sdk.find_sdk", lambda: None)
    without = plan(text, tmp_path)
    assert "Samsung's AI LiteCore" not in without[0].versions
    found = SimpleNamespace(root="/opt/litecore-1.2")
    monkeypatch.setattr("edgewright.backends.samsung.sdk.find_sdk", lambda: found)
    rows = plan(text, tmp_path)
    assert rows[0].versions["Samsung's AI LiteCore"] == "/opt/litecore-1.2"
    assert not {row.key for row in rows} & {row.key for row in without}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"ethos-u55-128"', '"ethos-u55-12"', r"s.toml:1: target: .*ethos-u55-12\n  Did you mean ethos-u55-128"),
        (":small", ":smal", rf"s.toml:5: {NETS}:smal: module .* has no 'smal'\n  Did you mean small\?"),
        (f"{NETS}:small", "tests.explore.netz:small", r"s.toml:5: .*netz'\n  Did you mean tests.explore.nets"),
        (f"{NETS}:small", "modle.pt2", r"s.toml:5: modle.pt2: cannot be opened"),
        (":data", ":dta", r"s.toml:3: .*has no 'dta'\n  Did you mean data\?"),
        ('"int8"', '"int4"', r"s.toml:2: .*preset of xnnpack: .*; got int4\n  With 4-bit weights.*exclude"),
        ("calibrate =", f'metric = "{NETS}:not_a_function"\ncalibrate =', r"s.toml:3: .*must be a function of a model"),
        ("[models]", "evaluate = 'no.npz'\n[models]", r"s.toml:4: no.npz: cannot be opened"),
        ("[models]", "[options]\ninteger_io = true\n[models]", r"s.toml:5: integer_io is for quantized models"),
    ],
)  # fmt: skip
def test_errors_before_any_work(old: str, new: str, message: str, tmp_path: Path) -> None:
    assert old in TEXT
    with pytest.raises(InputError, match=message):
        plan(TEXT.replace(old, new), tmp_path)


def test_options_of_a_targets_compiler_are_part_of_a_row(tmp_path: Path) -> None:
    recipe = tmp_path / "fast.toml"
    recipe.write_text('quantize = "int8"\n[targets.ethos-u55-128.options]\noptimise = "Performance"\n')
    rows = plan(f'recipes = ["{recipe}"]\n{TEXT}', tmp_path)
    (with_options,) = [r for r in rows if r.recipe.get("options")]
    assert with_options.target == "ethos-u55-128" and with_options.recipe["options"] == {"optimise": "Performance"}
    plain = next(r for r in rows if r.target == with_options.target and r.precision == "int8")
    assert plain.key != with_options.key


def test_recipes_that_compress_are_rejected(tmp_path: Path) -> None:
    recipe = tmp_path / "pruned.toml"
    recipe.write_text('quantize = "int8"\n[compress]\nsparsity = 0.5\n')
    with pytest.raises(InputError, match=r"s.toml:1: .*pruned.toml: recipe: compress: is not for sweeps"):
        plan(f'recipes = ["{recipe}"]\n{TEXT}', tmp_path)


def test_recipes_that_a_target_cannot_run_are_refused(tmp_path: Path) -> None:
    recipe = tmp_path / "raised.toml"
    text = f'recipes = ["{recipe}"]\n{TEXT}'
    recipe.write_text('quantize = "int8"\n[modules]\n"first" = "a16w8"\n')
    with pytest.raises(InputError, match=r"s.toml:1: .*raised.toml: quantize: must be a preset of .*; got a16w8"):
        plan(text, tmp_path)
    recipe.write_text('quantize = "int8"\n[modules]\n"frist" = "float"\n')
    with pytest.raises(
        InputError, match=r"s.toml:1: .*raised.toml: recipe: module 'frist': must be.*\n  Did you mean first"
    ):
        plan(text, tmp_path)
    recipe.write_text('quantize = "int8"\n[modules]\n"first" = "float"\n')
    assert [r.precision for r in plan(text, tmp_path)] == ["float", "int8", "raised"] * 2
    recipe.write_text('quantize = "int8"\n[targets.ethos-u55-128.modules]\n"first" = "a16w8"\n')
    raised = [(r.precision, r.recipe["modules"]) for r in plan(text, tmp_path) if "raised" in r.precision]
    assert raised == [("int8 = raised", {}), ("raised", {"first": "a16w8"})]  # for xnnpack, it is int8


def test_models_and_data_travel_as_bytes(tmp_path: Path) -> None:
    torch.manual_seed(0)
    exported = torch.export.export(Net().eval(), (torch.zeros(1, 8),))
    assert program_digest(load_program(save_program("m", exported))) == program_digest(exported)
    other = torch.export.export(Net().eval(), (torch.zeros(1, 8),))
    assert program_digest(other) != program_digest(exported)  # other weights
    with Store(tmp_path, create=True) as store:
        row = make_plan(SweepFile(TEXT, "s.toml"), store, quiet=True)[0]
        samples = load_samples(store.get(store.meta(f"input:{row.data}")))
        assert samples_digest(samples) == row.data == samples_digest(load_samples(save_samples(samples)))
        assert (len(samples.calibration), len(samples.evaluation), samples.origin) == (9, 3, "held-out")


def test_large_sets_are_split_unless_calls_depend_on_each_other(tmp_path: Path) -> None:
    text = TEXT.replace(":data", ":many").replace('"ethos-u55-128"', "").replace("[models]", "samples = 200\n[models]")
    assert {row.chunks for row in plan(text, tmp_path)} == {(2, 1)}
    assert {row.chunks for row in plan(text.replace(":small", ":Counter"), tmp_path)} == {(1, 1)}
