"""Backends: compilers for families of devices, one package each.

A backend's ``ops.py`` says which operators it supports (``BACKEND``); the rest is optional: without a
``partitioner.py`` or ``quantizer.py`` of its own it gets the table's. ``registry.py`` finds backends and delegates.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from edgewright.backends.registry import discover, forget_delegates, load_backend, package_of

__all__ = ["discover", "find_partitioner", "find_quantizer", "forget_delegates", "load_backend"]


def find_partitioner(name: str) -> Any:
    """The partitioner class of a backend."""
    from edgewright.lowering.partition.partitioner import Partitioner, partitioner_of

    return _own_class(name, "partitioner", Partitioner) or partitioner_of(load_backend(name))


def find_quantizer(name: str) -> Any:
    """The quantizer class of a backend."""
    from edgewright.quantize.quantizer import TableQuantizer

    attributes = {"backend": load_backend(name), "no_decompose": find_partitioner(name).no_decompose}
    title = f"{name.title().replace('_', '')}Quantizer"
    return _own_class(name, "quantizer", TableQuantizer) or type(title, (TableQuantizer,), attributes)


def _own_class(name: str, module: str, base: type) -> Any:
    """The first subclass of ``base`` in a module of a backend, or None if there is no such module."""
    path = f"{package_of(name)}.{module}"
    if find_spec(path) is None:
        return None
    members = vars(import_module(path)).values()
    return next((c for c in members if isinstance(c, type) and issubclass(c, base) and c.__module__ == path), None)
