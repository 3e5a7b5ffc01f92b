"""One-dimensional filter over a dense tensor: weighted sums of neighbors, for separable resizes and window means."""

from __future__ import annotations

from dataclasses import dataclass

from edgewright.engine.codegen.builder import I64, PTR, Function, Module, Reg, const, vec
from edgewright.engine.codegen.math_float64 import call_intrinsic


@dataclass(frozen=True)
class SeparableFilterSpec:
    """From ``size`` elements with stride ``inner`` to ``count`` results of at most ``taps`` taps each."""

    size: int
    inner: int
    count: int
    taps: int


def emit_separable_filter(module: Module, name: str, spec: SeparableFilterSpec, lanes: int) -> None:
    """Work units are rows of ``inner`` results. Arguments: data, output, first taps and tap counts (int32), weights."""
    f = module.kernel(name)
    data, out, starts, counts, weights = (f.load_arg(PTR, i) for i in range(5))
    row = 4 * spec.inner
    width = lanes if spec.inner >= lanes else 1

    def unit(index: Reg) -> None:
        outer, position = f.op("udiv", index, spec.count), f.op("urem", index, spec.count)
        start, tap_count = (f.cast("zext", f.load("i32", f.gep(p, f.mul(position, 4)), align=4), I64)
                            for p in (starts, counts))  # fmt: skip
        first = f.add(f.mul(outer, spec.size), start)
        source, target = f.gep(data, f.mul(first, row)), f.gep(out, f.mul(index, row))
        factors = f.gep(weights, f.mul(position, 4 * spec.taps))

        def block(at: Reg, _: list[Reg]) -> list[Reg]:
            # The last block overlaps the one before it.
            column = f.mul(f.call("llvm.umin.i64", I64, at, const(spec.inner - width, I64)), 4)
            total = _weighted_sum(f, f.gep(source, column), factors, tap_count, row, width)
            f.store(total, f.gep(target, column))
            return []

        f.loop(spec.inner, [], block, width)

    f.for_range(f.arg("begin"), f.arg("end"), unit)
    f.ret()


def _weighted_sum(f: Function, source: Reg, factors: Reg, times: Reg, row: int, width: int) -> Reg:
    kind = vec(width, "float")

    def tap(k: Reg, now: list[Reg]) -> list[Reg]:
        weight = f.splat(f.load("float", f.gep(factors, f.mul(k, 4))), width)
        return [f.gep(now[0], row), call_intrinsic(f, "fma", weight, f.load(kind, now[0]), now[1])]

    return f.loop(times, [source, const(0, kind)], tap)[1]
