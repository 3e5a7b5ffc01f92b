"""Normalization and softmax of contiguous rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from edgewright.engine.codegen.builder import I64, PTR, Function, Module, Reg, const, element_type, lane_count, vec
from edgewright.engine.codegen.math_float32 import FUNCTIONS, exp, exp2_nonpositive
from edgewright.engine.codegen.vector import fma
from edgewright.engine.kernels.elementwise import first_lanes_mask, masked_load, masked_store

# ----------------------------------------------------------------------------------------------------------- row reduce

# Vectorized reductions and loops over contiguous rows.

Step = Callable[[Reg, Reg], Reg]


def load(f: Function, source: Reg, at: Reg, like: Reg) -> Reg:
    """Load 4-byte elements from index ``at`` on, as many as ``like`` has lanes."""
    return f.load(like.type, f.gep(source, f.mul(at, 4)))


def store(f: Function, x: Reg, target: Reg, at: Reg) -> None:
    f.store(x, f.gep(target, f.mul(at, 4)))


def nan_max(f: Function, a: Reg, b: Reg) -> Reg:
    best = f.select(f.compare("ogt", a, b), a, b)  # b if it is NaN
    return f.select(f.compare("uno", a, a), a, best)


def nan_min(f: Function, a: Reg, b: Reg) -> Reg:
    best = f.select(f.compare("olt", a, b), a, b)
    return f.select(f.compare("uno", a, a), a, best)


def reduce_lanes(f: Function, x: Reg, join: Callable[[Reg, Reg], Reg]) -> Reg:
    """Reduce a vector to a scalar by halving: log2(lanes) shuffles and joins."""
    while lane_count(x.type) > 1:
        half = lane_count(x.type) // 2
        x = join(f.shuffle(x, x, range(half)), f.shuffle(x, x, range(half, 2 * half)))
    return x


def lane_max(f: Function, x: Reg) -> Reg:
    return reduce_lanes(f, x, lambda a, b: nan_max(f, a, b))


def lane_sum(f: Function, x: Reg) -> Reg:
    return reduce_lanes(f, x, lambda a, b: f.op("fadd", a, b))


def concat(f: Function, parts: list[Reg]) -> Reg:
    """Concatenate a power-of-two number of vectors."""
    while len(parts) > 1:
        size = lane_count(parts[0].type)
        parts = [f.shuffle(a, b, range(2 * size)) for a, b in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def reduce_row(
    f: Function, lanes: int, length: int, start: Reg, body: Step, join: Callable[[Function, Reg], Reg]
) -> Reg:
    """``body(index, value)`` over a row: vectors, reduced to a scalar by ``join``, then the remainder one by one."""
    covered = length // lanes * lanes
    value = start
    if covered:
        wide = Reg(f"splat ({start.type} {start})", vec(lanes, element_type(start.type))) if lanes > 1 else start
        # Independent accumulators hide latency.
        accumulators = next(n for n in (4, 2, 1) if n == 1 or (lanes > 1 and covered % (n * lanes) == 0))

        def once(i: Reg, now: list[Reg]) -> list[Reg]:
            return [body(f.add(i, k * lanes), n) for k, n in enumerate(now)]

        value = join(f, concat(f, f.loop(covered, [wide] * accumulators, once, accumulators * lanes)))
    if length > covered:
        value = f.loop(length - covered, [value], lambda i, now: [body(f.add(i, covered), now[0])])[0]
    return value


def for_each(f: Function, lanes: int, length: int, body: Callable[[Reg, Reg], None]) -> None:
    """``body(index, like)`` over a row; ``like`` has as many lanes as elements to process."""

    def step(at: Reg, now: Reg) -> Reg:
        body(at, now)
        return now

    reduce_row(f, lanes, length, const(0, "float"), step, lambda f, x: const(0, "float"))


def for_each_overlapping(f: Function, lanes: int, length: int, body: Callable[[Reg, Reg], None]) -> None:
    """``body(index, like)`` over a row; the last vector overlaps the one before, so ``body`` is idempotent."""
    lanes = next(n for n in (lanes, 8, 4, 1) if n <= min(lanes, length))
    like = const(0, vec(lanes, "float"))
    covered = length // lanes * lanes

    def once(i: Reg, _: list[Reg]) -> list[Reg]:
        body(i, like)
        return []

    f.loop(covered, [], once, lanes)
    if covered < length:
        body(const(length - lanes, I64), like)


# ----------------------------------------------------------------------------------------------------------------- norm

# Layer, group and RMS normalization of contiguous rows.


@dataclass(frozen=True)
class NormSpec:
    """Rows of ``length`` elements; ``subtract_mean`` distinguishes layer norm from RMS norm.

    Each weight (and bias) applies to ``channel_size`` consecutive elements; rows cycle through ``groups`` lists.
    """

    length: int
    subtract_mean: bool
    eps: float
    weight: bool
    bias: bool
    channel_size: int = 1
    groups: int = 1


def emit_norm(module: Module, name: str, lanes: int, norm: NormSpec) -> None:
    """Work units are rows. Arguments: data, output, weight, bias. Within 1e-6 of the largest result."""
    f = module.kernel(name)
    data, out, weight, bias = (f.load_arg(PTR, i) for i in range(4))

    def row(y: Reg) -> None:
        offset = f.mul(y, 4 * norm.length)
        source, target = f.gep(data, offset), f.gep(out, offset)
        group_offset = (
            f.mul(f.op("urem", y, norm.groups), 4 * (norm.length // norm.channel_size)) if norm.groups > 1 else 0
        )
        mean, scale = _moments(f, lanes, norm, source)
        _normalize_row(
            f, lanes, norm, (source, target, f.gep(weight, group_offset), f.gep(bias, group_offset)), mean, scale
        )

    f.for_range(f.arg("begin"), f.arg("end"), row)
    f.ret()


def _moments(f: Function, lanes: int, norm: NormSpec, source: Reg) -> tuple[Reg, Reg]:
    """The mean of a row, and the reciprocal of its standard deviation."""
    share, zero = const(1 / norm.length, "float"), const(0, "float")
    mean = zero
    if norm.subtract_mean:
        sums = lambda at, now: f.op("fadd", now, load(f, source, at, now))  # noqa: E731
        mean = f.op("fmul", reduce_row(f, lanes, norm.length, zero, sums, lane_sum), share)

    def square(at: Reg, now: Reg) -> Reg:
        x = load(f, source, at, now)
        x = f.op("fsub", x, f.splat(mean, lane_count(now.type))) if norm.subtract_mean else x
        return fma(f, x, x, now)

    variance = f.op("fmul", reduce_row(f, lanes, norm.length, zero, square, lane_sum), share)
    root = FUNCTIONS["sqrt"](f, f.op("fadd", variance, const(norm.eps, "float")))
    return mean, f.op("fdiv", const(1, "float"), root)


def _normalize_row(
    f: Function, lanes: int, norm: NormSpec, pointers: tuple[Reg, Reg, Reg, Reg], mean: Reg, scale: Reg
) -> None:
    source, target, weight, bias = pointers

    def finish(at: Reg, like: Reg, w: Reg | None, b: Reg | None, source: Reg, target: Reg) -> None:
        x, lanes_ = load(f, source, at, like), lane_count(like.type)
        x = f.op("fsub", x, f.splat(mean, lanes_)) if norm.subtract_mean else x
        x = f.op("fmul", x, f.splat(scale, lanes_))
        x = f.op("fmul", x, w) if w is not None else x
        store(f, f.op("fadd", x, b) if b is not None else x, target, at)

    if norm.channel_size == 1:

        def element(at: Reg, like: Reg) -> None:
            w = load(f, weight, at, like) if norm.weight else None
            b = load(f, bias, at, like) if norm.bias else None
            finish(at, like, w, b, source, target)

        for_each(f, lanes, norm.length, element)
        return

    def channel(c: Reg, now: list[Reg]) -> list[Reg]:
        w, b = (f.load("float", p, f.mul(c, 4)) if used else None
                for p, used in ((weight, norm.weight), (bias, norm.bias)))  # fmt: skip

        def element(at: Reg, like: Reg) -> None:
            wide = [None if x is None else f.splat(x, lane_count(like.type)) for x in (w, b)]
            finish(at, like, wide[0], wide[1], now[0], now[1])

        for_each(f, lanes, norm.channel_size, element)
        return [f.gep(p, 4 * norm.channel_size) for p in now]

    f.loop(norm.length // norm.channel_size, [source, target], channel)


# -------------------------------------------------------------------------------------------------------------- softmax

# Softmax over contiguous rows of static or dynamic length.

LOG2E = 1.4426950408889634


def emit_softmax(module: Module, name: str, lanes: int, length: int) -> None:
    """Work units are rows. Arguments: data, output. Results are within 1e-6 of the largest."""
    f = module.kernel(name)
    data, out = f.load_arg(PTR, 0), f.load_arg(PTR, 1)
    lanes = next(n for n in (lanes, 8, 4, 1) if n <= min(lanes, length))

    def row(y: Reg) -> None:
        offset = f.mul(y, 4 * length)
        _row(f, lanes, length, f.gep(data, offset), f.gep(out, offset))

    f.for_range(f.arg("begin"), f.arg("end"), row)
    f.ret()


def _row(f: Function, lanes: int, length: int, source: Reg, target: Reg) -> None:
    covered, kind = length // lanes * lanes, vec(lanes, "float")
    rest, last = length - covered, const(length - lanes, I64)  # the last vector overlaps the one before it
    lowest = const(float("-inf"), "float")
    top = reduce_row(f, lanes, covered, lowest, lambda at, now: nan_max(f, now, load(f, source, at, now)), lane_max)
    if rest:
        top = nan_max(f, top, lane_max(f, f.load(kind, source, 4 * (length - lanes))))

    def power(at: Reg) -> Reg:
        less = f.op("fsub", f.load(kind, f.gep(source, f.mul(at, 4))), f.splat(top, lanes))
        result = exp2_nonpositive(f, f.op("fmul", less, const(LOG2E, kind)))
        store(f, result, target, at)
        return result

    total = reduce_row(f, lanes, covered, const(0, "float"), lambda at, now: f.op("fadd", now, power(at)), lane_sum)
    if rest:
        total = f.op("fadd", total, lane_sum(f, _keep_last(f, power(last), rest)))
    inverse = f.splat(f.op("fdiv", const(1, "float"), total), lanes)

    def share(at: Reg, now: Reg) -> Reg:
        store(f, f.op("fmul", load(f, target, at, now), inverse), target, at)
        return now

    if rest:  # before the loop: the overlapping elements must not be scaled twice
        x = f.op("fmul", f.load(kind, target, 4 * (length - lanes)), inverse)
        f.store_first(f.shuffle(x, x, [*range(lanes - rest, lanes), *range(lanes - rest)]), rest, target, 4 * covered)
    reduce_row(f, lanes, covered, const(0, "float"), share, lambda f, x: const(0, "float"))


def _keep_last(f: Function, x: Reg, rest: int) -> Reg:
    """Zero all but the last ``rest`` lanes."""
    lanes = lane_count(x.type)
    listed = ", ".join(f"i1 {int(lane >= lanes - rest)}" for lane in range(lanes))
    return f.select(Reg(f"<{listed}>", vec(lanes, "i1")), x, const(0, x.type))


MaskedStep = Callable[[Reg, Reg, "Reg | None"], Reg]


class _RowVectors:
    """Iterates over the full vectors of a row, then over the remainder with a lane mask."""

    def __init__(self, f: Function, lanes: int, length: Reg) -> None:
        self.f, self.lanes, self.kind = f, lanes, vec(lanes, "float")
        self.full = f.mul(f.op("udiv", length, lanes), lanes)
        self.remainder = f.op("sub", length, self.full)
        self.mask = first_lanes_mask(f, self.remainder, lanes)

    def reduce(self, start: Reg, body: MaskedStep) -> Reg:
        """``body(index, total, mask)`` for each vector, carrying the total."""
        total = _loop_or_skip(self.f, self.full, start, lambda i, now: body(i, now, None), self.lanes)
        return _loop_or_skip(self.f, self.remainder, total, lambda _, now: body(self.full, now, self.mask), self.lanes)

    def load(self, row: Reg, at: Reg, mask: Reg | None, other: Reg) -> Reg:
        f, address = self.f, self.f.gep(row, self.f.mul(at, 4))
        if mask is None:
            return f.load(self.kind, address)
        return f.select(mask, masked_load(f, self.kind, address, mask), other)

    def store(self, result: Reg, row: Reg, at: Reg, mask: Reg | None) -> None:
        address = self.f.gep(row, self.f.mul(at, 4))
        self.f.store(result, address) if mask is None else masked_store(self.f, result, address, mask)


def emit_dynamic_softmax(module: Module, name: str, lanes: int) -> None:
    """Work units are rows. Arguments: data, output, length. Results are within 1e-6 of the largest."""
    f = module.kernel(name)
    data, out, length = f.load_arg(PTR, 0), f.load_arg(PTR, 1), f.load_arg(I64, 2)
    v = _RowVectors(f, lanes, length)
    low, zero = const(float("-inf"), v.kind), const(0, v.kind)

    def row(y: Reg) -> None:
        offset = f.op("mul", y, f.mul(length, 4))
        source, target = f.gep(data, offset), f.gep(out, offset)
        largest = lane_max(f, v.reduce(low, lambda at, now, mask: nan_max(f, now, v.load(source, at, mask, low))))
        moved = f.splat(largest, lanes)

        def power(at: Reg, now: Reg, mask: Reg | None) -> Reg:
            result = exp(f, f.op("fsub", v.load(source, at, mask, low), moved))
            v.store(result, target, at, mask)
            return f.op("fadd", now, result if mask is None else f.select(mask, result, zero))

        total = f.splat(lane_sum(f, v.reduce(zero, power)), lanes)

        def divide(at: Reg, now: Reg, mask: Reg | None) -> Reg:
            v.store(f.op("fdiv", v.load(target, at, mask, zero), total), target, at, mask)
            return now

        v.reduce(zero, divide)

    f.for_range(f.arg("begin"), f.arg("end"), row)
    f.ret()


def _loop_or_skip(f: Function, count: Reg, start: Reg, body: Callable[[Reg, Reg], Reg], step: int) -> Reg:
    """``body(i, value)`` for i in [0, count), which may be empty."""

    def run() -> list[Reg]:
        return f.loop(count, [start], lambda i, now: [body(i, now[0])], step)

    return f.if_then_phi(f.compare("ne", count, 0), [start], run)[0]
