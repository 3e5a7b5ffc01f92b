"""Models and data of a sweep as bytes that travel to workers, and digests of their contents."""

from __future__ import annotations

import hashlib
import io
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import fx
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from edgewright.api.data import Call, Samples
from edgewright.backends.info import Package
from edgewright.backends.registry import find_backend
from edgewright.backends.targets import Target
from edgewright.errors import ExportError
from edgewright.frontend.pt2 import load_pt2


def program_digest(exported: ExportedProgram) -> str:
    """A digest of an exported model: its graphs, signature, weights and example inputs."""
    digest = hashlib.sha256()
    for name, module in exported.graph_module.named_modules():
        if isinstance(module, fx.GraphModule):
            digest.update(f"{name}:{module.graph}".encode())
    digest.update(f"{exported.graph_signature}:{exported.range_constraints}".encode())
    _add_leaves(digest, pytree.tree_leaves(exported.example_inputs))
    for name, value in sorted({**exported.state_dict, **exported.constants}.items()):
        digest.update(name.encode())
        _add_leaves(digest, [value])
    return digest.hexdigest()


def samples_digest(samples: Samples) -> str:
    """A digest of inputs and of what they are for."""
    digest = hashlib.sha256(samples.origin.encode())
    for part in (samples.calibration, samples.evaluation):
        digest.update(f"{len(part)} calls".encode())
        for call in part:
            leaves, spec = pytree.tree_flatten((call.args, call.kwargs))
            digest.update(str(spec).encode())
            _add_leaves(digest, leaves)
    return digest.hexdigest()


def _add_leaves(digest: Any, leaves: Iterable[Any]) -> None:
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor):
            flat = leaf.detach().cpu().contiguous().reshape(-1)
            digest.update(f"{leaf.dtype}{tuple(leaf.shape)}".encode())
            digest.update(flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b"")
        else:
            digest.update(repr(leaf).encode())


def save_program(name: str, exported: ExportedProgram) -> bytes:
    """An exported model as the bytes of a ``.pt2``."""
    stream = io.BytesIO()
    try:
        torch.export.save(exported, stream)
    except Exception as error:
        rule = f"torch.export.save cannot write it: {type(error).__name__}: {error}"
        raise ExportError(name, rule, remedy="A sweep sends models to its workers as .pt2 files.") from error
    return stream.getvalue()


def load_program(data: bytes) -> ExportedProgram:
    """A model of its own, with weights in memory."""
    with tempfile.TemporaryDirectory(prefix="edgewright-", ignore_cleanup_errors=True) as folder:
        path = Path(folder) / "model.pt2"
        path.write_bytes(data)
        return load_pt2(str(path))


def save_samples(samples: Samples) -> bytes:
    stream = io.BytesIO()
    parts = {"calibration": samples.calibration, "evaluation": samples.evaluation}
    stored = {name: [(call.args, call.kwargs, call.subject) for call in part] for name, part in parts.items()}
    torch.save({"origin": samples.origin, **stored}, stream)
    return stream.getvalue()


def load_samples(data: bytes) -> Samples:
    stored = torch.load(io.BytesIO(data), weights_only=True)
    parts = [[Call(*call) for call in stored[name]] for name in ("calibration", "evaluation")]
    return Samples(parts[0], parts[1], stored["origin"])


def source_digest(function: Any) -> str:
    """A digest of the file that a function is defined in; of its name, if it has no file."""
    import inspect

    try:
        path = inspect.getsourcefile(function)
    except TypeError:
        path = None
    text = Path(path).read_bytes() if path is not None and Path(path).is_file() else b""
    return hashlib.sha256(text + repr(getattr(function, "__qualname__", "")).encode()).hexdigest()


def compiler_versions(target: Target) -> dict[str, str]:
    """Installed versions of what compiles for a target; for a compiler that is no Python package, what detects it."""
    from importlib.metadata import PackageNotFoundError, version

    from edgewright._version import VERSION

    info = find_backend(target.backend)
    needs = info.load(info.requirements) if info.requirements else ()
    packages = [need for need in needs if isinstance(need, Package)]
    versions = {"edgewright": VERSION, "torch": torch.__version__, "numpy": np.__version__}
    for package in ("torchao", *(need.package for need in packages if not need.detect)):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    detected = {need.title: info.load_function(need.detect)() for need in packages if need.detect}
    return versions | {title: found for title, found in detected.items() if found is not None}
