"""Generators of three pages: errors, ExecuTorch's names with their counterparts, and the core dialect."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

from edgewright import errors
from edgewright.compat.table import counterpart, table
from edgewright.errors import EdgewrightError
from edgewright.ir.core.dialect import CORE
from edgewright.ir.core.table import TYPE_CLASSES, CoreOp
from edgewright.ir.dialect import REQUIRED

NOTE = "<!-- Written by `python -m edgewright.docs`. Change {source}, not this page. -->"

# General advice, in addition to the remedy in each message.
_ADVICE = {
    "LimitError": "Raise the limit that the message names (`--max-memory`, `Limits(...)`), if you trust the file.",
    "ContextLengthError": 'Shorten the prompt, or pass `overflow="slide"`, which forgets older text.',
    "MissingError": "The message's second line is the command that installs what is missing.",
    "MissingOperatorError": "Register a kernel with `register_kernel`, or compile for the runtime that you have.",
    "MissingDelegateError": "Install the backend's package, or register a delegate with `register_delegate`.",
    "MissingDataError": "Pass the `.ptd` files that were written with the program: `--data weights.ptd`.",
    "MissingCounterpartError": "[Names](names.md) lists what is supported; the message suggests the nearest name.",
    "ExportError": "The message names your source line and the usual rewrite.",
    "UnsupportedOperatorError": "Rewrite it with supported operators, or select a runtime that has it (`runtime=...`).",
    "CoverageError": "`edgewright compile --report` lists every rule that rejects an operator, with the value.",
    "AccuracyError": "`edgewright compare` ranks the layers by the error each introduces.",
    "HalfOverflowError": "Scale the model so that the layer's results are smaller, quantize it, or keep it on the CPU.",
    "MiscompileError": "Report it with the model. A recipe that keeps the layer in another precision may avoid it.",
    "VendorError": "The message includes the vendor's output. Report it to the vendor with the file that it names.",
    "UsageError": "The message lists the valid choices.",
    "InputError": "`edgewright inspect` shows the inputs of a method.",
    "ExecutionError": "The message names the instruction and, if the file has them, the model's line.",
    "MismatchError": "The file gives other results than when it was bundled: compare the runtimes of the two devices.",
}


def errors_page() -> str:
    """Every error class: meaning, exit code and remedy."""
    meanings = dict(re.findall(r"(\w+Error)[ ]{2,}(\S.*)", errors.__doc__ or ""))
    lines = ["# Errors", "", NOTE.format(source="`edgewright/errors.py`"), ""]
    lines += [
        "Every error is an `EdgewrightError`. It reads `stage: subject: rule; got value` and, on a second line, what"
    ]
    lines += ["to do next. The same parts are attributes (`subject`, `rule`, `value`, `remedy`). `exit_code` is the"]
    lines += ["exit code of the command line.", ""]
    for error, depth in _tree(EdgewrightError):
        base = error.__mro__[1].__name__
        kind = "" if depth == 0 else f"A kind of [`{base}`](#{base.lower()}). "
        meaning = meanings.get(error.__name__, "")
        lines += [f"## {error.__name__}", "", f"{kind}Stage `{error.stage}`, exit code {error.exit_code}.", ""]
        lines += [f"{meaning[0].upper()}{meaning[1:]}.", ""] if meaning else []
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
    """ExecuTorch's names with their counterparts, then names without one."""
    lines = [
        "# ExecuTorch's names",
        "",
        NOTE.format(source="`edgewright/compat/table.py` or `compat_names.py` of a backend"),
        "",
    ]
    lines += ["The names that [`edgewright compat`](migration.md) resolves and `edgewright migrate` rewrites.", ""]
    lines += ["| ExecuTorch | Edgewright |", "|---|---|"]
    for module, names in sorted(table().names.items()):
        if not names:
            lines.append(f"| `import {module}` | nothing to import: its operators are built in |")
        for name in sorted(names):
            target, other = counterpart(module, name) or ("", "")
            lines.append(f"| `{module}.{name}` | `{target}.{other}` |")
    lines += ["", "## Names without a counterpart", "", "| ExecuTorch | nearest alternative |", "|---|---|"]
    lines += [
        f"| `{name.replace(':', '.')}` | {text.replace('|', chr(92) + '|')} |"
        for name, text in sorted(table().absent.items())
    ]
    return "\n".join(lines) + "\n"


_CORE_INTRODUCTION = """\
The operators that the engine compiles, and that the numpy executor runs. XNNPACK files, vendors' graphs and the calls
of portable programs are translated to them. Kinds are `core.` and the name. Images are NHWC unless it says otherwise.

`?` marks optional operands, `*` lists of tensors. Types are those of operands and result, in the language of
`ir/signatures.py`: `i8` is an element type, `qi8` quantized per tensor, `ci8` per channel, `bi8` in blocks, `di8` at
run time; a name in capitals stands for one type throughout. `=`: equal quantization parameters, `#`: a constant, `!`:
not a constant, `~`: zero point 0. Operators run in numpy, as a step between compiled ones, if their first operand has
none of the types under "machine code", and in rare shapes.
"""


def core_page() -> str:
    """Every operator of the core dialect, from its table."""
    lines = ["# The core dialect", "", NOTE.format(source="the rows in `edgewright/ir/core`"), "", _CORE_INTRODUCTION]
    lines += ["| classes | types |", "|---|---|"]
    lines += [
        f"| `{name}` | {', '.join(f'`{code}`' for code in text.split())} |" for name, text in TYPE_CLASSES.items()
    ]
    lines += ["", "| operators | operands | attributes | types | result | machine code |", "|---|---|---|---|---|---|"]
    groups: dict[tuple[str, ...], list[str]] = {}
    for row in sorted(CORE.rows.values(), key=lambda row: row.name):
        groups.setdefault(_core_cells(row), []).append(f"`{row.name}`")
    lines += [f"| {' | '.join((', '.join(names), *cells))} |" for cells, names in groups.items()]
    return "\n".join(lines) + "\n"


def _core_cells(row: CoreOp) -> tuple[str, ...]:
    operands = (f"`{o.name}`{'?' * o.optional}{'*' * o.variadic}" for o in row.operands)
    attributes = (
        f"`{name}`: {a.rule}{'' if a.default in (REQUIRED, None) else f'; default {a.default}'}"
        for name, a in row.attributes.items()
    )
    types = "<br>".join(f"`{part.strip()}`" for part in row.types.split("|"))
    return ", ".join(operands), "<br>".join(attributes), types, row.summary, row.compiled or "all types"
