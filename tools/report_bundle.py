"""Bundles the script of the HTML report: ``python tools/report_bundle.py [--check]``.

The sources are in ``edgewright/report/script``. esbuild makes one minified file of them and of the libraries in
``package-lock.json``, whose versions and checksums npm verifies. The file begins with the libraries' licences, so that
every page has them; ``LICENSES.txt`` has them for the wheel, and ``libraries.json`` is for its bill of materials.
``--check`` writes nothing, and fails if the committed files are others. Needs Node and npm, and the npm registry the
first time.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "edgewright" / "report" / "script"
ASSETS = ROOT / "edgewright" / "report" / "assets"
WORK = ROOT / "build" / "report_script"
BUNDLE, LIBRARIES, LICENCES = "report.min.js", "libraries.json", "LICENSES.txt"
_HEAD = "The script of Edgewright's HTML report, made of edgewright/report/script; Apache-2.0."
_ESBUILD = ("--bundle", "--minify", "--format=iife", "--target=es2022", "--charset=utf8", "--legal-comments=none")


class BundleError(Exception):
    """Why there is no bundle, or not the committed one."""


def source_digest() -> str:
    """SHA-256 of all that the bundle is made of; it is in the bundle, which tells without npm that it is current."""
    digest = hashlib.sha256()
    for path in sorted([*SOURCES.glob("*.js"), *SOURCES.glob("package*.json")]):
        digest.update(f"{path.name}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def run(*command: object) -> str:
    done = subprocess.run([str(c) for c in command], cwd=WORK, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BundleError(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def build() -> dict[str, str]:
    """The files of the bundle by name, made from the sources and from what npm installs."""
    if shutil.which("npm") is None:
        raise BundleError("npm is not installed; it downloads the libraries of the report's script")
    shutil.rmtree(WORK / "sources", ignore_errors=True)
    WORK.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(SOURCES / name, WORK / name)
    shutil.copytree(SOURCES, WORK / "sources")
    run("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent")
    run("node_modules/.bin/esbuild", "sources/main.js", *_ESBUILD, "--outfile=bundle.js", "--metafile=metadata.json")
    code = (WORK / "bundle.js").read_text(encoding="utf-8")
    inputs = json.loads((WORK / "metadata.json").read_text())["inputs"]
    libraries = _libraries({name for path in inputs if (name := _package(path))})
    licences = _licences(libraries)
    text = f"/*! {_HEAD}\nSources: sha256 {source_digest()}\n\n{licences}*/\n{code}"
    if "<script" in text or "</script" in text or "<!--" in text or "*/" in licences:
        raise BundleError("the bundle or a licence has text that ends its element or its comment")
    facts = [{key: value for key, value in library.items() if key != "text"} for library in libraries]
    return {BUNDLE: text, LIBRARIES: json.dumps(facts, indent=1) + "\n", LICENCES: licences}


def _package(path: str) -> str:
    """The package that an input of esbuild is of; nothing for our own."""
    parts = path.rpartition("node_modules/")[2].split("/") if "node_modules/" in path else [""]
    return "/".join(parts[: 2 if parts[0].startswith("@") else 1])


def _libraries(names: set[str]) -> list[dict[str, str]]:
    locked: dict[str, Any] = json.loads((SOURCES / "package-lock.json").read_text())["packages"]
    # What a library has bundled itself has no input of its own.
    names |= {d for name in names for d in locked[f"node_modules/{name}"].get("dependencies", ())} & _installed()
    result = []
    for name in sorted(names):
        entry, (licence,) = locked[f"node_modules/{name}"], (WORK / "node_modules" / name).glob("LICEN[CS]E*")
        facts = {key: entry[key] for key in ("version", "license", "integrity")}
        result.append({"name": name, **facts, "text": licence.read_text(encoding="utf-8").strip()})
    return result


def _installed() -> set[str]:
    folders = (WORK / "node_modules").glob("*/package.json"), (WORK / "node_modules").glob("@*/*/package.json")
    return {path.parent.relative_to(WORK / "node_modules").as_posix() for found in folders for path in found}


def _licences(libraries: list[dict[str, str]]) -> str:
    """Which libraries the bundle has, and their licences, each once."""
    by_text: dict[str, list[str]] = {}
    for library in libraries:
        by_text.setdefault(library["text"], []).append(f"{library['name']} {library['version']}")
    parts = [f"{', '.join(names)}:\n\n{text}\n" for text, names in by_text.items()]
    return "\n".join(["The script of the HTML report contains these libraries.\n", *parts])


def check() -> None:
    """Raises unless the committed files are what the sources make."""
    for name, text in build().items():
        if (ASSETS / name).read_text(encoding="utf-8") != text:
            raise BundleError(f"{name} is not what edgewright/report/script makes: python tools/report_bundle.py")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only compare with the committed files")
    try:
        if parser.parse_args().check:
            check()
        else:
            for name, text in build().items():
                (ASSETS / name).write_text(text, encoding="utf-8")
                print(f"{name}: {len(text.encode()):,} bytes")
    except BundleError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
