"""What a decoder's cache of keys and values costs for a token: held as integers by the delegate, or as real numbers.

    python benchmarks/qualcomm_cache.py [--width 256] [--heads 4] [--length 512] [--rounds 5]

A decoder's block with random weights, quantized, on the host twin. Bytes are those of tensors that go in and out of
the delegate, and of those that the CPU's kernels read and write. Times are of the least of the rounds.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1]))

from edgewright.backends.qualcomm import (
    QnnPartitioner,
    QuantDtype,
    generate_htp_compiler_spec,
    generate_qnn_executorch_compiler_spec,
)
from edgewright.formats.pte_reader import read_program
from edgewright.program.edge import to_edge_transform_and_lower
from edgewright.runtime import Runtime
from tests.backends.qualcomm.lowered import quantize, ratio
from tests.backends.qualcomm.test_networks import Decoder

OUT = Console(width=120)
SPECS = generate_qnn_executorch_compiler_spec("SM8650", generate_htp_compiler_spec(use_fp16=False))
_SIZES = {0: 1, 4: 8, 6: 4, 27: 2}  # bytes of elements, by the numbers that files have for them


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("width", 256), ("heads", 4), ("length", 512), ("rounds", 5)):
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args()
    tokens = torch.randn(12, 1, 1, args.width, generator=torch.Generator().manual_seed(5))
    steps = [(token, torch.tensor([place])) for place, token in enumerate(tokens)]
    columns = ("scheme", "cache", "KiB at the delegate", "KiB by the CPU", "tokens/s", "dB against float, least")
    table = Table(*columns)
    for scheme in ("8a8w", "16a8w"):
        for integers in (False, True):
            table.add_row(scheme, "integers" if integers else "real", *measure(args, scheme, integers, steps))
    OUT.print(table)


def measure(args: argparse.Namespace, scheme: str, integers: bool, steps: list[Any]) -> list[str]:
    shape = (args.width, args.heads, args.length)
    model: Any = quantize(Decoder(*shape).eval(), steps[0], QuantDtype[f"use_{scheme}"], steps)
    for cache in (model.keys, model.values):
        cache.zero_()
    partitioner = QnnPartitioner(SPECS, simulate_only=True, integer_state=integers)
    manager = to_edge_transform_and_lower(torch.export.export(model, steps[0]), partitioner=[partitioner])
    file = bytes(manager.to_executorch().buffer)
    method, real = Runtime.get().load_program(file).load_method("forward"), Decoder(*shape).eval()
    with torch.no_grad():
        found = [torch.from_numpy(np.asarray(method.execute([x.numpy() for x in s])[0])) for s in steps]
        decibels = min(ratio(real(*s), f) for s, f in zip(steps, found, strict=True))
    times = []
    for _ in range(args.rounds):
        start = time.perf_counter()
        for step in steps:
            method.execute([x.numpy() for x in step])
        times.append((time.perf_counter() - start) / len(steps))
    moved = [f"{n / 1024:.0f}" for n in bytes_moved(file)]
    return [*moved, f"{1 / min(times):.0f}", f"{decibels:.1f}"]


def bytes_moved(file: bytes) -> tuple[int, int]:
    """By calls of the delegate, and by kernels."""
    plan = read_program(file).execution_plan[0]
    sums = [0, 0]
    for call in plan.chains[0].instructions:
        tensors = {i: plan.values[i] for i in getattr(call, "args", ()) if hasattr(plan.values[i], "sizes")}
        count = sum(math.prod(t.sizes) * _SIZES[t.scalar_type] for t in tensors.values())
        sums[0 if hasattr(call, "delegate_index") else 1] += count
    return sums[0], sums[1]


if __name__ == "__main__":
    main()
