"""Control flow: branches and loops, nested, with every kind of value going in and out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._higher_order_ops.map import map as map_over
from torch._higher_order_ops.out_dtype import out_dtype
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.export import Dim

from tests.compile.case import Call


@dataclass
class Flow:
    """A module, and the inputs of the calls made in a row on one loaded method."""

    name: str
    module: Callable[..., Any]
    calls: list[tuple[Any, ...]]
    dynamic: Any = None
    rtol: float = 1e-5

    def make(self) -> nn.Module:
        torch.manual_seed(0)
        module = self.module() if isinstance(self.module, type) else Call(self.module)
        return module.eval()

    @property
    def shapes(self) -> Any:
        return self.dynamic if isinstance(self.module, type) or self.dynamic is None else (self.dynamic,)


def seeded(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


BYTES = (torch.tensor(100, dtype=torch.int8), torch.tensor(-7, dtype=torch.int8))
UP, DOWN = seeded(2, 3).abs() + 0.1, -seeded(2, 3).abs() - 0.1
N = Dim("n", min=2, max=8)

# ---------------------------------------------------------------------------------------------------- branches


class Weights(nn.Module):
    """Branches that read parameters, buffers and constants of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.yes, self.no = nn.Linear(3, 4), nn.Linear(3, 4, bias=False)
        self.register_buffer("shift", torch.arange(4.0))

    def forward(self, x: Tensor) -> Tensor:
        def negative(x: Tensor) -> Tensor:
            return self.no(x) * torch.tensor([1.0, -1.0, 2.0, 0.5])

        return torch.cond(x.sum() > 0, lambda x: self.yes(x) + self.shift, negative, (x,)).relu()


class ReadsState(nn.Module):
    """A buffer that is read in a branch and written afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.ones(2, 3))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.cond(self.seen.sum() > 8, lambda x: x + self.seen, lambda x: x - self.seen, (x,))
        self.seen.add_(x.abs())
        return y


class WritesResult(nn.Module):
    """State that becomes what a branch computed."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("level", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        new = torch.cond(x.sum() > 0, lambda x: self.level + x[0], lambda x: self.level * 0.5, (x,))
        self.level.copy_(new)
        return new + x


def plain(x: Tensor) -> Tensor:
    return torch.cond(x.sum() > 0, lambda x: x * 2 + 1, lambda x: x.sin(), (x,))


def several(x: Tensor, y: Tensor) -> Any:
    def yes(x: Tensor, y: Tensor) -> Any:
        s = x + y
        return s, s.clone(), x.sum(1), s > 0

    return torch.cond(x.sum() > 0, yes, lambda x, y: (y - x, x * 1, y.sum(1), y < x), (x, y))


def views(x: Tensor, y: Tensor) -> Any:
    """Branches whose results are other shapes of one tensor, or an operand itself."""

    def yes(x: Tensor, y: Tensor) -> Any:
        return (x * y).reshape(3, 2), (x + 1).reshape(-1)

    def no(x: Tensor, y: Tensor) -> Any:
        z = x.exp()
        return z.reshape(3, 2).clone(), z.reshape(-1) + 0

    return torch.cond(x.sum() > 0, yes, no, (x, y))


def operands(x: Tensor) -> Any:
    y = x * 2
    a, b = torch.cond(x.sum() > 0, lambda y: (y.clone(), y + 1), lambda y: (torch.zeros(2, 3), y.clone()), (y,))
    return a, b, y


def constants(x: Tensor) -> Any:
    return torch.cond(x.sum() > 0, lambda: torch.full((2,), 3.0), lambda: torch.tensor([1.0, 2.0]) * 1, ())


def nested(x: Tensor) -> Tensor:
    def inner(x: Tensor) -> Tensor:
        return torch.cond(x[0, 0] > 0.5, lambda x: x * 3, lambda x: x - 7, (x,)) + 1

    return torch.cond(x.sum() > 0, inner, lambda x: -x, (x,)) * 2


def in_a_row(x: Tensor) -> Tensor:
    for i in range(3):
        x = torch.cond(x.sum() > i, lambda x: x * 0.5 - 1, lambda x: x.cos() + 1, (x,))
    return x


def by_item(x: Tensor, n: Tensor) -> Tensor:
    return torch.cond(n.item() > 3, lambda x: x + 1, lambda x: x - 1, (x,))


def by_size(x: Tensor) -> Tensor:
    return torch.cond(x.shape[0] > 4, lambda x: x + 1, lambda x: x * 2, (x,))


def by_input(p: Tensor, x: Tensor) -> Tensor:
    return torch.cond(p, lambda x: x + 1, lambda x: x - 1, (x,))


def dynamic(x: Tensor) -> Tensor:
    def yes(x: Tensor) -> Tensor:
        return torch.cat([x, x * 2]).sum(1)

    return torch.cond(x.sum() > 0, yes, lambda x: (x @ x.new_ones(3, 3)).repeat(2, 1).amax(1), (x,))


def other_sizes(x: Tensor) -> Tensor:
    y = torch.cond(x.sum() > 0, lambda x: x[:, :2] * 1, lambda x: x * 2, (x,))
    return y.sum(1)


def channels_last(x: Tensor) -> Tensor:
    x = x.to(memory_format=torch.channels_last) + 1
    return torch.cond(x.sum() > 0, lambda x: x.relu(), lambda x: x * 2, (x,)) + x


def inplace(x: Tensor) -> Tensor:
    def yes(x: Tensor) -> Tensor:
        y = x.clone()
        y[0].mul_(3)
        y += 1
        return y

    return torch.cond(x.sum() > 0, yes, lambda x: x.clone().zero_(), (x,))


def numbers(x: Tensor) -> Tensor:
    return torch.cond(x.sum() > 0, lambda: 3, lambda: 5, ()) + x


BOTH = [(UP,), (DOWN,), (UP,), (DOWN,)]
PAIRS = [(UP, DOWN), (DOWN, UP), (UP, UP)]

BRANCHES = [
    Flow("cond", plain, BOTH),
    Flow("cond_weights", Weights, BOTH),
    Flow("cond_reads_state", ReadsState, BOTH),
    Flow("cond_writes_result", WritesResult, BOTH),
    Flow("cond_several_outputs", several, PAIRS),
    Flow("cond_views", views, PAIRS),
    Flow("cond_operands", operands, BOTH),
    Flow("cond_constants", constants, BOTH),
    Flow("cond_nested", nested, [(UP,), (DOWN,), (UP * 0.01,), (UP + 1,)]),
    Flow("cond_in_a_row", in_a_row, BOTH),
    Flow("cond_by_item", by_item, [(UP, torch.tensor(k)) for k in (4, 3, 9, -1)]),
    Flow("cond_by_size", by_size, [(seeded(n, 3),) for n in (8, 2, 5, 4)], ({0: N},)),
    Flow("cond_by_input", by_input, [(torch.tensor(p), UP) for p in (True, False, True)]),
    Flow("cond_dynamic", dynamic, [(seeded(n, 3).abs() * s,) for n in (2, 5, 8) for s in (1, -1)], ({0: N},)),
    Flow("cond_other_sizes", other_sizes, BOTH),
    Flow("cond_channels_last", channels_last, [(seeded(1, 3, 4, 2).abs() * s,) for s in (1, -3, 1)]),
    Flow("cond_inplace", inplace, BOTH),
    Flow("cond_numbers", numbers, BOTH),
]

# ------------------------------------------------------------------------------------------------------- loops


def count_up(n: Tensor, x: Tensor) -> Any:
    return while_loop(lambda n, x: n > 0, lambda n, x: (n - 1, x * 2 + 1), (n, x))


def swap(n: Tensor, a: Tensor, b: Tensor) -> Any:
    """Everything moves round: no value may be overwritten before it was read."""
    return while_loop(lambda n, a, b: n > 0, lambda n, a, b: (n - 1, b.clone(), a + b), (n, a, b))


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
        return (c[1] + 0, c[0] + x), (c[0].clone(), c[1] * x)

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

# ---------------------------------------------------------------------------------------------------- wrappers


def no_grad(x: Tensor) -> Any:
    y = x * 2
    with torch.no_grad():
        z = y.sin()
        w = z[0]
        w.add_(1)
    w.mul_(2)
    return y + 1, z


class Autocast(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 4)

    def forward(self, x: Tensor) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.inner(x)
        with torch.autocast("cpu", enabled=False):
            z = self.inner(x)
        return y, z


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 4)

    def forward(self, x: Tensor) -> Tensor:
        return torch.utils.checkpoint.checkpoint(self.inner, x, use_reentrant=False) + 1


def no_grad_cond(x: Tensor) -> Tensor:
    with torch.no_grad():
        y = torch.cond(x.sum() > 0, lambda x: x + torch.tensor([1.0, 2.0, 3.0]), lambda x: x * 2, (x,))
    return y * 3


@torch.compiler.nested_compile_region
def region(x: Tensor, y: Tensor) -> Tensor:
    return x * 2 + y.reshape(-1)


def regions(x: Tensor) -> Tensor:
    """One graph, called twice."""
    return region(x[0] * 1, x[1] * 1) + region(x[1] + 1, x[0] - 1)


def wide(a: Tensor, b: Tensor) -> Tensor:
    return out_dtype(torch.ops.aten.mm.default, torch.int32, a, b)


WRAPPERS = [
    Flow("no_grad", no_grad, [(UP.clone().requires_grad_(),), (DOWN,)]),
    Flow("autocast", Autocast, [(UP,), (DOWN,)], rtol=2e-2),
    Flow("checkpoint", Checkpointed, [(UP,), (DOWN,)]),
    Flow("no_grad_cond", no_grad_cond, [(UP,), (DOWN,)]),
    Flow("regions", regions, [(UP,), (DOWN,)]),
    Flow("out_dtype", wide, [(torch.full((2, 3), 100, dtype=torch.int8), k.expand(3, 2)) for k in BYTES]),
]

FLOWS = [*BRANCHES, *LOOPS, *SCANS, *WRAPPERS]
