"""``package.module:factory``: the model a user names, with its example inputs."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram

from edgewright.errors import UsageError
from edgewright.frontend.origin import is_library
from edgewright.frontend.pt2 import load_pt2
from edgewright.hints import did_you_mean

_FORMS = "an nn.Module with example_inputs, (module, inputs), (module, inputs, dynamic_shapes) or an ExportedProgram"


@dataclass
class Spec:
    """What to compile: a module and examples of its inputs, or a program that was exported before."""

    module: torch.nn.Module | None = None
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    dynamic_shapes: Any = None
    exported: ExportedProgram | None = None

    @property
    def model(self) -> torch.nn.Module | ExportedProgram:
        model = self.module if self.module is not None else self.exported
        assert model is not None
        return model


def load_spec(text: str) -> Spec:
    """The model that ``text`` names: ``package.module:factory`` looked up from this folder, or a ``.pt2`` file."""
    if text.endswith(".pt2"):
        return Spec(exported=load_pt2(text))
    return _understood(text, _made(text, load_object(text, "package.module:factory, or a .pt2 file")))


def load_object(text: str, form: str = "package.module:name") -> Any:
    """What ``package.module:name`` names, looked up from this folder."""
    module, colon, name = text.partition(":")
    if not colon or not name or not all(part.isidentifier() for part in module.split(".")):
        raise UsageError(text, f"must be {form}", remedy=_spelled(text))
    return _lookup(text, _imported(text, module), name)


def _spelled(text: str) -> str:
    """How a file of Python, or a module alone, is named with what is in it."""
    path, _, name = text.partition(":")
    parts = Path(path.removesuffix(".py")).parts
    if not parts or not all(part.isidentifier() for part in parts):
        return ""
    module = ".".join(parts)
    return f"Write {module}:{name}." if name else f"Write {module}:NAME, with the name of what is in it."


def _imported(text: str, name: str) -> Any:
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    importlib.invalidate_caches()
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            remedy = f"It is looked up from {here}, then where Python looks."
            raise UsageError(text, f"there is no module {error.name!r}", remedy=remedy) from error
        raise _failed(text, error) from error
    except Exception as error:
        raise _failed(text, error) from error


def _lookup(text: str, module: Any, name: str) -> Any:
    found = module
    for part in name.split("."):
        if not hasattr(found, part):
            public = [n for n in dir(found) if not n.startswith("_")]
            raise UsageError(text, f"module {module.__name__!r} has no {name!r}", remedy=did_you_mean(part, public))
        found = getattr(found, part)
    return found


def _made(text: str, found: Any) -> Any:
    """The result of a factory; anything else stands for itself."""
    if isinstance(found, torch.nn.Module | ExportedProgram) or not callable(found):
        return found
    try:
        return found()
    except Exception as error:
        raise _failed(text, error) from error


def _failed(text: str, error: Exception) -> UsageError:
    """Code of the user's that raised, with the line it did so at."""
    raised = traceback.extract_tb(error.__traceback__)[1:]
    own = [f for f in raised if not is_library(f.filename)]
    line = f"{own[-1].filename}:{own[-1].lineno}: {own[-1].line}" if own else ""
    return UsageError(text, f"raised {type(error).__name__}: {error}", remedy=f"From {line}" if line else "")


def _understood(text: str, made: Any) -> Spec:
    if isinstance(made, ExportedProgram):
        return Spec(exported=made)
    parts = made if isinstance(made, tuple) else _from_attributes(text, made)
    if not 2 <= len(parts) <= 3 or not isinstance(parts[0], torch.nn.Module):
        raise UsageError(text, f"must give {_FORMS}", value=type(made).__name__)
    args, kwargs = _arguments(parts[1])
    return Spec(parts[0], args, kwargs, parts[2] if len(parts) == 3 else None)


def _from_attributes(text: str, module: Any) -> tuple[Any, ...]:
    """A module that brings its own example inputs, as values or as methods."""
    if not isinstance(module, torch.nn.Module):
        return ()
    found = []
    for name in ("example_inputs", "dynamic_shapes"):
        value = getattr(module, name, None)
        try:
            found.append(value() if callable(value) else value)
        except Exception as error:
            raise _failed(f"{text}: {name}", error) from error
    if found[0] is None:
        remedy = "Give it an attribute or method example_inputs, or return (module, inputs)."
        raise UsageError(text, "needs example inputs", value=type(module).__name__, remedy=remedy)
    return module, *found


def _arguments(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A tuple of inputs, a single one, or a dict of them by name."""
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    return (tuple(inputs), {}) if isinstance(inputs, tuple | list) else ((inputs,), {})
