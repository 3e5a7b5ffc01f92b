"""Makes a release and checks it: ``python tools/release.py [--output dist] [--allow-changes]``.

Builds the wheel twice from the committed files, in two folders and under two sets of conditions that must not matter
(times, umask, order of hashes, time zone, language), and compares the bytes. Then installs it in an empty environment,
where its bill of materials must be, and runs ``edgewright demo`` there. The script of the HTML report is bundled again,
and must be the committed one. Nothing is uploaded.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# What must not matter: umask, and variables.
CONDITIONS = (
    (0o022, {"PYTHONHASHSEED": "1", "TZ": "UTC", "LC_ALL": "C.UTF-8"}),
    (0o077, {"PYTHONHASHSEED": "2", "TZ": "Pacific/Auckland", "LC_ALL": "C"}),
)


class ReleaseError(Exception):
    """What stops a release."""


def run(command: Sequence[object], **options: object) -> str:
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]
    if done.returncode:
        raise ReleaseError(f"{' '.join(words)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return str(done.stdout)


def version() -> str:
    found = re.search(r'^VERSION = "([^"]+)"', (ROOT / "edgewright" / "_version.py").read_text(), re.MULTILINE)
    if found is None:
        raise ReleaseError("edgewright/_version.py must say VERSION")
    return found[1]


def check_sources(allow_changes: bool) -> None:
    """The files that a release must have, all of them committed."""
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    if newest is None or newest[1] != version():
        raise ReleaseError(f"the newest section of CHANGELOG.md must be {version()}; it is {newest and newest[1]}")
    if not (ROOT / "tests" / "golden" / "releases" / version()).is_dir():
        raise ReleaseError(f"golden files of {version()} are missing: python -m tests.golden.releases.make")
    changed = run(["git", "status", "--porcelain"], cwd=ROOT)
    if changed and not allow_changes:
        raise ReleaseError(f"commit first, or say --allow-changes:\n{changed}")


def check_bundle(allow_changes: bool) -> str:
    """Bundle the script of the HTML report again; raises unless it is the committed one."""
    if shutil.which("npm") is None and allow_changes:
        return "npm is not installed: the script of the HTML report was not bundled again"
    run([sys.executable, ROOT / "tools" / "report_bundle.py", "--check"])
    return "the script of the HTML report: bundled again, the same bytes"


def copy_sources(target: Path, seconds: int) -> None:
    """The files of the repository, all with another time than they have here."""
    for name in run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT).split("\0"):
        source = ROOT / name
        if name and source.is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target / name)
            os.utime(target / name, (seconds, seconds))


def build(folder: Path, number: int, epoch: str) -> Path:
    mask, variables = CONDITIONS[number]
    sources = folder / f"sources{'-' * number}"
    copy_sources(sources, 1_000_000_000 + number)
    environment = {**os.environ, **variables, "SOURCE_DATE_EPOCH": epoch}
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--wheel-dir",
        folder / str(number),
        sources,
    ]
    run(command, env=environment, umask=mask)
    (wheel,) = (folder / str(number)).glob("*.whl")
    return wheel


def compare(first: Path, second: Path) -> str:
    """The SHA-256 of both; raises with the names of what differs."""
    if first.read_bytes() != second.read_bytes():
        with zipfile.ZipFile(first) as a, zipfile.ZipFile(second) as b:
            common = set(a.namelist()) & set(b.namelist())
            names = {*a.namelist(), *b.namelist()} - {name for name in common if a.read(name) == b.read(name)}
        raise ReleaseError(f"two builds differ in {', '.join(sorted(names)) or 'times, modes or order'}")
    return hashlib.sha256(first.read_bytes()).hexdigest()


def check_bill(wheel: Path) -> int:
    """The number of components; raises unless every requirement has one."""
    with zipfile.ZipFile(wheel) as archive:
        (bill,) = (n for n in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/sboms/[^/]+\.cdx\.json", n))
        (metadata,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        facts = json.loads(archive.read(bill))
        lines = archive.read(metadata).decode().splitlines()
    texts = {p["value"] for c in facts["components"] for p in c.get("properties", ())}
    required = {line.removeprefix("Requires-Dist: ") for line in lines if line.startswith("Requires-Dist: ")}
    missing = [text for text in required - texts if not text.startswith("edgewright[")]
    if missing:
        raise ReleaseError(f"the bill of materials lacks {', '.join(sorted(missing))}")
    return len(facts["components"])


def try_out(wheel: Path, folder: Path) -> str:
    """Install in an empty environment and run the demo, away from the sources; what it printed."""
    home = folder / "environment"
    venv.create(home, with_pip=True)
    scripts = home / ("Scripts" if sys.platform == "win32" else "bin")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "EDGEWRIGHT"))}
    environment["EDGEWRIGHT_CACHE"] = str(folder / "cache")
    run([scripts / "python", "-m", "pip", "install", "--quiet", wheel], env=environment, cwd=folder)
    said = run([scripts / "edgewright", "--version"], env=environment, cwd=folder)
    if version() not in said:
        raise ReleaseError(f"the installed package must be {version()}; it says {said.strip()}")
    return run([scripts / "edgewright", "demo"], env=environment, cwd=folder)


def release(output: Path, allow_changes: bool) -> Path:
    check_sources(allow_changes)
    print(check_bundle(allow_changes))
    epoch = run(["git", "log", "-1", "--format=%ct"], cwd=ROOT).strip()
    with tempfile.TemporaryDirectory(prefix="edgewright-release-") as name:
        folder = Path(name)
        first, second = (build(folder, number, epoch) for number in range(2))
        digest = compare(first, second)
        print(f"{first.name}: built twice, the same bytes\nsha256 {digest}")
        print(f"{check_bill(first)} components in the bill of materials")
        print(try_out(first, folder))
        output.mkdir(parents=True, exist_ok=True)
        made = Path(shutil.copy(first, output))
    (output / f"{made.name}.sha256").write_text(f"{digest}  {made.name}\n")
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=ROOT / "dist", help="where the wheel goes (default: dist)")
    parser.add_argument("--allow-changes", action="store_true", help="even if files are not committed")
    args = parser.parse_args()
    try:
        print(release(args.output, args.allow_changes))
    except ReleaseError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
