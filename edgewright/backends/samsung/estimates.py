"""Analytic estimate of an ENN graph's time and memory on an Exynos NPU; not a measurement, and labeled as an estimate.

Samsung publishes neither the NPU's clock nor its width, only 59 TOPS for the Exynos 2500 and nothing for the Exynos
2600, which is assumed to be no slower. Assumptions: 29,500 int8 multiply-accumulates per cycle at 1 GHz; 16-bit and
floating-point operands take four times as long; other operators process 4096 bytes per cycle; weights are streamed at
64 bytes per cycle in parallel with computation, so an operator takes the longer of both; each operator has a start-up
cost of 2000 cycles. AI LiteCore fuses and reorders operators, which the estimate ignores.

That is a lower bound, so the estimate is a range: at most, every operator takes ``OPERATOR`` more, as on an older chip.
"""

from __future__ import annotations

import math
from typing import Any

from edgewright.backends.samsung.dialect.table import PREFIX
from edgewright.backends.samsung.target import EnnTarget
from edgewright.ir.analysis import peak_memory
from edgewright.ir.graph import Graph, Op, Value
from edgewright.ir.layer_names import layer_name

LABEL = "Edgewright's analytic bound"
# MobileNet-V2 in int8, 67 operators here with a bound of 0.19 ms, takes 2.2 ms on an Exynos 2100 (26 TOPS).
OPERATOR = 30e-6  # seconds
SOURCE = (
    "AI Benchmark: MobileNet-V2 in int8 takes 2.2 ms on an Exynos 2100; later chips are assumed to be no slower "
    "(https://ai-benchmark.net/index.php?threads/nnapi-usage-on-exynos-2100-devices.15/post-590)"
)
CLOCK = 1e9
MACS = 29_500  # of 8 bits, a cycle
_START_CYCLES, _LOAD_BYTES_PER_CYCLE, _MOVE_BYTES_PER_CYCLE, _WIDE_FACTOR = 2000, 64, 4096, 4
_NO_COST = ("RESHAPE",)


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
        "seconds": [cycles / CLOCK, cycles / CLOCK + OPERATOR * sum(1 for layer in layers if layer["cycles"])],
        "figures": {f"{OPERATOR * 1e6:g} µs an operator": SOURCE},
        "mac_utilisation": macs / (cycles * MACS) if cycles else 0.0,
        "memory": {"dram": weights + peak_memory(graph)},
        "layers": layers,
    }


def _layer(op: Op) -> dict[str, Any]:
    out = next(o for o in op.outputs if o is not None)
    kind, inputs = op.kind.removeprefix(PREFIX), op.args["inputs"]
    count = _macs(kind, inputs, out)
    narrow = out.q is not None and out.q.dtype.itemsize == 1
    compute = (
        count * (1 if narrow else _WIDE_FACTOR) / MACS
        if count
        else max(v.nbytes for v in (*inputs, out)) / _MOVE_BYTES_PER_CYCLE
    )
    load = sum(v.nbytes for v in inputs if v.data is not None) / _LOAD_BYTES_PER_CYCLE
    cycles = 0 if kind in _NO_COST else math.ceil(max(compute, load)) + _START_CYCLES
    return {"name": layer_name(op), "operator": kind, "cycles": cycles, "macs": count}


def _macs(kind: str, inputs: list[Value], out: Value) -> int:
    """Number of multiply-accumulates."""
    if kind.endswith("DECONV2D"):
        return math.prod(inputs[0].bound) * math.prod(inputs[1].bound[2:]) * inputs[1].bound[0]
    if kind.endswith("CONV2D"):
        return math.prod(out.bound) * math.prod(inputs[1].bound[1:])
    if kind in ("FC", "BATCH_MATMUL"):
        return math.prod(out.bound) * inputs[0].bound[-1]
    return 0
