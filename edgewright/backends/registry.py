"""The registry of backends: lookup by name, or by the id that program files contain. Nothing here imports torch.

A backend describes itself with a ``BackendInfo`` (``info.py``). Descriptions come from three sources. Where two of them
provide the same thing for a name or an id, the first source wins:

1. the application, with ``register_backend`` or ``register_delegate``; the newest registration first;
2. the packages in this folder, each of which exports ``INFO``;
3. installed packages, with an entry point in the group ``edgewright.backends`` that names their ``BackendInfo``.

Entry points are read only if the first two sources do not have what is looked for, because that is slow.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from edgewright.backends.info import BackendInfo
from edgewright.errors import UsageError
from edgewright.hints import did_you_mean
from edgewright.logs import log_message

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from edgewright.backends.table import Backend
    from edgewright.ir.dialect import Dialect

GROUP = "edgewright.backends"  # of entry points
Factory = Callable[[Any], Any]  # from a ``DelegateBlob`` to a ``Delegate``

# ------------------------------------------------------------------------------------------------------------ sources

_REGISTERED: dict[str, BackendInfo] = {}  # by the application; a second registration replaces the first


class InstalledBackend:
    """A backend from an entry point. ``info`` is None if the entry point is broken; ``problem`` says why."""

    def __init__(self, entry: str, version: str, info: BackendInfo | None, problem: str = "") -> None:
        self.entry, self.version, self.info, self.problem = entry, version, info, problem


def register_backend(info: BackendInfo) -> None:
    """Use ``info`` before what other sources have for its name and its id."""
    if not isinstance(info, BackendInfo):
        raise UsageError("register_backend", "must be a BackendInfo", value=type(info).__name__)
    _register(f"backend {info.name}", info)


def register_delegate(backend: str, factory: Factory) -> None:
    """Use ``factory`` for blobs whose backend id is ``backend``."""
    _register(f"delegate {backend}", BackendInfo(backend, delegate=factory))


def _register(key: str, info: BackendInfo) -> None:
    _REGISTERED.pop(key, None)  # the newest is the last
    _REGISTERED[key] = info
    find_dialect.cache_clear()


@cache
def _bundled() -> tuple[BackendInfo, ...]:
    """The backends in this folder. ``pkgutil`` would find them too, but takes longer to import than all of them."""
    folders = [entry for path in import_module("edgewright.backends").__path__ for entry in os.scandir(path)]
    names = sorted(folder.name for folder in folders if os.path.isfile(os.path.join(folder.path, "__init__.py")))
    packages = [import_module(f"edgewright.backends.{name}") for name in names]
    return tuple(_info_of(package.__name__, vars(package).get("INFO")) for package in packages)


@cache
def installed_backends() -> tuple[InstalledBackend, ...]:
    """The backends of installed packages. A broken one is left out of every lookup, with a warning."""
    from importlib.metadata import entry_points  # slow to import, and not needed to run what is in this folder

    return tuple(map(_load_entry, sorted(entry_points(group=GROUP), key=lambda entry: entry.name)))


def _load_entry(entry: EntryPoint) -> InstalledBackend:
    version = "" if entry.dist is None else entry.dist.version
    try:
        return InstalledBackend(entry.name, version, _info_of(entry.value, entry.load()))
    except Exception as error:  # of the other package
        problem = f"{type(error).__name__}: {error}"
        log_message("warning", "backends", "entry point %s = %s cannot be used: %s", entry.name, entry.value, problem)
        return InstalledBackend(entry.name, version, None, problem)


def _info_of(source: str, info: object) -> BackendInfo:
    if not isinstance(info, BackendInfo):
        remedy = f"Export it: INFO = BackendInfo(...), and name it in the entry point: {source.partition(':')[0]}:INFO."
        raise UsageError(source, "must be a BackendInfo", value=type(info).__name__, remedy=remedy)
    return info


def all_backends() -> Iterator[BackendInfo]:
    """Every description, in order of precedence."""
    yield from reversed(list(_REGISTERED.values()))
    yield from _bundled()
    yield from (each.info for each in installed_backends() if each.info is not None)


def forget_backends() -> None:
    """Clear the caches, so that newly installed backends are found."""
    _bundled.cache_clear()
    installed_backends.cache_clear()
    find_dialect.cache_clear()


# ------------------------------------------------------------------------------------------------------------ by name


def discover() -> dict[str, BackendInfo]:
    """Backends to compile for, by name: those that have a table.

    >>> discover()["xnnpack"].id
    'XnnpackBackend'
    """
    backends: dict[str, BackendInfo] = {}
    for info in all_backends():
        if info.table:
            backends.setdefault(info.name, info)
    return dict(sorted(backends.items()))


def in_order() -> list[BackendInfo]:
    """Backends to compile for, in the order in which lists show them."""
    return sorted(discover().values(), key=lambda info: (info.order, info.name))


def find_backend(name: str) -> BackendInfo:
    """The description of a backend; ``UsageError`` with the nearest name if there is none."""
    backends = discover()
    if name not in backends:
        rule = f"must be one of {', '.join(backends)}"
        raise UsageError(f"backend {name!r}", rule, remedy=did_you_mean(name, backends))
    return backends[name]


def load_backend(name: str) -> Backend:
    """The table of a backend."""
    from edgewright.backends.table import Backend

    info = find_backend(name)
    table: Backend = info.load(info.table, Backend)
    return table


# -------------------------------------------------------------------------------------------------------------- by id

# Names of backends that only devices have, for error messages.
_OTHER_TITLES = {
    "ArmBackend": "Arm Ethos-U",
    "CoreMLBackend": "Apple Core ML",
    "MPSBackend": "Apple Metal",
    "VulkanBackend": "Vulkan",
    "OpenvinoBackend": "Intel OpenVINO",
    "MediaTekBackend": "MediaTek NeuroPilot",
    "CudaBackend": "NVIDIA CUDA",
}


def find_provider(backend_id: str, member: Callable[[BackendInfo], object]) -> BackendInfo | None:
    """The description that provides ``member`` for a backend id, or None.

    >>> find_provider("QnnBackend", lambda info: info.delegate).name
    'qualcomm'
    """
    return next((info for info in all_backends() if info.id == backend_id and member(info)), None)


def find_delegate(backend_id: str) -> Factory | None:
    """What makes the delegates of a backend id, or None."""
    info = find_provider(backend_id, lambda info: info.delegate)
    return None if info is None else info.load_function(info.delegate)


def available_delegates() -> list[str]:
    """The ids of all delegates that can be used here."""
    return sorted({info.id for info in all_backends() if info.delegate})


def describe_backend(backend_id: str) -> str:
    """A backend id and its common name."""
    info = find_provider(backend_id, lambda info: info.full_title != info.id)
    title = _OTHER_TITLES.get(backend_id, "") if info is None else info.full_title
    return f"{backend_id} ({title})" if title else backend_id


# --------------------------------------------------------------------------------------------------- by prefix of kinds


@cache
def find_dialect(name: str) -> Dialect | None:
    """The dialect whose kinds start with ``name`` and a dot, or None. Core is no backend's.

    >>> find_dialect("tosa").title
    'TOSA'
    """
    from edgewright.ir.dialect import Dialect

    info = next((info for info in all_backends() if name in info.dialects), None)
    if info is None:
        return None
    dialect: Dialect = info.load(info.dialects[name], Dialect)
    if dialect.name != name:
        rule = f"{info.dialects[name]} must be a dialect named {name!r}, as the BackendInfo says"
        raise UsageError(f"backend {info.name!r}", rule, value=dialect.name)
    return dialect
