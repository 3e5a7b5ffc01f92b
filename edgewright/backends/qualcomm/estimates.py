"""Analytic estimate of a device graph's time and memory on a SoC; not a measurement, and labeled as an estimate.

Assumptions: the matrix unit runs at its peak, in tiles of 32 by 32 channels, at half speed for 16-bit activations and a
quarter for floating point; all other work is done by the vector unit, four threads of 128 bytes per cycle; weights are
read from DRAM once, and so are tensors that together exceed the HTP's local memory; an operator takes the longest of
these, and operators do not overlap. Qualcomm's compiler fuses and tiles, which the estimate ignores.

That is a lower bound. Calling the HTP takes longer than a small network does, so the estimate is a range: ``CALL`` is
what published measurements are above the bound at most.
"""

from __future__ import annotations

import math
from typing import Any

from edgewright.backends.qualcomm.soc_peaks import CALL, SocPeaks, peaks
from edgewright.backends.qualcomm.target import QnnTarget
from edgewright.ir.analysis import peak_memory
from edgewright.ir.graph import Graph, Op, Value
from edgewright.ir.layer_names import layer_name

LABEL = "Edgewright's analytic bound"
_TILE, _VECTOR = 32, 4 * 128
_GEMMS = ("Conv2d", "Conv3d", "TransposeConv2d", "TransposeConv3d", "FullyConnected", "MatMul")
_NO_COST = ("Reshape",)


def estimate(device: Graph, target: QnnTarget) -> dict[str, Any]:
    """The estimate as described in ``lowering.estimates``, with the peak figures it is based on."""
    peak = peaks(target.soc)
    vtcm = target.htp.vtcm << 20
    layers = [_layer(op, peak, vtcm) for op in device.ops]
    cycles, macs = (sum(layer[key] for layer in layers) for key in ("cycles", "macs"))
    clock = peak.clock.value
    peak_macs = cycles / clock * peak.tops.value * 1e12 / 2
    largest = peak_memory(device, _bytes)
    weights = sum(_bytes(v) for v in device.values() if v.constant)
    return {
        "basis": LABEL,
        "target": target.soc.name,
        "cycles": cycles,
        "inferences_per_second": clock / cycles if cycles else 0.0,
        "seconds": [cycles / clock, cycles / clock + CALL.value],
        "mac_utilisation": macs / peak_macs if peak_macs else 0.0,
        "memory": {"sram": min(largest, vtcm), "dram": weights + max(0, largest - vtcm)},
        "figures": {
            f"{peak.tops.value:g} TOPS": peak.tops.citation,
            f"{peak.memory.value:g} GB/s": peak.memory.citation,
            f"{clock / 1e9:g} GHz": peak.clock.citation,
            f"{CALL.value * 1e3:g} ms a call": CALL.citation,
        },
        "layers": layers,
    }


def _bytes(value: Value) -> int:
    """Size on the HTP: floating point in 16 bits, 4-bit weights packed in pairs."""
    count = math.prod(value.bound)
    q = value.q
    if q is not None and value.constant and q.qmax - q.qmin <= 15:
        return -(-count // 2)
    size = value.dtype.itemsize if value.dtype is not None else 1
    return count * (2 if q is None and value.dtype is not None and value.dtype.kind == "f" else size)


def _layer(op: Op, peak: SocPeaks, vtcm: int) -> dict[str, Any]:
    outputs = [o for o in op.outputs if o is not None]
    inputs = op.args["inputs"]
    moving = sum(_bytes(v) for v in (*inputs, *outputs) if not v.constant)
    streamed = sum(_bytes(v) for v in inputs if v.constant) + (moving if moving > vtcm else 0)
    macs, padded = _macs(op.kind, inputs, outputs[0]) if op.kind in _GEMMS else (0, 0)
    if op.kind == "DepthWiseConv2d":
        macs = math.prod(outputs[0].bound) * math.prod(inputs[1].bound[:-2])
    product = padded * _cycles_per_mac(inputs) / (peak.tops.value * 1e12 / 2)
    vector = 0.0 if padded else max(moving, macs) / (_VECTOR * peak.clock.value)
    seconds = 0.0 if op.kind in _NO_COST else max(product, vector, streamed / (peak.memory.value * 1e9))
    return {"name": layer_name(op), "operator": op.kind, "cycles": math.ceil(seconds * peak.clock.value), "macs": macs}


def _cycles_per_mac(inputs: list[Value]) -> int:
    x = inputs[0]
    if x.q is None:
        return 4
    return 1 if x.q.dtype.itemsize == 1 else 4 if len(inputs) > 1 and _is_int16(inputs[1]) else 2


def _is_int16(value: Value) -> bool:
    return value.q is not None and value.q.dtype.itemsize == 2


def _macs(kind: str, inputs: list[Value], out: Value) -> tuple[int, int]:
    """Multiply-accumulates, and their number with channels padded to full tiles."""
    x, weight = inputs[0].bound, inputs[1].bound
    if kind == "MatMul":
        positions, taps, channels, outputs = math.prod(out.bound[:-1]), 1, x[-1], out.bound[-1]
    elif kind == "FullyConnected":
        positions, taps, channels, outputs = x[0], 1, weight[1], weight[0]
    else:
        transposed = kind.startswith("Transpose")
        positions = math.prod((x if transposed else out.bound)[:-1])
        taps, channels, outputs = math.prod(weight[:-2]), weight[-2], weight[-1]
    tiles = math.ceil(channels / _TILE) * math.ceil(outputs / _TILE) * _TILE * _TILE
    return positions * taps * channels * outputs, positions * taps * tiles
