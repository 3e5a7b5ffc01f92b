"""Backends, found: every folder in here with an ``ops.py``, and what packages offer as ``edgewright.backends``.

A backend is a package. ``ops.py`` says what it takes (``BACKEND``); the rest is optional: without a ``partitioner.py``
or ``quantizer.py`` of its own it gets the table's.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from edgewright.errors import UsageError
from edgewright.hints import did_you_mean

if TYPE_CHECKING:
    from edgewright.backends.table import Backend

GROUP = "edgewright.backends"


def discover() -> dict[str, str]:
    """Packages of backends, by the backend's name. An entry point's value is the name of its package.

    >>> discover()["xnnpack"]
    'edgewright.backends.xnnpack'
    """
    import pkgutil
    from importlib.metadata import entry_points  # slow, and who runs a file of ours does not need it

    found = {entry.name: entry.value for entry in entry_points(group=GROUP)}
    folders = {m.name: f"{__name__}.{m.name}" for m in pkgutil.iter_modules(__path__) if m.ispkg}
    found.update({name: package for name, package in folders.items() if find_spec(f"{package}.ops") is not None})
    return dict(sorted(found.items()))


def load_backend(name: str) -> Backend:
    """The table of a backend; needs no torch."""
    backend: Backend = import_module(f"{_package(name)}.ops").BACKEND
    return backend


def find_partitioner(name: str) -> Any:
    """The partitioner class of a backend."""
    from edgewright.lowering.partition.partitioner import Partitioner, partitioner_of

    return _own_class(name, "partitioner", Partitioner) or partitioner_of(load_backend(name))


def find_quantizer(name: str) -> Any:
    """The quantizer class of a backend."""
    from edgewright.quantize.quantizer import TableQuantizer

    made = {"backend": load_backend(name), "kept": find_partitioner(name).kept}
    return _own_class(name, "quantizer", TableQuantizer) or type(f"{_title(name)}Quantizer", (TableQuantizer,), made)


@cache
def find_delegate(backend_id: str) -> Any:
    """The class that runs blobs of ``backend_id`` on this machine (the package's ``DELEGATE``), or None."""
    package = _packages().get(backend_id)
    if package is None or find_spec(f"{package}.delegate") is None:
        return None
    return getattr(import_module(f"{package}.delegate"), "DELEGATE", None)


@cache
def _packages() -> dict[str, str]:
    """Packages by the id of their delegates; asked once, because a file may name any number of delegates."""
    return {load_backend(name).id: package for name, package in discover().items()}


def forget_delegates() -> None:
    """Ask again who runs what: for when backends were installed meanwhile."""
    _packages.cache_clear()
    find_delegate.cache_clear()


def _package(name: str) -> str:
    found = discover()
    if name not in found:
        rule = f"must be one of {', '.join(found)}"
        raise UsageError(f"backend {name!r}", rule, remedy=did_you_mean(name, found))
    return found[name]


def _own_class(name: str, module: str, base: type) -> Any:
    """The first class in a module of a backend that is made from ``base``, or None without such a module."""
    path = f"{_package(name)}.{module}"
    if find_spec(path) is None:
        return None
    held = vars(import_module(path)).values()
    return next((c for c in held if isinstance(c, type) and issubclass(c, base) and c.__module__ == path), None)


def _title(name: str) -> str:
    return name.title().replace("_", "")
