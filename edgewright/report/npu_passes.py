"""The passes of an NPU's command stream by layer of the model: nodes of the graph, and rows of estimated cycles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from edgewright.lowering.estimates import MEMORIES
from edgewright.runtime.disassembly import PassTraffic

_IN_SRAM = {  # regions of a command stream, by Vela's memory mode
    "Sram_Only": ("constants", "scratch", "fast scratch"),
    "Shared_Sram": ("scratch", "fast scratch"),
    "Dedicated_Sram": ("fast scratch",),
}


@dataclass(frozen=True)
class PassGroup:
    """Consecutive passes of one layer. ``cycles``: the vendor's estimate for them, if the file has one."""

    layer: str
    operator: str
    macs: int = 0
    cycles: int | None = None
    traffic: Mapping[str, int] = field(default_factory=dict)


def group_passes(passes: Sequence[PassTraffic], cycles: Mapping[int, int]) -> list[PassGroup]:
    """The passes of each layer together, in order.

    >>> conv = PassTraffic(text="CONV 1x1", traffic={"scratch": 8}, layer="head", macs=4)
    >>> copy = PassTraffic(text="DMA_START", traffic={"scratch": 2}, layer="head", macs=0)
    >>> (group,) = group_passes([copy, conv, conv], {2: 50})
    >>> group.operator, group.macs, group.cycles, group.traffic["scratch"]
    ('dma, 2 conv', 8, 50, 18)
    """
    groups = []
    for layer, members in groupby(enumerate(passes), key=lambda item: item[1]["layer"]):
        listed = list(members)
        verbs = Counter(p["text"].split(maxsplit=1)[0].lower().removesuffix("_start") for _, p in listed)
        operator = ", ".join(verb if count == 1 else f"{count} {verb}" for verb, count in verbs.items())
        known = [cycles[at] for at, _ in listed if at in cycles]
        traffic: Counter[str] = Counter()
        for _, one in listed:
            traffic.update(one["traffic"])
        macs = sum(p["macs"] for _, p in listed)
        groups.append(PassGroup(layer, operator, macs, sum(known) if known else None, dict(traffic)))
    return groups


def memories_of(estimates: Any) -> dict[str, str]:
    """The memory of each region of a command stream, as the estimates of a file say; they are not trusted.

    >>> memories_of([{"memory_mode": "Shared_Sram", "memory": {"off_chip_flash": 9, "sram": 5}}])
    {'constants': 'off-chip flash', 'scratch': 'SRAM', 'fast scratch': 'SRAM'}
    >>> memories_of([{"memory_mode": "Shared_Sram", "memory": {"dram": 9, "off_chip_flash": 9}}])
    {'scratch': 'SRAM', 'fast scratch': 'SRAM'}
    """
    listed = [e for e in estimates if isinstance(e, Mapping)] if isinstance(estimates, list) else []
    if len(listed) != 1 or not isinstance(listed[0].get("memory"), Mapping):
        return {}
    mode, used = str(listed[0].get("memory_mode")), listed[0]["memory"]
    in_sram = next((regions for name, regions in _IN_SRAM.items() if mode.startswith(name)), None)
    others = [name for key, name in MEMORIES.items() if key != "sram" and used.get(key)]
    if in_sram is None:
        return {}
    return {r: "SRAM" if r in in_sram else others[0] for r in _IN_SRAM["Sram_Only"] if r in in_sram or len(others) == 1}
