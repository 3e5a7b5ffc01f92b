"""Two pages that ``edgewright.docs`` writes: the index of errors, and ExecuTorch's names beside ours."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

from edgewright import errors
from edgewright.compat.table import ABSENT, TABLE, counterpart
from edgewright.errors import EdgewrightError

NOTE = "<!-- Written by `python -m edgewright.docs`. Change {source}, not this page. -->"

# What usually helps, beyond what each message says itself.
_ADVICE = {
    "LimitError": "Raise the limit that the message names (`--max-memory`, `Limits(...)`), if you trust the file.",
    "MissingError": "The message's second line is the command that installs what is missing.",
    "MissingOperatorError": "Give a kernel with `register_kernel`, or compile for the runtime you have.",
    "MissingDelegateError": "Install the backend's package, or register a delegate with `register_delegate`.",
    "MissingDataError": "Give the `.ptd` files that were written beside the program: `--data weights.ptd`.",
    "MissingCounterpartError": "[Names](names.md) has what there is; the message names what comes nearest.",
    "ExportError": "The message names your own line and the usual rewrite.",
    "UnsupportedOperatorError": "Write the operator with others, or name a runtime that has it (`runtime=...`).",
    "CoverageError": "`edgewright compile --report` has every rule that refused an operator, and the value.",
    "AccuracyError": "`edgewright compare` ranks the layers by the error each introduces.",
    "MiscompileError": "Report it with the model. A recipe that keeps the layer in another precision may avoid it.",
    "VendorError": "The vendor's own words are in the message. Report it to them with the file it names.",
    "UsageError": "The message lists what may be given.",
    "InputError": "`edgewright inspect` shows what the method takes.",
    "ExecutionError": "The message names the instruction and, if the file has them, the model's line.",
    "MismatchError": "The file does not compute what it did when it was bundled: compare the two devices' runtimes.",
}


def errors_page() -> str:
    """Every error class: what it means, what the command line returns, what to do."""
    meanings = dict(re.findall(r"(\w+Error)[ ]{2,}(\S.*)", errors.__doc__ or ""))
    lines = ["# Errors", "", NOTE.format(source="`edgewright/errors.py`"), ""]
    lines += [
        "Every error is an `EdgewrightError`. It reads `stage: subject: rule; got value` and, on a second line, what"
    ]
    lines += [
        "to do next; the same parts are attributes (`subject`, `rule`, `value`, `remedy`). `exit_code` is what the"
    ]
    lines += ["command line returns.", ""]
    for error, depth in _tree(EdgewrightError):
        base = error.__mro__[1].__name__
        kind = "" if depth == 0 else f"A kind of [`{base}`](#{base.lower()}). "
        told = meanings.get(error.__name__, "")
        lines += [f"## {error.__name__}", "", f"{kind}Stage `{error.stage}`, exit code {error.exit_code}.", ""]
        lines += [f"{told[0].upper()}{told[1:]}.", ""] if told else []
        text = (error.__doc__ or "").split(">>>")[0].strip()
        lines += [inspect.cleandoc(text).replace("``", "`"), ""] if text else []
        advice = error.usual_remedy or _ADVICE.get(error.__name__, "")
        lines += [advice, ""] if advice else []
    return "\n".join(lines).rstrip() + "\n"


def _tree(error: type[EdgewrightError], depth: int = 0) -> Iterator[tuple[type[EdgewrightError], int]]:
    yield error, depth
    for child in error.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from _tree(child, depth + 1)


def names_page() -> str:
    """ExecuTorch's modules: each name and ours, then what has no counterpart."""
    lines = ["# ExecuTorch's names", "", NOTE.format(source="`edgewright/compat/table.py`"), ""]
    lines += ["What [`edgewright compat`](migration.md) resolves and `edgewright migrate` rewrites.", ""]
    lines += ["| ExecuTorch | Edgewright |", "|---|---|"]
    for module, names in sorted(TABLE.items()):
        if not names:
            lines.append(f"| `import {module}` | nothing to import: its operators are there |")
        for name in sorted(names):
            ours, other = counterpart(module, name) or ("", "")
            lines.append(f"| `{module}.{name}` | `{ours}.{other}` |")
    lines += ["", "## What has no counterpart", "", "| ExecuTorch | nearest |", "|---|---|"]
    lines += [
        f"| `{name.replace(':', '.')}` | {text.replace('|', chr(92) + '|')} |" for name, text in sorted(ABSENT.items())
    ]
    return "\n".join(lines) + "\n"
