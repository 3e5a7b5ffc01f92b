"""``edgewright cache``: location, size and removal of the on-disk cache of compiled code."""

from __future__ import annotations

import argparse
import json

from edgewright.console import console, note, plural
from edgewright.engine.jit.cache import Cache, default_cache
from edgewright.units import size

EXAMPLES = """examples:
  edgewright cache
  edgewright cache clear
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add = parser.add_argument
    add("action", nargs="?", choices=("show", "clear", "path"), default="show", help="the action (default: show)")
    add("--json", action="store_true", help="print the result as JSON")


def run(args: argparse.Namespace) -> int:
    cache = default_cache()
    removed = cache.clear() if args.action == "clear" else 0
    if args.json:
        print(json.dumps({**_facts(cache), "removed": removed}))
    elif args.action == "clear":
        _say(args, f"{plural(removed, 'object')} removed from {cache.folder}")
    elif args.action == "path":
        _path(cache)
    else:
        _show(cache)
    return 0


def _facts(cache: Cache) -> dict[str, object]:
    entries = cache.entries()
    return {
        "folder": str(cache.folder) if cache.folder else None,
        "entries": len(entries),
        "bytes": sum(entry.size for entry in entries),
        "limit": cache.limit,
        "problem": cache.problem,
    }


def _path(cache: Cache) -> None:
    if cache.folder is None:
        note(f"no cache: {cache.problem}")
    else:
        print(cache.folder)


def _show(cache: Cache) -> None:
    entries = cache.entries()
    total = size(sum(entry.size for entry in entries))
    out = console()
    out.print(f"{cache.folder or 'no folder'}", soft_wrap=True)
    out.print(f"objects: {len(entries)}, {total} of at most {size(cache.limit)}", soft_wrap=True)
    if cache.problem:
        out.print(f"not used: {cache.problem}", style="yellow", soft_wrap=True)


def _say(args: argparse.Namespace, message: str) -> None:
    if not args.quiet:
        console().print(message, soft_wrap=True)
