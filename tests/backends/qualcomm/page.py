"""The code of the page *Qualcomm AI Engine Backend*, step by step, for models of one input."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import fx, nn
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e, prepare_qat_pt2e

from edgewright.backends.qualcomm import (
    QcomChipset,
    QnnQuantizer,
    QuantDtype,
    generate_htp_compiler_spec,
    generate_qnn_executorch_compiler_spec,
    to_edge_transform_and_lower_to_qnn,
)
from edgewright.backends.qualcomm.blob import read_blob
from edgewright.backends.qualcomm.qnn.info import compiler_settings
from edgewright.formats.pte_reader import read_program
from edgewright.lowering.partition.report import PartitionReport
from edgewright.runtime import Runtime

SOCS = ("SA8295", "SM8450", "SM8475", "SM8550", "SM8650", "SM8750", "SSG2115P", "SSG2125P", "SXR1230P", "SXR2230P",
        "SXR2330P")  # fmt: skip
SCHEMES = ("8a8w", "16a16w", "16a8w", "16a4w", "16a4w_block")
# The least Hexagon that a scheme's weights need, as Qualcomm's own quantizer says.
LEAST = {"16a16w": 73, "16a4w_block": 69}
PTQ, QAT = "ptq", "qat"
_RATE = 1e-5  # of training: little, so that what was learned before stays


class YourModelClass(nn.Module):
    """A custom model: convolutions with a batch norm, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.norm, self.second = nn.Conv2d(3, 16, 3, stride=2), nn.BatchNorm2d(16), nn.Conv2d(16, 32, 1)
        self.classifier = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm(self.first(x)))
        return self.classifier(torch.relu(self.second(x)).mean((2, 3)))


def quantize(model: nn.Module, batches: Sequence[torch.Tensor], scheme: str, quantization_type: str) -> nn.Module:
    """Step 2. ``batches``: to calibrate or to train with; the first is the example. The page leaves the training open:
    here the model learns to say what it said in floating point."""
    quantizer = QnnQuantizer()
    quantizer.set_default_quant_config(QuantDtype[f"use_{scheme}"], is_qat=quantization_type == QAT)
    # What is exported shares its weights, and training would change the caller's.
    m = torch.export.export(copy.deepcopy(model), (batches[0],), strict=True).module()
    if scheme == "16a4w_block":
        quantizer.set_block_size_map(_blocks(m))
    prepared_model = (prepare_qat_pt2e if quantization_type == QAT else prepare_pt2e)(m, quantizer)
    optimizer = torch.optim.SGD(prepared_model.parameters(), lr=_RATE)
    for batch in batches:
        if quantization_type == QAT:
            with torch.no_grad():
                wanted = model(batch)
            nn.functional.mse_loss(prepared_model(batch), wanted).backward()
            optimizer.step()
            optimizer.zero_grad()
        else:
            with torch.no_grad():
                prepared_model(batch)
    return convert_pt2e(prepared_model)


def _blocks(m: fx.GraphModule) -> dict[str, tuple[int, ...]]:
    """Blocks of 8 or 16 input channels, of every convolution of one pixel that has several such."""
    found = {}
    for node in m.graph.nodes:
        if node.target is torch.ops.aten.conv2d.default:
            shape = node.args[1].meta["val"].shape
            block = next((b for b in (16, 8) if shape[1] > b and shape[1] % b == 0), 0)
            if block and tuple(shape[2:]) == (1, 1):
                found[node.name] = (1, block, 1, 1)
    return found


@dataclass(frozen=True)
class Compiled:
    """A program, as a file, and what became of its operators."""

    path: Path
    report: PartitionReport

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        made = Runtime.get().load_program(self.path).load_method("forward").execute([x])
        return torch.as_tensor(np.asarray(made[0]))

    def contexts(self) -> list[dict[str, set[str]]]:
        """What every context binary of the file says of itself."""
        program = read_program(self.path.read_bytes())
        blobs = [bytes(program.blob(d)) for plan in program.execution_plan for d in plan.delegates]
        return [compiler_settings(read_blob(blob).context) for blob in blobs]


def lower(model: nn.Module, example: torch.Tensor, soc: str, folder: Path, *, quantized: bool) -> Compiled:
    """Steps 3 and 4."""
    backend_options = generate_htp_compiler_spec(use_fp16=not quantized)
    compile_spec = generate_qnn_executorch_compiler_spec(soc_model=QcomChipset[soc], backend_options=backend_options)
    delegated_program = to_edge_transform_and_lower_to_qnn(model, (example,), compile_spec)
    executorch_program = delegated_program.to_executorch()
    path = folder / "custom_model_qnn.pte"
    with open(path, "wb") as f:
        f.write(executorch_program.buffer)
    return Compiled(path, delegated_program.partition_reports["forward"])
