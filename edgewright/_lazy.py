"""Lazy public names: a package lists them once, and a name's module is imported when it is first used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(package: str, names: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` for a package whose ``names`` map to the modules that define them; a module may
    itself be a name of its package."""

    def get(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            module = import_module(names[name])
            value = module if names[name] == f"{package}.{name}" else getattr(module, name)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "torch":
                raise
            from edgewright.errors import MissingError

            remedy = "pip install 'edgewright[compile]'"
            raise MissingError(name, "needs torch, which is not installed", remedy=remedy) from error
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: sorted({*names, *vars(sys.modules[package])})
