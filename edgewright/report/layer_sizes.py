"""Bytes of a program's delegates by layer of the model; for every delegate they add up to its bytes in the file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from edgewright.backends.registry import find_provider
from edgewright.errors import EdgewrightError
from edgewright.formats import schema
from edgewright.runtime.disassembly import DelegateContents
from edgewright.runtime.layer_bytes import LayerBytes, graph_bytes

REST = "graph and padding"
UNDIVIDED = "compiled by the vendor"  # the blob's format says nothing about layers

NO_LAYER = ("commands", REST, UNDIVIDED)


@dataclass
class DelegateBytes:
    """A delegate of a method. ``total``: its blob, and the named data that only it refers to or that it is the first
    to; ``layers``: the same bytes by layer."""

    method: str
    index: int
    backend: str
    total: int = 0
    layers: dict[str, int] = field(default_factory=dict)

    def add(self, layer: str, count: int) -> None:
        self.total += count
        self.layers[layer] = self.layers.get(layer, 0) + count


def delegate_bytes(
    program: schema.Program, contents: Callable[[schema.BackendDelegate], DelegateContents]
) -> list[DelegateBytes]:
    """The delegates of all methods. What several share counts for the first."""
    in_file = {item.key: len(program.segment(item.segment_index)) for item in program.named_data or ()}
    counted: set[object] = set()
    result = []
    for plan in program.execution_plan:
        for index, delegate in enumerate(plan.delegates):
            entry = DelegateBytes(plan.name, index, delegate.id)
            result.append(entry)
            blob = (delegate.processed.location, delegate.processed.index)
            parts = _parts(contents(delegate))
            if blob not in counted:
                _add_blob(entry, len(program.blob(delegate)), parts)
            for part in parts or ():
                if part.key and part.key in in_file and part.key not in counted:
                    entry.add(part.layer, in_file[part.key])
                    counted.add(part.key)
            counted.add(blob)
    return result


def _parts(contents: DelegateContents) -> list[LayerBytes] | None:
    """The parts of a delegate; None if it can only be shown as a whole."""
    try:
        if contents.is_simulated:
            graph = contents.graph()
            return None if graph is None else list(graph_bytes(graph))
        info = find_provider(contents.backend, lambda info: info.layer_bytes)
        return None if info is None else list(info.load_function(info.layer_bytes)(contents))
    except EdgewrightError:  # a damaged blob
        return None


def _add_blob(entry: DelegateBytes, size: int, parts: Sequence[LayerBytes] | None) -> None:
    used = sum(part.bytes for part in parts or () if not part.key)
    if parts is None or used > size:
        entry.add(UNDIVIDED, size)
        return
    for part in parts:
        if not part.key:
            entry.add(part.layer, part.bytes)
    if size > used:
        entry.add(REST, size - used)


def by_layer(delegates: Iterable[DelegateBytes]) -> dict[str, int]:
    """All delegates together, the largest layers first; what belongs to no layer is last."""
    total: dict[str, int] = {}
    for delegate in delegates:
        for layer, count in delegate.layers.items():
            total[layer] = total.get(layer, 0) + count
    return dict(sorted(total.items(), key=lambda item: (item[0] in NO_LAYER, -item[1], item[0])))
