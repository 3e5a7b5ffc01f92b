"""Observers that leave out a part of the range: against a search through all ranges, and merged over chunks."""

from __future__ import annotations

import pytest
import torch

import edgewright as ew
from edgewright.quantize.observer_statistics import collect, merge, observe_chunks
from edgewright.quantize.range_observers import (
    MseChannelWeightObserver,
    MseObserver,
    MseWeightObserver,
    PercentileObserver,
)
from edgewright.quantize.simulate import parameters_of, round_to

ACTIVATION = {"dtype": torch.int8, "quant_min": -128, "quant_max": 127, "qscheme": torch.per_tensor_affine}
WEIGHT = {"dtype": torch.int8, "quant_min": -7, "quant_max": 7}


def heavy_tailed(seed: int = 0) -> torch.Tensor:
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(20000, generator=draw)
    x[0] = 60.0
    return x


def error(x: torch.Tensor, observer: torch.nn.Module) -> float:
    return float((round_to(x, parameters_of(observer)) - x).square().sum())


def test_percentiles_leave_out_outliers() -> None:
    x, observer = heavy_tailed(), PercentileObserver(**ACTIVATION)
    observer(x)
    low, high = observer._non_linear_param_search()
    outside = float(((x < low) | (x > high)).float().mean())
    assert 0 < outside < 3e-4 and float(high) < 6


@pytest.mark.parametrize("relu", [False, True])
def test_least_squares_ranges_are_the_best_of_all(relu: bool) -> None:
    """In 4 bits, where leaving an outlier out pays."""
    x = heavy_tailed().clamp(max=12)
    x = x.relu() if relu else x
    observer = MseObserver(**{**ACTIVATION, "quant_min": -8, "quant_max": 7})
    observer(x)
    found = error(x, observer)
    errors = []
    for high in torch.linspace(2, 12, 41):
        for low in [0.0] if relu else torch.linspace(-6, -2, 9).tolist():
            scale = (float(high) - low) / 15
            zero = torch.tensor([round(-8 - low / scale)], dtype=torch.int32)
            errors.append(float((round_to(x, (torch.tensor([scale]), zero, -8, 7, None)) - x).square().sum()))
    assert found < 1.1 * min(errors) < 0.5 * errors[-1]


def test_least_squares_ranges_of_16_bits_keep_everything() -> None:
    observer = MseObserver(
        dtype=torch.int16, quant_min=-32767, quant_max=32767, qscheme=torch.per_tensor_symmetric, eps=2**-16
    )
    observer(heavy_tailed())
    assert float(parameters_of(observer)[0]) * 32767 == pytest.approx(60, rel=0.02)


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_weights_with_least_squares_ranges_are_nearer(axis: int | None) -> None:
    weight = torch.nn.Parameter(torch.randn(6, 8, 3, 3, generator=torch.Generator().manual_seed(1)))
    scheme = torch.per_tensor_symmetric if axis is None else torch.per_channel_symmetric
    from torchao.quantization.pt2e import MinMaxObserver, PerChannelMinMaxObserver

    options = {**WEIGHT, "qscheme": scheme, **({} if axis is None else {"ch_axis": axis})}
    kinds = (
        (MinMaxObserver, MseWeightObserver) if axis is None else (PerChannelMinMaxObserver, MseChannelWeightObserver)
    )
    errors = []
    for kind in kinds:
        observer = kind(**options)
        for _ in range(3):  # calibration passes the same weight in every call
            observer(weight)
        errors.append(error(weight.detach(), observer))
    assert errors[1] < 0.9 * errors[0]
    assert not list(observer.parameters())


@pytest.mark.parametrize("kind", [PercentileObserver, MseObserver, MseWeightObserver])
def test_chunks_are_merged(kind: type[torch.nn.Module]) -> None:
    class Prepared(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.observer = kind(**{**ACTIVATION, "qscheme": torch.per_tensor_symmetric})

    weight = heavy_tailed(5)
    parts = [weight] * 200 if kind is MseWeightObserver else [heavy_tailed(i)[:50] for i in range(200)]
    whole, merged = Prepared(), Prepared()
    chunks = observe_chunks(merged, parts, merged.observer, "m")
    merge(merged, chunks, "m")
    for part in parts:
        whole.observer(part)
    scales = [float(m.observer.calculate_qparams()[0]) for m in (whole, merged)]
    assert scales[1] == pytest.approx(scales[0], rel=0.05)
    assert len(chunks) == 2 and collect(merged, "m").states


def test_headroom_doubles_the_ranges_of_16_bit_activations() -> None:
    """What is beyond the calibration data is not clamped; 8-bit activations keep their ranges."""
    model, draw = torch.nn.Conv2d(3, 4, 3).eval(), torch.Generator().manual_seed(0)
    data = [torch.randn(1, 3, 6, 6, generator=draw).sign() * 20 for _ in range(8)]  # beyond what the least scale has
    larger = [1.9 * x for x in data]
    errors = {}
    for precision in ("int8", "int8+headroom", "a16w8", "a16w8+headroom"):
        options = {"calibration": data, "evaluate": larger, "quiet": True}
        errors[precision] = ew.compile(model, data[0], "ethos-u55-128", quantize=precision, **options)
    assert errors["int8"].buffer == errors["int8+headroom"].buffer
    assert errors["a16w8+headroom"].report.sqnr > 40 > errors["a16w8"].report.sqnr + 10


def test_headroom_is_kept_unless_it_loses() -> None:
    draw = torch.Generator().manual_seed(0)
    model, data = torch.nn.Conv2d(3, 4, 3).eval(), [torch.randn(1, 3, 6, 6, generator=draw) for _ in range(8)]
    for precision, has in (("a16w8-best", True), ("int8-best", False)):
        result = ew.compile(model, data[0], "ethos-u55-128", quantize=precision, calibration=data, quiet=True)
        assert any("headroom" in trial.precision for trial in result.report.trials if trial.kept) == has
