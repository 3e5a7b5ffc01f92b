"""Registry of targets by user-facing name: ``xnnpack``, ``ethos-u55-128``, ``sm8550``, ``imxrt700``.

A backend declares its targets in ``targets()`` of its ``target.py``: a mapping from name to a one-line description. A
backend without that function has one target, named after itself. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec

from edgewright.backends.registry import discover, load_backend
from edgewright.errors import UsageError
from edgewright.hints import did_you_mean


@dataclass(frozen=True)
class Target:
    """A device to compile for. ``argument``: the name that the backend's classes expect (None: they need none)."""

    name: str
    backend: str
    summary: str = ""
    argument: str | None = None


@cache
def all_targets() -> dict[str, Target]:
    """Targets by name, grouped by backend.

    >>> all_targets()["ethos-u55-128"].backend
    'ethos_u'
    """
    return {target.name: target for name, package in discover().items() for target in _backend_targets(name, package)}


def _backend_targets(name: str, package: str) -> Iterable[Target]:
    listed = None
    if find_spec(f"{package}.target") is not None:
        listed = getattr(import_module(f"{package}.target"), "targets", None)
    if listed is None:
        return [Target(name, name, load_backend(name).title)]
    return [Target(target.lower(), name, summary, target) for target, summary in listed().items()]


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
