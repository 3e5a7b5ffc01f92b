"""``executorch.exir.dialects._ops.ops``: operators by dialect. Edgewright uses torch's own for all dialects."""

from __future__ import annotations

from typing import Any

import torch


class _Ops:
    """``ops.edge.aten.add.Tensor`` and ``ops.aten.add.Tensor`` are ``torch.ops.aten.add.Tensor``."""

    @property
    def edge(self) -> Any:
        return torch.ops

    backend = edge

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.ops, name)


ops = _Ops()
