"""Recipes: precision per module, from Python or TOML, for all targets or one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import edgewright as ew
from edgewright.api.recipe import Recipe, as_recipe, read_recipe
from edgewright.errors import EdgewrightError, FileAccessError, InputError
from tests.api.models import calls, net

TEXT = """
quantize = "int8"
[modules]
"body" = "higher"
[operators]
mean = "float"
[targets.ethos-u55-128]
quantize = "a16w8"
[targets.ethos-u55-128.modules]
"stem" = "float"
"""


def test_a_file_is_read_and_written_back(tmp_path: Path) -> None:
    path = tmp_path / "r.toml"
    path.write_text(TEXT)
    recipe = read_recipe(path)
    assert recipe.for_target("xnnpack") == Recipe("int8", {"body": "higher"}, {"mean": "float"})
    assert recipe.for_target("ethos-u55-128") == Recipe("a16w8", {"body": "higher", "stem": "float"}, {"mean": "float"})
    path.write_text(recipe.to_toml())
    assert read_recipe(path) == recipe


def test_an_option_goes_over_a_recipe() -> None:
    assert as_recipe({"quantize": "int8", "modules": {"a": "float"}}, "a16w8") == Recipe("a16w8", {"a": "float"})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("quantise = 'int8'", "must be one of compress, modules, operators, quantize, targets"),
        ("quantize = 8", "must be the name of a preset"),
        ("modules = 3", "table of names and precisions"),
        ("[modules]\na = 1", "table of names and precisions"),
        ("targets = 1", "tables by the name"),
        ("[targets.x.targets.y]", "must be one of"),
        ("a = = 1", "must be TOML"),
    ],
)
def test_a_wrong_file_is_told_where(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "r.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=told):
        read_recipe(path)


def test_no_file() -> None:
    with pytest.raises(FileAccessError):
        read_recipe("nowhere.toml")


@pytest.mark.parametrize(("target", "precision"), [("ethos-u55-128", "a16w8"), ("xnnpack", "float")])
def test_higher_is_what_the_target_has(target: str, precision: str) -> None:
    """A layer raised by name is held as if that precision had been named, and the result is nearer the model."""
    options: dict[str, Any] = {"target": target, "quantize": "int8", "calibration": calls(), "evaluate": 4}
    raised = ew.compile(net(), calls(1)[0], recipe={"modules": {"fc": "higher"}}, **options)
    named = ew.compile(net(), calls(1)[0], recipe={"modules": {"fc": precision}}, **options)
    assert raised.buffer == named.buffer
    assert raised.report.precision == "int8 + higher"
    plain = ew.compile(net(), calls(1)[0], **options)
    assert raised.buffer != plain.buffer
    assert (raised.report.sqnr or 0) > (plain.report.sqnr or 0)


def test_precisions_of_another_target_are_refused() -> None:
    with pytest.raises(EdgewrightError, match="must be a preset of xnnpack"):
        ew.compile(net(), calls(1)[0], "xnnpack", quantize="int8", calibration=calls(1),
                   recipe={"modules": {"body": "a16w8"}})  # fmt: skip
