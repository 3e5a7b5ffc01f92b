"""State that lives between calls, and writes through views."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tests.program.case import Case


class Stateful(nn.Module):
    """A buffer with initial values."""

    def __init__(self, *shape: int, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        count = int(torch.tensor(shape).prod()) if shape else 1
        self.register_buffer("state", torch.arange(1, count + 1).reshape(shape).to(dtype))


class Counter(Stateful):
    def __init__(self) -> None:
        super().__init__(1, dtype=torch.int64)

    def forward(self, x: Tensor) -> Tensor:
        self.state += 1
        return x + self.state


class Assigned(Stateful):
    """The buffer is rebound, not written in place."""

    def __init__(self) -> None:
        super().__init__(3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        before = self.state.clone()
        self.state = self.state * 0.5 + x
        return before, self.state


class Copied(Stateful):
    def __init__(self) -> None:
        super().__init__(2, 3)

    def forward(self, x: Tensor) -> Tensor:
        old = self.state.clone()
        self.state.copy_(x)
        return old + self.state


class CopiedBroadcast(Stateful):
    """``copy_`` of another type and a smaller shape."""

    def __init__(self) -> None:
        super().__init__(2, 3)

    def forward(self, x: Tensor) -> Tensor:
        self.state[1:].copy_(x)
        return self.state * 1.0


class SliceWrite(Stateful):
    def __init__(self) -> None:
        super().__init__(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        self.state[1:3] = x
        self.state[:, 0] += 1
        self.state[0, 1] = 7
        return self.state.sum(1)


class RollingWindow(Stateful):
    def __init__(self) -> None:
        super().__init__(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        self.state[:-1] = self.state[1:].clone()
        self.state[-1] = x
        return self.state.mean(0)


class IndexPut(Stateful):
    def __init__(self) -> None:
        super().__init__(4, 3)

    def forward(self, x: Tensor, i: Tensor) -> Tensor:
        self.state.index_put_((i,), x)
        self.state.index_put_((i,), x, accumulate=True)
        return self.state + 0


class KeyCache(nn.Module):
    """A cache of keys written at a position that is an input."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(1, 2, 6, 4))

    def forward(self, k: Tensor, position: Tensor) -> Tensor:
        self.keys[:, :, position] = k
        return self.keys.sum(2)


class IndexCopy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(2, 6, 4), persistent=False)

    def forward(self, k: Tensor, position: Tensor) -> Tensor:
        self.keys.index_copy_(1, position, k)
        return self.keys.mean(1)


class MovingPosition(nn.Module):
    """The position is itself state."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("values", torch.zeros(6, 3))
        self.register_buffer("position", torch.zeros(1, dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        self.values.index_put_((self.position,), x)
        self.position.add_(1)
        return self.values.cumsum(0)


class ItemPosition(nn.Module):
    """The position is read as a number: a slice of unknown start."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("values", torch.zeros(6, 3))

    def forward(self, x: Tensor, position: Tensor) -> Tensor:
        start = position.item()
        torch._check(start >= 0)
        torch._check(start + 1 <= 6)
        self.values.narrow(0, start, 1).copy_(x)
        return self.values + 0


class Versions(Stateful):
    """Write, read through an old view, write again: order matters."""

    def __init__(self) -> None:
        super().__init__(3, 2)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        row = self.state[1]
        column = self.state.t()[0]
        first = row * 1
        self.state.mul_(2)
        second = row + column[0]
        row.add_(x)
        third = self.state.sum(0)
        column.fill_(3)
        return first, second, third, row * 1, self.state.flatten()


class Mixed(nn.Module):
    """Two states that feed each other, of other types than the input."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.tensor([False, True, False]))
        self.register_buffer("best", torch.full((3,), -1e9))
        self.register_buffer("small", torch.ones(3, dtype=torch.float16))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        self.seen.logical_or_(x > 0)
        self.best = torch.maximum(self.best, x)
        self.small += x
        return self.seen.clone(), self.best * self.seen, self.small.float()


class SubmoduleState(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.counters = nn.ModuleList([Counter(), Counter()])

    def forward(self, x: Tensor) -> Tensor:
        return self.counters[1](self.counters[0](self.counters[0](x)))


class ReturnsState(Stateful):
    def __init__(self) -> None:
        super().__init__(2)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        self.state.add_(x)
        return self.state, self.state[:1]


class ChainedViews(Stateful):
    """A write through a view of a view of a view."""

    def __init__(self) -> None:
        super().__init__(2, 3, 4)

    def forward(self, x: Tensor) -> Tensor:
        view = self.state.permute(1, 0, 2)[1].view(2, 2, 2)[:, 1].unsqueeze(0)
        view.copy_(x)
        self.state.transpose(0, 2)[0].zero_()
        self.state.unbind(0)[1].add_(1)
        self.state.chunk(2, 1)[1].mul_(2)
        self.state.split(2, -1)[0].sub_(1)
        return self.state.reshape(-1)


class CountedCache(nn.Module):
    """A cache written at a slice whose start is state, read as a number."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(1, 8, 2, 4))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        start = self.count.item()
        torch._check(start >= 0)
        torch._check(start + 1 <= 8)
        self.keys[:, start : start + 1] = x
        self.count += 1
        return self.keys.sum(1)


class Average(nn.Module):
    """Moving averages, updated by chains of in-place operators."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.ones(3))
        self.register_buffer("spread", torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
        self.spread.lerp_(x.var(0), 0.1)
        return (x - self.mean) / self.spread.sqrt()


class Exchange(nn.Module):
    """Two states that change places."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("left", torch.ones(3))
        self.register_buffer("right", torch.zeros(3))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        kept = self.left.clone()
        self.left.copy_(self.right)
        self.right.copy_(kept + x)
        return self.left + 0, self.right


class Diagonal(Stateful):
    def __init__(self) -> None:
        super().__init__(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        self.state.diagonal().copy_(x)
        return self.state + 0


class Order(nn.Module):
    """Write, read an old view, write again."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        y = x.clone()
        row = y[0]
        before = row + 0
        y.add_(1)
        between = row + 0
        row.mul_(10)
        return before, between, y, row


class Copies(nn.Module):
    """A reshape that has to copy: writes to it must not come back."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        y = x.clone()
        copy = y.t().reshape(-1)
        copy.zero_()
        view = y.reshape(-1)
        view[0] = 7
        same = nn.functional.dropout(y, training=False)
        same[1, 1] = 9
        kept = y.contiguous()
        kept[1, 0] = 5
        y.double().fill_(3)
        return y, copy, view


class Swapped(nn.Module):
    """Two names of one tensor, turned in place."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        y = x.clone()
        turned = y.t_()
        turned[0] = 1
        parts = y.split([1, 2], 0)
        parts[1].add_(5)
        first, second = y.unbind(1)
        first.copy_(second)
        return y, parts[0] + 0, second + 0


def overwritten_input(x: Tensor) -> Tensor:
    x.add_(1)
    x[0] = 5
    return x * 2


def local_writes(x: Tensor) -> tuple[Tensor, Tensor]:
    out = torch.zeros(3, 4)
    out[:, 1:3] = x[:, :2]
    out[1] += 1
    out[:, ::2].mul_(3)
    view = out.view(-1)
    view[0] = 9
    padded = x.new_zeros(3, 6)
    padded[..., 1:-1].copy_(x)
    return out, padded


def masked_writes(x: Tensor) -> tuple[Tensor, ...]:
    y = x.clone()
    y[y > 0] = 0.5
    y.masked_fill_(y < -1, -1)
    z = x.clone()
    z.clamp_(-1, 1).mul_(2).sub_(1).div_(3).neg_().abs_().sqrt_().exp_().pow_(2)
    w = torch.empty(3, 4)
    w.copy_(x).t_()
    return y, z, w, x.clone().zero_(), x.clone().fill_(2), x.clone().relu_()


def expanded_writes(x: Tensor) -> Tensor:
    y = x.clone()
    y[:, None].squeeze(1).add_(1)
    y.unsqueeze(0).expand(1, 3, 4)[0].mul_(2)
    y.view(12).view(3, 4).select(0, 1).fill_(0)
    return y


def scatters(x: Tensor, i: Tensor) -> tuple[Tensor, ...]:
    y, z = x.clone(), x.clone()
    y.scatter_(1, i, 2.0)
    z.scatter_add_(1, i, torch.ones_like(i, dtype=torch.float32))
    return y, z, x.clone().index_fill_(0, i[0, :1], 1.0), torch.select_scatter(x, x[0], 0, 1)


def batch(*shape: int) -> Any:
    return lambda **_: (torch.randn(shape),)


STATES = [
    Case("state_counter", Counter, batch(2)),
    Case("state_assigned", Assigned, batch(3)),
    Case("state_copied", Copied, batch(2, 3)),
    Case("state_copied_broadcast", CopiedBroadcast, lambda: (torch.randint(0, 5, (3,)),)),
    Case("state_slice_write", SliceWrite, batch(2, 3)),
    Case("state_rolling_window", RollingWindow, batch(2)),
    Case("state_index_put", IndexPut, lambda: (torch.randn(2, 3), torch.tensor([3, 1]))),
    Case("state_key_cache", KeyCache, lambda: (torch.randn(1, 2, 1, 4), torch.randint(0, 6, (1,)))),
    Case("state_index_copy", IndexCopy, lambda: (torch.randn(2, 1, 4), torch.randint(0, 6, (1,)))),
    Case("state_moving_position", MovingPosition, batch(1, 3)),
    Case("state_item_position", ItemPosition, lambda: (torch.randn(1, 3), torch.randint(0, 6, (1,)))),
    Case("state_versions", Versions, batch(2)),
    Case("state_mixed", Mixed, batch(3)),
    Case("state_submodules", SubmoduleState, batch(2)),
    Case("state_returned", ReturnsState, batch(2)),
    Case("state_chained_views", ChainedViews, batch(1, 2, 2)),
    Case("state_counted_cache", CountedCache, lambda: (torch.randn(1, 1, 2, 4),)),
    Case("state_average", Average, batch(4, 3)),
    Case("state_exchange", Exchange, batch(3)),
    Case("state_diagonal", Diagonal, batch(3)),
]
for _case in STATES:
    _case.steps = 3

CASES = [
    *STATES,
    Case("order_of_writes", Order, batch(2, 3)),
    Case("order_with_copies", Copies, batch(2, 3)),
    Case("order_when_turned", Swapped, batch(2, 3)),
    Case("overwritten_input", overwritten_input, batch(2, 3)),
    Case("local_writes", local_writes, batch(3, 4)),
    Case("masked_writes", masked_writes, batch(3, 4)),
    Case("expanded_writes", expanded_writes, batch(3, 4)),
    Case("scatter_writes", scatters, lambda: (torch.randn(3, 4), torch.randint(0, 4, (3, 2)))),
]
