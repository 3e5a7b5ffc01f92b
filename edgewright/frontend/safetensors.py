"""Loads weights from a ``.safetensors`` file into a model: memory-mapped, validated, without copies."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Union

import torch
from torch.export import ExportedProgram

from edgewright.errors import FormatError, UsageError
from edgewright.files import Source, open_source
from edgewright.formats.safetensors import SafetensorsEntry, read_entries

log = logging.getLogger("edgewright.frontend")

DTYPES = {
    "BOOL": torch.bool, "U8": torch.uint8, "I8": torch.int8, "U16": torch.uint16, "I16": torch.int16,
    "U32": torch.uint32, "I32": torch.int32, "U64": torch.uint64, "I64": torch.int64, "F16": torch.float16,
    "BF16": torch.bfloat16, "F32": torch.float32, "F64": torch.float64, "F8_E5M2": torch.float8_e5m2,
    "F8_E4M3": torch.float8_e4m3fn, "C64": torch.complex64,
}  # fmt: skip
_MAX_LISTED = 5

Model = Union[torch.nn.Module, ExportedProgram]


def read_weights(source: Source) -> dict[str, torch.Tensor]:
    """The tensors of a ``.safetensors`` file by name: views of the file, mapped copy-on-write."""
    view, name = open_source(source, "weights", private=True)
    try:
        start, entries = read_entries(view)
        return {key: _tensor(view, start, entry) for key, entry in entries.items()}
    except FormatError as error:
        error.file = name
        raise


def _tensor(view: memoryview, start: int, entry: SafetensorsEntry) -> torch.Tensor:
    size, dtype = entry.end - entry.begin, DTYPES[entry.dtype]
    if not size:
        return torch.empty(entry.shape, dtype=dtype)
    at = start + entry.begin
    data = view[at : at + size]
    if view.readonly or at % dtype.itemsize:  # not writable, or misaligned
        data = memoryview(bytearray(data))
    return torch.frombuffer(data, dtype=dtype).reshape(entry.shape)


def load_weights(model: Model, source: Source) -> None:
    """Load the weights of a ``.safetensors`` file into a model, by name, as views of the mapped file.

    A model created on ``torch.device("meta")`` never allocates memory for its weights.
    """
    weights = read_weights(source)
    expected = model.state_dict if isinstance(model, ExportedProgram) else model.state_dict()
    _tie_weights(model, weights)
    _check_names(expected, weights)
    for name, tensor in weights.items():
        if tensor.dtype != expected[name].dtype:
            log.info("%s: converted from %s to the model's %s", name, tensor.dtype, expected[name].dtype)
            weights[name] = tensor.to(expected[name].dtype)
    if isinstance(model, ExportedProgram):
        expected.update({n: _as_parameter(weights[n], expected[n]) for n in expected})
    else:
        model.load_state_dict(weights, assign=True)


def _as_parameter(tensor: torch.Tensor, old: torch.Tensor) -> torch.Tensor:
    return torch.nn.Parameter(tensor, old.requires_grad) if isinstance(old, torch.nn.Parameter) else tensor


def _tie_weights(model: Model, weights: dict[str, torch.Tensor]) -> None:
    """Bind every name of a tied parameter: the file stores it under one of them."""
    if isinstance(model, ExportedProgram):
        return
    by_tensor: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        by_tensor.setdefault(id(parameter), []).append(name)
    for names in by_tensor.values():
        stored = [name for name in names if name in weights]
        for name in names if stored else ():
            weights.setdefault(name, weights[stored[0]])


def _check_names(expected: Mapping[str, torch.Tensor], weights: Mapping[str, torch.Tensor]) -> None:
    missing, unknown = sorted(set(expected) - set(weights)), sorted(set(weights) - set(expected))
    for names, rule in ((missing, "must contain every weight of the model; these are missing"),
                        (unknown, "must contain weights of the model only; these are not the model's")):  # fmt: skip
        if names:
            more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
            raise UsageError("weights", rule, value=", ".join(names[:_MAX_LISTED]) + more)
    for name, tensor in expected.items():
        if tensor.shape != weights[name].shape:
            rule = f"must have the model's shape {list(tensor.shape)}"
            raise UsageError(f"weight {name!r}", rule, value=list(weights[name].shape))
