"""Loops: ``while_loop``, ``map`` and ``scan``, nested, over state, with every number of rounds."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch._higher_order_ops.map import map as map_over
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

from tests.program.flow import DOWN, UP, Flow, N, seeded


def count_up(n: Tensor, x: Tensor) -> Any:
    return while_loop(lambda n, x: n > 0, lambda n, x: (n - 1, x * 2 + 1), (n, x))


def swap(n: Tensor, a: Tensor, b: Tensor) -> Any:
    """Everything moves round: no value may be overwritten before it was read."""
    return while_loop(lambda n, a, b: n > 0, lambda n, a, b: (n - 1, b.clone(), a.clone()), (n, a, b))


def rotate(n: Tensor, a: Tensor, b: Tensor, c: Tensor) -> Any:
    def body(n: Tensor, a: Tensor, b: Tensor, c: Tensor) -> Any:
        return n - 1, b.reshape(3, 2).reshape(2, 3) * 1, c.contiguous() + 0, a * 2

    return while_loop(lambda n, a, b, c: n > 0, body, (n, a, b, c))


def counted(x: Tensor) -> Any:
    return while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x * 0.5 + i), (0, x))


def to_size(x: Tensor) -> Any:
    return while_loop(lambda i, x: i < x.shape[0], lambda i, x: (i + 1, x + i), (0, x))[1]


def until_item(n: Tensor, x: Tensor) -> Any:
    return while_loop(lambda n, x: n.item() > 0, lambda n, x: (n - 1, x * 2), (n, x))


def fill_in(x: Tensor) -> Tensor:
    """A number that the loop carries, in tensors it makes."""

    def body(i: Any, x: Tensor) -> Any:
        return i + 2, x.index_fill(0, torch.tensor([1]), 1.0) + torch.full((3,), i)

    return while_loop(lambda i, x: i * 2 < 9, body, (1, x))[1]


def reads_outside(n: Tensor, x: Tensor) -> Tensor:
    """Values made before the loop and read in it, also after the body made others."""
    y, z = x.exp(), x.cos()
    a = while_loop(lambda n, a: n > 0, lambda n, a: (n - 1, ((a + y).tanh() * 2 - z).sin()), (n, x))[1]
    return a + y


class LoopWeights(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(3, 3)

    def forward(self, n: Tensor, x: Tensor) -> Tensor:
        return while_loop(lambda n, h: (n > 0) & (h.sum() < 50), lambda n, h: (n - 1, self.cell(x, h)), (n, x))[1]


def branch_in_loop(n: Tensor, x: Tensor) -> Tensor:
    def body(n: Tensor, x: Tensor) -> Any:
        return n - 1, torch.cond(x.sum() > 0, lambda x: x - 1, lambda x: x * x, (x,))

    return while_loop(lambda n, x: n > 0, body, (n, x))[1]


def loop_in_branch(n: Tensor, x: Tensor) -> Tensor:
    def yes(n: Tensor, x: Tensor) -> Tensor:
        return while_loop(lambda n, x: n > 0, lambda n, x: (n - 1, x * 0.5), (n, x))[1]

    return torch.cond(x.sum() > 0, yes, lambda n, x: x - 1, (n, x))


def loop_in_loop(n: Tensor, x: Tensor) -> Tensor:
    def body(n: Tensor, x: Tensor) -> Any:
        inner = while_loop(lambda m, y: m > 0, lambda m, y: (m - 1, y + m), (n.clone(), x * 1))[1]
        return n - 1, inner * 0.5 + x

    return while_loop(lambda n, x: n > 0, body, (n, x))[1]


TRIPS = [(torch.tensor(k), UP) for k in (3, 0, 1, 7)]

LOOPS = [
    Flow("while", count_up, TRIPS),
    Flow("while_swap", swap, [(torch.tensor(k), UP, DOWN) for k in (0, 1, 2, 5)]),
    Flow("while_rotate", rotate, [(torch.tensor(k), UP, DOWN, UP + DOWN) for k in (1, 2, 3, 0)]),
    Flow("while_counted", counted, [(UP,), (DOWN,)]),
    Flow("while_to_size", to_size, [(seeded(n, 2),) for n in (3, 8, 2)], ({0: N},)),
    Flow("while_until_item", until_item, TRIPS),
    Flow("while_fill_in", fill_in, [(UP,), (DOWN,)]),
    Flow("while_reads_outside", reads_outside, TRIPS),
    Flow("while_weights", LoopWeights, [(n, x[0:1]) for n, x in TRIPS]),
    Flow("while_cond", branch_in_loop, TRIPS),
    Flow("cond_while", loop_in_branch, [*TRIPS, (torch.tensor(2), DOWN)]),
    Flow("while_while", loop_in_loop, TRIPS),
]

# ---------------------------------------------------------------------------------------------- maps and scans


def mapped(xs: Tensor, y: Tensor) -> Any:
    return map_over(lambda x, y: (x + y, (x * 2).sum(), x > y), xs, y)


def mapped_rows(xs: Tensor) -> Any:
    return map_over(lambda x: (x.exp(), x.cumsum(0) * 2), xs)


def mapped_tree(xs: Tensor, ys: Tensor) -> Any:
    return map_over(lambda t: {"a": t[0] @ t[1], "b": t[0] - 1}, (xs, ys))


def mapped_scalars(xs: Tensor) -> Any:
    return map_over(lambda x: x * x, xs) + 1


def mapped_constant(xs: Tensor) -> Any:
    return map_over(lambda x: (torch.ones(2), x.clone().reshape(3, 1)), xs)


def mapped_map(xs: Tensor) -> Tensor:
    return map_over(lambda row: map_over(lambda x, s: x.sin() + s, row * 1, row.sum(0)), xs)


def mapped_cond(xs: Tensor) -> Tensor:
    return map_over(lambda x: torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x * 2, (x,)), xs)


def cumulative(xs: Tensor, c: Tensor) -> Any:
    return scan(lambda c, x: (c + x, c * x), c, xs)


def backwards(xs: Tensor, c: Tensor) -> Any:
    return scan(lambda c, x: (c + x, c * x), c, xs, dim=1, reverse=True)


def counting(xs: Tensor) -> Any:
    return scan(lambda c, x: (c + 1, x * c), torch.tensor(2), xs)


def scan_swap(xs: Tensor, c: Tensor) -> Any:
    """Carries that change places, and a result that is the carry before the round."""

    def step(c: Any, x: Tensor) -> Any:
        return (c[1].clone(), c[0] + x), (c[0].clone(), c[1] * x)

    return scan(step, (c, c * 2), xs)


class Recurrent(nn.Module):
    """A GRU written as a scan."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(3, 5)
        self.head = nn.Linear(5, 2)

    def forward(self, xs: Tensor) -> tuple[Tensor, Tensor]:
        def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            h = self.cell(x, h)
            return h, self.head(h)

        return scan(step, torch.zeros(xs.shape[1], 5), xs)


class ScanState(nn.Module):
    """A scan whose carry is state that lives between calls."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("level", torch.ones(3))

    def forward(self, xs: Tensor) -> Tensor:
        level, ys = scan(lambda c, x: (c * 0.5 + x, c - x), self.level, xs)
        self.level.copy_(level)
        return ys


SCANS = [
    Flow("map", mapped, [(seeded(4, 3, seed=i), seeded(3)) for i in range(3)]),
    Flow("map_one", mapped, [(seeded(1, 3, seed=i), seeded(3)) for i in range(2)]),
    Flow("map_tree", mapped_tree, [(seeded(3, 2, 4), seeded(3, 4, 2, seed=1))] * 2),
    Flow("map_scalars", mapped_scalars, [(seeded(5, seed=i),) for i in range(2)]),
    Flow("map_constant", mapped_constant, [(seeded(4, 3, seed=i),) for i in range(2)]),
    Flow("map_map", mapped_map, [(seeded(3, 4, 2, seed=i),) for i in range(2)]),
    Flow("map_cond", mapped_cond, [(seeded(5, 3, seed=i),) for i in range(3)]),
    Flow("map_dynamic", mapped, [(seeded(n, 3), seeded(3)) for n in (5, 8, 2)], ({0: N}, None)),
    Flow("map_inner_dynamic", mapped_rows, [(seeded(4, n),) for n in (5, 8, 2)], ({1: N},)),
    Flow("scan", cumulative, [(seeded(4, 3, seed=i), seeded(3, seed=i + 1)) for i in range(3)]),
    Flow("scan_backwards", backwards, [(seeded(3, 4, seed=i), seeded(3)) for i in range(2)]),
    Flow("scan_counting", counting, [(seeded(4, 3, seed=i),) for i in range(2)]),
    Flow("scan_swap", scan_swap, [(seeded(5, 3, seed=i), seeded(3)) for i in range(2)]),
    Flow("scan_dynamic", cumulative, [(seeded(n, 3), seeded(3)) for n in (2, 8, 3)], ({0: N}, None)),
    Flow("scan_recurrent", Recurrent, [(seeded(6, 2, 3, seed=i),) for i in range(2)]),
    Flow("scan_state", ScanState, [(seeded(4, 3, seed=i),) for i in range(3)]),
]

FLOWS = [*LOOPS, *SCANS]
