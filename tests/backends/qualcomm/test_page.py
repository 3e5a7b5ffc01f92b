"""The code of the page *Qualcomm AI Engine Backend*, step by step, on all its SoCs and in every scheme. ``-m slow``
trains the schemes, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e, prepare_qat_pt2e

from edgewright.backends.qualcomm import (
    QcomChipset,
    QnnQuantizer,
    QuantDtype,
    generate_htp_compiler_spec,
    generate_qnn_executorch_compiler_spec,
    to_edge_transform_and_lower_to_qnn,
)
from edgewright.runtime import Runtime
from tests.backends.qualcomm.lowered import ratio

# Every SoC of the page, with a scheme that its architecture has.
PAGE = {
    "SA8295": "8a8w", "SM8450": "16a4w_block", "SM8475": "16a8w", "SM8550": "16a16w", "SM8650": "8a8w",
    "SM8750": "16a4w_block", "SSG2115P": "16a8w", "SSG2125P": "16a4w", "SXR1230P": "16a16w", "SXR2230P": "16a4w",
    "SXR2330P": "8a8w",
}  # fmt: skip
DECIBELS = {"8a8w": 30, "16a16w": 45, "16a8w": 45, "16a4w": 45, "16a4w_block": 45}


INPUTS = (torch.randn(1, 3, 32, 32, generator=torch.Generator().manual_seed(1)),)


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


def page_quantize(model: nn.Module, inputs: tuple[Any, ...], scheme: str, quantization_type: str) -> nn.Module:
    """Step 2."""
    quantizer = QnnQuantizer()
    quantizer.set_default_quant_config(QuantDtype[f"use_{scheme}"], is_qat=quantization_type == "qat")
    if scheme == "16a4w_block":
        quantizer.set_block_size_map({"conv2d_1": (1, 8, 1, 1)})
    m = torch.export.export(model, inputs, strict=True).module()
    if quantization_type == "ptq":
        prepared_model = prepare_pt2e(m, quantizer)
        prepared_model(*inputs)
    else:
        prepared_model = prepare_qat_pt2e(m, quantizer)
        for _ in range(2):
            prepared_model(*inputs)
    return convert_pt2e(prepared_model)


def page_lower(model: nn.Module, inputs: tuple[Any, ...], soc: QcomChipset, quantized: bool, path: Path) -> None:
    """Steps 3 and 4."""
    backend_options = generate_htp_compiler_spec(use_fp16=not quantized)
    compile_spec = generate_qnn_executorch_compiler_spec(soc_model=soc, backend_options=backend_options)
    delegated_program = to_edge_transform_and_lower_to_qnn(model, inputs, compile_spec)
    executorch_program = delegated_program.to_executorch()
    with open(path, "wb") as f:
        f.write(executorch_program.buffer)


def emulated(path: Path, inputs: tuple[Any, ...]) -> torch.Tensor:
    made = Runtime.get().load_program(path).load_method("forward").execute(list(inputs))
    return torch.as_tensor(np.asarray(made[0]))


def check_page(soc: str, model: nn.Module, decibels: float, path: Path, *, quantized: bool) -> None:
    page_lower(model, INPUTS, QcomChipset[soc], quantized, path)
    with torch.no_grad():
        assert ratio(model(*INPUTS), emulated(path, INPUTS)) > decibels


@pytest.mark.parametrize("soc", PAGE)
def test_the_pages_code_runs_on_all_its_socs(soc: str, tmp_path: Path) -> None:
    model, path, scheme = YourModelClass().eval(), tmp_path / "custom_model_qnn.pte", PAGE[soc]
    check_page(soc, model, 40, path, quantized=False)
    quantized_model = page_quantize(model, INPUTS, scheme, "ptq")
    check_page(soc, quantized_model, DECIBELS[scheme], path, quantized=True)


@pytest.mark.slow
@pytest.mark.parametrize("soc", PAGE)
def test_the_pages_code_trains_on_all_its_socs(soc: str, tmp_path: Path) -> None:
    scheme = PAGE[soc]
    quantized_model = page_quantize(YourModelClass().train(), INPUTS, scheme, "qat")
    check_page(soc, quantized_model, DECIBELS[scheme], tmp_path / "custom_model_qnn.pte", quantized=True)
