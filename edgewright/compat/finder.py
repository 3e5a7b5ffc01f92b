"""The import finder: ``executorch`` and all inside it come from the table, even if ExecuTorch is installed."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from edgewright.compat.table import ABSENT, AT_USE, OWN, ROOT, TABLE, counterpart, is_own, modules, nearest
from edgewright.errors import MissingCounterpartError, UsageError
from edgewright.hints import did_you_mean


def missing(module: str, name: str = "") -> MissingCounterpartError:
    """The error of an import that has no counterpart: what is nearest, and names that are spelt alike."""
    subject = f"{module}.{name}" if name else module
    alike = did_you_mean(name or module, TABLE.get(module, {}) if name else modules(), alike=0.8)
    near = nearest(module, name)
    remedy = alike if alike and (name or not near) else f"Nearest: {near}." if near else ""
    return MissingCounterpartError(subject, "has no counterpart in Edgewright", remedy=remedy)


class StandIn(ModuleType):
    """A module of ExecuTorch whose names are Edgewright's; each is imported when it is first used."""

    def __getattr__(self, name: str) -> Any:
        if name == "__all__":
            return [n for n in TABLE.get(self.__name__, {}) if not n.startswith("_")]
        found = counterpart(self.__name__, name)
        if found is not None:
            value = getattr(import_module(found[0]), found[1])
            setattr(self, name, value)
            return value
        if f"{self.__name__}:{name}" in ABSENT:
            raise missing(self.__name__, name)
        if name.startswith("__") or f"{self.__name__}.{name}" in modules() or is_own(f"{self.__name__}.{name}"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")  # the import system goes on
        if f"{self.__name__}:{name}" in AT_USE:
            return _refuse_later(missing(self.__name__, name))
        raise missing(self.__name__, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *TABLE.get(self.__name__, {})})


def _refuse_later(error: MissingCounterpartError) -> type:
    """A class that nothing is an instance of: scripts may ask, annotate, and must not use it."""

    class _Meta(type):
        def __getattr__(cls, name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            raise UsageError(error.subject, error.rule, remedy=error.remedy) from error

        def __call__(cls, *args: Any, **options: Any) -> Any:
            raise UsageError(error.subject, error.rule, remedy=error.remedy) from error

    return _Meta(error.subject.rpartition(".")[2], (), {})


class Finder(MetaPathFinder, Loader):
    """Finds ``executorch`` and what is inside it; nothing else."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != ROOT and not name.startswith(f"{ROOT}."):
            return None
        if is_own(name):
            found = PathFinder.find_spec(name, _folders(name) if name in OWN else path)
            if found is None:
                raise missing(name)
            return found
        if name not in modules():
            raise missing(name)
        return ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return StandIn(spec.name, f"What Edgewright has of {spec.name}.")

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run: names are looked up when they are used."""


def _folders(name: str) -> list[str]:
    """Where ExecuTorch has the package around one of its modules, if it is installed."""
    spec = PathFinder.find_spec(ROOT, None)
    inside = name.split(".")[1:-1]
    return [] if spec is None else [str(Path(f, *inside)) for f in spec.submodule_search_locations or ()]


@contextmanager
def installed() -> Iterator[None]:
    """Imports of ``executorch`` give Edgewright's names while this lasts.

    >>> with installed():
    ...     from executorch.exir import EdgeCompileConfig
    >>> EdgeCompileConfig.__module__
    'edgewright.program.config'
    """
    finder = Finder()
    held = {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] == ROOT}
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in [n for n in sys.modules if n.partition(".")[0] == ROOT]:
            del sys.modules[name]
        sys.modules.update(held)
