"""Every target by the name people give it: ``xnnpack``, ``ethos-u55-128``, ``sm8550``, ``imxrt700``.

A backend says what its targets are in ``targets()`` of its ``target.py``, and nowhere else: a mapping of names to a
line about each. A backend without has one target, of its own name. Nothing here needs torch.
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
    """A device to compile for. ``argument`` is what the backend's classes call it (None: they need no name)."""

    name: str
    backend: str
    summary: str = ""
    argument: str | None = None


@cache
def all_targets() -> dict[str, Target]:
    """Targets by name, backend by backend.

    >>> all_targets()["ethos-u55-128"].backend
    'ethos_u'
    """
    return {target.name: target for name, package in discover().items() for target in _of(name, package)}


def _of(name: str, package: str) -> Iterable[Target]:
    listed = None
    if find_spec(f"{package}.target") is not None:
        listed = getattr(import_module(f"{package}.target"), "targets", None)
    if listed is None:
        return [Target(name, name, load_backend(name).title)]
    return [Target(said.lower(), name, line, said) for said, line in listed().items()]


def find_target(name: str) -> Target:
    """A target by its name, in any case; ``backend:name`` (``ethos_u:ethos-u55-128``) works too.

    >>> find_target("SM8650").argument
    'SM8650'
    """
    known = all_targets()
    if not isinstance(name, str):
        raise UsageError("target", "must be a name", value=name)
    backend, colon, rest = name.rpartition(":")
    found = known.get((rest if colon else name).strip().lower())
    if found is None or (colon and found.backend != backend):
        raise UsageError("target", "must be one that a backend declares", value=name, remedy=_advice(name, known))
    return found


def _advice(name: str, known: Iterable[str]) -> str:
    wanted = name.rpartition(":")[2].strip().lower()
    return f"{did_you_mean(wanted, known, most=3)} `edgewright targets` lists them all.".lstrip()
