"""Block grammars: several steps at once, as networks have them; each dialect says them in its own operators."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from tests.compose.draw import Draw, T
from tests.compose.spec import Step

Motif = Callable[["Block"], None]
MOTIFS: dict[str, tuple[Motif, float]] = {}
ACTS = (None, None, "relu", "relu6", "clip")


class MissingWordError(LookupError):
    """A dialect has no such operator, or nothing it could read: the block ends where it is."""


class Block(ABC):
    """What blocks are written in. Values are numbers; every call adds steps and gives the last one's."""

    def __init__(self, d: Draw, apply: Callable[[Step], int]) -> None:
        self.d, self._apply = d, apply

    def pick(self, values: Sequence[T], fits: Callable[[T], bool]) -> int:
        """The number of a value that fits."""
        at = self.d.value(values, fits)
        if at is None:
            raise MissingWordError
        return at

    def add(self, op: str, *inputs: int, **attributes: Any) -> int:
        return self._apply({"op": op, "in": list(inputs), **attributes})

    def act(self) -> str | None:
        return self.d.one(ACTS)

    @abstractmethod
    def image(self, even: bool = False) -> int:
        """Some image; ``even``: in height and width."""

    @abstractmethod
    def shape(self, at: int) -> tuple[int, ...]:
        """Batch, height, width, channels of an image; what it is for anything else."""

    @abstractmethod
    def conv(self, at: int, channels: int, kernel: int = 1, stride: int = 1, act: str | None = None) -> int: ...

    @abstractmethod
    def depthwise(self, at: int, kernel: int = 3, stride: int = 1, act: str | None = None) -> int: ...

    @abstractmethod
    def binary(self, kind: str, a: int, b: int, act: str | None = None) -> int: ...

    @abstractmethod
    def cat(self, *parts: int) -> int: ...

    @abstractmethod
    def part(self, at: int, start: int, length: int) -> int:
        """Some channels of an image, or of a matrix's rows."""

    def channels(self, at: int) -> int:
        return self.shape(at)[-1]

    def shuffle(self, at: int) -> int:
        raise MissingWordError

    def global_pool(self, at: int) -> int:
        raise MissingWordError

    def function(self, kind: str, at: int) -> int:
        """``sigmoid`` or ``tanh``."""
        raise MissingWordError

    def max_pool(self, at: int) -> int:
        """Of the same size."""
        raise MissingWordError

    def double(self, at: int, channels: int) -> int:
        """A transposed convolution to twice the size."""
        raise MissingWordError

    def rows(self, at: int) -> int:
        """An image as a matrix: pixels by channels."""
        raise MissingWordError

    def sequence(self) -> int:
        """Some value of three dimensions."""
        raise MissingWordError

    def matrix(self) -> int:
        """Some value of two dimensions."""
        raise MissingWordError

    def linear(self, at: int, channels: int) -> int:
        raise MissingWordError

    def heads(self, at: int, count: int) -> int:
        """Batch, heads, length, size from batch, length, heads times size."""
        raise MissingWordError

    def unheads(self, at: int) -> int:
        raise MissingWordError

    def matmul(self, a: int, b: int, transposed: bool) -> int:
        raise MissingWordError

    def softmax(self, at: int) -> int:
        raise MissingWordError

    def bias(self, at: int) -> int:
        """A constant is added to each row."""
        raise MissingWordError

    def dynamic(self) -> tuple[int, bool]:
        """A dynamically quantized value, and whether it is an image."""
        raise MissingWordError


def motif(weight: float = 1.0) -> Callable[[Motif], Motif]:
    def register(made: Motif) -> Motif:
        MOTIFS[made.__name__] = (made, weight)
        return made

    return register


@motif(2)
def inverted_residual(k: Block) -> None:
    x = k.image()
    wide = k.conv(x, k.d.channels() * k.d.one((1, 2, 3)), act=k.act())
    middle = k.depthwise(wide, k.d.one((3, 3, 5)), k.d.one((1, 1, 2)), k.act())
    out = k.conv(middle, k.channels(x))
    if k.shape(out) == k.shape(x):
        pair = (x, out) if k.d.chance(0.5) else (out, x)
        k.binary("add", *pair, act=k.act())


@motif(2)
def ghost(k: Block) -> None:
    """Half of the channels by a product, the other half from those."""
    x = k.image()
    first = k.conv(x, k.d.channels(), act=k.act())
    second = k.depthwise(first, 3, 1, k.act())
    both = k.cat(first, second)
    if k.d.chance(0.5):
        k.binary("add", k.conv(both, k.channels(x)), x)


@motif()
def mixed_kernels(k: Block) -> None:
    x = k.image()
    half = k.channels(x) // 2
    if half:
        parts = [k.part(x, 0, half), k.part(x, half, k.channels(x) - half)]
        k.cat(*(k.depthwise(p, kernel, 1, k.act()) for p, kernel in zip(parts, (3, 5), strict=True)))


@motif()
def shuffle_unit(k: Block) -> None:
    x = k.image()
    half = k.channels(x) // 2
    if half:
        left, right = (k.part(x, n * half, half) for n in range(2))
        right = k.conv(k.depthwise(k.conv(right, half, act="relu"), 3), half, act="relu")
        k.shuffle(k.cat(left, right))


@motif()
def squeeze_excite(k: Block) -> None:
    x = k.image()
    low = k.conv(k.global_pool(x), max(1, k.channels(x) // 4), act="relu")
    k.binary("mul", x, k.function("sigmoid", k.conv(low, k.channels(x))))


@motif()
def dense(k: Block) -> None:
    """Each layer reads all that came before."""
    x = k.image()
    features = [x]
    for _ in range(k.d.number(2, 3)):
        joined = k.cat(*features) if len(features) > 1 else x
        features.append(k.conv(joined, k.d.one((4, 8, 12, 16)), k.d.one((1, 3)), act=k.act()))
    k.cat(*features)


@motif()
def residual(k: Block) -> None:
    x = k.image()
    first = k.conv(x, k.channels(x), 3, act="relu")
    k.binary("add", k.conv(first, k.channels(x), 3), x, act=k.act())


@motif()
def branches(k: Block) -> None:
    """A pool and two convolutions of one image, side by side."""
    x = k.image()
    parts = [k.conv(x, k.d.channels(), 1, act=k.act()), k.conv(x, k.d.channels(), 3)]
    if k.d.chance(0.7):
        parts.append(k.max_pool(x))
    k.d.random.shuffle(parts)
    k.cat(*parts)


@motif()
def pyramid(k: Block) -> None:
    """Down and up again, joined with what was there: a small U-Net."""
    x = k.image(even=True)
    low = k.conv(x, k.d.channels(), 3, 2, k.act())
    k.conv(k.cat(k.double(low, k.d.channels()), x), k.d.channels(), k.d.one((1, 3)), act=k.act())


@motif()
def head(k: Block) -> None:
    """Boxes and classes of one feature map, with all pixels in rows."""
    x = k.image()
    boxes, classes = k.conv(x, 4 * k.d.one((1, 3))), k.conv(x, k.d.channels(), 3)
    parts = [k.rows(boxes), k.function("sigmoid", k.rows(classes)) if k.d.chance(0.5) else k.rows(classes)]
    if k.d.chance(0.5):
        k.cat(*parts)


@motif(2)
def dynamic_layers(k: Block) -> None:
    """Several products of one value that is quantized at run time, and what follows them."""
    x, pictures = k.dynamic()
    made = []
    for _ in range(k.d.number(1, 3)):
        channels = k.d.channels()
        made.append(k.conv(x, channels, k.d.one((1, 1, 3)), act=k.act()) if pictures else k.linear(x, channels))
    if pictures:
        k.depthwise(made[0], 3, 1, k.act())


@motif()
def attention(k: Block) -> None:
    x = k.sequence()
    heads, size = k.d.number(1, 3), k.d.one((4, 8, 16, 5))
    q, key, value = (k.heads(k.linear(x, heads * size), heads) for _ in range(3))
    scores = k.matmul(q, key, transposed=True)
    if k.d.chance(0.4):
        scores = k.bias(scores)
    seen = k.matmul(k.softmax(scores), value, transposed=False)
    out = k.linear(k.unheads(seen), k.channels(x))
    k.binary("add", out, x)


@motif()
def cell(k: Block) -> None:
    """Gates of a recurrent layer: one product, cut in four."""
    x = k.matrix()
    size = k.d.one((3, 4, 8, 16, 20))
    gates = k.linear(x, 4 * size)
    parts = [k.part(gates, n * size, size) for n in range(4)]
    kinds = ("sigmoid", "sigmoid", "tanh", "sigmoid")
    i, f, g, o = (k.function(kind, p) for p, kind in zip(parts, kinds, strict=True))
    state = k.binary("add", k.binary("mul", i, g), f)
    k.binary("mul", o, k.function("tanh", state))


@motif(0.5)
def function_chain(k: Block) -> None:
    """More functions in a row than XNNPACK has room for when it makes one lookup table of them."""
    x = k.image()
    for _ in range(k.d.number(3, 12)):
        x = k.function(k.d.one(("sigmoid", "tanh")), x)
