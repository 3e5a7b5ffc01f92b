"""The layers of several files side by side: time, weights and error of each, those that differ most first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from edgewright.report.markup import Cell, decibels, paragraph, table
from edgewright.report.model import FileReport
from edgewright.units import duration, number, size

_ABOUT = (
    "Layers by name, in the order of the largest difference between two files: of their share of the time if two files"
    " have times of layers, else of their error, else of their weights."
)

_Figures = Mapping[str, float]


def layers_side_by_side(files: Sequence[FileReport]) -> str:
    """A table of the layers that at least two files name, or nothing."""
    times, errors, weights = ([of(file) for file in files] for of in (_times, _errors, _weights))
    columns = [(title, figures) for title, figures in (("time", times), ("error", errors), ("weights", weights))
               if sum(map(bool, figures)) > 1]  # fmt: skip
    found = [name for _, figures in columns for figure in figures for name in figure]
    names = [name for name in dict.fromkeys(found) if name]
    if not names:
        return ""
    targets = [file.target for file in files]
    labels = targets if all(targets) and len(set(targets)) == len(targets) else [file.name for file in files]
    kind, figures = columns[0]
    names.sort(key=lambda name: -_difference(name, [_shares(f) if kind == "time" else f for f in figures if f]))
    heads, cells = ["layer"], [[Cell(name) for name in names]]
    for title, figures in columns:
        for label, figure in zip(labels, figures, strict=True):
            if figure:
                heads.append(f">{_HEADS[title]}, {label}")
                cells.append([_CELLS[title](name, figure) for name in names])
        if title == "time" and len(files) == 2 and files[0].measures.time_basis == files[1].measures.time_basis:
            heads.append(">times as long")
            cells.append([_ratio(times[0].get(name), times[1].get(name)) for name in names])
    rows = list(zip(*cells, strict=True))
    return f"<h3>Layers side by side</h3>{paragraph(_ABOUT, 'about')}{table('Layers of the files', heads, rows)}"


def _times(file: FileReport) -> dict[str, float]:
    """Seconds of each layer: of the device's estimate, or on this machine if that is the device."""
    rows = [(row.name, row.seconds) for row in file.layers.device]
    if not rows and not file.layers.simulated:
        rows = [(step.layer, step.ms / 1e3) for step in file.layers.steps]
    return _sums((name, seconds) for name, seconds in rows if seconds is not None)


def _errors(file: FileReport) -> dict[str, float]:
    """Decibels of each layer's own result; of a module with several, the worst."""
    errors: dict[str, float] = {}
    for error in file.layers.errors:
        name = error.module or error.name
        errors[name] = min(error.introduced, errors.get(name, error.introduced))
    return errors


def _weights(file: FileReport) -> dict[str, float]:
    return _sums((w.owner, float(w.bytes)) for w in file.memory.weights if not w.owner.startswith("delegates: "))


def _sums(rows: Iterable[tuple[str, float]]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for name, value in rows:
        sums[name] = sums.get(name, 0.0) + value
    return sums


def _shares(figures: _Figures) -> dict[str, float]:
    total = sum(figures.values()) or 1.0
    return {name: value / total for name, value in figures.items()}


def _difference(name: str, figures: Sequence[_Figures]) -> float:
    values = [figure.get(name, 0.0) for figure in figures]
    return max(values) - min(values)


def _time_cell(name: str, figures: _Figures) -> Cell:
    value, most = figures.get(name), max(figures.values()) or 1.0
    return Cell("") if value is None else Cell(duration(value), value, value / most)


def _error_cell(name: str, figures: _Figures) -> Cell:
    return decibels(figures.get(name))


def _weights_cell(name: str, figures: _Figures) -> Cell:
    value = figures.get(name)
    return Cell("") if value is None else Cell(size(round(value)), value)


def _ratio(first: float | None, second: float | None) -> Cell:
    return Cell(f"{number(second / first)}", second / first) if first and second else Cell("")


_HEADS = {"time": "time", "error": "own result dB", "weights": "weights"}
_CELLS = {"time": _time_cell, "error": _error_cell, "weights": _weights_cell}
