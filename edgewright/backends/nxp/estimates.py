"""An estimate of a device graph's time and memory on Neutron-C. It is arithmetic, not a measurement, and says so.

Assumptions: every pipeline multiplies as many input channels at a time as it has MACs, for one output channel each;
other operators take as many elements per cycle as there are pipelines; weights stream at 8 bytes per cycle while the
NPU works, so that an operator takes the longer of both; each operator costs 500 cycles to start. NXP's converter may
fuse, split or reorder operators; none of that is known here.
"""

from __future__ import annotations

import math
from typing import Any

from edgewright.backends.nxp.target import NeutronTargetSpec
from edgewright.ir.graph import Graph, Op, Value
from edgewright.ir.liveness import peak_memory
from edgewright.ir.tflite.table import PREFIX

LABEL = "Edgewright's analytic estimate"
_START, _BYTES_PER_CYCLE = 500, 8
_FREE = ("RESHAPE",)


def estimate(graph: Graph, target: NeutronTargetSpec) -> dict[str, Any]:
    """Plain data, as ``lowering.estimates`` describes."""
    info = target.neutron_target_info
    layers = [_layer(op, info.pipes, info.macs) for op in graph.ops]
    cycles, macs = (sum(layer[key] for layer in layers) for key in ("cycles", "macs"))
    room = cycles * info.pipes * info.macs * info.units
    weights = sum(v.nbytes for v in graph.values() if v.data is not None)
    return {
        "basis": LABEL,
        "target": target.get_name(),
        "cycles": cycles,
        "inferences_per_second": info.clock / cycles if cycles else 0.0,
        "mac_utilisation": macs / room if room else 0.0,
        "memory": {"sram": peak_memory(graph), "on_chip_flash": 0, "off_chip_flash": weights},
        "layers": layers,
    }


def _layer(op: Op, pipes: int, macs: int) -> dict[str, Any]:
    out = op.outputs[0]
    assert out is not None
    kind, given = op.kind.removeprefix(PREFIX), op.args["inputs"]
    count, work = _work(kind, given, out, pipes, macs)
    stream = sum(v.nbytes for v in given if v.data is not None) / _BYTES_PER_CYCLE
    cycles = 0 if kind in _FREE else math.ceil(max(work, stream)) + _START
    return {"name": out.name, "operator": kind, "cycles": cycles, "macs": count}


def _work(kind: str, given: list[Value], out: Value, pipes: int, macs: int) -> tuple[int, float]:
    """Multiply-accumulates, and cycles of the pipelines."""
    pixels = math.prod(out.bound[:-1])
    if kind in ("CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV"):
        weight = given[1].bound
        inner = math.prod(weight[1:-1])
        pixels = pixels if kind != "TRANSPOSE_CONV" else math.prod(given[2].bound[:-1])
        steps = inner * math.ceil(weight[-1] / macs) * math.ceil(weight[0] / pipes)
        return pixels * math.prod(weight), pixels * steps
    if kind == "BATCH_MATMUL":
        depth = given[0].bound[-1]
        return out.nbytes * depth, pixels * math.ceil(depth / macs) * math.ceil(out.bound[-1] / pipes)
    if kind == "DEPTHWISE_CONV_2D":
        taps = math.prod(given[1].bound[1:3])
        return out.nbytes * taps, pixels * taps * math.ceil(out.bound[-1] / pipes)
    if kind in ("MAX_POOL_2D", "AVERAGE_POOL_2D", "MEAN"):
        return 0, max(given[0].nbytes, out.nbytes) / pipes
    return 0, out.nbytes / pipes
