"""Peaks and estimates: their arithmetic, not this machine's speed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from edgewright.engine import roofline
from edgewright.engine.isa import host_isa
from edgewright.engine.jit.cache import Cache
from edgewright.engine.roofline import Peaks, estimate
from edgewright.ir.graph import Graph, Op, QParams, Value

LIMITS = Peaks(1, "avx2", float_gmacs=50.0, byte_gmacs=200.0, memory_gbytes=10.0)
FLOAT, BYTE = np.dtype(np.float32), np.dtype(np.int8)


def linear(rows: int, inputs: int, outputs: int, quantized: bool = False) -> Graph:
    kind = BYTE if quantized else FLOAT
    q = QParams(0.1, 0, BYTE, -128, 127) if quantized else None
    x = Value("x", kind, (rows, inputs), q=q)
    weight = Value("w", kind, (outputs, inputs), data=np.zeros((outputs, inputs), kind), q=q)
    y = Value("y", kind, (rows, outputs), q=q)
    return Graph("g", [x], [y], [Op("core.linear", {"input": x, "weight": weight, "bias": None}, [y])])


def test_products_bound_what_uses_weights_often() -> None:
    (op,) = estimate(linear(1000, 100, 100), LIMITS).ops
    assert (op.macs, op.bound) == (10_000_000, "products")
    assert op.us == pytest.approx(200)
    assert estimate(linear(1000, 100, 100, quantized=True), LIMITS).ops[0].us == pytest.approx(50)


def test_memory_bounds_what_uses_weights_once() -> None:
    found = estimate(linear(1, 1000, 1000), LIMITS)
    assert found.ops[0].bound == "memory"
    assert found.ms == pytest.approx(0.4)
    assert json.loads(json.dumps(found.data()))["inferences_per_second"] == pytest.approx(2500)


def test_peaks_are_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roofline, "_MEASURE", 0.001)
    monkeypatch.setattr(roofline, "_STREAM", 4 << 20)
    store = Cache(tmp_path / "cache")
    first = roofline.peaks(1, store)
    assert first.float_gmacs > 0 and first.byte_gmacs > 0 and first.memory_gbytes > 0
    monkeypatch.setattr(roofline, "measure", lambda threads, isa: pytest.fail("measured again"))
    assert roofline.peaks(1, store) == first


@pytest.mark.parametrize("name", ["avx2", host_isa().name])
def test_every_peak_is_arithmetic_that_is_done(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The instructions that are counted are in the loop: LLVM did not see through them."""
    import re

    import llvmlite.binding as llvm

    from edgewright.engine.jit.build import target_machine

    isa = host_isa(name)
    wanted = {"peak_float": r"vfmadd", "peak_byte": r"vpdpbusd" if isa.dot else r"vpmaddwd", "peak_read": r"vp?or"}
    makers = [
        roofline._arithmetic(isa, "peak_float", roofline._float_chain),
        roofline._arithmetic(isa, "peak_byte", roofline._byte_chain),
        roofline._reading(isa, roofline._STREAM),
    ]
    for make in makers:
        ((kernel, text),) = make(1).kernels.items()
        assembly = target_machine(isa.cpu, isa.features).emit_assembly(llvm.parse_assembly(text))
        loops = re.split(r"^\.?L\w+:", assembly, flags=re.M)
        most = max(len(re.findall(wanted[kernel], loop)) for loop in loops)
        assert most >= {"peak_float": 12, "peak_byte": 12 if isa.dot else 24, "peak_read": 8}[kernel]
