"""How wheels are built: setuptools', with a bill of materials inside, and the same bytes every time.

setuptools stores files with the times and modes that they have on the disk. Here members are sorted, all have one time
(``SOURCE_DATE_EPOCH``, or the first that a zip can say) and one mode. The bill (CycloneDX, where PEP 770 puts it) lists
what the package requires and the data it brings, from the wheel's own metadata, which come from ``pyproject.toml``, and
the libraries of the report's script (``tools/report_bundle.py``).
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import os
import re
import time
import uuid
import zipfile
from collections.abc import Mapping
from email.message import Message
from email.parser import Parser
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import (
    build_editable,
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

SBOM = "sboms/{name}.cdx.json"
_FIRST = 315_532_800  # 1980-01-01, before which a zip knows no time
_DATA = (".npz", ".pte", ".safetensors")
_BUNDLED = "/report/assets/libraries.json"  # what a minified script beside it contains
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)(\[[^]]*\])?\s*([^;]*)(?:;(.*))?")
_EXTRA = re.compile(r"extra\s*==\s*['\"]([^'\"]+)['\"]")


def build_wheel(
    wheel_directory: str, config_settings: Mapping[str, Any] | None = None, metadata_directory: str | None = None
) -> str:
    """PEP 517: build into the folder; the wheel's name."""
    name: str = build_meta.build_wheel(wheel_directory, config_settings, metadata_directory)
    path = Path(wheel_directory, name)
    path.write_bytes(repack(path.read_bytes(), epoch(), Path.cwd()))
    return name


def epoch() -> int:
    """Seconds since 1970 that all files are dated with."""
    return max(int(os.environ.get("SOURCE_DATE_EPOCH", _FIRST)), _FIRST)


def repack(wheel: bytes, seconds: int, sources: Path | None = None) -> bytes:
    """A wheel with its bill of materials, as the same bytes for the same contents.

    What is not in ``sources`` any more is left out: setuptools packs whatever an earlier build left in ``build``.
    """
    with zipfile.ZipFile(io.BytesIO(wheel)) as archive:
        files = {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}
    info = next(name.rpartition("/")[0] for name in files if name.endswith(".dist-info/METADATA"))
    if sources is not None:
        files = {n: data for n, data in files.items() if n.startswith(f"{info}/") or (sources / n).is_file()}
    metadata = Parser().parsestr(files[f"{info}/METADATA"].decode())
    bill = f"{info}/{SBOM.format(name=metadata['Name'])}"
    files.pop(bill, None)
    files[bill] = (json.dumps(bill_of_materials(metadata, files, seconds), indent=1) + "\n").encode()
    record = f"{info}/RECORD"
    files[record] = _record(files, record)
    order = sorted(files, key=lambda name: (name.startswith(f"{info}/"), name))  # as PEP 427 recommends
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name in order:
            member = zipfile.ZipInfo(name, time.gmtime(seconds)[:6])
            member.compress_type, member.external_attr = zipfile.ZIP_DEFLATED, 0o100644 << 16
            member.create_system = 3  # POSIX, wherever it is built
            archive.writestr(member, files[name], compresslevel=9)
    return made.getvalue()


def _record(files: Mapping[str, bytes], record: str) -> bytes:
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    for name in sorted(files.keys() - {record}):
        digest = base64.urlsafe_b64encode(hashlib.sha256(files[name]).digest()).rstrip(b"=").decode()
        rows.writerow([name, f"sha256={digest}", len(files[name])])
    rows.writerow([record, "", ""])
    return text.getvalue().encode()


def bill_of_materials(metadata: Message, files: Mapping[str, bytes], seconds: int) -> dict[str, Any]:
    """CycloneDX 1.6: the package, what it requires with and without its extras, data and libraries inside it."""
    name, version = str(metadata["Name"]), str(metadata["Version"])
    own = _reference(name, version)
    required = [_requirement(text) for text in metadata.get_all("Requires-Dist", [])]
    merged = _merged([r for r in required if r["name"].lower() != name.lower()])  # extras name each other
    data = [_data(path, content) for path, content in sorted(files.items()) if path.endswith(_DATA)]
    lists = {path: json.loads(content) for path, content in sorted(files.items()) if path.endswith(_BUNDLED)}
    bundled = [_library(entry, path) for path, entries in lists.items() for entry in entries]
    licence = str(metadata["License-Expression"] or "")
    product = {"type": "library", "bom-ref": own, "name": name, "version": version, "purl": own,
               "description": str(metadata["Summary"] or ""), "licenses": [{"expression": licence}]}  # fmt: skip
    body = {
        "metadata": {"timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds)), "component": product},
        "components": [*merged, *bundled, *data],
        "dependencies": [{"ref": own, "dependsOn": sorted(c["bom-ref"] for c in (*merged, *bundled))},
                         *({"ref": c["bom-ref"]} for c in (*merged, *bundled))],
    }  # fmt: skip
    serial = uuid.uuid5(uuid.NAMESPACE_URL, f"{own} {json.dumps(body, sort_keys=True)}")
    head = {"bomFormat": "CycloneDX", "specVersion": "1.6", "serialNumber": f"urn:uuid:{serial}", "version": 1}
    return {**head, **body}


def _reference(name: str, version: str = "") -> str:
    return f"pkg:pypi/{re.sub('[-_.]+', '-', name).lower()}" + (f"@{version}" if version else "")


def _requirement(text: str) -> dict[str, str]:
    found = _REQUIREMENT.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"Requires-Dist: not understood: {text}")
    extra = _EXTRA.search(found[4] or "")
    return {"name": found[1], "text": text, "extra": extra[1] if extra else ""}


def _merged(required: list[dict[str, str]]) -> list[dict[str, Any]]:
    """One component a package: it is required if anything but an extra requires it."""
    made: dict[str, dict[str, Any]] = {}
    for item in required:
        reference = _reference(item["name"])
        component = made.setdefault(reference, {"type": "library", "bom-ref": reference, "name": item["name"],
                                                "scope": "optional", "purl": reference, "properties": []})  # fmt: skip
        component["scope"] = component["scope"] if item["extra"] else "required"
        component["properties"].append({"name": "python:requires-dist", "value": item["text"]})
    return [made[reference] for reference in sorted(made)]


def _library(entry: Mapping[str, str], path: str) -> dict[str, Any]:
    """An npm package that a script contains. ``integrity``: npm's checksum of its archive."""
    reference = f"pkg:npm/{entry['name'].replace('@', '%40')}@{entry['version']}"
    algorithm, _, digest = entry["integrity"].partition("-")
    return {"type": "library", "bom-ref": reference, "name": entry["name"], "version": entry["version"],
            "scope": "required", "purl": reference, "licenses": [{"license": {"id": entry["license"]}}],
            "hashes": [{"alg": algorithm.upper().replace("SHA", "SHA-"), "content": base64.b64decode(digest).hex()}],
            "properties": [{"name": "edgewright:bundled-beside", "value": path}]}  # fmt: skip


def _data(path: str, content: bytes) -> dict[str, Any]:
    digest = hashlib.sha256(content).hexdigest()
    kind = "data" if path.endswith(".npz") else "machine-learning-model"
    return {"type": kind, "bom-ref": f"file:{path}", "name": path, "hashes": [{"alg": "SHA-256", "content": digest}]}
