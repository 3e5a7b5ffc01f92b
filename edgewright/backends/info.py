"""What a backend's package says about itself: ``BackendInfo``, which the registry finds and every command reads.

Members are objects, or references (``".ops:BACKEND"``) that are imported when they are first used. A reference starts
with a dot if its module is inside the backend's package. The package that exports a ``BackendInfo`` should import
nothing else: running an XNNPACK file reads the descriptions of all backends.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar, Union

from edgewright.errors import UsageError

if TYPE_CHECKING:
    from edgewright.ir.dialect import Dialect

T = TypeVar("T")
Targets = Callable[[], Mapping[str, str]]

# Plain classes: every process that loads a program imports this file, and a dataclass takes a millisecond to define.


class BackendInfo:
    """A backend. Only ``name`` is required: what is left out, the backend does not have.

    ``package``: the Python package that references are relative to; ``__name__`` where this is written.
    ``id``: the delegate's id in program files. ``title``, ``summary``: for documentation. ``full_title``: for messages.
    ``order``: position in lists that users see; those of equal order are sorted by name.
    ``simulates``: programs for this machine only can be compiled without the vendor's compiler.
    ``table``: the ``Backend`` with its operators, which makes it something to compile for.
    ``partitioner``, ``quantizer``: classes; by default they are derived from the table.
    ``delegate``: makes a ``runtime.Delegate`` of a ``runtime.DelegateBlob``.
    ``targets``: returns the names of devices with descriptions; by default there is one, named after the backend.
    ``read_spec``: returns the device that a compile spec is for and whether the spec asks for simulation only, or None
    if the spec is not this backend's; its partitioner then has ``for_spec``.
    ``make_spec``: returns the compile spec of a device and options by name, as recipes and the command line have them.
    ``demo_target``: the device of ``edgewright demo``; by default the first.
    ``dialects``: the dialects of its device graphs (``ir/dialect.py``), by the prefix of their kinds.
    ``requirements``: what ``edgewright doctor`` checks.
    ``compat``: its names in ExecuTorch.
    ``disassemble``: the contents of a blob (``runtime.disassembly``); by default its graph or that of its twin.
    ``device_memory``: what a delegate takes of a device without an operating system (``runtime.device_memory``), if
    ExecuTorch's bare-metal runtime can execute it.
    ``device_commands``: what an NPU executes of a blob (``runtime.device_memory``), for object files without a runtime.
    ``layer_bytes``: the constants of a blob by layer (``runtime.layer_bytes``), as iterable of ``LayerBytes``.
    ``cpu_hz``: the clock that is assumed of the CPU beside the device, which runs what the device does not.
    """

    def __init__(
        self, name: str, package: str = "", *, id: str = "", title: str = "", full_title: str = "", summary: str = "",
        order: int = 100, simulates: bool = False, table: Any = "", partitioner: str | type = "",
        quantizer: str | type = "", delegate: str | Callable[[Any], Any] = "", targets: str | Targets = "",
        read_spec: str | Callable[[Any], tuple[str, bool] | None] = "", demo_target: str = "",
        dialects: Mapping[str, str | Dialect] | None = None,
        requirements: str | Sequence[Requirement] = "",
        compat: str | CompatNames = "", disassemble: str | Callable[[Any], Any] = "",
        device_memory: str | Callable[[Any], Any] = "", make_spec: str | Callable[[str, Mapping[str, Any]], Any] = "",
        layer_bytes: str | Callable[[Any], Any] = "", device_commands: str | Callable[[Any], Any] = "",
        cpu_hz: float = 1e9,
    ) -> None:  # fmt: skip
        self.name, self.package, self.id = name, package, id or name
        self.title, self.full_title, self.summary = title or name, full_title or title or name, summary
        self.order, self.simulates = order, simulates
        self.table, self.partitioner, self.quantizer = table, partitioner, quantizer
        self.delegate, self.targets, self.read_spec = delegate, targets, read_spec
        self.demo_target, self.dialects = demo_target, dialects or {}
        self.requirements, self.compat, self.disassemble = requirements, compat, disassemble
        self.device_memory, self.make_spec = device_memory, make_spec
        self.layer_bytes, self.device_commands = layer_bytes, device_commands
        self.cpu_hz = cpu_hz

    def __repr__(self) -> str:
        return f"BackendInfo({self.name!r}, {self.package!r})"

    def load(self, member: str | T, kind: type[T] | None = None) -> T:
        """The object of a member, imported if it is a reference. ``kind``: what it must be an instance of."""
        loaded: Any = self._import(member) if isinstance(member, str) else member
        if kind is not None and not isinstance(loaded, kind):
            rule = f"{member} must be a {kind.__name__}"
            raise UsageError(f"backend {self.name!r}", rule, value=type(loaded).__name__)
        return loaded  # type: ignore[no-any-return]

    def load_function(self, member: str | T) -> T:
        """The function or class of a member."""
        loaded: Any = self.load(member)
        if not callable(loaded):
            raise UsageError(f"backend {self.name!r}", f"{member} must be callable", value=type(loaded).__name__)
        return loaded  # type: ignore[no-any-return]

    def _import(self, reference: str) -> object:
        path, _, name = reference.partition(":")
        if not path or not name:
            remedy = 'Write ".module:name", relative to the package.'
            raise UsageError(f"backend {self.name!r}", "must refer to a name", value=reference, remedy=remedy)
        module = import_module(path, self.package)
        try:
            return getattr(module, name)
        except AttributeError:
            rule = f"must refer to a name that {module.__name__} has"
            raise UsageError(f"backend {self.name!r}", rule, value=reference) from None


# --------------------------------------------------------------------------------------------------------- requirements


class Package:
    """A Python package that a backend needs to compile. ``fix``: the command that installs it.

    ``versions``: supported range, such as ``>=2,<3``; by default Edgewright's own requirement.
    ``simulates``: without the package, files that run on this machine can still be compiled.
    ``detect``: a function that returns the installed version or None, for what is not a Python package.
    ``release``: a function that returns a vendor's release to show after the version, or ''.
    """

    def __init__(
        self, title: str, package: str, module: str, purpose: str, fix: str, *, versions: str = "",
        simulates: bool = False, detect: str | Callable[[], str | None] = "", release: str | Callable[[], str] = "",
    ) -> None:  # fmt: skip
        self.title, self.package, self.module, self.purpose, self.fix = title, package, module, purpose, fix
        self.versions, self.simulates, self.detect, self.release = versions, simulates, detect, release


class Program:
    """A program on ``PATH`` that a backend can use."""

    def __init__(self, name: str, purpose: str, fix: str) -> None:
        self.name, self.purpose, self.fix = name, purpose, fix


class Folder:
    """An environment variable that names a folder. ``files``: what must be in it.

    ``release``: a function of the folder that returns a vendor's release to show after its name, or ''.
    """

    def __init__(
        self, variable: str, files: Sequence[str], purpose: str, fix: str, *, release: str | Callable[[str], str] = ""
    ) -> None:
        self.variable, self.files, self.purpose, self.fix, self.release = variable, files, purpose, fix, release


Requirement = Union[Package, Program, Folder]


# -------------------------------------------------------------------------------------------------- ExecuTorch's names


class CompatNames:
    """Names of ExecuTorch and their equivalents here, read by imports, migration and the docs.

    ``names``: per ExecuTorch module, the names that can be imported from it and the module that has each here
    (``module:name`` where the name differs). A module without names is imported for its side effect, which is not
    needed here. ``absent``: modules, or single names (``module:name``), without a counterpart, and the nearest
    equivalent. An entry of a module applies to its submodules. ``import_only``: absent names that may be imported but
    not used: scripts import them at the top for an option. ``scripts``: packages of scripts and data, not an API; they
    run from ExecuTorch's folder.
    """

    def __init__(
        self, names: Mapping[str, Mapping[str, str]], absent: Mapping[str, str] | None = None,
        import_only: Collection[str] = (), scripts: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self.names, self.absent, self.import_only, self.scripts = names, absent or {}, import_only, scripts


def from_module(module: str, names: str) -> dict[str, str]:
    """Rows of ``CompatNames.names``: every one of ``names``, separated by spaces, is in ``module``."""
    return dict.fromkeys(names.split(), module)
