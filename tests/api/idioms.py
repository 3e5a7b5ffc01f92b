"""What published transformers, vision models and speech models are written with: small modules, one idiom each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn


@dataclass(frozen=True)
class Idiom:
    """A module and its inputs. ``default``: what is compiled in every run, as ``target/preset``; all else is slow.

    ``wrong``: settings that give wrong results today, and why. ``shapes``: dynamic shapes, as ``torch.export`` takes
    them. ``exact``: how far a float32 result may be from eager torch's, relative to its largest number.
    ``margin``: decibels that integers may cost beside what quantization itself does; 6 are twice its amplitude.
    """

    module: Callable[[], nn.Module]
    inputs: Callable[[], tuple[Any, ...]]
    default: tuple[str, ...] = ("xnnpack/float",)
    shapes: Any = None
    exact: float = 1e-5
    wrong: Mapping[str, str] = field(default_factory=dict)
    margin: float = 6.0


IDIOMS: dict[str, Idiom] = {}


def idiom(inputs: Callable[[], tuple[Any, ...]], *default: str, **options: Any) -> Callable[[Any], Any]:
    """Register a module class under its name."""

    def register(module: Any) -> Any:
        chosen = {"default": default} if default else {}
        IDIOMS[module.__name__] = Idiom(module, inputs, **chosen, **options)
        return module

    return register


def draws(*shapes: tuple[int, ...]) -> Callable[[], tuple[Any, ...]]:
    """Normal numbers of these shapes."""
    return lambda: tuple(torch.randn(shape) for shape in shapes)
