"""A module lowered to XNNPACK, and run by us and by stock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from edgewright.backends.xnnpack.partitioner import XnnpackPartitioner
from edgewright.formats.executorch_releases import NEWEST
from edgewright.lowering.partition.report import PartitionReport
from edgewright.program.config import EdgeCompileConfig
from edgewright.program.edge import to_edge_transform_and_lower
from edgewright.runtime import Runtime
from tests.support.stock import stock

Bounds = Mapping[tuple[int, int], tuple[int, int]]


def dynamic_shapes(inputs: Sequence[Tensor], bounds: Bounds) -> Any:
    """torch's form of sizes that vary; those of one dimension and range are one size."""
    if not bounds:
        return None
    shared = {(d, *b): torch.export.Dim(f"size{d}", min=b[0], max=b[1]) for (_, d), b in bounds.items()}
    return (
        tuple(
            {d: shared[(d, *b)] for (i, d), b in bounds.items() if i == position} or None
            for position in range(len(inputs))
        ),
    )


class Lowered:
    """A program, and what XNNPACK took of it."""

    def __init__(
        self,
        module: nn.Module,
        inputs: Sequence[Tensor],
        bounds: Bounds | None = None,
        runtime: str = f"wheel-{NEWEST}",
        **options: Any,
    ) -> None:
        self.module = module.eval().requires_grad_(False)
        partitioner = XnnpackPartitioner(**options)
        exported = torch.export.export(
            self.module, tuple(inputs), dynamic_shapes=dynamic_shapes(inputs, bounds or {}), strict=False
        )
        config = EdgeCompileConfig(runtime=runtime)
        edge = to_edge_transform_and_lower(exported, partitioner=[partitioner], compile_config=config)
        self.manager = edge.to_executorch()
        self.buffer = self.manager.buffer
        self.report: PartitionReport = partitioner.reports["forward"]

    @property
    def taken(self) -> list[str]:
        return [v.operator for v in self.report.delegated]

    @property
    def whole(self) -> bool:
        """True if everything that computes is in one delegate."""
        left = [v for v in self.report.verdicts if not v.backend and v.operator != "sym_size"]
        return not left and len({v.group for v in self.report.delegated}) == 1

    def refusal(self, operator: str) -> str:
        """Why the first operator of a kind was left."""
        return "; ".join(next(v.rejections for v in self.report.verdicts if v.operator == operator and not v.backend))

    def eager(self, inputs: Sequence[Tensor]) -> list[np.ndarray]:
        result = self.module(*inputs)
        return [r.numpy() for r in (result if isinstance(result, list | tuple) else [result])]

    def ours(self, inputs: Sequence[Tensor]) -> list[np.ndarray]:
        loaded = Runtime.get().load_program(self.buffer)
        return list(loaded.load_method("forward").execute([i.numpy() for i in inputs]))

    def stocks(self, inputs: Sequence[Tensor]) -> list[np.ndarray]:
        return stock().run(self.buffer, "forward", [i.numpy() for i in inputs])

    def check(self, inputs: Sequence[Tensor], tolerance: float = 1e-5) -> None:
        """Eager torch, we and stock give the same, relative to the largest number."""
        wanted = self.eager(inputs)
        for who, results in (("ours", self.ours(inputs)), ("stock", self.stocks(inputs))):
            for got, want in zip(results, wanted, strict=True):
                assert got.shape == want.shape, who
                assert got.dtype == want.dtype, who
                assert relative(got, want) <= tolerance, who


def relative(got: np.ndarray, want: np.ndarray) -> float:
    a, b = np.asarray(got, np.float64), np.asarray(want, np.float64)
    return float(np.abs(a - b).max(initial=0) / max(np.abs(b).max(initial=0), 1e-6))
