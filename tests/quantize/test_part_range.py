"""A tanh that caps softly keeps its precision; one that uses its range has the whole of it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import edgewright as ew
from edgewright.quantize.known_ranges import KnownRangeObserver
from edgewright.quantize.recipes import symmetric_config

DATA = [(torch.randn(4, 16, generator=torch.Generator().manual_seed(n)),) for n in range(10)]


class Capped(nn.Module):
    """Scores that are kept within -cap and cap, as in Gemma 2."""

    def __init__(self, cap: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.cap = nn.Linear(16, 16), cap

    def forward(self, x: Any) -> Any:
        return torch.tanh(self.layer(x) / self.cap) * self.cap


@pytest.mark.sample(2)
@pytest.mark.parametrize("cap", [30.0, 1.0, 0.1])
@pytest.mark.parametrize("target", ["xnnpack", "sm8550", "ethos-u55-128", "e9955"])
def test_a_soft_cap_keeps_its_precision(target: str, cap: float) -> None:
    result = ew.compile(Capped(cap).eval(), DATA[0], target, quantize="int8", calibration=DATA, quiet=True)
    assert result.report.sqnr > 28  # 19.5 dB on sm8550 with a cap of 30 and all of the range


def observed(*seen: float, **given: Any) -> tuple[float, int, float]:
    limits = {"dtype": torch.int8, "quant_min": -128, "quant_max": 127, "eps": 2**-16, "bounds": (-1.0, 1.0), **given}
    observer = KnownRangeObserver(**limits)
    if seen:
        observer(torch.tensor(seen))
    scale, zero = observer.calculate_qparams()
    return scale.item(), zero.item(), observer.share


def test_a_range_that_is_used_is_whole_to_the_bit() -> None:
    config = symmetric_config()
    whole: Any = config.known_range_spec(-1.0, 1.0)
    for seen in ((), (0.5,), (-1.0, 0.2), (0.99,)):
        assert observed(*seen) == (whole.scale, whole.zero_point, 1.0)


def test_a_small_part_has_twice_what_was_seen() -> None:
    scale, zero, share = observed(-0.01, 0.02)
    assert share == pytest.approx(0.04) and scale == pytest.approx(0.08 / 255) and zero in (0, -1)
    assert observed(0.0)[0] == 2**-16  # all that was seen is 0: the smallest scale there is
    words = {"dtype": torch.int16, "quant_min": -32767, "quant_max": 32767, "qscheme": torch.per_tensor_symmetric,
             "eps": 2**-20}  # fmt: skip
    assert observed(-0.01, 0.02, **words)[:2] == (pytest.approx(0.04 / 32767, rel=1e-6), 0)


def test_training_and_devices_with_one_scale_have_the_whole_range() -> None:
    trained: Any = symmetric_config(is_qat=True).known_range_spec(-1.0, 1.0, narrows=True)
    assert trained.scale == 2 / 255
    result = ew.compile(Capped(30.0).eval(), DATA[0], "imxrt700", quantize="int8", calibration=DATA, quiet=True)
    (report,) = result.report.methods.values()
    assert all(v.operator != "tanh" for v in report.rejected)  # Neutron has no other scale for it than 1/128


class Cells(nn.Module):
    """Two steps of a recurrent cell, with all of its states as a result."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(24, 8)

    def forward(self, x: Any) -> Any:
        first = torch.tanh(self.layer(torch.cat([x, torch.zeros(4, 8)], 1)))
        return torch.stack([first, torch.tanh(self.layer(torch.cat([x, first], 1)))], 1)


@pytest.mark.parametrize("precision", ["int8", "a16w8"])
@pytest.mark.parametrize("target", ["sm8650", "ethos-u55-128"])
def test_what_is_concatenated_with_a_tanh_keeps_its_range(target: str, precision: str) -> None:
    """The concatenation had the range of tanh, because something else reads the state, too, and clipped ``x``."""
    model = Cells().eval()
    result = ew.compile(model, DATA[0], target, quantize=precision, calibration=DATA, evaluate=0, quiet=True)
    quantized, exact = result.exported.module()(*DATA[0]), model(*DATA[0])
    noise = (quantized - exact).square().mean() / exact.square().mean()
    assert -10 * noise.log10() > (45 if precision == "a16w8" else 25)  # 10.9 dB in all four
