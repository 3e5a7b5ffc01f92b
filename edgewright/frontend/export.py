"""``export``: torch.export with errors that point at the user's source line and suggest a rewrite."""

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
from edgewright.frontend.buffers import require_buffers
from edgewright.frontend.export_advice import advise
from edgewright.frontend.input_types import type_remedy
from edgewright.frontend.mutation import written_names
from edgewright.frontend.origin import is_library, parse_frames, source_line

log = logging.getLogger("edgewright.frontend")

_CHECK_INPUTS = (
    "Check that the model runs on these inputs without export; EDGEWRIGHT_LOG=debug shows torch's full output."
)
_ASSIGNED_ATTRIBUTES = re.compile(r"The tensor attributes? (?P<names>.+?) (was|were) assigned during export")


def export(
    module: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    strict: bool = False,
) -> ExportedProgram:
    """``torch.export.export``; failures become an ``ExportError`` with the user's source line and a suggested rewrite.

    >>> import torch
    >>> export(torch.nn.ReLU(), (torch.ones(2),)).graph_signature.user_outputs
    ('relu',)
    """
    tensors = _plain_tensors(module)
    with warnings.catch_warnings(record=True) as caught, _buffered_stderr() as noise:
        warnings.simplefilter("always")
        try:
            exported = torch.export.export(
                module, args, dict(kwargs or {}), dynamic_shapes=dynamic_shapes, strict=strict
            )
        except Exception as error:
            log.debug("torch said:\n%s", noise.getvalue())
            noise.truncate(0)
            raise _translate_error(error, module, (args, kwargs)) from error
    for warning in caught:
        _check_state(str(warning.message), module, tensors)
        log.debug("torch warned: %s", warning.message)
    require_buffers(exported)
    _check_buffers(exported)
    _report_written_inputs(exported)
    return exported


@contextlib.contextmanager
def _buffered_stderr() -> Iterator[io.StringIO]:
    """Buffer what torch and the model write to stderr, and write what remains in the buffer at exit.

    On failure torch prints graphs and stacks there, which would bury the error message.
    """
    buffer = io.StringIO()

    def capture(record: logging.LogRecord) -> bool:
        buffer.write(record.getMessage() + "\n")
        return False

    loggers = [logging.getLogger(name) for name in list(logging.root.manager.loggerDict) if name.startswith("torch")]
    handlers = {h for logger in loggers for h in logger.handlers if type(h) is logging.StreamHandler}
    for handler in handlers:
        handler.addFilter(capture)
    try:
        with contextlib.redirect_stderr(buffer):
            yield buffer
    finally:
        for handler in handlers:
            handler.removeFilter(capture)
        sys.stderr.write(buffer.getvalue())


def _translate_error(error: Exception, module: Any, inputs: Any) -> ExportError:
    """The ``ExportError`` for a failure of torch.export."""
    message = f"{type(error).__name__}: {error}"
    frame = _user_frame(error)
    subject = f"{frame[0]}:{frame[1]}: {frame[2]}".rstrip(": ") if frame else _definition(module)
    advice = advise(message, frame[2] if frame else "")
    if advice is not None:
        return ExportError(subject, advice[0], remedy=advice[1])
    first = str(error).strip().split("\n")[0] or type(error).__name__
    remedy = type_remedy(message, module, inputs) or _CHECK_INPUTS
    return ExportError(subject, f"cannot be captured: {type(error).__name__}: {first}", remedy=remedy)


def _user_frame(error: BaseException) -> tuple[str, int, str] | None:
    """The innermost frame of the user's code: from the traceback, or from the stack in torch's message."""
    raised = traceback.extract_tb(error.__traceback__)[1:]  # without the frame that called torch
    user_frames = [(f.filename, f.lineno or 0, f.line or "") for f in raised if not is_library(f.filename)]
    if not user_frames:
        printed = [f for f in parse_frames(str(error)) if not is_library(f[0])]
        user_frames = [(file, line, code or linecache.getline(file, line)) for file, line, _, code in printed]
    return (user_frames[-1][0], user_frames[-1][1], user_frames[-1][2].strip()) if user_frames else None


def _definition(module: Any) -> str:
    """A module's class name, with the source line of its forward."""
    kind = type(module)
    name = kind.__name__
    with contextlib.suppress(OSError, TypeError, AttributeError):
        forward = inspect.unwrap(kind.forward if isinstance(module, torch.nn.Module) else module)
        file, line = inspect.getsourcefile(forward), inspect.getsourcelines(forward)[1]
        if file and not is_library(file):
            return f"{file}:{line}: {name}.{forward.__name__}" if forward.__name__ != "<lambda>" else f"{file}:{line}"
    return name


def _plain_tensors(module: Any) -> set[str]:
    """Tensor attributes of a model that are neither parameters nor buffers."""
    modules = module.named_modules() if isinstance(module, torch.nn.Module) else ()
    return {
        ".".join(filter(None, ("self", path, name)))
        for path, part in modules
        for name, value in vars(part).items()
        if isinstance(value, torch.Tensor)
    }


def _recomputed_attributes(module: Any) -> set[str]:
    """Attributes that torch itself assigns; none of them is state.

    The hook-based weight and spectral norms recompute a weight before every call. Recurrent layers keep a second list
    of their weights, which changes when export swaps parameters.
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
    """Raise if forward changes state that torch.export drops: every call would start from the initial state."""
    if "side effects happened" in warning:  # strict mode reports no names
        log.warning("forward changes something besides buffers (strict export does not say what): calls do not see it")
    match = _ASSIGNED_ATTRIBUTES.search(warning)
    for name in dict.fromkeys(re.findall(r"self\.[\w.]+", match["names"] if match else "")):
        if name in _recomputed_attributes(module):
            continue
        remedy = f"Make it a buffer, register_buffer({name.rpartition('.')[2]!r}, ...), and write to it with copy_."
        if name in tensors:
            raise ExportError(f"{_definition(module)}: {name}", "is a tensor that forward assigns", remedy=remedy)
        log.warning("%s is assigned in forward and is not preserved between calls. %s", name, remedy)


def _report_written_inputs(exported: ExportedProgram) -> None:
    """Warn of inputs that forward writes in place: later layers read the new contents, the caller's tensor has the old
    ones. On devices, inputs are copied; whether a runtime writes back depends on who owns the memory."""
    written = written_names(exported.graph.nodes)
    for name in exported.graph_signature.user_inputs:
        if name in written:
            remedy = "Return the new contents as an output, or make it a buffer."
            log.warning("input %r is written in place: callers do not see it after a call. %s", name, remedy)


def _check_buffers(exported: ExportedProgram) -> None:
    """Raise if a buffer would change its shape: memory on a device is planned once."""
    buffers = {s.arg.name: s.target for s in exported.graph_signature.input_specs if s.kind == InputKind.BUFFER}
    for node in exported.graph.nodes:
        if node.target is not torch.ops.aten.copy_.default or node.args[0].name not in buffers:
            continue
        old, new = (list(arg.meta["val"].shape) for arg in node.args[:2])
        if not _is_broadcastable(new, old):
            line = source_line(node) or source_line(node.args[1])
            subject = ": ".join(filter(None, (line, f"buffer {buffers[node.args[0].name]!r}")))
            remedy = "Give the buffer its largest shape, and write to a part of it: buffer[:, n] = x."
            raise ExportError(subject, f"must keep its shape {old}", value=new, remedy=remedy)


def _is_broadcastable(new: list[Any], old: list[Any]) -> bool:
    """True if shape ``new`` broadcasts to ``old``. Dynamic sizes are not compared: that would add guards."""
    pairs = zip(reversed(new), reversed(old), strict=False)
    static = [(n, o) for n, o in pairs if isinstance(n, int) and isinstance(o, int)]
    return len(new) <= len(old) and all(n in (1, o) for n, o in static)
