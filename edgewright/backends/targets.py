"""Registry of targets by user-facing name: ``xnnpack``, ``ethos-u55-128``, ``sm8550``, ``imxrt700``.

A backend declares its targets in its ``BackendInfo``, with a one-line description of each. A backend that declares none
has one target, named after itself. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from edgewright.backends.info import BackendInfo
from edgewright.backends.registry import discover
from edgewright.errors import UsageError
from edgewright.hints import did_you_mean


@dataclass(frozen=True)
class Target:
    """A device to compile for. ``argument``: the name that the backend's classes expect (None: they need none)."""

    name: str
    backend: str
    summary: str = ""
    argument: str | None = None


def all_targets() -> dict[str, Target]:
    """Targets by name, grouped by backend.

    >>> all_targets()["ethos-u55-128"].backend
    'ethos_u'
    """
    return {target.name: target for info in discover().values() for target in backend_targets(info)}


def backend_targets(info: BackendInfo) -> list[Target]:
    """The targets of a backend."""
    if not info.targets:
        return [Target(info.name, info.name, info.title)]
    names = info.load_function(info.targets)()
    return [Target(name.lower(), info.name, summary, name) for name, summary in names.items()]


def find_target(name: str) -> Target:
    """Look up a target by its case-insensitive name, or as ``backend:name`` (``ethos_u:ethos-u55-128``).

    >>> find_target("SM8650").argument
    'SM8650'
    """
    targets = all_targets()
    if not isinstance(name, str):
        raise UsageError("target", "must be a name", value=name)
    backend, colon, rest = name.rpartition(":")
    target = targets.get((rest if colon else name).strip().lower())
    if target is None or (colon and target.backend != backend):
        raise UsageError("target", "must be one that a backend declares", value=name, remedy=_advice(name, targets))
    return target


def _advice(name: str, names: Iterable[str]) -> str:
    target = name.rpartition(":")[2].strip().lower()
    return f"{did_you_mean(target, names, limit=3)} `edgewright targets` lists them all.".lstrip()
