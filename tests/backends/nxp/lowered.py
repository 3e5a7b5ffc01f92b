"""A module quantized for Neutron and lowered for this machine, run by us and by LiteRT."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from edgewright.backends.nxp import (
    NeutronPartitioner,
    NeutronQuantizer,
    calibrate_and_quantize,
    generate_neutron_compile_spec,
)  # fmt: skip
from edgewright.backends.nxp.tflite_file import read_tflite
from edgewright.lowering.partition.report import PartitionReport
from edgewright.program.edge import to_edge_transform_and_lower
from edgewright.runtime import Runtime
from tests.backends.nxp.litert import interpreter, invoke

Inputs = tuple[Tensor, ...]


class Lowered:
    """A program, and what Neutron took of it. ``options`` are of the compile spec."""

    def __init__(
        self, module: nn.Module, inputs: Inputs, calibration: Sequence[Inputs] = (), per_channel: bool = True,
        **options: Any,
    ) -> None:  # fmt: skip
        exported = torch.export.export(module.eval().requires_grad_(False), inputs)
        quantizer = NeutronQuantizer(per_channel=per_channel)
        self.quantized = calibrate_and_quantize(exported, calibration or [inputs], quantizer)
        spec = generate_neutron_compile_spec(**{"simulate_only": True, **options})
        self.partitioner = NeutronPartitioner(spec)
        self.exported = torch.export.export(self.quantized, inputs)
        self.edge = to_edge_transform_and_lower(self.exported, partitioner=[self.partitioner])
        self.report: PartitionReport = self.edge.partition_reports["forward"]
        self.buffer = self.edge.to_executorch().buffer

    @cached_property
    def method(self) -> Any:
        return Runtime.get().load_program(self.buffer).load_method("forward")

    def host(self, *inputs: Tensor) -> np.ndarray[Any, Any]:
        return np.asarray(self.method.execute([x.numpy() for x in inputs])[0])

    @cached_property
    def ends(self) -> list[list[tuple[np.float32, int]]]:
        """Scales and zero points of the file's inputs and outputs."""
        graph = (read_tflite(self.partitioner.files[0]).subgraphs or ())[0]
        return [[_parameters(graph.tensors[i]) for i in side] for side in (graph.inputs, graph.outputs)]  # type: ignore[index, union-attr]

    @cached_property
    def interpreters(self) -> dict[str, Any]:
        return {}

    def litert(self, *inputs: Tensor, kernels: str = "tflite") -> np.ndarray[Any, Any]:
        """The same, by LiteRT: inputs and outputs are converted as the program's own ends do it."""
        if kernels not in self.interpreters:
            self.interpreters[kernels] = interpreter(self.partitioner.files[0], kernels)
        given = [
            np.clip(np.rint(x.numpy() * (np.float32(1) / scale)) + zero, -128, 127).astype(np.int8)
            for x, (scale, zero) in zip(inputs, self.ends[0], strict=True)
        ]
        scale, zero = self.ends[1][0]
        made = invoke(self.interpreters[kernels], given)[0]
        return (made.astype(np.int32) - zero).astype(np.float32) * scale

    @property
    def whole(self) -> bool:
        """True if everything but the conversions at the ends is in one delegate."""
        left = {v.operator for v in self.report.verdicts if not v.backend}
        return left <= {"quantize", "dequantize"} and len({v.group for v in self.report.delegated}) == 1


def _parameters(tensor: Any) -> tuple[np.float32, int]:
    return np.float32(tensor.quantization.scale[0]), int(tensor.quantization.zero_point[0])
