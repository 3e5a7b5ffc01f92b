"""The layer table: which module of the user's model each instruction, and each operator of a delegate, comes from.

It is named data of the program, which other runtimes never load. JSON, deterministic and small::

    {"version": 1, "names": [[0, "features.0.0"], [1, "1.conv.0"], [0, "%mean"]],
     "methods": {"forward": {"chains": [[1, [0, 3], 1]], "delegates": [{"ops": [1, 1, 1], "cycles": [[0, 1152]]}]}}}

A name is the number of leading components that it shares with the name before, and the rest; ``%`` marks a node of
the exported program outside of any module. A list of operators has the difference to the number of the name before (0
is no name, 1 the first), with a repeat count where one name repeats. ``compiled`` in place of ``ops``: the layers of a
blob whose own operators are not known. ``cycles``: a vendor's estimate for operators, by index. Files are untrusted: a
table with anything unexpected is no table.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from edgewright.formats import schema
from edgewright.ir.graph import Origin

KEY = "edgewright.layers"
MAX_BYTES = 1 << 20
_VERSION = 1
_MAX_ENTRIES = 1 << 20  # operators of a program
_MAX_NAME = 512  # characters
_MAX_CHARACTERS = 1 << 24  # of all names
_NODE = "%"
_LISTS = {True: "ops", False: "compiled"}  # whether operators are in the order of the blob
NO_ORIGIN = Origin()


@dataclass(frozen=True)
class DelegateLayers:
    """The origins of a delegate's operators, in the order of its blob; those of the graph that a vendor compiled unless
    ``ordered``. ``cycles``: a vendor's estimate for some of them, by index."""

    origins: Sequence[Origin] = ()
    cycles: Mapping[int, int] = field(default_factory=dict)
    ordered: bool = True

    def key(self) -> str:
        """A text that differs if the names do: plans of the same blob hold the names of its layers."""
        return "\n".join(f"{o.module}{_NODE}{o.node}" for o in self.origins)

    def assign(self, ops: Sequence[Any]) -> None:
        """Set the origins of the blob's operators, if there is one for each."""
        if self.ordered and len(ops) == len(self.origins):
            for op, origin in zip(ops, self.origins, strict=True):
                op.origin = origin


@dataclass(frozen=True)
class MethodLayers:
    """The origins of a method's instructions, by chain, and of the operators of its delegates."""

    chains: Sequence[Sequence[Origin]] = ()
    delegates: Sequence[DelegateLayers] = ()

    def delegate(self, index: int) -> DelegateLayers:
        return self.delegates[index] if index < len(self.delegates) else DelegateLayers()

    def instruction(self, chain: int, index: int) -> Origin:
        known = chain < len(self.chains) and index < len(self.chains[chain])
        return self.chains[chain][index] if known else NO_ORIGIN


# ------------------------------------------------------------------------------------------------------------ writing


def write_layers(methods: Mapping[str, MethodLayers]) -> bytes:
    """The table of a program; empty if it names nothing, or if it would be too large to be read."""
    numbers: dict[str, int] = {"": 0}
    described: dict[str, Any] = {}
    for name, method in methods.items():
        delegates = []
        for delegate in method.delegates:
            entry: dict[str, Any] = {_LISTS[delegate.ordered]: _encode(delegate.origins, numbers)}
            if delegate.cycles:
                entry["cycles"] = [[at, delegate.cycles[at]] for at in sorted(delegate.cycles)]
            delegates.append(entry)
        described[name] = {"chains": [_encode(chain, numbers) for chain in method.chains], "delegates": delegates}
    if len(numbers) == 1:
        return b""
    content = {"version": _VERSION, "names": _shorten(list(numbers)[1:]), "methods": described}
    data = json.dumps(content, separators=(",", ":")).encode()
    return data if len(data) <= MAX_BYTES and parse_layers(data) is not None else b""


def _encode(origins: Iterable[Origin], numbers: dict[str, int]) -> list[Any]:
    coded: list[Any] = []
    before = 0
    for number, group in groupby(numbers.setdefault(_name(o), len(numbers)) for o in origins):
        count = sum(1 for _ in group)
        coded.append(number - before if count == 1 else [number - before, count])
        before = number
    return coded


def _name(origin: Origin) -> str:
    """Nodes by their names in the exported program: those of later graphs depend on the passes before."""
    return origin.module or "".join(_NODE + node for node in origin.exported_nodes[:1])


def _shorten(names: Sequence[str]) -> list[list[Any]]:
    result: list[list[Any]] = []
    before: list[str] = []
    for name in names:
        parts = name.split(".")
        pairs = enumerate(zip(parts, before, strict=False))
        shared = next((i for i, (a, b) in pairs if a != b), min(len(parts), len(before)))
        result.append([shared, ".".join(parts[shared:])])
        before = parts
    return result


# ------------------------------------------------------------------------------------------------------------ reading


def read_layers(program: schema.Program) -> dict[str, MethodLayers]:
    """The layers of a program by method; empty if it has no readable table. The names are not verified."""
    for item in program.named_data or ():
        if item.key == KEY:
            return parse_layers(program.segment(item.segment_index)) or {}
    return {}


def delegate_layers(program: schema.Program) -> Callable[[schema.BackendDelegate], DelegateLayers]:
    """A function that returns the layers of one of the program's delegates."""
    methods = read_layers(program)
    found = {
        id(delegate): methods[plan.name].delegate(index)
        for plan in program.execution_plan
        if plan.name in methods
        for index, delegate in enumerate(plan.delegates)
    }
    return lambda delegate: found.get(id(delegate), DelegateLayers())


def parse_layers(data: Any) -> dict[str, MethodLayers] | None:
    """The contents of a table, or None if anything about it is unexpected."""
    if len(data) > MAX_BYTES:
        return None
    try:
        content = json.loads(bytes(data))
        if content["version"] != _VERSION:
            return None
        reader = _Reader(content["names"])
        return {name: reader.method(method) for name, method in _typed(content["methods"], dict).items()}
    except (ValueError, LookupError, TypeError, RecursionError):
        return None


class _Reader:
    def __init__(self, names: Any) -> None:
        self.origins = [NO_ORIGIN]
        self.left = _MAX_ENTRIES
        before: list[str] = []
        characters = 0
        for shared, rest in _typed(names, list):
            count = _number(shared)
            before = [*before[:count], *([] if rest == "" and count else _typed(rest, str).split("."))]
            name = ".".join(before)
            characters += len(name)
            if len(name) > _MAX_NAME or characters > _MAX_CHARACTERS or not name.isprintable():
                raise ValueError("name")
            self.origins.append(Origin(node=name[1:]) if name.startswith(_NODE) else Origin(module=name))

    def method(self, content: Any) -> MethodLayers:
        chains = [self.decode(chain) for chain in _typed(content["chains"], list)]
        return MethodLayers(chains, [self.delegate(entry) for entry in _typed(content["delegates"], list)])

    def delegate(self, entry: Any) -> DelegateLayers:
        ordered = _LISTS[True] in entry
        origins = self.decode(entry[_LISTS[ordered]])
        cycles = {_number(at): _number(count) for at, count in _typed(entry.get("cycles", []), list)}
        if any(at >= len(origins) for at in cycles):
            raise ValueError("cycles")
        return DelegateLayers(origins, cycles, ordered)

    def decode(self, coded: Any) -> list[Origin]:
        result: list[Origin] = []
        number = 0
        for item in _typed(coded, list):
            step, count = item if isinstance(item, list) else (item, 1)
            number = _number(number + _typed(step, int))
            self.left -= _number(count)
            if self.left < 0:
                raise ValueError("too many operators")
            result += [self.origins[number]] * count
        return result


def _typed(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise TypeError(kind.__name__)
    return value


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise ValueError("number")
    return value
