"""Prints a digest of everything that compiling gives, a line each: ``python -m tests.program.digests few``.

Compared between processes: what a set or an address decides differs from one process to the next, never inside one.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

import edgewright as ew
from edgewright.backends import find_partitioner
from edgewright.backends.targets import find_target
from edgewright.errors import EdgewrightError
from edgewright.program.edge import to_edge_transform_and_lower

MEASURED = ("stages", "host_ms")  # of a report: times, which are never the same

FLOAT, INT8 = "float", "int8"
FEW = (("xnnpack", INT8), ("ethos-u85-256", INT8), ("sm8750", "a16w4"), ("e9955", INT8), ("imxrt700", INT8))
ALL = (
    *FEW, ("xnnpack", FLOAT), ("xnnpack", "dynamic"), ("ethos-u55-128", INT8), ("ethos-u85-256", FLOAT),
    ("ethos-u55-128", "a16w8"), ("sm8750", FLOAT), ("sm8750", INT8), ("sm8550", "a16w8"), ("e9955", FLOAT),
    ("e9965", "a16w16"),
)  # fmt: skip


class Branches(nn.Module):
    """Parallel branches with batch norms, joined, split and read by several heads; one operator few backends take."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU6())
        self.ways = nn.ModuleList(nn.Sequential(nn.Conv2d(8, 4, 1), nn.ReLU()) for _ in range(4))
        self.heads = nn.ModuleDict({name: nn.Linear(8, 3) for name in ("score", "box", "age")})

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        y = self.stem(x)
        joined = torch.cat([way(y) for way in self.ways], 1)
        left, right = joined.chunk(2, 1)
        pooled = (left * right + y).mean((2, 3))
        made = {name: head(pooled.cumsum(1) if name == "age" else pooled) for name, head in self.heads.items()}
        return {**made, "map": torch.sigmoid(left)}


class Attention(nn.Module):
    """Attention over what it remembers, normalized, with a gate."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.gate = nn.LayerNorm(16), nn.Linear(16, 32)
        self.heads, self.out = nn.MultiheadAttention(16, 4, batch_first=True), nn.Linear(32, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        y = x + self.heads(y, y, y, need_weights=False)[0]
        z: torch.Tensor = y + self.out(nn.functional.gelu(self.gate(y)))
        return z.sort(dim=1)[0].softmax(-1)


class Memory(nn.Module):
    """Several buffers that change, and two inputs."""

    def __init__(self) -> None:
        super().__init__()
        for name in ("alpha", "beta", "gamma"):
            self.register_buffer(name, torch.ones(2, 8))
        self.cell, self.rnn = nn.Linear(8, 8), nn.GRU(8, 8, batch_first=True)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.alpha.copy_(torch.tanh(self.cell(x) + self.alpha))
        self.beta.add_(self.alpha * y)
        self.gamma.mul_(0.5)
        return self.beta - self.gamma, self.rnn(x[:, None] + y[:, None])[0]


class Convolutions(nn.Module):
    """Depthwise, dilated, transposed and one-dimensional."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(4, 8, 3, 2, 1), nn.Hardswish(), nn.Conv2d(8, 8, 3, padding=1, groups=8))
        self.up, self.line = nn.ConvTranspose2d(8, 4, 2, 2), nn.Conv1d(32, 6, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = nn.functional.pad(self.up(self.first(x)), (1, 1, 0, 0))
        z: torch.Tensor = self.line(nn.functional.max_pool2d(y, 1).flatten(1, 2))
        return nn.functional.leaky_relu(z.permute(0, 2, 1).reshape(z.shape[0], -1), 0.1)


Made = tuple[nn.Module, tuple[torch.Tensor, ...]]
MODELS: dict[str, Callable[[], Made]] = {
    "branches": lambda: (Branches(), (torch.randn(1, 3, 8, 8),)),
    "attention": lambda: (Attention(), (torch.randn(1, 6, 16),)),
    "memory": lambda: (Memory(), (torch.randn(2, 8), torch.randn(2, 8))),
    "convolutions": lambda: (Convolutions(), (torch.randn(1, 4, 8, 8),)),
}


def results(names: list[str], targets: tuple[tuple[str, str], ...]) -> Iterator[tuple[str, bytes]]:
    """Every file, twin, manifest and report, with its name."""
    for name in names:
        torch.manual_seed(1)
        model, inputs = MODELS[name]()
        calls = [tuple(torch.randn_like(x) for x in inputs) for _ in range(3)]
        exported = torch.export.export(model.eval(), inputs)
        yield f"{name} portable pte", to_edge_transform_and_lower(exported).to_executorch().buffer
        for target, preset in targets:
            chosen = None if preset == FLOAT else preset
            made: Any = None
            try:
                made = ew.compile(exported, None, target, quantize=chosen, calibration=calls, evaluate=0, quiet=True)
            except EdgewrightError as error:
                yield f"{name} {target} {preset} error", str(error).encode()
                continue
            for what, data in parts(made, ours=not target.startswith("sm")):
                yield f"{name} {target} {preset} {what}", data


def parts(made: ew.CompileResult, ours: bool) -> Iterator[tuple[str, bytes]]:
    """``ours``: the file too, and the twin with the digests of blobs that its graphs go by."""
    twin = made.program.twin or b""
    if ours:
        yield "pte", made.buffer
    yield "twin", twin if ours else re.sub(rb'"[0-9a-f]{64}"', b"", twin)
    told = {key: value for key, value in made.report.to_dict().items() if key not in MEASURED}
    yield "report", json.dumps(told).encode()
    yield "record", json.dumps(made.program.instruction_sources).encode()


def methods() -> Iterator[tuple[str, bytes]]:
    """Several methods given to one partitioner: what is said of them comes in the order that they came in."""
    torch.manual_seed(2)
    model, inputs = MODELS["branches"]()
    exported = torch.export.export(model.eval(), inputs)
    given = dict.fromkeys(("prefill", "decode", "encode", "forward", "again"), exported)
    partitioner = find_partitioner("xnnpack").for_target(find_target("xnnpack").argument)
    made = to_edge_transform_and_lower(given, partitioner=[partitioner])
    yield "methods report", "\n".join(f"{name}: {report}" for name, report in made.partition_reports.items()).encode()
    yield "methods pte", made.to_executorch().buffer


def main(which: str, folder: str = "") -> None:
    logging.disable(logging.CRITICAL)
    few = which == "few"
    names, targets = (["branches"], FEW) if few else (list(MODELS), ALL)
    for found in (results(names, targets), methods()):
        for name, data in found:
            print(name, len(data), hashlib.sha256(data).hexdigest(), flush=True)
            if folder:
                Path(folder, name.replace(" ", ".")).write_bytes(data)


if __name__ == "__main__":
    main(*sys.argv[1:])
