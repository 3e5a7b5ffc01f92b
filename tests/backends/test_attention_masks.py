"""Masks of attention under quantizers: minus infinity is no integer, and must not take the range of the scores."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e, prepare_qat_pt2e

from edgewright.backends import discover, find_quantizer
from edgewright.backends.qualcomm import QnnQuantizer, QuantDtype
from edgewright.quantize.attention_masks import LOW, MaskedObserver
from tests.backends.qualcomm.lowered import ratio

SIZE, WIDTH = 6, 8
EARLIER = torch.ones(SIZE, SIZE, dtype=torch.bool).tril()
LOWEST = torch.finfo(torch.float32).min


def _buffer(scores: Tensor, mask: Tensor) -> Tensor:
    return scores + mask


def _filled(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.masked_fill(mask < 0, -math.inf)


def _chosen(scores: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask < 0, torch.tensor(LOWEST), scores)


def _made(scores: Tensor, mask: Tensor) -> Tensor:
    return scores + torch.where(mask < 0, -1e9, 0.0)


class Attention(nn.Module):
    """Attention whose scores are masked as ``join`` says, or by PyTorch's own operator."""

    def __init__(self, join: Callable[[Tensor, Tensor], Tensor] | None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.parts, self.join = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3)), join
        self.register_buffer("mask", torch.where(EARLIER, 0.0, -math.inf))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part(x) for part in self.parts)
        if self.join is None:
            return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return torch.bmm(torch.softmax(self.join(torch.bmm(q, k.transpose(1, 2)) / 3.0, self.mask), -1), v)


class Given(nn.Module):
    """A mask that is an input."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return torch.bmm(torch.softmax(torch.bmm(x, x.transpose(1, 2)) + mask, -1), x)


X = torch.randn(1, SIZE, WIDTH, generator=torch.Generator().manual_seed(1))
JOINS = [_buffer, _filled, _chosen, _made, None]


def found(model: nn.Module, quantizer, inputs: tuple[Tensor, ...], *, qat: bool = False) -> float:
    """How near the quantized model is to the real one, in decibels."""
    with torch.no_grad():
        wanted = model(*inputs)
    prepared = (prepare_qat_pt2e if qat else prepare_pt2e)(torch.export.export(model, inputs).module(), quantizer)
    with torch.no_grad():
        for _ in range(2):
            prepared(*inputs)
        return ratio(wanted, convert_pt2e(prepared)(*inputs))


@pytest.mark.sample(4)
@pytest.mark.parametrize("join", JOINS)
@pytest.mark.parametrize(("scheme", "decibels"), [("8a8w", 30), ("16a8w", 40)])
def test_masks_leave_room_for_scores(join, scheme: str, decibels: float) -> None:
    quantizer = QnnQuantizer("SM8650")
    quantizer.set_default_quant_config(QuantDtype[f"use_{scheme}"], is_linear_per_channel=True)
    model = Attention(join).eval()
    assert found(model, quantizer, (X,)) > decibels
    assert float(model.mask.min()) == -math.inf  # the user's own is as it was


@pytest.mark.parametrize("qat", [False, True])
def test_inputs_may_be_masks(qat: bool) -> None:
    quantizer = QnnQuantizer("SM8650")
    quantizer.set_default_quant_config(is_qat=qat)
    assert found(Given(), quantizer, (X, torch.where(EARLIER, 0.0, -math.inf)), qat=qat) > 30


@pytest.mark.parametrize("name", sorted(discover()))
def test_every_backends_quantizer_takes_masks(name: str) -> None:
    target = {"ethos_u": "ethos-u85-256", "nxp": "imxrt700", "samsung": "E9955", "qualcomm": "SM8650"}.get(name)
    assert found(Attention(_buffer).eval(), find_quantizer(name).for_target(target), (X,)) > 25


def test_scores_are_watched_without_what_is_masked() -> None:
    watch = MaskedObserver(dtype=torch.uint8, quant_min=0, quant_max=255, qscheme=torch.per_tensor_affine)
    watch(torch.tensor([-2.0, 3.0, LOW - 1.0, -math.inf]))
    scale, zero = watch.calculate_qparams()
    assert float(scale) == pytest.approx((3.0 + 2.0 + 12.0) / 255)
    assert int(zero) == round(14.0 / float(scale))
    alone = MaskedObserver(scores=False, dtype=torch.uint8, quant_min=0, quant_max=255,
                           qscheme=torch.per_tensor_affine)  # fmt: skip
    alone(torch.tensor([0.0, -math.inf]))
    assert float(alone.calculate_qparams()[0]) == pytest.approx(-LOW / 255)
