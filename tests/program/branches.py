"""Branches, nested and in a row, with every kind of value going in and out; and graphs that are only wrapped."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch._higher_order_ops.out_dtype import out_dtype

from tests.program.flow import DOWN, UP, Flow, N, seeded


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


BYTES = (torch.tensor(100, dtype=torch.int8), torch.tensor(-7, dtype=torch.int8))


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

FLOWS = [*BRANCHES, *WRAPPERS]
