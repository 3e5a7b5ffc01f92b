"""A vendor is one folder: the engine and the IR name none.

A backend's dialect, its rounding rules and the rules by which the engine compiles its operators are in its own folder,
and are found through ``backends/registry.py``.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PRODUCT = Path(__file__).parents[2] / "edgewright"
NAMES = ["tosa", "tflite", "qnn", "vela", "hexagon", "exynos", "neutron", "ethos", "qualcomm", "samsung", "xnnpack"]
WORDS = ["enn", "nxp"]  # also parts of other words
VENDOR = re.compile(rf"{'|'.join(NAMES)}|(?<![a-z])(?:{'|'.join(WORDS)})(?![a-z])", re.IGNORECASE)


@pytest.mark.parametrize("package", ["engine", "ir"])
def test_no_vendor_is_named(package: str) -> None:
    files = [path for path in sorted((PRODUCT / package).rglob("*")) if path.is_file() and path.suffix != ".pyc"]
    assert len(files) > 20
    named = [
        f"{path.relative_to(PRODUCT)}:{number}: {line.strip()}"
        for path in files
        for number, line in enumerate([path.name, *path.read_text().splitlines()])
        if VENDOR.search(line)
    ]
    assert not named, "\n".join(named)


@pytest.mark.parametrize(
    "line", ["class TosaGather:", '"enn.SOFTMAX"', "as XNNPACK does", "_enn_axes", "from nxp import x"]
)
def test_a_name_is_seen(line: str) -> None:
    assert VENDOR.search(line)


@pytest.mark.parametrize("line", ["a frozen graph", "dennis", "a reference", "the previous level and"])
def test_other_words_are_none(line: str) -> None:
    assert not VENDOR.search(line)


@pytest.mark.parametrize("backend", ["ethos_u", "nxp", "qualcomm", "samsung"])
def test_a_dialect_names_no_other_backend(backend: str) -> None:
    others = {"ethos_u", "nxp", "qualcomm", "samsung", "xnnpack"} - {backend}
    imports = re.compile(rf"edgewright\.backends\.(?:{'|'.join(sorted(others))})\b")
    folder = PRODUCT / "backends" / backend
    assert (folder / "dialect" / "__init__.py").exists()
    assert not [path for path in folder.rglob("*.py") if imports.search(path.read_text())]
