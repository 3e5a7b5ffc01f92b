"""Generator of documentation pages: ``python -m edgewright.docs [FOLDER] [--check]``.

A backend's page lists its operators with the sentences of the rules that reject models, so that the two cannot differ.
The page of errors comes from the error classes, and the page of names from the table that ``edgewright compat`` uses.
"""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from edgewright.backends import discover, find_partitioner, find_quantizer, load_backend
from edgewright.backends.registry import find_backend
from edgewright.backends.table import FLOAT, Backend, OpSpec
from edgewright.backends.targets import backend_targets
from edgewright.docs_indexes import core_page, errors_page, names_page
from edgewright.ir.aten.ops import OPS

NOTE = "<!-- Written by `python -m edgewright.docs` from the backend's table. Change the table, not this page. -->"


def page(name: str) -> str:
    """The Markdown page of a backend."""
    backend = load_backend(name)
    head = [f"# {backend.info.title}", "", NOTE, "", backend.info.summary]
    sections = [head, _partitioner(name), _quantizer(name, backend), _operators(backend)]
    return "\n\n".join("\n".join(lines).strip() for lines in sections) + "\n"


def _partitioner(name: str) -> list[str]:
    cls = find_partitioner(name)
    lines = [
        "## Partitioner", "",
        "```python", "import torch", "from edgewright import to_edge_transform_and_lower", _import(name, cls), "",
        "exported = torch.export.export(torch.nn.Linear(4, 3).eval(), (torch.ones(2, 4),))  # yours",
        *_create(name, cls),
        "program = to_edge_transform_and_lower(exported, partitioner=[partitioner])",
        'print(program.partition_reports["forward"])  # what is delegated, and why the rest is not',
        "```", "", _text(cls),
    ]  # fmt: skip
    rows = [(f"`{p.name}`", f"`{p.default!r}`") for p in inspect.signature(cls).parameters.values() if _optional(p)]
    return [*lines, "", *_table(("option", "default"), rows)] if rows else lines


def _create(name: str, cls: type) -> list[str]:
    """Code that makes a partitioner, for the backend's usual device."""
    info = find_backend(name)
    targets = backend_targets(info)
    device = next((t.argument for t in targets if t.name == info.demo_target), targets[0].argument)
    if device is None:
        return [f"partitioner = {cls.__name__}()"]
    if info.simulates:
        return [f'# For this machine only; for the device: {cls.__name__}.for_target("{device}").',
                f'partitioner = {cls.__name__}.for_simulation("{device}")']  # fmt: skip
    return [f'partitioner = {cls.__name__}.for_target("{device}")']


def _optional(parameter: inspect.Parameter) -> bool:
    return parameter.default is not parameter.empty


def _quantizer(name: str, backend: Backend) -> list[str]:
    lines = ["## Quantization", ""]
    operators: dict[str, list[str]] = {}
    for op, row in sorted(backend.rows.items()):
        for precision in row.precisions:
            operators.setdefault(precision, []).append(op)
    if set(operators) <= {FLOAT}:
        return [*lines, "This backend computes in floating point only."]
    cls = find_quantizer(name)
    is_own = bool(backend.info.quantizer)
    text = _text(cls) if is_own else "Quantizes the operators below, through `prepare_pt2e` of torchao."
    lines += ["```python", _import(name, cls), "```", "", text]
    for preset in _presets(sys.modules[cls.__module__]) if is_own else ():
        lines += ["", f"`{preset.__name__}{_arguments(preset)}`: {_text(preset)}"]
    schemes = (
        (f"`{precision}`", backend.precision_notes[precision], _codes(operators[precision])) for precision in operators
    )
    return [*lines, "", *_table(("scheme", "meaning", "operators"), schemes)]


def _presets(module: Any) -> list[Any]:
    """The public functions of a quantizer's module, and imported functions that return a quantization config."""
    package = module.__name__.rpartition(".")[0]
    functions = [f for f in vars(module).values() if inspect.isfunction(f) and not f.__name__.startswith("_")]
    local = [f for f in functions if f.__module__.startswith(f"{package}.")]
    return [f for f in local if f.__module__ == module.__name__ or "QuantizationConfig" in str(_result(f))]


def _result(function: Any) -> Any:
    return inspect.signature(function).return_annotation


def _arguments(function: Any) -> str:
    parameters = [
        f"{p.name}={p.default!r}" if _optional(p) else p.name for p in inspect.signature(function).parameters.values()
    ]
    return f"({', '.join(parameters)})"


def _operators(backend: Backend) -> list[str]:
    rows = [row for _, row in sorted(backend.rows.items())]
    lines = ["## Operators", "", f"{len(rows)} operators, with their names in the op table.", ""]
    if backend.rules:
        lines += ["Requirements for every operator:", "", *(f"- {rule.text}" for rule in backend.rules), ""]
    head = ("operator", "from", "config", "precisions", "fuses", "requirements")
    lines += _table(head, (_row(row) for row in rows))
    if backend.absent:
        absent = ((f"`{name}`", reason) for name, reason in sorted(backend.absent.items()))
        lines += ["", "## Left to the CPU", "", *_table(("operator", "reason"), absent)]
    return lines


def _row(row: OpSpec) -> tuple[str, ...]:
    overloads = OPS[row.op].aten if row.op in OPS else ()
    return (
        f"`{row.op}`", _codes(overloads), _codes(row.configs), ", ".join(row.precisions), _codes(row.absorbs),
        "; ".join(rule.text for rule in row.rules),
    )  # fmt: skip


def _import(name: str, cls: type) -> str:
    """The import statement of a class; generic classes are looked up by the backend's name."""
    info = find_backend(name)
    kind = "partitioner" if cls.__name__.endswith("Partitioner") else "quantizer"
    if info.partitioner if kind == "partitioner" else info.quantizer:
        return f"from {info.package} import {cls.__name__}"
    return f"from edgewright.backends import find_{kind}\n\n{cls.__name__} = find_{kind}({name!r})"


def _text(described: Any) -> str:
    """A docstring without its examples."""
    text = inspect.getdoc(described) or ""
    return text.split("\n>>>")[0].strip().replace("``", "`")


def _codes(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"


def pages() -> Iterator[tuple[str, str]]:
    """Every generated page with its path in the folder."""
    yield from ((f"backends/{name}.md", page(name)) for name in discover())
    yield "errors.md", errors_page()
    yield "names.md", names_page()
    yield "core-dialect.md", core_page()


def main(arguments: list[str] | None = None) -> int:
    """Write the pages, or with ``--check`` list those that are out of date."""
    parser = argparse.ArgumentParser(prog="python -m edgewright.docs", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", nargs="?", default="docs", type=Path, help="where the pages are")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a page is not current")
    args = parser.parse_args(arguments)
    stale = []
    for name, text in pages():
        path = args.folder / name
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(str(path))
        if not args.check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    print("\n".join(f"{'not current' if args.check else 'wrote'}: {path}" for path in stale) or "all pages are current")
    return int(args.check and bool(stale))


if __name__ == "__main__":
    raise SystemExit(main())
