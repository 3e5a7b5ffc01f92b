"""How near each operator of the engine comes to what the machine can do at best, the worst first.

    python benchmarks/ops.py [--threads 1] [--only linear]

An operator can be no faster than its products take at the machine's peak, nor than what it reads can be read (by a
loop that does nothing else; what caches hold, by one that adds it up), nor than as much as it writes can be copied; all
are measured in the same run, and the largest is its roofline. The least time of many runs counts, of the processor, so
that other programs matter less.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from edgewright.engine import compile, roofline
from edgewright.engine.isa import host_isa
from edgewright.engine.roofline import Peaks, measure
from edgewright.ir.graph import Graph, Op, QParams, Value

F32, I8, I64 = (np.dtype(t) for t in (np.float32, np.int8, np.int64))
SECONDS = 0.25  # for each operator
_NEAR = 4 << 20  # bytes that caches hold
RNG = np.random.default_rng(0)
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Case:
    graph: Graph
    macs: int = 0
    quantized: bool = False
    weights: int = 0  # bytes that are read beside inputs
    reads: int = 0  # all bytes that are read, where that is less than all inputs


def value(*shape: int, dtype: Any = F32, q: QParams | None = None) -> Value:
    return Value("v", np.dtype(dtype), shape, tuple(range(len(shape))), q=q)


def held(data: Any, q: QParams | None = None) -> Value:
    return Value("c", data.dtype, data.shape, tuple(range(data.ndim)), data, q=q)


def one(kind: str, out: Value, macs: int = 0, quantized: bool = False, weights: int = 0, **args: Any) -> Case:
    inputs = [v for a in args.values() for v in (a if isinstance(a, list) else [a]) if isinstance(v, Value)]
    given = [v for v in inputs if not v.constant]
    return Case(Graph(kind, given, [out], [Op(kind, args, [out])]), macs, quantized, weights)


def unary(kind: str, *shape: int, out: Shape | None = None, **args: Any) -> Callable[[], Case]:
    return lambda: one(kind, value(*(out or shape)), self=value(*shape), **args)


def linear(rows: int, depth: int, columns: int) -> Case:
    weight = held(RNG.standard_normal((columns, depth), np.float32))
    macs = rows * depth * columns
    return one("linear", value(rows, columns), macs, False, weight.nbytes, input=value(rows, depth), weight=weight,
               bias=None, transposed=False)  # fmt: skip


def linear8(rows: int, depth: int, columns: int) -> Case:
    q, wide = QParams(0.05, 3, I8, -128, 127), QParams((0.01,) * columns, 0, I8, -128, 127, 0)
    weight = held(RNG.integers(-127, 128, (columns, depth)).astype(np.int8), wide)
    out = value(rows, columns, dtype=I8, q=QParams(2.0, 0, I8, -128, 127))
    return one("linear", out, rows * depth * columns, True, weight.nbytes, input=value(rows, depth, dtype=I8, q=q),
               weight=weight, bias=None, transposed=False)  # fmt: skip


def dynamic(rows: int, depth: int, columns: int, bits: int, block: int | None = None) -> Case:
    """Rows quantized as they come."""
    low, high = (-8, 7) if bits == 4 else (-128, 127)
    scales = (0.01,) * (columns * (depth // block if block else 1))
    weight = held(
        RNG.integers(low, high + 1, (columns, depth)).astype(np.int8), QParams(scales, 0, I8, low, high, 0, block)
    )
    x, out = value(rows, depth), value(rows, columns)
    stored = value(rows, depth, dtype=I8, q=QParams(1.0, 0, I8, -128, 127, -1, dynamic="per_token"))
    product = Op("linear", {"input": stored, "weight": weight, "bias": None, "transposed": False}, [out])
    graph = Graph("dynamic", [x], [out], [Op("convert", {"self": x}, [stored]), product])
    return Case(graph, rows * depth * columns, True, weight.nbytes * bits // 8 + (4 * len(scales) if block else 0))


def matmul(batch: int, rows: int, depth: int, columns: int) -> Case:
    args = {"self": value(batch, rows, depth), "other": value(batch, depth, columns)}
    return one("bmm", value(batch, rows, columns), batch * rows * depth * columns, **args)


def scalar(kind: str, x: Value, constant: float) -> tuple[Value, Op]:
    out = value(*x.bound)
    return out, Op(kind, {"self": x, "other": held(np.float32([constant]))}, [out])


def attention(batch: int, rows: int, depth: int, quantized: bool) -> Case:
    """Scores, their softmax, and its product with values; of bytes, scores are products of bytes."""
    shapes = ((rows, depth), (depth, rows), (rows, depth))
    reals = [value(batch, *shape) for shape in shapes]
    given, first = reals, []
    if quantized:
        q = QParams(0.05, 3, I8, -128, 127)
        given = [value(batch, *shape, dtype=I8, q=q) for shape in shapes]
        first = [Op("convert", {"self": x}, [y]) for x, y in zip(given, reals, strict=True)]
    scores, shares, out = value(batch, rows, rows), value(batch, rows, rows), value(batch, rows, depth)
    scaled, scale = scalar("mul", scores, depth**-0.5)
    products = [Op("bmm", {"self": a, "other": b}, [c]) for a, b, c in
                ((reals[0], reals[1], scores), (shares, reals[2], out))]  # fmt: skip
    ops = [*first, products[0], scale, Op("softmax", {"self": scaled}, [shares]), products[1]]
    macs = batch * rows * rows * depth
    return Case(Graph("attention", given, [out], ops), macs + macs // (4 if quantized else 1))


def gather(size: int, width: int, count: int) -> Case:
    at = value(count, dtype=I64)
    return replace(one("index", value(count, width), self=value(size, width), indices=[at]), reads=4 * count * width)


ROWS = (197, 768)
CASES: dict[str, Callable[[], Case]] = {
    "linear, 128 rows": lambda: linear(128, 768, 768),
    "linear, 197 rows, 3072 deep": lambda: linear(197, 3072, 768),
    "linear, 1 row": lambda: linear(1, 4096, 4096),
    "linear int8, 128 rows": lambda: linear8(128, 768, 768),
    "linear int8, 197 rows, 3072 deep": lambda: linear8(197, 3072, 768),
    "linear int8, 1 row": lambda: linear8(1, 4096, 4096),
    "linear qd8, 128 rows": lambda: dynamic(128, 768, 768, 8),
    "linear qd8, 128 rows, 3072 deep": lambda: dynamic(128, 3072, 768, 8),
    "linear 4 bits, 128 rows": lambda: dynamic(128, 768, 768, 4),
    "linear 4 bits by 32, 128 rows": lambda: dynamic(128, 768, 768, 4, 32),
    "linear qd8, 1 row": lambda: dynamic(1, 4096, 4096, 8),
    "linear 4 bits, 1 row": lambda: dynamic(1, 4096, 4096, 4),
    "linear 4 bits by 32, 1 row": lambda: dynamic(1, 4096, 4096, 4, 32),
    "bmm, 197 rows": lambda: matmul(12, 197, 64, 197),
    "attention, 197 rows": lambda: attention(12, 197, 64, False),
    "attention int8, 197 rows": lambda: attention(12, 197, 64, True),
    "bmm, 1 row": lambda: matmul(16, 1, 64, 1024),
    "softmax": unary("softmax", 12, 197, 197),
    "layer_norm": lambda: one("layer_norm", value(*ROWS), input=value(*ROWS), normalized_shape=[768], eps=1e-5,
                              weight=held(np.ones(768, np.float32)), bias=held(np.ones(768, np.float32))),
    "rms_norm": lambda: one("rms_norm", value(*ROWS), input=value(*ROWS), normalized_shape=[768], eps=1e-5,
                            weight=held(np.ones(768, np.float32))),
    **{kind: unary(kind, *ROWS) for kind in ("gelu", "sigmoid", "tanh", "exp", "log", "sin", "sqrt", "neg")},
    "add": lambda: one("add", value(*ROWS), self=value(*ROWS), other=value(*ROWS)),
    "sum of rows": unary("sum", *ROWS, out=(197,), dim=[1], keepdim=False),
    "sum of columns": unary("sum", *ROWS, out=(768,), dim=[0], keepdim=False),
    "permute": unary("permute", 197, 768, out=(768, 197), dims=[1, 0]),
    "rows by index": lambda: gather(1000, 768, 200),
}  # fmt: skip


def seconds(graph: Graph, threads: int) -> float:
    """The least of many runs."""
    compiled = compile(graph, threads)
    inputs = [np.zeros(v.bound, v.dtype) if v.dtype != F32 else RNG.standard_normal(v.bound, np.float32) + 2
              for v in graph.inputs]  # fmt: skip
    outputs, clock = compiled.run(inputs), time.thread_time if threads == 1 else time.perf_counter
    best, until = float("inf"), time.perf_counter() + SECONDS
    while time.perf_counter() < until:
        start = clock()
        compiled.run(inputs, outputs)
        best = min(best, clock() - start)
    return best


@cache
def reading(size: int, threads: int) -> float:
    """How long it takes to read so many bytes."""
    if size > _NEAR:
        return size / roofline.measure_read_bandwidth(size, threads, host_isa()) / 1e9
    x, y = value(64, max(size // 256, 16)), value(64)
    total = Op("sum", {"self": x, "dim": [1], "keepdim": False}, [y])
    return seconds(Graph("read", [x], [y], [total]), threads)


@cache
def copying(size: int, threads: int) -> float:
    """How long it takes to copy so many bytes."""
    x, y = value(max(size // 4, 16)), value(max(size // 4, 16))
    return seconds(Graph("copy", [x], [y], [Op("clone", {"self": x}, [y])]), threads)


def floor(case: Case, peaks: Peaks, threads: int) -> float:
    read = case.reads or sum(v.nbytes for v in case.graph.inputs) + case.weights
    written = sum(v.nbytes for v in case.graph.outputs)
    times = [way(n, threads) for way, n in ((reading, read), (copying, written))]
    return max(case.macs / peaks.gmacs(case.quantized) / 1e9, *times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", help="operators whose name has this in it")
    args = parser.parse_args()
    chosen = {name: make for name, make in CASES.items() if not args.only or args.only in name}
    peaks, found = measure(args.threads, host_isa()), []
    for name, make in track(chosen.items(), "measuring", console=Console(stderr=True), transient=True):
        case = make()
        took, least = seconds(case.graph, args.threads), floor(case, peaks, args.threads)
        found.append((least / took, name, took, case.macs / took / 1e9))
    table = Table(title=f"share of the roofline, {args.threads} thread{'s' if args.threads > 1 else ''}")
    for column in ("operator", "us", "of its roofline", "GMAC/s"):
        table.add_column(column, justify="left" if column == "operator" else "right")
    for share, name, took, rate in sorted(found):
        table.add_row(name, f"{took * 1e6:.1f}", f"{share:.0%}", f"{rate:.0f}" if rate else "")
    Console().print(table)


if __name__ == "__main__":
    main()
