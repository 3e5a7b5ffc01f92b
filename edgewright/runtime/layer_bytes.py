"""Bytes of a delegate by layer of the user's model: what a backend's ``layer_bytes`` returns."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from edgewright.ir.graph import Graph
from edgewright.ir.layer_names import layer_of


@dataclass(frozen=True)
class LayerBytes:
    """Constants of a layer. ``key``: of the named data that they are; empty for a part of the blob."""

    layer: str
    bytes: int
    key: str = ""


def graph_bytes(graph: Graph) -> Iterator[LayerBytes]:
    """The constants of a graph that is stored in a blob; equal ones are stored once, and count for their first
    reader."""
    seen: set[bytes] = set()
    for number, op in enumerate(graph.ops):
        for value in op.inputs():
            if value.constant:
                raw = np.ascontiguousarray(value.data).tobytes()
                digest = hashlib.sha256(raw).digest()
                if digest not in seen:
                    yield LayerBytes(layer_of(op.origin) or f"{op.name} {number}", len(raw))
                seen.add(digest)
