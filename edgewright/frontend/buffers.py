"""Buffers of exported programs: state that running a program writes to."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch.export import ExportedProgram


@contextlib.contextmanager
def preserve_buffers(exported: ExportedProgram) -> Iterator[None]:
    """Restore a model's buffers on exit: modules of one exported program share them, and running writes to them."""
    before = [(buffer, buffer.clone()) for _, buffer in exported.named_buffers()]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, content in before:
                buffer.copy_(content)
