"""Wheels: the same bytes whatever the files' times, modes and order, with a bill of materials inside."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("setuptools", reason="wheels are built with it")
ROOT = Path(__file__).parents[2]
INFO = "thing-1.2.dist-info"
METADATA = """Metadata-Version: 2.4
Name: thing
Version: 1.2
Summary: Does things.
License-Expression: Apache-2.0
Requires-Dist: Num_Py>=1.26
Requires-Dist: torch<3,>=2; extra == "compile"
Requires-Dist: torch==2.5; python_version < "3.11"
Requires-Dist: lint[fast]>=2; extra == 'dev'
Requires-Dist: thing[compile]; extra == "dev"

A long description.
"""
FILES = {
    "thing/b.py": b"B = 1\n", "thing/a.py": b"A = 1\n", "thing/model.pte": b"\0model", "thing/x.npz": b"\0data",
    f"{INFO}/METADATA": METADATA.encode(), f"{INFO}/WHEEL": b"Wheel-Version: 1.0\n", f"{INFO}/RECORD": b"of before",
}  # fmt: skip


@pytest.fixture(scope="module")
def backend() -> Any:
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        import build_backend
    finally:
        sys.path.remove(str(ROOT / "tools"))
    return build_backend


def wheel(names: list[str], year: int, mode: int) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr(zipfile.ZipInfo("thing/"), b"")
        for name in names:
            member = zipfile.ZipInfo(name, (year, 1, 1, 0, 0, 0))
            member.external_attr = mode << 16
            archive.writestr(member, FILES[name])
    return made.getvalue()


def read(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_same_contents_are_the_same_bytes(backend: Any) -> None:
    first = backend.repack(wheel(list(FILES), 1999, 0o600), 1_700_000_000)
    second = backend.repack(wheel(list(reversed(FILES)), 2020, 0o755), 1_700_000_000)
    assert first == second == backend.repack(first, 1_700_000_000)
    assert first != backend.repack(wheel(list(FILES), 1999, 0o600), 1_700_000_002)


def test_members_are_sorted_and_the_record_is_right(backend: Any) -> None:
    files = read(backend.repack(wheel(list(FILES), 1999, 0o600), 1_700_000_000))
    names = list(files)
    own = [name for name in names if name.startswith(INFO)]
    assert names == sorted(set(names) - set(own)) + sorted(own)
    assert {name: files[name] for name in FILES if not name.endswith("RECORD")} == {
        name: data for name, data in FILES.items() if not name.endswith("RECORD")
    }
    rows = {row[0]: row[1:] for row in csv.reader(io.StringIO(files[f"{INFO}/RECORD"].decode()))}
    assert rows.pop(f"{INFO}/RECORD") == ["", ""] and rows.keys() == files.keys() - {f"{INFO}/RECORD"}
    for name, (digest, size) in rows.items():
        wanted = base64.urlsafe_b64encode(hashlib.sha256(files[name]).digest()).rstrip(b"=").decode()
        assert (digest, size) == (f"sha256={wanted}", str(len(files[name])))


def test_the_bill_lists_requirements_and_data(backend: Any) -> None:
    files = read(backend.repack(wheel(list(FILES), 1999, 0o600), 1_700_000_000))
    bill = json.loads(files[f"{INFO}/sboms/thing.cdx.json"])
    assert (bill["bomFormat"], bill["specVersion"], bill["version"]) == ("CycloneDX", "1.6", 1)
    assert bill["metadata"]["timestamp"] == "2023-11-14T22:13:20Z"
    assert bill["metadata"]["component"]["purl"] == "pkg:pypi/thing@1.2"
    assert bill["metadata"]["component"]["licenses"] == [{"expression": "Apache-2.0"}]
    found = {c["name"]: (c["type"], c.get("scope"), c.get("purl")) for c in bill["components"]}
    assert found == {
        "Num_Py": ("library", "required", "pkg:pypi/num-py"),
        "lint": ("library", "optional", "pkg:pypi/lint"),
        "torch": ("library", "required", "pkg:pypi/torch"),
        "thing/model.pte": ("machine-learning-model", None, None),
        "thing/x.npz": ("data", None, None),
    }
    model = next(c for c in bill["components"] if c["name"] == "thing/model.pte")
    assert model["hashes"] == [{"alg": "SHA-256", "content": hashlib.sha256(b"\0model").hexdigest()}]
    references = [c["bom-ref"] for c in bill["components"]]
    assert len(set(references)) == len(references)
    assert bill["dependencies"][0] == {
        "ref": "pkg:pypi/thing@1.2",
        "dependsOn": ["pkg:pypi/lint", "pkg:pypi/num-py", "pkg:pypi/torch"],
    }


def test_the_bill_lists_the_libraries_of_a_script(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = b"what npm downloads"
    integrity = f"sha512-{base64.b64encode(hashlib.sha512(archive).digest()).decode()}"
    library = {"name": "@some/layout", "version": "3.1", "license": "MIT", "integrity": integrity}
    path = "thing/report/assets/libraries.json"
    monkeypatch.setitem(FILES, path, json.dumps([library]).encode())
    files = read(backend.repack(wheel(list(FILES), 1999, 0o600), 1_700_000_000))
    bill = json.loads(files[f"{INFO}/sboms/thing.cdx.json"])
    (found,) = (c for c in bill["components"] if c["name"] == "@some/layout")
    assert (found["version"], found["purl"]) == ("3.1", "pkg:npm/%40some/layout@3.1")
    assert found["licenses"] == [{"license": {"id": "MIT"}}]
    assert found["hashes"] == [{"alg": "SHA-512", "content": hashlib.sha512(archive).hexdigest()}]
    assert found["properties"] == [{"name": "edgewright:bundled-beside", "value": path}]
    assert found["bom-ref"] in bill["dependencies"][0]["dependsOn"]


def test_what_an_earlier_build_left_is_not_packed(backend: Any, tmp_path: Path) -> None:
    (tmp_path / "thing").mkdir()
    for name in ("a.py", "model.pte"):
        (tmp_path / "thing" / name).write_bytes(b"")
    files = read(backend.repack(wheel(list(FILES), 1999, 0o600), 1_700_000_000, tmp_path))
    assert [name for name in files if not name.startswith(INFO)] == ["thing/a.py", "thing/model.pte"]
    assert b"thing/b.py" not in files[f"{INFO}/RECORD"] and f"{INFO}/METADATA" in files


def test_the_time_is_the_one_that_is_asked_for(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    assert backend.epoch() == 315_532_800
    for text, wanted in (("1700000000", 1_700_000_000), ("0", 315_532_800)):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", text)
        assert backend.epoch() == wanted


@pytest.mark.slow
def test_a_release_can_be_made(tmp_path: Path) -> None:
    """Built twice, compared, installed in an empty environment, and the demo runs."""
    import subprocess

    command = [sys.executable, str(ROOT / "tools" / "release.py"), "--allow-changes", "--output", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode == 0, done.stderr
    assert "built twice, the same bytes" in done.stdout and "images correct" in done.stdout
    (made,) = tmp_path.glob("*.whl")
    assert (
        tmp_path / f"{made.name}.sha256"
    ).read_text() == f"{hashlib.sha256(made.read_bytes()).hexdigest()}  {made.name}\n"
