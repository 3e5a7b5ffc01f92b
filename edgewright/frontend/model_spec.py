"""Loads the model that a user names as ``package.module:factory`` or a ``.pt2`` file, with its example inputs."""

from __future__ import annotations

import importlib
import inspect
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

_ACCEPTED = "an nn.Module with example_inputs, (module, inputs), (module, inputs, dynamic_shapes) or an ExportedProgram"


_MODEL = "model"
_A_FUNCTION = "Write a function that returns (module, inputs), and name it: net:make for make in net.py"
_COMPILED = "It is compiled already: `edgewright run`, `profile`, `report` and `inspect` read it."
_WEIGHTS = f"Weights alone are no model. {_A_FUNCTION}; load them there."
# What else people have, by the ending of its name.
_OTHER_FILES = {
    ".pte": _COMPILED,
    ".bpte": _COMPILED,
    ".pt": _WEIGHTS,
    ".pth": _WEIGHTS,
    ".bin": _WEIGHTS,
    ".safetensors": _WEIGHTS,
    ".gguf": "Language models have a command of their own: edgewright llm compile m.gguf -o m.pte.",
    ".onnx": f"Only PyTorch models are compiled, not what they were converted to. {_A_FUNCTION}.",
    ".tflite": f"Only PyTorch models are compiled, not what they were converted to. {_A_FUNCTION}.",
}


@dataclass
class ModelSpec:
    """What to compile: a module and example inputs, or an exported program."""

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


def load_spec(text: str) -> ModelSpec:
    """The model that ``text`` names: ``package.module:factory``, looked up in the working directory, or a ``.pt2``."""
    if text.endswith(".pt2"):
        return ModelSpec(exported=load_pt2(text))
    return _parse_model(text, _call_factory(text, load_object(text, "package.module:factory, or a .pt2 file", _MODEL)))


def load_object(text: str, syntax: str = "package.module:name", kind: str = "function") -> Any:
    """The object that ``package.module:name`` names, looked up from the working directory. ``kind``: what it should be,
    for errors."""
    module, colon, name = text.partition(":")
    is_file = module.endswith(".py") and Path(module).is_file()  # not the module py of a package
    if not colon or not name or is_file or not all(part.isidentifier() for part in module.split(".")):
        remedy = _model_hint(text) if kind == _MODEL else _spelling_hint(text, kind)
        raise UsageError(text, f"must be {syntax}", remedy=remedy)
    return _lookup(text, _import_module(text, module), name)


def _model_hint(text: str) -> str:
    """The remedy for what names no model: a file that is none of PyTorch's, a name on a hub, a wrong spelling."""
    if remedy := _OTHER_FILES.get(Path(text).suffix.lower()):
        return remedy
    path = text.partition(":")[0]
    spelling = _spelling_hint(text, _MODEL)
    if spelling and len(Path(path).parts) > 1 and not path.endswith(".py") and not Path(path).exists():
        return f"{_A_FUNCTION}, with from_pretrained for a model of Hugging Face."
    return spelling or f"{_A_FUNCTION}."


def _spelling_hint(text: str, kind: str) -> str:
    """The remedy for a Python file, or a module without a name in it; empty for other texts."""
    path, _, name = text.partition(":")
    parts = Path(path.removesuffix(".py")).parts
    if not parts or not all(part.isidentifier() for part in parts):
        return ""
    module = ".".join(parts)
    return f"Write {module}:{name}." if name else f"Write {module}:NAME, with the name of the {kind} in it."


def _import_module(text: str, name: str) -> Any:
    working_dir = os.getcwd()
    if working_dir not in sys.path:
        sys.path.insert(0, working_dir)
    importlib.invalidate_caches()
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            folder = Path(working_dir, *name.split(".")[:-1])
            near = [path.stem for path in folder.iterdir() if path.suffix in ("", ".py")] if folder.is_dir() else []
            hint = did_you_mean(name, [".".join((*name.split(".")[:-1], stem)) for stem in near])
            remedy = f"{hint} It is looked up in {working_dir}, then in Python's module search path.".lstrip()
            raise UsageError(text, f"there is no module {error.name!r}", remedy=remedy) from error
        raise _user_error(text, error) from error
    except Exception as error:
        raise _user_error(text, error) from error


def _lookup(text: str, module: Any, name: str) -> Any:
    object_ = module
    for part in name.split("."):
        if not hasattr(object_, part):
            public = [n for n in dir(object_) if not n.startswith("_")]
            raise UsageError(text, f"module {module.__name__!r} has no {name!r}", remedy=did_you_mean(part, public))
        object_ = getattr(object_, part)
    return object_


def _call_factory(text: str, factory: Any) -> Any:
    """The result of a factory; a module or a program is returned unchanged."""
    if isinstance(factory, torch.nn.Module | ExportedProgram) or not callable(factory):
        return factory
    if needed := _required_arguments(factory):
        remedy = "Name a function without arguments that returns (module, inputs)."
        raise UsageError(text, "must be callable without arguments", value=", ".join(needed), remedy=remedy)
    try:
        return factory()
    except Exception as error:
        raise _user_error(text, error) from error


def _required_arguments(factory: Any) -> list[str]:
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):  # written in C
        return []
    return [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]


def _user_error(text: str, error: Exception) -> UsageError:
    """The error for user code that raised, with the line."""
    raised = traceback.extract_tb(error.__traceback__)[1:]
    user_frames = [f for f in raised if not is_library(f.filename)]
    line = f"{user_frames[-1].filename}:{user_frames[-1].lineno}: {user_frames[-1].line}" if user_frames else ""
    return UsageError(text, f"raised {type(error).__name__}: {error}", remedy=f"From {line}" if line else "")


def _parse_model(text: str, model: Any) -> ModelSpec:
    if isinstance(model, ExportedProgram):
        return ModelSpec(exported=model)
    parts = model if isinstance(model, tuple) else _from_attributes(text, model)
    if not 2 <= len(parts) <= 3 or not isinstance(parts[0], torch.nn.Module):
        raise UsageError(text, f"must return {_ACCEPTED}", value=type(model).__name__)
    args, kwargs = _arguments(parts[1])
    return ModelSpec(parts[0], args, kwargs, parts[2] if len(parts) == 3 else None)


def _from_attributes(text: str, module: Any) -> tuple[Any, ...]:
    """The example inputs and dynamic shapes that a module defines as attributes or methods."""
    if not isinstance(module, torch.nn.Module):
        return ()
    values = []
    for name in ("example_inputs", "dynamic_shapes"):
        value = getattr(module, name, None)
        try:
            values.append(value() if callable(value) else value)
        except Exception as error:
            raise _user_error(f"{text}: {name}", error) from error
    if values[0] is None:
        remedy = "Define an attribute or method example_inputs, or return (module, inputs)."
        raise UsageError(text, "needs example inputs", value=type(module).__name__, remedy=remedy)
    return module, *values


def _arguments(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments, from a tuple of inputs, a single input, or a dict of them by name."""
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    return (tuple(inputs), {}) if isinstance(inputs, tuple | list) else ((inputs,), {})
