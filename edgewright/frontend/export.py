"""``export``: torch.export, with failures told in terms of the user's own line and the usual rewrite."""

from __future__ import annotations

import contextlib
import inspect
import io
import linecache
import logging
import re
import sys
import traceback
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from edgewright.errors import ExportError
from edgewright.frontend.export_advice import advise
from edgewright.frontend.origin import is_library, parse_frames, source_line
from edgewright.frontend.plain_tensors import require_buffers

log = logging.getLogger("edgewright.frontend")

_ASSIGNED = re.compile(r"The tensor attributes? (?P<names>.+?) (was|were) assigned during export")


def export(
    module: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    strict: bool = False,
) -> ExportedProgram:
    """``torch.export.export``; what it cannot capture is an ``ExportError`` that names the line and the rewrite.

    >>> import torch
    >>> export(torch.nn.ReLU(), (torch.ones(2),)).graph_signature.user_outputs
    ('relu',)
    """
    tensors = _plain_tensors(module)
    with warnings.catch_warnings(record=True) as caught, _held_back() as noise:
        warnings.simplefilter("always")
        try:
            exported = torch.export.export(
                module, args, dict(kwargs or {}), dynamic_shapes=dynamic_shapes, strict=strict
            )
        except Exception as error:
            log.debug("torch said:\n%s", noise.getvalue())
            noise.truncate(0)
            raise _told(error, module) from error
    for warning in caught:
        _check_state(str(warning.message), module, tensors)
        log.debug("torch warned: %s", warning.message)
    require_buffers(exported)
    _check_buffers(exported)
    return exported


@contextlib.contextmanager
def _held_back() -> Iterator[io.StringIO]:
    """Keep what torch and the model write to stderr; what is left in the buffer is shown in the end.

    On failure torch prints graphs and stacks of its own there, which would bury the message.
    """
    held = io.StringIO()

    def hold(record: logging.LogRecord) -> bool:
        held.write(record.getMessage() + "\n")
        return False

    loggers = [logging.getLogger(name) for name in list(logging.root.manager.loggerDict) if name.startswith("torch")]
    handlers = {h for logger in loggers for h in logger.handlers if type(h) is logging.StreamHandler}
    for handler in handlers:
        handler.addFilter(hold)
    try:
        with contextlib.redirect_stderr(held):
            yield held
    finally:
        for handler in handlers:
            handler.removeFilter(hold)
        sys.stderr.write(held.getvalue())


def _told(error: Exception, module: Any) -> ExportError:
    """The error in our words."""
    message = f"{type(error).__name__}: {error}"
    own = _own_frame(error)
    subject = f"{own[0]}:{own[1]}: {own[2]}".rstrip(": ") if own else _defined(module)
    known = advise(message, own[2] if own else "")
    if known is not None:
        return ExportError(subject, known[0], remedy=known[1])
    first = str(error).strip().split("\n")[0] or type(error).__name__
    remedy = "See that the model runs on these inputs without export; EDGEWRIGHT_LOG=debug shows all torch says."
    return ExportError(subject, f"cannot be captured: {type(error).__name__}: {first}", remedy=remedy)


def _own_frame(error: BaseException) -> tuple[str, int, str] | None:
    """The innermost line of the user's code: from the traceback, or from the stack torch put in its message."""
    raised = traceback.extract_tb(error.__traceback__)[1:]  # without the frame that called torch
    own = [(f.filename, f.lineno or 0, f.line or "") for f in raised if not is_library(f.filename)]
    if not own:
        found = [f for f in parse_frames(str(error)) if not is_library(f[0])]
        own = [(file, line, code or linecache.getline(file, line)) for file, line, _, code in found]
    return (own[-1][0], own[-1][1], own[-1][2].strip()) if own else None


def _defined(module: Any) -> str:
    """A module by its class, and where its forward is written."""
    kind = type(module)
    name = kind.__name__
    with contextlib.suppress(OSError, TypeError, AttributeError):
        forward = inspect.unwrap(kind.forward if isinstance(module, torch.nn.Module) else module)
        file, line = inspect.getsourcefile(forward), inspect.getsourcelines(forward)[1]
        if file and not is_library(file):
            return f"{file}:{line}: {name}.{forward.__name__}" if forward.__name__ != "<lambda>" else f"{file}:{line}"
    return name


def _plain_tensors(module: Any) -> set[str]:
    """Tensors that are attributes of a model, but neither parameters nor buffers."""
    modules = module.named_modules() if isinstance(module, torch.nn.Module) else ()
    return {
        ".".join(filter(None, ("self", path, name)))
        for path, part in modules
        for name, value in vars(part).items()
        if isinstance(value, torch.Tensor)
    }


def _recomputed(module: Any) -> set[str]:
    """Attributes that torch itself assigns, none of which is state.

    Its older weight and spectral norms compute a weight anew before every call. Its recurrent layers list their weights
    a second time, and the list follows when export exchanges parameters.
    """
    modules = list(module.named_modules()) if isinstance(module, torch.nn.Module) else []
    names = [
        (path, hook.name)
        for path, part in modules
        for hook in part._forward_pre_hooks.values()
        if isinstance(hook, WeightNorm | SpectralNorm)
    ]
    names += [(path, "_flat_weights") for path, part in modules if isinstance(part, torch.nn.RNNBase)]
    return {".".join(filter(None, ("self", *name))) for name in names}


def _check_state(warning: str, module: torch.nn.Module, tensors: set[str]) -> None:
    """Raise if state was changed that torch.export drops: the program would go on from the old one for ever."""
    if "side effects happened" in warning:  # all that strict mode says of it
        log.warning("forward changes things outside it, which will not be kept between calls; use buffers for state")
    found = _ASSIGNED.search(warning)
    for name in dict.fromkeys(re.findall(r"self\.[\w.]+", found["names"] if found else "")):
        if name in _recomputed(module):
            continue
        remedy = f"Make it a buffer, register_buffer({name.rpartition('.')[2]!r}, ...), and write to it with copy_."
        if name in tensors:
            raise ExportError(f"{_defined(module)}: {name}", "is a tensor that forward assigns", remedy=remedy)
        log.warning("%s is assigned in forward and will not be kept between calls. %s", name, remedy)


def _check_buffers(exported: ExportedProgram) -> None:
    """Raise if a buffer would change its shape or type: memory on a device is planned once."""
    buffers = {s.arg.name: s.target for s in exported.graph_signature.input_specs if s.kind == InputKind.BUFFER}
    for node in exported.graph.nodes:
        if node.target is not torch.ops.aten.copy_.default or node.args[0].name not in buffers:
            continue
        old, new = (list(arg.meta["val"].shape) for arg in node.args[:2])
        if not _spreads(new, old):
            line = source_line(node) or source_line(node.args[1])
            subject = ": ".join(filter(None, (line, f"buffer {buffers[node.args[0].name]!r}")))
            remedy = "Give the buffer its largest shape, and write to a part of it: buffer[:, n] = x."
            raise ExportError(subject, f"must keep its shape {old}", value=new, remedy=remedy)


def _spreads(new: list[Any], old: list[Any]) -> bool:
    """True if a tensor can be copied into another. Sizes that vary were compared by torch; asking again adds guards."""
    pairs = zip(reversed(new), reversed(old), strict=False)
    known = [(n, o) for n, o in pairs if isinstance(n, int) and isinstance(o, int)]
    return len(new) <= len(old) and all(n in (1, o) for n, o in known)
