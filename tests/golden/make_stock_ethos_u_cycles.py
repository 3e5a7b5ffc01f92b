"""Measures stock ExecuTorch's Ethos-U lowering of MobileNetV2 at 224x224: Vela's estimate for the graph it hands over.

    python -m tests.golden.make_stock_ethos_u_cycles

Writes ``ethos_u/stock_cycles.json``. The weights are random, the same every time. Needs the ``test`` extra.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import torch

from edgewright.backends.ethos_u.target import EthosUCompileSpec
from edgewright.backends.ethos_u.vela import compile_tosa
from edgewright.files import write_file
from tests.backends.ethos_u.networks import mobilenet
from tests.golden.make_stock_ethos_u import FOLDER, TARGETS, lower


def measure(target: str, last: bool) -> dict[str, Any]:
    model, inputs = mobilenet(last)
    with tempfile.TemporaryDirectory() as folder:
        lower(model, inputs, target, folder)
        graphs = sorted({p.read_bytes() for p in Path(folder).glob("*.tosa")})  # each is there under two names
    made = [compile_tosa(g, EthosUCompileSpec(target), inputs=1, outputs=1) for g in graphs]
    return {"delegates": len(made), "cycles": sum(m.performance.total_cycles for m in made),
            "weights": sum(len(m.weight_data) for m in made)}  # fmt: skip


if __name__ == "__main__":
    for operator in ("nms", "qnms"):
        torch.library.define(f"torchvision::{operator}", "(Tensor a, Tensor b, float c) -> Tensor")
    found = {}
    for t in TARGETS:
        for last in (True, False):
            found[f"{t} {'nhwc' if last else 'nchw'}"] = measure(t, last)
    write_file(FOLDER / "stock_cycles.json", [(json.dumps(found, indent=1) + "\n").encode()])
