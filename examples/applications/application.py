"""What every application does: its programs are compiled for a target and run here on real data, and its answers are
compared with those in floating point."""

from __future__ import annotations

import copy
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import torch

import edgewright as ew
from edgewright.api.recipe import Recipe
from edgewright.api.result import file_name
from edgewright.errors import EdgewrightError
from edgewright.runtime import Runtime

Array = np.ndarray[Any, Any]
Inputs = tuple[torch.Tensor, ...]


class Program(Protocol):
    """A program of an application, in torch or compiled: inputs to a list of outputs. ``reset`` restores its state."""

    def __call__(self, *inputs: Any) -> list[Array]: ...
    def reset(self) -> None: ...


@dataclass(frozen=True)
class Part:
    """A program of an application. ``calibration`` and ``evaluation`` have no input in common."""

    model: torch.nn.Module
    example: Inputs
    calibration: Sequence[Inputs]
    evaluation: Sequence[Inputs]


class Application(ABC):
    """``targets``: the precisions to compile for each target: presets, or names of ``recipes``. ``figures``: what
    ``score`` returns, with the format of each; ``headline``: the one that the overview shows. Applications with several
    programs have several parts."""

    name: ClassVar[str]
    targets: ClassVar[Mapping[str, tuple[str, ...]]]
    figures: ClassVar[Mapping[str, str]]
    headline: ClassVar[str]
    higher_is_better: ClassVar[bool] = True
    pictures: ClassVar[bool] = True
    recipes: ClassVar[Mapping[str, Recipe]] = {}

    @abstractmethod
    def parts(self) -> dict[str, Part]:
        """The programs with their data."""

    @abstractmethod
    def predict(self, programs: Mapping[str, Program]) -> Any:
        """What the application says about its evaluation data, from the files to the answers."""

    @abstractmethod
    def score(self, answers: Any, original: Any) -> dict[str, float]:
        """Figures of a program's answers; ``original`` are those in floating point."""

    @abstractmethod
    def show(self, answers: Any, original: Any, folder: Path) -> None:
        """Print the answers, and write a picture to a folder if the application has one."""


class TorchProgram:
    """A module in floating point."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._initial, self._module = module, copy.deepcopy(module)

    def __call__(self, *inputs: Any) -> list[Array]:
        with torch.no_grad():
            outputs = self._module(*(torch.as_tensor(x) for x in inputs))
        return [o.numpy() for o in (outputs if isinstance(outputs, tuple | list) else (outputs,))]

    def reset(self) -> None:
        self._module.load_state_dict(self._initial.state_dict())


class DeviceProgram:
    """A compiled program, as its device computes it."""

    def __init__(self, method: Any) -> None:
        self._method = method

    def __call__(self, *inputs: Any) -> list[Array]:
        return [np.asarray(o) for o in self._method.execute([np.asarray(x) for x in inputs])]

    def reset(self) -> None:
        self._method.reset()


@dataclass
class Row:
    """A program of an application, for one target in one precision. ``rejected``: why there is none. ``float_figures``,
    ``figures``: of the application before and after. ``milliseconds``: measured on this machine, on one thread;
    ``estimate``: least and most milliseconds on the device, with its basis."""

    application: str
    part: str
    target: str
    precision: str
    rejected: str = ""
    figures: dict[str, float] = field(default_factory=dict)
    float_figures: dict[str, float] = field(default_factory=dict)
    sqnr: float | None = None
    coverage: float = 0.0
    bytes: int = 0
    planned_bytes: int = 0
    sram: int | None = None
    estimate: tuple[float, float] | None = None
    basis: str = ""
    check: str = ""
    file: str = ""
    milliseconds: float | None = None
    commit: str = ""
    date: str = ""

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.application, self.part, self.target, self.precision

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def original_answers(application: Application) -> Any:
    """What the application says in floating point, in torch."""
    return application.predict({name: TorchProgram(part.model) for name, part in application.parts().items()})


def measure(
    application: Application, target: str, precision: str, folder: Path, original: Any = None
) -> tuple[list[Row], Any]:
    """Compile an application for a target, run it, and compare its answers with the original's: a row for each part,
    and the answers. A typed error of the product becomes the rows' ``rejected``, and there are no answers."""
    original = original_answers(application) if original is None else original
    parts = application.parts()
    rows = [Row(application.name, name, target, precision, date=time.strftime("%Y-%m-%d")) for name in parts]
    programs = {}
    for row, (name, part) in zip(rows, parts.items(), strict=True):
        try:
            recipe = application.recipes.get(precision) or Recipe(None if precision == "float" else precision)
            programs[name] = _compile(part, target, recipe, row, folder)
        except EdgewrightError as error:
            row.rejected = f"{type(error).__name__}: {error}"
    if len(programs) < len(parts):
        return rows, None
    answers = application.predict(programs)
    figures, before = application.score(answers, original), application.score(original, original)
    for row in rows:
        row.figures, row.float_figures = figures, before
    return rows, answers


def _compile(part: Part, target: str, recipe: Recipe, row: Row, folder: Path) -> DeviceProgram:
    calibration = list(part.calibration) if recipe.quantizes else None
    result = ew.compile(
        part.model, part.example, target, recipe=recipe, calibration=calibration, samples=len(part.calibration),
        evaluate=list(part.evaluation), quiet=True,
    )  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    report = result.report
    row.file = file_name(f"{row.application}.{row.part}.{re.sub('[^a-z0-9]+', '-', row.precision.lower())}", report)
    result.save(folder / row.file)
    row.sqnr, row.coverage, row.bytes = report.sqnr, report.coverage["macs"], report.bytes
    row.planned_bytes, row.sram, row.check = report.planned_bytes, report.sram, str(report.check)
    if report.estimated_ms is not None:
        row.estimate, row.basis = report.time_range or (report.estimated_ms, report.estimated_ms), report.basis
    return DeviceProgram(result.method())


def load(files: Mapping[str, Path]) -> dict[str, Program]:
    """The programs of an application from files, by part."""
    runtime = Runtime.get()
    return {part: DeviceProgram(runtime.load_program(file).load_method("forward")) for part, file in files.items()}


def measure_time(file: Path, inputs: Sequence[Any], seconds: float = 1.0) -> float:
    """Milliseconds of a call, the median of those within a time, on one thread."""
    method = Runtime(threads=1).load_program(file).load_method("forward")
    arrays = [np.asarray(x) for x in inputs]
    times: list[float] = []
    for _ in range(3):
        method.execute(arrays)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 5:
        start = time.perf_counter()
        method.execute(arrays)
        times.append(time.perf_counter() - start)
    return float(np.median(times)) * 1e3
