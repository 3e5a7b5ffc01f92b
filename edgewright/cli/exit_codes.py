"""Exit codes, read off the error classes: ``--help`` and ``docs/cli.md`` show what this module computes."""

from __future__ import annotations

import re

from edgewright import errors
from edgewright.errors import EdgewrightError

OK = 0
BUG = 70
INTERRUPTED = 130
BROKEN_PIPE = 141

_OTHERS = {
    OK: "success",
    EdgewrightError.exit_code: "any other failure",
    BUG: "a bug in Edgewright, with its traceback",
    INTERRUPTED: "interrupted (Ctrl-C)",
    BROKEN_PIPE: "the reader of the output went away",
}


def exit_codes() -> dict[int, str]:
    """Every exit code and what it means. An error's meaning is its line in the tree that ``errors`` draws."""
    drawn = dict(re.findall(r"(\w+Error)[ ]{2,}(\S.*)", errors.__doc__ or ""))
    found = dict(_OTHERS)
    for error in _subclasses(EdgewrightError):
        if error.exit_code not in found:  # a subclass that shares its parent's code adds nothing
            found[error.exit_code] = drawn.get(error.__name__, error.__name__)
    return dict(sorted(found.items()))


def _subclasses(cls: type[EdgewrightError]) -> list[type[EdgewrightError]]:
    """Parents before children."""
    direct = [c for c in cls.__subclasses__() if c.__module__ == errors.__name__]
    return [*direct, *(grandchild for child in direct for grandchild in _subclasses(child))]


def epilog() -> str:
    """The exit codes as the end of ``--help``."""
    return "exit codes:\n" + "\n".join(f"  {code:>3}  {meaning}" for code, meaning in exit_codes().items())


def markdown() -> str:
    """The exit codes as the table in ``docs/cli.md``."""
    rows = [f"| {code} | {meaning} |" for code, meaning in exit_codes().items()]
    return "\n".join(["| code | meaning |", "|---:|---|", *rows])
