"""Import finder: resolves ``executorch`` and its submodules from the table, even if ExecuTorch is installed."""

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

from edgewright.compat.table import ROOT, counterpart, is_executorch_only, modules, nearest_equivalent, table
from edgewright.errors import MissingCounterpartError, UsageError
from edgewright.hints import did_you_mean


def missing_error(module: str, name: str = "") -> MissingCounterpartError:
    """Error for an import without a counterpart, with the nearest equivalent or similarly spelled names."""
    subject = f"{module}.{name}" if name else module
    suggestion = did_you_mean(name or module, table().names.get(module, {}) if name else modules(), cutoff=0.8)
    equivalent = nearest_equivalent(module, name)
    remedy = suggestion if suggestion and (name or not equivalent) else f"Nearest: {equivalent}." if equivalent else ""
    return MissingCounterpartError(subject, "has no counterpart in Edgewright", remedy=remedy)


class ProxyModule(ModuleType):
    """A module of ExecuTorch whose names resolve lazily to Edgewright's."""

    def __getattr__(self, name: str) -> Any:
        if name == "__all__":
            return [n for n in table().names.get(self.__name__, {}) if not n.startswith("_")]
        target = counterpart(self.__name__, name)
        if target is not None:
            value = getattr(import_module(target[0]), target[1])
            setattr(self, name, value)
            return value
        if f"{self.__name__}:{name}" in table().absent:
            raise missing_error(self.__name__, name)
        if (
            name.startswith("__")
            or f"{self.__name__}.{name}" in modules()
            or is_executorch_only(f"{self.__name__}.{name}")
        ):
            raise AttributeError(
                f"module {self.__name__!r} has no attribute {name!r}"
            )  # lets the import system try a submodule
        if f"{self.__name__}:{name}" in table().import_only:
            return _unusable_class(missing_error(self.__name__, name))
        raise missing_error(self.__name__, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *table().names.get(self.__name__, {})})


def _unusable_class(error: MissingCounterpartError) -> type:
    """A class for annotations and isinstance checks that raises when used."""

    class _Meta(type):
        def __getattr__(cls, name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            raise UsageError(error.subject, error.rule, remedy=error.remedy) from error

        def __call__(cls, *args: Any, **options: Any) -> Any:
            raise UsageError(error.subject, error.rule, remedy=error.remedy) from error

    return _Meta(error.subject.rpartition(".")[2], (), {})


class ExecutorchFinder(MetaPathFinder, Loader):
    """Finds ``executorch`` and its submodules only."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != ROOT and not name.startswith(f"{ROOT}."):
            return None
        if is_executorch_only(name):
            spec = PathFinder.find_spec(name, _folders(name) if name in table().scripts else path)
            if spec is None:
                raise missing_error(name)
            return spec
        if name not in modules():
            raise missing_error(name)
        return ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return ProxyModule(spec.name, f"What Edgewright has of {spec.name}.")

    def exec_module(self, module: ModuleType) -> None:
        """No-op: names resolve lazily."""


def _folders(name: str) -> list[str]:
    """Search path of an ExecuTorch package, if it is installed."""
    spec = PathFinder.find_spec(ROOT, None)
    inside = name.split(".")[1:-1]
    return [] if spec is None else [str(Path(f, *inside)) for f in spec.submodule_search_locations or ()]


@contextmanager
def installed() -> Iterator[None]:
    """Context manager: imports of ``executorch`` resolve to Edgewright.

    >>> with installed():
    ...     from executorch.exir import EdgeCompileConfig
    >>> EdgeCompileConfig.__module__
    'edgewright.program.config'
    """
    finder = ExecutorchFinder()
    original_modules = {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] == ROOT}
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in [n for n in sys.modules if n.partition(".")[0] == ROOT]:
            del sys.modules[name]
        sys.modules.update(original_modules)
