"""Networks with fewer of their equal blocks: ``torchvision/vit_h_14@2`` has two of 32.

The complete ones need more time or memory than the zoo's machines have. What is left has every operator and width of
the architecture, so that its name is judged; what grows with the depth alone is not.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from torch import nn

MARK = "@"
NAMES = (
    "timm/deepseek_vit_412m@2",
    "timm/deepseek_vit_412m_align@2",
    "torchvision/vit_h_14@2",
    "torchvision/regnet_y_128gf@2",
)


def shorten(module: nn.Module, count: int) -> str:
    """Keep the first ``count`` of blocks that follow each other and are equal but for their values; returns how many of
    them are left, as the row says."""
    left = total = 0
    for blocks in list(_lists(module)):
        kept = [index < count for run in _runs(blocks) for index in range(len(run))]
        total, left = total + len(kept), left + sum(kept)
        for index in reversed(range(len(kept))):  # a list renumbers what is behind
            if not kept[index]:
                del blocks[index]
    return f"{left} of {total} blocks"


def _lists(module: nn.Module) -> Iterator[Any]:
    """Lists with several equal blocks in a row, and others of the same kind; not those inside of blocks."""
    if isinstance(module, nn.Sequential | nn.ModuleList) and any(len(run) > 1 for run in _runs(module)):
        yield module
        return
    for child in module.children():
        yield from _lists(child)


def _runs(blocks: nn.Module) -> list[list[str]]:
    """Names of children that follow each other and are equal."""
    return [list(run) for _, run in groupby(blocks._modules, lambda name: _shape(blocks._modules[name]))]


def _shape(block: Any) -> Any:
    """What equal blocks have in common: their text, which has sizes and options, and the shapes of their values.
    Modules without values are no blocks."""
    shapes = {name: tuple(value.shape) for name, value in block.state_dict().items()}
    return (str(block), tuple(shapes.items())) if shapes else id(block)
