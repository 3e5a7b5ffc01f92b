"""The pages of the backends say what the tables say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from edgewright import docs, errors
from edgewright.backends import discover, load_backend

FOLDER = Path(__file__).parents[2] / "docs" / "backends"


@pytest.mark.parametrize("name", discover())
def test_pages_are_current(name: str) -> None:
    written = (FOLDER / f"{name}.md").read_text(encoding="utf-8")
    assert written == docs.page(name), "run python -m edgewright.docs"


def test_no_page_without_a_backend() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(discover())


@pytest.mark.parametrize("name", [name for name, _ in docs.pages() if "/" not in name])
def test_indexes_are_current(name: str) -> None:
    assert (FOLDER.parent / name).read_text(encoding="utf-8") == dict(docs.pages())[name], (
        "run python -m edgewright.docs"
    )


def test_the_index_of_errors_has_them_all() -> None:
    text = dict(docs.pages())["errors.md"]
    for error in vars(errors).values():
        if isinstance(error, type) and issubclass(error, errors.EdgewrightError):
            assert f"## {error.__name__}\n" in text


@pytest.mark.parametrize("name", discover())
def test_pages_hold_every_rule_config_and_option(name: str) -> None:
    text, backend = docs.page(name), load_backend(name)
    for row in backend.rows.values():
        for shown in (f"`{row.op}`", *row.configs, *(rule.text for rule in (*backend.rules, *row.rules))):
            assert shown in text


@pytest.mark.parametrize("name", discover())
def test_samples_run(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", docs.page(name), re.DOTALL):
        exec(block, names)
    assert f"operators delegated to {name}" in capsys.readouterr().out


@pytest.mark.parametrize("name", discover())
def test_no_page_shows_pythons_inner_words(name: str) -> None:
    assert "inspect._empty" not in docs.page(name)


def test_checking_finds_what_is_not_current(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert docs.main([str(tmp_path), "--check"]) == 1
    assert not list(tmp_path.iterdir())
    assert docs.main([str(tmp_path)]) == 0
    assert docs.main([str(tmp_path), "--check"]) == 0
    (tmp_path / "backends" / "xnnpack.md").write_text("old")
    assert docs.main([str(tmp_path), "--check"]) == 1
    assert "not current" in capsys.readouterr().out
