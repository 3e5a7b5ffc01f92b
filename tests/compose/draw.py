"""Random choices with the habits of networks: recent values are read more often, a few sizes recur."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

# Around the widths of vectors (4, 16, 32, 64 bytes or elements), with their neighbours.
CHANNELS = (
    1,
    2,
    3,
    4,
    5,
    7,
    8,
    9,
    12,
    15,
    16,
    17,
    20,
    24,
    31,
    32,
    33,
    40,
    47,
    48,
    49,
    63,
    64,
    65,
    72,
    80,
    96,
    112,
    128,
)
SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 14, 16, 17)
FAMILY = 32  # graphs in a row that share their sizes, so that they share kernels


@dataclass(frozen=True)
class Palette:
    """The sizes that a graph is made of."""

    channels: tuple[int, ...]
    sizes: tuple[int, ...]


def palette_of(seed: int) -> Palette:
    """One family of eight has larger images, one has channels that fill vectors, and one has rows of 4096 bytes (1024
    floats): some kernels and layouts are for those alone."""
    r = random.Random(f"palette {seed // FAMILY}")
    kind = seed // FAMILY % 8
    if kind == 5:
        return Palette((r.choice((16, 24, 32)), r.choice((48, 64, 96))), (r.choice((24, 28)), r.choice((26, 30))))
    if kind == 6:
        return Palette((64, r.choice((64, 96, 128))), (r.choice((8, 12)), r.choice((7, 14, 16))))
    if kind == 7:
        return Palette((1024, r.choice((2, 8, 17, 32))), (r.choice((1, 2)), r.choice((2, 3, 4))))
    return Palette(tuple(r.choice(CHANNELS) for _ in range(2)), tuple(r.choice(SIZES) for _ in range(2)))


class Draw:
    """A generator of choices, the same for the same seed on every machine."""

    def __init__(self, seed: int, palette: Palette) -> None:
        self.random = random.Random(f"compose {seed}")
        self.palette = palette

    def one(self, options: Sequence[T]) -> T:
        return self.random.choice(options)

    def weighted(self, options: dict[T, float]) -> T:
        return self.random.choices(list(options), list(options.values()))[0]

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def number(self, low: int, high: int) -> int:
        """From ``low`` to ``high``, both included."""
        return self.random.randint(low, high)

    def channels(self) -> int:
        return self.one(self.palette.channels)

    def size(self) -> int:
        return self.one(self.palette.sizes)

    def seed(self) -> int:
        return self.number(0, 999)

    def value(self, values: Sequence[T], fits: Callable[[T], bool], exclude: Sequence[int] = ()) -> int | None:
        """The number of a value that fits: half of the time the newest, else any."""
        found = [i for i, v in enumerate(values) if i not in exclude and fits(v)]
        if not found:
            return None
        return found[-1] if self.chance(0.5) else self.one(found)

    def until(self, make: Callable[[], T], fits: Callable[[T], bool]) -> T:
        """The first of several attempts that fits."""
        return next(made for made in iter(make, None) if fits(made))
