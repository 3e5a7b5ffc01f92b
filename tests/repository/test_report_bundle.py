"""The script of the HTML report: the committed bundle is what its sources make, with the licences of its libraries."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
ASSETS = ROOT / "edgewright" / "report" / "assets"


@pytest.fixture(scope="module")
def report_bundle() -> Any:
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        import report_bundle
    finally:
        sys.path.remove(str(ROOT / "tools"))
    return report_bundle


def test_the_bundle_is_of_the_present_sources(report_bundle: Any) -> None:
    head = (ASSETS / "report.min.js").read_text(encoding="utf-8").partition("*/")[0]
    assert f"Sources: sha256 {report_bundle.source_digest()}" in head, "run python tools/report_bundle.py"


def test_every_library_is_pinned_and_its_licence_is_in_the_page(report_bundle: Any) -> None:
    libraries = json.loads((ASSETS / "libraries.json").read_text(encoding="utf-8"))
    locked = json.loads((report_bundle.SOURCES / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    wanted = json.loads((report_bundle.SOURCES / "package.json").read_text(encoding="utf-8"))["dependencies"]
    assert wanted.items() <= {library["name"]: library["version"] for library in libraries}.items()
    text = (ASSETS / "LICENSES.txt").read_text(encoding="utf-8")
    for library in libraries:
        entry = locked[f"node_modules/{library['name']}"]
        assert {key: entry[key] for key in ("version", "license", "integrity")}.items() <= library.items()
        assert f"{library['name']} {library['version']}" in text
    assert text in (ASSETS / "report.min.js").read_text(encoding="utf-8")
    assert all(words in text for words in ("Permission to use, copy", "Permission is hereby granted", "Redistribution"))


def test_the_bundle_is_small(report_bundle: Any) -> None:
    assert (ASSETS / "report.min.js").stat().st_size < 150_000


def test_a_release_needs_the_committed_bundle(report_bundle: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    committed = {name: (ASSETS / name).read_text(encoding="utf-8") for name in ("report.min.js", "libraries.json")}
    monkeypatch.setattr(report_bundle, "build", lambda: committed)
    report_bundle.check()
    monkeypatch.setattr(report_bundle, "build", lambda: {**committed, "report.min.js": "other"})
    with pytest.raises(report_bundle.BundleError, match=r"report\.min\.js is not what edgewright/report/script makes"):
        report_bundle.check()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
def test_the_sources_make_the_committed_bundle(report_bundle: Any) -> None:
    for name, text in report_bundle.build().items():
        assert (ASSETS / name).read_text(encoding="utf-8") == text, name
