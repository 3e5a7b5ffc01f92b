"""The targets that every model of the zoo is compiled for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ZooTarget:
    """``device`` is empty for a program without delegates. ``simulate`` is passed to ``compile``."""

    name: str
    device: str
    quantize: str | None = None
    simulate: bool | None = None


# Qualcomm's own compiler takes minutes for large networks: the zoo judges its graph by the host twin.
TARGETS = {
    target.name: target
    for target in (
        ZooTarget("portable", ""),
        ZooTarget("xnnpack-fp32", "xnnpack"),
        ZooTarget("xnnpack-int8", "xnnpack", "int8"),
        ZooTarget("xnnpack-dynamic", "xnnpack", "dynamic"),
        ZooTarget("ethos-u85-256", "ethos-u85-256", "int8"),
        ZooTarget("sm8550", "sm8550", "int8", simulate=True),
        ZooTarget("e9955", "e9955", "int8"),
        ZooTarget("imxrt700", "imxrt700", "int8"),
    )
}
