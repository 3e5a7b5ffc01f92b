"""Exit codes, derived from the error classes; ``--help`` and ``docs/cli.md`` show this table."""

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
    BROKEN_PIPE: "the reader of the output closed the pipe",
}


def exit_codes() -> dict[int, str]:
    """Every exit code and its meaning, which is the error's line in the docstring of ``errors``."""
    meanings = dict(re.findall(r"(\w+Error)[ ]{2,}(\S.*)", errors.__doc__ or ""))
    codes = dict(_OTHERS)
    for error in _subclasses(EdgewrightError):
        if error.exit_code not in codes:  # a subclass that shares its parent's code adds nothing
            codes[error.exit_code] = meanings.get(error.__name__, error.__name__)
    return dict(sorted(codes.items()))


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
