"""Analytic estimate of a device graph's time and memory on a SoC; not a measurement, and labelled as an estimate.

Assumptions: the matrix unit runs at its peak, in tiles of 32 by 32 channels, at half speed for 16-bit activations and a
quarter for floating point; all other work is done by the vector unit, four threads of 128 bytes per cycle; weights are
read from DRAM once, and so are tensors that together exceed the HTP's local memory; an operator takes the longest of
these, and operators do not overlap. Qualcomm's compiler fuses and tiles, which the estimate ignores.
"""

from __future__ import annotations

import math
from typing import Any

from edgewright.backends.qualcomm.soc_peaks import Peaks, peaks
from edgewright.backends.qualcomm.target import QnnTarget
from edgewright.ir.graph import Graph, Op, Value
from edgewright.ir.liveness import peak_memory

LABEL = "Edgewright's lower bound, no dispatch: analytic estimate"
_TILE, _VECTOR = 32, 4 * 128
_PRODUCTS = ("Conv2d", "Conv3d", "TransposeConv2d", "TransposeConv3d", "FullyConnected", "MatMul")
_FREE = ("Reshape",)


def estimate(device: Graph, target: QnnTarget) -> dict[str, Any]:
    """Plain data, as ``lowering.estimates`` describes, with the figures that it rests on."""
    found = peaks(target.soc)
    vtcm = target.htp.vtcm << 20
    layers = [_layer(op, found, vtcm) for op in device.ops]
    cycles, macs = (sum(layer[key] for layer in layers) for key in ("cycles", "macs"))
    clock = found.clock.value
    room = cycles / clock * found.tops.value * 1e12 / 2
    largest = peak_memory(device, _bytes)
    weights = sum(_bytes(v) for v in device.values() if v.constant)
    return {
        "basis": LABEL,
        "target": target.soc.name,
        "cycles": cycles,
        "inferences_per_second": clock / cycles if cycles else 0.0,
        "mac_utilisation": macs / room if room else 0.0,
        "memory": {"sram": min(largest, vtcm), "dram": weights + max(0, largest - vtcm)},
        "figures": {
            f"{found.tops.value:g} TOPS": found.tops.cited,
            f"{found.memory.value:g} GB/s": found.memory.cited,
            f"{clock / 1e9:g} GHz": found.clock.cited,
        },
        "layers": layers,
    }


def _bytes(value: Value) -> int:
    """Of elements as the HTP holds them: real numbers in 16 bits, weights of 4 bits in pairs."""
    count = math.prod(value.bound)
    q = value.q
    if q is not None and value.constant and q.qmax - q.qmin <= 15:
        return -(-count // 2)
    size = value.dtype.itemsize if value.dtype is not None else 1
    return count * (2 if q is None and value.dtype is not None and value.dtype.kind == "f" else size)


def _layer(op: Op, found: Peaks, vtcm: int) -> dict[str, Any]:
    made = [o for o in op.outputs if o is not None]
    given = op.args["inputs"]
    moving = sum(_bytes(v) for v in (*given, *made) if not v.constant)
    streamed = sum(_bytes(v) for v in given if v.constant) + (moving if moving > vtcm else 0)
    macs, padded = _macs(op.kind, given, made[0]) if op.kind in _PRODUCTS else (0, 0)
    if op.kind == "DepthWiseConv2d":
        macs = math.prod(made[0].bound) * math.prod(given[1].bound[:-2])
    product = padded * _slowness(given) / (found.tops.value * 1e12 / 2)
    vector = 0.0 if padded else max(moving, macs) / (_VECTOR * found.clock.value)
    seconds = 0.0 if op.kind in _FREE else max(product, vector, streamed / (found.memory.value * 1e9))
    return {"name": made[0].name, "operator": op.kind, "cycles": math.ceil(seconds * found.clock.value), "macs": macs}


def _slowness(given: list[Value]) -> int:
    x = given[0]
    if x.q is None:
        return 4
    return 1 if x.q.dtype.itemsize == 1 else 4 if len(given) > 1 and _wide(given[1]) else 2


def _wide(value: Value) -> bool:
    return value.q is not None and value.q.dtype.itemsize == 2


def _macs(kind: str, given: list[Value], out: Value) -> tuple[int, int]:
    """Multiply-adds, and as many as whole tiles make of them."""
    x, weight = given[0].bound, given[1].bound
    if kind == "MatMul":
        places, taps, inputs, outputs = math.prod(out.bound[:-1]), 1, x[-1], out.bound[-1]
    elif kind == "FullyConnected":
        places, taps, inputs, outputs = x[0], 1, weight[1], weight[0]
    else:
        grown = kind.startswith("Transpose")
        places = math.prod((x if grown else out.bound)[:-1])
        taps, inputs, outputs = math.prod(weight[:-2]), weight[-2], weight[-1]
    tiles = math.ceil(inputs / _TILE) * math.ceil(outputs / _TILE) * _TILE * _TILE
    return places * taps * inputs * outputs, places * taps * tiles
