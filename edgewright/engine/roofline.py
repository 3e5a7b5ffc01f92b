"""Roofline model (Williams, Waterman and Patterson, 2009) with peaks measured on this machine by generated code.

Peaks are measured once per thread count and stored in the object cache.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from edgewright._version import VERSION
from edgewright.engine.codegen.builder import Function, Module, Reg, const, vec
from edgewright.engine.codegen.vector import WEIGHT_STREAMS, Int8Dot, fma
from edgewright.engine.isa import ISA, host_isa
from edgewright.engine.jit.cache import Cache, cache_key, default_cache
from edgewright.engine.jit.thread_count import thread_count
from edgewright.engine.plan import Address, Plan, Step
from edgewright.ir.analysis import count_macs
from edgewright.ir.graph import Graph, Op, Value

_CHAINS = 12  # independent accumulators: hide FMA latency, fit 16 registers
_ROUNDS = 2000  # per unit of work
_STREAM = 96 << 20  # bytes, larger than caches
_PIECE = 1 << 20
_MEASURE = 0.15  # seconds per peak


@dataclass(frozen=True)
class Peaks:
    """Peak float32 and int8 GMAC/s, and memory read bandwidth in GB/s."""

    threads: int
    isa: str
    float_gmacs: float
    byte_gmacs: float
    memory_gbytes: float

    def gmacs(self, quantized: bool) -> float:
        return self.byte_gmacs if quantized else self.float_gmacs


def peaks(threads: int | None = None, cache: Cache | None = None) -> Peaks:
    """The peaks of this machine, measured on first use."""
    count, isa, store = thread_count(threads), host_isa(), cache or default_cache()
    key = cache_key("peaks", VERSION, isa.cpu, isa.features, str(count))
    known = store.get(key)
    if known is not None:
        return Peaks(**json.loads(known))
    measured = measure(count, isa)
    store.put(key, json.dumps(asdict(measured)).encode())
    return measured


def measure(threads: int, isa: ISA) -> Peaks:
    """Measure each peak as the best of many short runs on ``threads`` threads."""
    products = 16 * threads * _CHAINS * _ROUNDS * isa.lanes
    float_time = _best(_arithmetic(isa, "peak_float", _float_chain), threads)
    int8_time = _best(_arithmetic(isa, "peak_byte", _byte_chain), threads)
    stream = measure_read_bandwidth(_STREAM, threads, isa)
    return Peaks(threads, isa.name, products / float_time / 1e9, 4 * products / int8_time / 1e9, stream)


def measure_read_bandwidth(size: int, threads: int, isa: ISA) -> float:
    """GB/s of reading ``size`` bytes repeatedly; smaller sizes measure caches."""
    rounded = max(1, size // _PIECE) * _PIECE
    return rounded / _best(_reading(isa, rounded), threads) / 1e9


def _best(make: Callable[[int], Plan], threads: int) -> float:
    from edgewright.engine.jit.driver import CompiledGraph

    graph = CompiledGraph(make(threads), threads)
    best, end = float("inf"), time.perf_counter() + _MEASURE
    while time.perf_counter() < end:
        start = time.perf_counter()
        graph.run([], [])
        best = min(best, time.perf_counter() - start)
    return best


def _arithmetic(isa: ISA, name: str, chain: Callable[[Function, ISA, Reg, Reg], Reg]) -> Callable[[int], Plan]:
    """A kernel of register-only multiply-adds. Operands are loaded, so that LLVM cannot fold them."""
    module = Module()
    f = module.kernel(name)
    kind = "float" if name == "peak_float" else "i32"
    first = [const(k, vec(isa.lanes, kind)) for k in range(_CHAINS)]
    loaded = f.load(vec(isa.lanes, kind), f.arg("scratch"), _CHAINS * isa.bytes)

    def unit(_: Reg) -> None:
        sums = f.loop(_ROUNDS, first, lambda i, sums: [chain(f, isa, s, loaded) for s in sums])
        for at, total in enumerate(sums):  # stored, so that it is not dead code
            f.store(total, f.arg("scratch"), at * isa.bytes)

    f.for_range(f.arg("begin"), f.arg("end"), unit)
    f.ret()
    text = module.text()
    return lambda threads: _plan(isa, Step(name, (), 16 * threads, 1, macs=10**9), text)


def _float_chain(f: Function, isa: ISA, total: Reg, loaded: Reg) -> Reg:
    return fma(f, total, loaded, loaded)


def _byte_chain(f: Function, isa: ISA, total: Reg, loaded: Reg) -> Reg:
    if isa.dot:
        dots, bytes_ = Int8Dot(f, isa), f.bitcast(loaded, vec(4 * isa.lanes, "i8")) if isa.lanes == 4 else loaded
        return dots.add(total, dots.data(bytes_), dots.weights(bytes_))
    changing, even = (f.bitcast(x, vec(2 * isa.lanes, "i16")) for x in (total, loaded))
    return Int8Dot(f, isa).add(
        total, (changing, changing), (even, f.op("xor", even, 1))
    )  # distinct operands defeat CSE


def _reading(isa: ISA, size: int) -> Callable[[int], Plan]:
    """A kernel that reads a megabyte per unit in several streams."""
    module = Module()
    f = module.kernel("peak_read")
    source, kind = f.load_arg("ptr", 0), vec(isa.lanes, "i32")
    loads_per_stream = 8 // WEIGHT_STREAMS

    def unit(index: Reg) -> None:
        base = f.gep(source, f.mul(index, _PIECE))

        def once(i: Reg, sums: list[Reg]) -> list[Reg]:
            offsets = [
                k // loads_per_stream * (_PIECE // WEIGHT_STREAMS) + k % loads_per_stream * isa.bytes for k in range(8)
            ]
            return [f.op("or", s, f.load(kind, f.gep(base, i), p)) for p, s in zip(offsets, sums, strict=True)]

        for at, total in enumerate(
            f.loop(_PIECE // WEIGHT_STREAMS, [const(0, kind)] * 8, once, step=loads_per_stream * isa.bytes)
        ):
            f.store(total, f.arg("scratch"), at * isa.bytes)

    f.for_range(f.arg("begin"), f.arg("end"), unit)
    f.ret()
    text = module.text()
    step = Step("peak_read", (Address("weights", 0),), size // _PIECE, 1, macs=10**9)
    return lambda threads: _plan(isa, step, text, size)


def _plan(isa: ISA, step: Step, text: str, weights: int = 0) -> Plan:
    scratch = (_CHAINS + 1) * isa.bytes
    data = np.ones(weights, np.uint8)  # written, because untouched memory maps to one zero page
    return Plan((step,), {step.kernel: text}, data, 0, scratch, (), (), isa.cpu, isa.features)


@dataclass(frozen=True)
class OpEstimate:
    """A lower bound on an operator's time, and its bottleneck: ``products`` or ``memory``."""

    op: str
    macs: int
    bytes: int
    us: float
    bound: str


@dataclass(frozen=True)
class Estimate:
    """A lower bound on a graph's time."""

    peaks: Peaks
    ops: tuple[OpEstimate, ...]

    @property
    def ms(self) -> float:
        return sum(op.us for op in self.ops) / 1e3

    def data(self) -> dict[str, Any]:
        """As plain data, like other targets' estimates."""
        return {
            "basis": "roofline from measured peaks",
            "target": f"this CPU, {self.peaks.isa}, {self.peaks.threads} threads",
            "milliseconds": self.ms,
            "inferences_per_second": 1e3 / self.ms if self.ms else 0.0,
            "layers": [asdict(op) for op in self.ops],
        }


def estimate(graph: Graph, target: Peaks | None = None) -> Estimate:
    """Roofline estimate: per operator, the larger of compute time at peak and time to read its constants.

    Intermediates are assumed to stay in caches.
    """
    limits = target or peaks()
    return Estimate(limits, tuple(_estimate(op, limits) for op in graph.ops))


def _estimate(op: Op, limits: Peaks) -> OpEstimate:
    values = list(dict.fromkeys(op.inputs()))
    read = sum(v.nbytes for v in values if v.constant)
    touched = sum(v.nbytes for v in values) + sum(v.nbytes for v in op.outputs if v is not None)
    macs = count_macs(op)
    products = macs / limits.gmacs(_quantized(values)) / 1e3
    memory = read / limits.memory_gbytes / 1e3
    return OpEstimate(op.name, macs, touched, max(products, memory), "products" if products >= memory else "memory")


def _quantized(values: list[Value]) -> bool:
    return bool(values) and all(v.q is not None and v.q.dtype.itemsize == 1 for v in values[:2])
