"""Analytic estimate of a device graph's time and memory on Neutron-C; not a measurement, and labeled as an estimate.

Assumptions: each pipeline computes one output channel and multiplies as many input channels per cycle as it has MACs;
other operators process one element per pipeline and cycle; weights are streamed at 8 bytes per cycle in parallel with
computation, so an operator takes the longer of both; each operator has a start-up cost of 500 cycles. NXP's converter
may fuse, split or reorder operators, which the estimate ignores.
"""

from __future__ import annotations

import math
from typing import Any

from edgewright.backends.nxp.dialect.table import PREFIX
from edgewright.backends.nxp.target import NeutronTargetSpec
from edgewright.ir.analysis import peak_memory
from edgewright.ir.graph import Graph, Op, Value
from edgewright.ir.layer_names import layer_name

LABEL = "Edgewright's analytic estimate"
_START_CYCLES, _BYTES_PER_CYCLE = 500, 8
_NO_COST = ("RESHAPE",)


def estimate(graph: Graph, target: NeutronTargetSpec) -> dict[str, Any]:
    """The estimate in the form that ``lowering.estimates`` documents."""
    info = target.neutron_target_info
    layers = [_layer(op, info.pipes, info.macs) for op in graph.ops]
    cycles, macs = (sum(layer[key] for layer in layers) for key in ("cycles", "macs"))
    peak_macs = cycles * info.pipes * info.macs * info.units
    weights = sum(v.nbytes for v in graph.values() if v.data is not None)
    return {
        "basis": LABEL,
        "target": target.get_name(),
        "cycles": cycles,
        "inferences_per_second": info.clock / cycles if cycles else 0.0,
        "mac_utilisation": macs / peak_macs if peak_macs else 0.0,
        "memory": {"sram": peak_memory(graph), "on_chip_flash": 0, "off_chip_flash": weights},
        "layers": layers,
    }


def _layer(op: Op, pipes: int, macs: int) -> dict[str, Any]:
    out = op.outputs[0]
    assert out is not None
    kind, inputs = op.kind.removeprefix(PREFIX), op.args["inputs"]
    count, compute = _work(kind, inputs, out, pipes, macs)
    load = sum(v.nbytes for v in inputs if v.data is not None) / _BYTES_PER_CYCLE
    cycles = 0 if kind in _NO_COST else math.ceil(max(compute, load)) + _START_CYCLES
    return {"name": layer_name(op), "operator": kind, "cycles": cycles, "macs": count}


def _work(kind: str, inputs: list[Value], out: Value, pipes: int, macs: int) -> tuple[int, float]:
    """Number of multiply-accumulates, and compute cycles."""
    pixels = math.prod(out.bound[:-1])
    if kind in ("CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV"):
        weight = inputs[1].bound
        inner = math.prod(weight[1:-1])
        pixels = pixels if kind != "TRANSPOSE_CONV" else math.prod(inputs[2].bound[:-1])
        steps = inner * math.ceil(weight[-1] / macs) * math.ceil(weight[0] / pipes)
        return pixels * math.prod(weight), pixels * steps
    if kind == "BATCH_MATMUL":
        depth = inputs[0].bound[-1]
        return out.nbytes * depth, pixels * math.ceil(depth / macs) * math.ceil(out.bound[-1] / pipes)
    if kind == "DEPTHWISE_CONV_2D":
        taps = math.prod(inputs[1].bound[1:3])
        return out.nbytes * taps, pixels * taps * math.ceil(out.bound[-1] / pipes)
    if kind in ("MAX_POOL_2D", "AVERAGE_POOL_2D", "MEAN"):
        return 0, max(inputs[0].nbytes, out.nbytes) / pipes
    return 0, out.nbytes / pipes
