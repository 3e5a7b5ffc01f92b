"""Layer, group and RMS normalization of contiguous rows."""

from __future__ import annotations

from dataclasses import dataclass

from edgewright.engine.codegen.builder import PTR, Function, Module, Reg, const, lane_count
from edgewright.engine.codegen.math_float32 import FUNCTIONS
from edgewright.engine.codegen.vector import fma
from edgewright.engine.kernels.row_reduce import for_each, lane_sum, load, reduce_row, store


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
