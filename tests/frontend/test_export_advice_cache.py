"""What a model of transformers returns besides tensors."""

from __future__ import annotations

import pytest
import torch

from edgewright.errors import ExportError
from edgewright.frontend.export import export


class DynamicCache:
    """Like the cache of transformers: an object that torch.export does not know."""


class Decoder(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, DynamicCache]:
        return x + 1, DynamicCache()


def test_a_cache_in_the_outputs_names_the_remedies() -> None:
    with pytest.raises(ExportError, match=r"(?s)returns its cache.*use_cache=False.*StaticCache.*huggingface.md"):
        export(Decoder(), (torch.ones(2),))
