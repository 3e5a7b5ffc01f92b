"""Softmax over contiguous rows: maximum, exponentials with their sum, scaling, in three passes over the row."""

from __future__ import annotations

from edgewright.engine.codegen.builder import I64, PTR, Function, Module, Reg, const, lane_count, vec
from edgewright.engine.codegen.math_float32 import exp2_nonpositive
from edgewright.engine.kernels.row_reduce import lane_max, lane_sum, load, nan_max, reduce_row, store

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
