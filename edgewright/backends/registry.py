"""The registry of backends and delegates: lookup by name or id.

A backend is a package: a folder in ``backends/`` with an ``ops.py``, or an entry point of an installed package in the
group ``edgewright.backends``. A delegate runs a backend's blobs on this machine. Delegates are looked up by the backend
id in the file, in this order: those that the application registered, built-in ones, the entry point group
``edgewright.delegates``, and the ``DELEGATE`` of a backend's ``delegate.py``. Nothing here imports torch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache, lru_cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from edgewright.errors import UsageError
from edgewright.hints import did_you_mean

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from edgewright.backends.table import Backend

BACKENDS, DELEGATES = "edgewright.backends", "edgewright.delegates"  # groups of entry points
Factory = Callable[[Any], Any]  # from a ``DelegateBlob`` to a ``Delegate``

# ------------------------------------------------------------------------------------------------------- backends


def discover() -> dict[str, str]:
    """Packages of backends, by the backend's name. An entry point's value is the name of its package.

    >>> discover()["xnnpack"]
    'edgewright.backends.xnnpack'
    """
    return dict(_search(tuple(sys.path), tuple(import_module("edgewright.backends").__path__)))


@lru_cache(maxsize=4)
def _search(_: tuple[str, ...], path: tuple[str, ...]) -> dict[str, str]:
    """Search once per search path: entry points are read from a file of every installed package."""
    import pkgutil
    from importlib.metadata import entry_points  # slow to import, and not needed to run built-in delegates

    backends = {entry.name: entry.value for entry in entry_points(group=BACKENDS)}
    folders = [m.name for m in pkgutil.iter_modules(path) if m.ispkg]
    packages = {name: f"edgewright.backends.{name}" for name in folders}
    backends.update({name: package for name, package in packages.items() if find_spec(f"{package}.ops") is not None})
    return dict(sorted(backends.items()))


def package_of(name: str) -> str:
    """The package of a backend; ``UsageError`` with the nearest name if there is none."""
    backends = discover()
    if name not in backends:
        rule = f"must be one of {', '.join(backends)}"
        raise UsageError(f"backend {name!r}", rule, remedy=did_you_mean(name, backends))
    return backends[name]


def load_backend(name: str) -> Backend:
    """The table of a backend."""
    backend: Backend = import_module(f"{package_of(name)}.ops").BACKEND
    return backend


# ------------------------------------------------------------------------------------------------------ delegates

_REGISTERED: dict[str, Factory] = {}

# Built-in delegates: backend id, module, class. They are imported when a file needs them.
_BUILT_IN = {
    "EnnBackend": ("edgewright.backends.samsung.delegate", "EnnDelegate"),
    "EthosUBackend": ("edgewright.backends.ethos_u.delegate", "EthosUDelegate"),
    "NeutronBackend": ("edgewright.backends.nxp.delegate", "NeutronDelegate"),
    "QnnBackend": ("edgewright.backends.qualcomm.delegate", "QnnDelegate"),
    "XnnpackBackend": ("edgewright.backends.xnnpack.delegate", "XnnpackDelegate"),
}

# Names of backends for error messages, by id.
_TITLES = {
    "XnnpackBackend": "XNNPACK (any Arm or x86 CPU)",
    "QnnBackend": "Qualcomm AI Engine Direct",
    "EthosUBackend": "Arm Ethos-U",
    "ArmBackend": "Arm Ethos-U",
    "EnnBackend": "Samsung Exynos",
    "NeutronBackend": "NXP eIQ Neutron",
    "CoreMLBackend": "Apple Core ML",
    "MPSBackend": "Apple Metal",
    "VulkanBackend": "Vulkan",
    "OpenvinoBackend": "Intel OpenVINO",
    "MediaTekBackend": "MediaTek NeuroPilot",
    "CudaBackend": "NVIDIA CUDA",
}


def register_delegate(backend: str, factory: Factory) -> None:
    """Use ``factory`` for blobs whose backend id is ``backend``."""
    _REGISTERED[backend] = factory


def find_delegate(backend: str) -> Factory | None:
    """The factory for a backend id, or None."""
    if backend not in _REGISTERED and backend in _BUILT_IN:
        module, name = _BUILT_IN[backend]
        _REGISTERED[backend] = getattr(import_module(module), name)
    if backend not in _REGISTERED and backend in _entry_points():
        _REGISTERED[backend] = _entry_points()[backend].load()
    return _REGISTERED.get(backend) or _delegate_of_package(backend)


def available_delegates() -> list[str]:
    """The ids of all delegates that can be used here."""
    return sorted({*_REGISTERED, *_entry_points(), *_BUILT_IN})


def describe_backend(backend: str) -> str:
    """A backend id and its common name."""
    return f"{backend} ({_TITLES[backend]})" if backend in _TITLES else backend


def forget_delegates() -> None:
    """Clear the caches, so that newly installed backends are found."""
    _search.cache_clear()
    _packages_by_id.cache_clear()
    _delegate_of_package.cache_clear()


@cache
def _entry_points() -> dict[str, EntryPoint]:
    """Delegates of installed packages; cached, because a file may name any number of delegates."""
    from importlib.metadata import entry_points  # slow to import, and not needed for built-in delegates

    return {entry.name: entry for entry in entry_points(group=DELEGATES)}


@cache
def _delegate_of_package(backend_id: str) -> Factory | None:
    package = _packages_by_id().get(backend_id)
    if package is None or find_spec(f"{package}.delegate") is None:
        return None
    delegate: Factory | None = getattr(import_module(f"{package}.delegate"), "DELEGATE", None)
    return delegate


@cache
def _packages_by_id() -> dict[str, str]:
    """Packages by the id of their delegates; cached, because a file may name any number of delegates."""
    return {load_backend(name).id: package for name, package in discover().items()}
