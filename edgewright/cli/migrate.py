"""``edgewright migrate``: rewrite the ExecuTorch imports of scripts."""

from __future__ import annotations

import argparse
import difflib
import json
import sys
from pathlib import Path

from edgewright.compat.migrate import migrate
from edgewright.errors import FileAccessError, MissingCounterpartError
from edgewright.files import write_file


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("scripts", nargs="+", metavar="script.py", help="the scripts; prints a diff of each")
    add("--write", action="store_true", help="modify the files in place")
    add("--json", action="store_true", help="print diffs and unresolved imports as JSON")
    parser.epilog = "examples:\n  edgewright migrate export.py\n  edgewright migrate --write export.py"


def run(args: argparse.Namespace) -> int:
    """Print the changes; the exit code is nonzero if an import has no counterpart."""
    results = []
    for script in args.scripts:
        before = _text(script)
        after = migrate(before, script)
        lines = difflib.unified_diff(before.splitlines(True), after.text.splitlines(True), script, script)
        diff = "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)
        if args.write and diff:
            write_file(script, [after.text.encode()])
        results.append({"script": script, "diff": diff, "written": bool(args.write and diff),
                        "left": [vars(item) for item in after.left]})  # fmt: skip
        if not args.json:
            sys.stdout.write(diff)
            for item in after.left:
                print(f"{script}: {item}", file=sys.stderr)
    if args.json:
        print(json.dumps(results, indent=2))
    return MissingCounterpartError.exit_code if any(facts["left"] for facts in results) else 0


def _text(script: str) -> str:
    try:
        with Path(script).open(encoding="utf-8", newline="") as file:  # preserve line endings
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise FileAccessError(script, "cannot be read as text", value=str(error)) from error
