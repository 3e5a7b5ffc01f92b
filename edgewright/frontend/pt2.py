"""Loads ``.pt2`` files with ``torch.export.load``, with weights memory-mapped."""

from __future__ import annotations

import logging
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch._export.serde.serialize import deserialize_scalar_type
from torch.export import ExportedProgram
from torch.export.pt2_archive import _package

from edgewright.errors import EdgewrightError, FileAccessError, FormatError
from edgewright.files import open_source

log = logging.getLogger("edgewright.frontend")

_HOOK = "_build_file_map"  # the function of torch that reads the weights into memory


def load_pt2(path: str) -> ExportedProgram:
    """``torch.export.load``, with weights that are views of the mapped file.

    torch unpickles parts of such files: load only files that you trust.
    """
    if not Path(path).is_file():
        raise FileAccessError(path, "cannot be opened: no such file", remedy="Check the path and its permissions.")
    try:
        with _mapped_weights(path):
            return torch.export.load(path)
    except EdgewrightError:
        raise
    except Exception as error:
        remedy = "Save it with torch.export.save, of a torch release no newer than the one here."
        raise FormatError(f"torch.export.load cannot read it: {error}", remedy=remedy, file=path) from error


@contextmanager
def _mapped_weights(path: str) -> Iterator[None]:
    """Patch torch to memory-map weights where possible, and to read them otherwise."""
    read = getattr(_package, _HOOK, None)
    if read is None:
        log.info("this torch release reads the weights of a .pt2 into memory")
        yield
        return
    view, _ = open_source(path, "exported program", private=True)
    with zipfile.ZipFile(path) as archive:
        is_compressed = any(item.compress_type != zipfile.ZIP_STORED for item in archive.infolist())
    if not is_compressed:
        setattr(_package, _HOOK, _make_mapper(view, read))
    try:
        yield
    finally:
        setattr(_package, _HOOK, read)


def _make_mapper(
    view: memoryview, read: Callable[..., dict[str, torch.Tensor]]
) -> Callable[..., dict[str, torch.Tensor]]:
    def map_weights(reader: Any, config: Any, folder: str) -> dict[str, torch.Tensor]:
        tensors: dict[str, torch.Tensor] = {}
        for item in config.config.values():
            if item.use_pickle or item.path_name in tensors:
                continue
            tensor = _map_record(view, reader.archive_file, f"{folder}{item.path_name}", item.tensor_meta)
            if tensor is None:
                log.info("weights are read into memory: %s cannot be mapped", item.path_name)
                return read(reader, config, folder)
            tensors[item.path_name] = tensor
        return tensors

    return map_weights


def _map_record(view: memoryview, archive: Any, name: str, meta: Any) -> torch.Tensor | None:
    """A record of the archive as a flat tensor on the mapped file, or None if it is misaligned or out of bounds."""
    dtype = deserialize_scalar_type(meta.dtype)
    size, offset = archive.get_record_size(name), archive.get_record_offset(name)
    inside = offset >= 0 and offset + size <= len(view)
    if not inside or offset % dtype.itemsize or size % dtype.itemsize:
        return None
    data = view[offset : offset + size]
    tensor = torch.frombuffer(data, dtype=dtype) if size else torch.empty(0, dtype=dtype)
    return tensor.requires_grad_(True) if meta.requires_grad else tensor
