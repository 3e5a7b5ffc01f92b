"""Backends: compilers for families of devices, one package each.

A backend exports ``INFO`` (``info.py``), which names everything else. Its table (``ops.py``) says which operators it
supports; without a partitioner or quantizer of its own it gets the table's. ``registry.py`` finds backends.
"""

from __future__ import annotations

from typing import Any

from edgewright.backends.registry import discover, find_backend, forget_backends, load_backend

__all__ = ["discover", "find_partitioner", "find_quantizer", "forget_backends", "load_backend"]


def find_partitioner(name: str) -> Any:
    """The partitioner class of a backend."""
    from edgewright.lowering.partition.partitioner import partitioner_of

    info = find_backend(name)
    return info.load_function(info.partitioner) if info.partitioner else partitioner_of(load_backend(name))


def find_quantizer(name: str) -> Any:
    """The quantizer class of a backend."""
    info = find_backend(name)
    if info.quantizer:
        return info.load_function(info.quantizer)
    from edgewright.quantize.quantizer import TableQuantizer

    return type(f"{name.title().replace('_', '')}Quantizer", (TableQuantizer,), {"backend": load_backend(name)})
