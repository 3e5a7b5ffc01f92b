"""A model of the zoo: a module, and inputs it can be called with."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

Call = tuple[Any, ...]
Draw = Callable[[torch.Generator], Call]


class ModelError(Exception):
    """The model itself cannot be built or called in eager torch: nothing that a compiler could be asked for."""


@dataclass
class Network:
    module: nn.Module
    calls: Sequence[Call]  # the first is the example
    note: str = ""  # the input's size, where a rule chose it


def run_eager(module: nn.Module, call: Call) -> list[Any]:
    with torch.no_grad():
        return list(pytree.tree_leaves(module(*call)))


def draw_calls(name: str, draw: Draw, count: int = 4) -> list[Call]:
    """The same inputs in every run."""
    random = torch.Generator().manual_seed(seed_of(name))
    return [draw(random) for _ in range(count)]


def seed_of(name: str) -> int:
    return zlib.crc32(name.encode())


def images(*shape: int) -> Draw:
    """Images: smooth, in about [-2, 2], as normalized photographs are."""

    def draw(random: torch.Generator) -> Call:
        return (image(shape, random),)

    return draw


def image(shape: Sequence[int], random: torch.Generator) -> torch.Tensor:
    coarse = torch.randn(*shape[:-2], max(2, shape[-2] // 8), max(2, shape[-1] // 8), generator=random)
    flat = coarse.reshape(1, -1, *coarse.shape[-2:])
    smooth = nn.functional.interpolate(flat, size=tuple(shape[-2:]), mode="bilinear").reshape(shape)
    return smooth + 0.2 * torch.randn(shape, generator=random)


class TensorOutputs(nn.Module):
    """A module that returns a tuple of the tensors among what the model returns; ``only`` the first few."""

    def __init__(self, model: nn.Module, names: Sequence[str] = (), only: int | None = None, **fixed: Any) -> None:
        super().__init__()
        self.model = model
        self.names = list(names)
        self.only = only
        self.fixed = fixed

    def forward(self, *args: Any) -> Any:
        if self.names:
            made = self.model(**dict(zip(self.names, args, strict=True)), **self.fixed)
        else:
            made = self.model(*args, **self.fixed)
        if isinstance(made, Mapping):
            made = list(made.values())
        leaves = [x for x in pytree.tree_leaves(made) if isinstance(x, torch.Tensor)]
        return tuple(leaves[: self.only])


class _EmptyOnMeta(TorchFunctionMode):
    """Parameters are made by ``torch.empty``: without memory, while what constructors compute with has its values."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func is torch.empty:
            kwargs["device"] = "meta"
        return func(*args, **kwargs)


def count_parameters(create: Callable[[], nn.Module]) -> int:
    """How many parameters a model has; without making them, if its constructor does not compute with them."""
    try:
        with _EmptyOnMeta():
            model = create()
    except (NotImplementedError, RuntimeError):
        model = create()
    return sum(p.numel() for p in model.parameters())
