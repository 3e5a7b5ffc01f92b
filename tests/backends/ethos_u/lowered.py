"""Networks quantized and lowered for Ethos-U targets, with what was handed to Vela kept for comparison."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import torch
import tosa_reference_model
from torch.export import ExportedProgram
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e, prepare_qat_pt2e

from edgewright.backends.ethos_u import partitioner as module
from edgewright.backends.ethos_u.partitioner import EthosUPartitioner
from edgewright.backends.ethos_u.quantizer import (
    EthosUQuantizer,
    get_symmetric_a8w4_quantization_config,
    get_symmetric_a16w8_quantization_config,
    get_symmetric_quantization_config,
)
from edgewright.backends.ethos_u.target import EthosUCompileSpec
from edgewright.backends.ethos_u.tosa_file import write_tosa
from edgewright.frontend.delegate import LoweredBackendModule
from edgewright.ir.graph import Array, Graph
from edgewright.lowering.partition.report import PartitionReport
from edgewright.program.edge import to_edge_transform_and_lower
from tests.backends.ethos_u.capture import quiet
from tests.backends.ethos_u.networks import NETWORKS, Made

CONFIGS = {
    "a8w8": lambda: get_symmetric_quantization_config(is_per_channel=True),
    "a8w8 per tensor": lambda: get_symmetric_quantization_config(is_per_channel=False),
    "a16w8": get_symmetric_a16w8_quantization_config,
    "a8w4": lambda: get_symmetric_a8w4_quantization_config(is_qat=False),
    "a8w8 qat": lambda: get_symmetric_quantization_config(is_per_channel=True, is_qat=True),
}


@dataclass
class Quantized:
    """A model, its fake-quantized form and what was exported of that."""

    model: torch.nn.Module
    inputs: tuple[Any, ...]
    converted: torch.nn.Module
    exported: ExportedProgram


def quantize(made: Made, config: str, target: str, **settings: Any) -> Quantized:
    """Calibrated on its own inputs. ``settings``: arguments of the quantizer's ``set_…`` methods."""
    model, inputs = made
    chosen = CONFIGS[config]()
    quantizer = EthosUQuantizer(EthosUCompileSpec(target)).set_global(chosen)
    for name, arguments in settings.items():
        getattr(quantizer, f"set_{name}")(*arguments)
    exported = torch.export.export(model, inputs).module(check_guards=False)
    prepared = (prepare_qat_pt2e if chosen.is_qat else prepare_pt2e)(exported, quantizer)
    with torch.no_grad():
        prepared(*inputs)
    converted = convert_pt2e(prepared)
    return Quantized(model, inputs, converted, torch.export.export(converted, inputs))


@cache
def network(name: str, config: str = "a8w8", family: str = "u55-128") -> Quantized:
    """One of the networks; targets of a family share what was quantized for one of them."""
    return quantize(NETWORKS[name](), config, f"ethos-{family}")


@dataclass
class Lowered:
    program: bytes
    report: PartitionReport
    groups: list[tuple[Graph, bytes, LoweredBackendModule]] = field(default_factory=list)

    def reference(self, inputs: list[Array]) -> list[Array]:
        """What the TOSA reference model makes of the one delegate."""
        ((device, tosa, _),) = self.groups
        given = [np.ascontiguousarray(a).reshape(v.bound) for a, v in zip(inputs, device.inputs, strict=True)]
        with quiet():
            made, _ = tosa_reference_model.run(tosa, given)
        return list(made)


def lower(quantized: Quantized, target: str, **options: Any) -> Lowered:
    groups: list[tuple[Graph, bytes, LoweredBackendModule]] = []

    class Keeping(EthosUPartitioner):
        def lower(self, group: Graph) -> LoweredBackendModule:
            made = super().lower(group)
            device = module.to_tosa(group, self.compile_spec)
            groups.append((device, write_tosa(device), made))
            return made

    chosen = Keeping(EthosUCompileSpec(target), **options)
    program = to_edge_transform_and_lower(quantized.exported, partitioner=[chosen]).to_executorch()
    return Lowered(bytes(program.buffer), chosen.reports["forward"], groups)
