"""Registry of targets by user-facing name: ``xnnpack``, ``ethos-u55-128``, ``sm8550``, ``imxrt700``.

A backend declares its targets in its ``BackendInfo``, with a one-line description of each. A backend that declares none
has one target, named after itself. Imports no torch.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from edgewright.backends.info import BackendInfo
from edgewright.backends.registry import discover, find_backend, find_provider
from edgewright.errors import EdgewrightError, UsageError
from edgewright.formats.schema import BackendDelegate
from edgewright.hints import did_you_mean

_FEW = 3  # names that a suggestion lists


@dataclass(frozen=True)
class Target:
    """A device to compile for. ``argument``: the name that the backend's classes expect (None: they need none).
    ``spec``: the user's compile spec; ``simulate_only``: the spec asks for a program that runs on the host only."""

    name: str
    backend: str
    summary: str = ""
    argument: str | None = None
    spec: Any = field(default=None, compare=False)
    simulate_only: bool = False


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


def find_targets(requested: Any) -> list[Target]:
    """The targets of one name or compile spec, or of a sequence of them; each device once."""
    single = isinstance(requested, str) or is_compile_spec(requested) or not isinstance(requested, Sequence)
    targets = [find_target(item) for item in ([requested] if single else requested)]
    if not targets:
        raise UsageError("target", "must name at least one")
    by_name: dict[str, Target] = {}
    for target in targets:
        other = by_name.setdefault(target.name, target)
        if other.spec is not target.spec:
            remedy = "Compile for the other compile spec in a call of its own."
            raise UsageError("target", "must name a device once", value=f"{target.name} twice", remedy=remedy)
    return list(by_name.values())


def is_compile_spec(value: Any) -> bool:
    """True for a compile spec: of a backend's own class, or a list of keys and values as ExecuTorch has them."""
    return not isinstance(value, str) and _from_spec(value) is not None


def device_of(delegate: BackendDelegate) -> str:
    """The name of the target that a delegate was compiled for, by its compile specs, with the remark that it is for
    simulation only; its backend, if they name no device; its id, if no backend here has it."""
    specs = delegate.compile_specs or ()
    for text in (bytes(spec.value).decode("utf-8", "replace") for spec in specs if spec.key == "target"):
        name, remark, rest = text.partition(" (")
        if name.lower() in all_targets():
            return f"{name.lower()}{remark}{rest}"
    try:
        return find_target(specs).name
    except EdgewrightError:  # the specs name no device
        info = find_provider(delegate.id, lambda _: True)
        return delegate.id if info is None else info.name


def _from_spec(spec: Any) -> Target | None:
    for info in discover().values():
        found = info.load_function(info.read_spec)(spec) if info.read_spec else None
        if found is not None:
            name, simulate_only = found
            summary = next((t.summary for t in backend_targets(info) if t.argument == name), "")
            return Target(name.lower(), info.name, summary, name, spec, simulate_only)
    return None


def with_options(target: Target, options: Mapping[str, Any]) -> Target:
    """The target with a compile spec of the options that a recipe has for it."""
    if not options:
        return target
    if target.spec is not None:
        remedy = "Leave the options out of the recipe, or name the target instead of passing a compile spec."
        raise UsageError(f"recipe: options of {target.name}", "must not meet a compile spec", remedy=remedy)
    info = find_backend(target.backend)
    if not info.make_spec:
        raise UsageError(f"recipe: options of {target.name}", "are for targets that have some", value=sorted(options))
    return replace(target, spec=info.load_function(info.make_spec)(target.argument or target.name, options))


def find_target(name: Any) -> Target:
    """Look up a target by its case-insensitive name, as ``backend:name`` (``ethos_u:ethos-u55-128``), or by a backend's
    compile spec.

    >>> find_target("SM8650").argument
    'SM8650'
    """
    targets = all_targets()
    if not isinstance(name, str):
        target = _from_spec(name)
        if target is None:
            raise UsageError("target", "must be a name or a backend's compile spec", value=type(name).__name__)
        return target
    backend, colon, rest = name.rpartition(":")
    target = targets.get((rest if colon else name).strip().lower())
    if target is None or (colon and target.backend != backend):
        raise UsageError("target", "must be one that a backend declares", value=name, remedy=_advice(name, targets))
    return target


def search_targets(text: str) -> list[Target]:
    """The targets whose name, backend or product contains a text; if none does, those that have all of its words.

    >>> [target.name for target in search_targets("8 gen 3")]
    ['sm8650']
    """
    words = text.lower().split()
    described = {f"{t.name} {t.backend} {t.summary}".lower(): t for t in all_targets().values()}
    exact = [target for about, target in described.items() if " ".join(words) in about]
    return exact or [t for about, t in described.items() if all(re.search(rf"\b{re.escape(w)}", about) for w in words)]


def _advice(name: str, names: Iterable[str]) -> str:
    several = [part.strip().lower() for part in re.split(r"[,\s]+", name) if part.strip()]
    if len(several) > 1 and set(several) <= set(names):
        return f"Several targets are a list: {several!r} ({' '.join(f'--target {part}' for part in several)})."
    text = name.rpartition(":")[2].strip().lower()
    hint = did_you_mean(text, names, limit=_FEW)
    found = [target.name for target in search_targets(text)] if text and not hint else []
    if len(found) > _FEW:
        return f"`edgewright targets {shlex.quote(text)}` lists the {len(found)} that match."
    hint = hint or (f"Did you mean {' or '.join(found)}?" if found else "")
    return f"{hint} `edgewright targets` lists them all.".lstrip()
