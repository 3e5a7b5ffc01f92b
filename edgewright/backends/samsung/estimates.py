"""An estimate of an ENN graph's time and memory on an Exynos NPU. It is arithmetic, not a measurement, and says so.

Samsung publishes neither the NPU's clock nor its width, only 59 trillion operations a second for the Exynos 2500, and
no number for the Exynos 2600, which is taken to be no slower. Assumptions: that is 29,500 multiply-accumulates of 8
bits a cycle at 1 GHz; 16-bit operands and real numbers take four times as long; what is not a product handles 4096
bytes a cycle; weights stream at 64 bytes a cycle while the NPU works, so that an operator takes the longer of both;
each operator costs 2000 cycles to start. AI LiteCore fuses and reorders; none of that is known here.
"""

from __future__ import annotations

import math
from typing import Any

from edgewright.backends.samsung.target import EnnTarget
from edgewright.ir.enn.table import PREFIX
from edgewright.ir.graph import Graph, Op, Value
from edgewright.ir.liveness import peak_memory

LABEL = "Edgewright's lower bound, no dispatch: analytic estimate"
CLOCK = 1e9
MACS = 29_500  # of 8 bits, a cycle
_START, _STREAM, _BYTES, _WIDE = 2000, 64, 4096, 4
_FREE = ("RESHAPE",)


def estimate(graph: Graph, target: EnnTarget) -> dict[str, Any]:
    """Plain data, as ``lowering.estimates`` describes."""
    layers = [_layer(op) for op in graph.ops]
    cycles, macs = (sum(layer[key] for layer in layers) for key in ("cycles", "macs"))
    weights = sum(v.nbytes for v in graph.values() if v.data is not None)
    return {
        "basis": LABEL,
        "target": target.chipset.name,
        "cycles": cycles,
        "inferences_per_second": CLOCK / cycles if cycles else 0.0,
        "mac_utilisation": macs / (cycles * MACS) if cycles else 0.0,
        "memory": {"dram": weights + peak_memory(graph)},
        "layers": layers,
    }


def _layer(op: Op) -> dict[str, Any]:
    out = next(o for o in op.outputs if o is not None)
    kind, given = op.kind.removeprefix(PREFIX), op.args["inputs"]
    count = _products(kind, given, out)
    narrow = out.q is not None and out.q.dtype.itemsize == 1
    work = count * (1 if narrow else _WIDE) / MACS if count else max(v.nbytes for v in (*given, out)) / _BYTES
    stream = sum(v.nbytes for v in given if v.data is not None) / _STREAM
    cycles = 0 if kind in _FREE else math.ceil(max(work, stream)) + _START
    return {"name": out.name, "operator": kind, "cycles": cycles, "macs": count}


def _products(kind: str, given: list[Value], out: Value) -> int:
    """Multiply-accumulates."""
    if kind.endswith("DECONV2D"):
        return math.prod(given[0].bound) * math.prod(given[1].bound[2:]) * given[1].bound[0]
    if kind.endswith("CONV2D"):
        return math.prod(out.bound) * math.prod(given[1].bound[1:])
    if kind in ("FC", "BATCH_MATMUL"):
        return math.prod(out.bound) * given[0].bound[-1]
    return 0
