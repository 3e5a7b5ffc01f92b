"""Vectorized reductions and loops over contiguous rows."""

from __future__ import annotations

from collections.abc import Callable

from edgewright.engine.codegen.builder import I64, Function, Reg, const, element_type, lane_count, vec

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
