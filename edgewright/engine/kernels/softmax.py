"""Softmax along rows that lie densely."""

from __future__ import annotations

from collections.abc import Callable

from edgewright.engine.codegen import PTR, Function, Module, Reg, count, element, number, vec
from edgewright.engine.functions import exp


def emit_softmax(module: Module, name: str, lanes: int, length: int) -> None:
    """Units are rows. Slots: data, output. Results are within 1e-6 of the largest."""
    f = module.kernel(name)
    data, out = f.slot(PTR, 0), f.slot(PTR, 1)

    def row(y: Reg) -> None:
        offset = f.mul(y, 4 * length)
        source, target = f.at(data, offset), f.at(out, offset)
        lowest = number(float("-inf"), "float")
        largest = _fold(f, lanes, length, lowest, lambda at, now: _larger(f, now, _load(f, source, at, now)), _largest)

        def power(at: Reg, now: Reg) -> Reg:
            x = f.op("fsub", _load(f, source, at, now), f.splat(largest, count(now.type)))
            made = exp(f, x)
            f.store(made, f.at(target, f.mul(at, 4)))
            return f.op("fadd", now, made)

        total = _fold(f, lanes, length, number(0, "float"), power, _sum)

        def divide(at: Reg, now: Reg) -> Reg:
            x = f.op("fdiv", _load(f, target, at, now), f.splat(total, count(now.type)))
            f.store(x, f.at(target, f.mul(at, 4)))
            return now

        _fold(f, lanes, length, number(0, "float"), divide, lambda f, x: x)

    f.span(f.arg("begin"), f.arg("end"), row)
    f.give()


def _load(f: Function, source: Reg, at: Reg, like: Reg) -> Reg:
    return f.load(like.type, f.at(source, f.mul(at, 4)))


def _larger(f: Function, a: Reg, b: Reg) -> Reg:
    best = f.select(f.compare("ogt", a, b), a, b)  # b if it is NaN
    return f.select(f.compare("uno", a, a), a, best)


def _halved(f: Function, x: Reg, join: Callable[[Reg, Reg], Reg]) -> Reg:
    while count(x.type) > 1:
        half = count(x.type) // 2
        x = join(f.shuffle(x, x, range(half)), f.shuffle(x, x, range(half, 2 * half)))
    return x


def _largest(f: Function, x: Reg) -> Reg:
    return _halved(f, x, lambda a, b: _larger(f, a, b))


def _sum(f: Function, x: Reg) -> Reg:
    return _halved(f, x, lambda a, b: f.op("fadd", a, b))


def _fold(f: Function, lanes: int, length: int, start: Reg, body: Callable[[Reg, Reg], Reg],
          join: Callable[[Function, Reg], Reg]) -> Reg:  # fmt: skip
    """``body(index, value)`` along a row: vectors, made one number by ``join``, then what is left one by one."""
    whole = length // lanes * lanes
    value = start
    if whole:
        wide = Reg(f"splat ({start.type} {start})", vec(lanes, element(start.type)))
        value = join(f, f.repeat(whole, [wide], lambda i, now: [body(i, now[0])], lanes)[0])
        if count(value.type) > 1:
            value = start
    if length > whole:
        value = f.repeat(length - whole, [value], lambda i, now: [body(f.add(i, whole), now[0])])[0]
    return value
