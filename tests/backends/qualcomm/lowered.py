"""Networks, quantized or not, lowered for a SoC and run by Qualcomm's emulator."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
import torch
from torchao.quantization.pt2e.quantize_pt2e import prepare_pt2e, prepare_qat_pt2e

from edgewright.backends.qualcomm import (
    QnnPartitioner,
    QnnQuantizer,
    QuantDtype,
    generate_htp_compiler_spec,
    generate_qnn_executorch_compiler_spec,
)
from edgewright.backends.qualcomm.delegate import CHOICE
from edgewright.lowering.partition.report import PartitionReport
from edgewright.program.edge import to_edge_transform_and_lower
from edgewright.quantize.pt2e import convert_pt2e
from edgewright.runtime import Runtime


@dataclass
class Lowered:
    program: bytes
    report: PartitionReport
    twin: bytes | None = None

    def __post_init__(self) -> None:
        self.method = Runtime.get().load_program(self.program).load_method("forward")

    def __call__(self, *inputs: torch.Tensor) -> torch.Tensor:
        return _first(self.method, inputs)

    def twinned(self) -> Callable[..., torch.Tensor]:
        """The same program, run by its host twin."""
        with mock.patch.dict(os.environ, {CHOICE: "twin"}):
            method = Runtime.get().load_program(self.program, twin=self.twin).load_method("forward")
        return lambda *inputs: _first(method, inputs)


def _first(method: Any, inputs: tuple[torch.Tensor, ...]) -> torch.Tensor:
    return torch.as_tensor(np.asarray(method.execute([x.numpy() for x in inputs])[0]))


def quantize(
    model: torch.nn.Module, inputs: tuple[Any, ...], scheme: QuantDtype, data: Iterable[Any] = (), *,
    qat: bool = False, per_channel: bool = True, blocks: Mapping[str, tuple[int, ...]] | None = None,
) -> torch.nn.Module:  # fmt: skip
    """Calibrated on ``data``, or on its own inputs."""
    quantizer = QnnQuantizer("SM8650")
    quantizer.set_default_quant_config(
        scheme, is_qat=qat, is_conv_per_channel=per_channel, is_linear_per_channel=per_channel
    )
    quantizer.set_block_size_map(blocks or {})
    exported = torch.export.export(model, inputs).module(check_guards=False)
    prepared = (prepare_qat_pt2e if qat else prepare_pt2e)(exported, quantizer)
    with torch.no_grad():
        for example in data or [inputs]:
            prepared(*example)
    return convert_pt2e(prepared)


def lower(model: torch.nn.Module, inputs: tuple[Any, ...], soc: str = "SM8650", *, fp16: bool) -> Lowered:
    specs = generate_qnn_executorch_compiler_spec(soc, generate_htp_compiler_spec(use_fp16=fp16))
    partitioner = QnnPartitioner(specs)
    manager = to_edge_transform_and_lower(torch.export.export(model, inputs), partitioner=[partitioner])
    program = manager.to_executorch()
    return Lowered(bytes(program.buffer), partitioner.reports["forward"], program.twin)


def ratio(wanted: torch.Tensor, found: torch.Tensor) -> float:
    """Signal to noise, in decibels."""
    return float(10 * torch.log10((wanted**2).sum() / ((wanted - found) ** 2).sum().clamp(min=1e-30)))


def agreement(wanted: torch.Tensor, found: torch.Tensor, dim: int, bits: int) -> tuple[float, float]:
    """How often two say the same class (along ``dim``): everywhere, and where the first is sure, by more than two steps
    of an output of ``bits``. Networks with random weights are seldom sure: nearer than that is a tie."""
    best, second = wanted.topk(2, dim).values.unbind(dim)
    sure = best - second > 2 * float(wanted.max() - wanted.min()) / (2**bits - 1)
    same = wanted.argmax(dim) == found.argmax(dim)
    return float(same.float().mean()), float(same[sure].float().mean())
