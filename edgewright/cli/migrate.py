"""``edgewright migrate``: a script's imports of ExecuTorch, rewritten."""

from __future__ import annotations

import argparse
import difflib
import sys
from pathlib import Path

from edgewright.compat.migrate import migrate
from edgewright.errors import FileAccessError, MissingCounterpartError
from edgewright.files import write_file


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("scripts", nargs="+", metavar="script.py", help="the scripts; a diff of each is printed")
    add("--write", action="store_true", help="change the files themselves")
    parser.epilog = "examples:\n  edgewright migrate export.py\n  edgewright migrate --write export.py"


def run(args: argparse.Namespace) -> int:
    """Print what changes; the exit code says whether some import had to stay."""
    stayed = False
    for script in args.scripts:
        before = _text(script)
        after = migrate(before, script)
        diff = difflib.unified_diff(before.splitlines(True), after.text.splitlines(True), script, script)
        sys.stdout.writelines(line if line.endswith("\n") else f"{line}\n" for line in diff)
        if args.write and after.text != before:
            write_file(script, [after.text.encode()])
        for item in after.left:
            stayed = True
            print(f"{script}: {item}", file=sys.stderr)
    return MissingCounterpartError.exit_code if stayed else 0


def _text(script: str) -> str:
    try:
        with Path(script).open(encoding="utf-8", newline="") as file:  # line ends stay as they are
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise FileAccessError(script, "cannot be read as text", value=str(error)) from error
