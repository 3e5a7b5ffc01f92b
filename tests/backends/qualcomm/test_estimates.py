"""Estimates: arithmetic on figures that say where they come from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgewright.backends.qualcomm.estimates import estimate
from edgewright.backends.qualcomm.soc_peaks import ASSUMED, CALL, SOURCES, guide, peaks
from edgewright.backends.qualcomm.target import CHIPSETS, QcomChipset
from edgewright.ir.graph import Graph, Op, QParams, Value
from edgewright.lowering.estimates import describe
from tests.backends.qualcomm.rows import target_for


def value(name: str, shape: tuple[int, ...], kind: str = "uint8", held: bool = False) -> Value:
    dtype = np.dtype(kind)
    q = None if kind == "float32" else QParams(0.1, 0, dtype, np.iinfo(dtype).min, np.iinfo(dtype).max)
    return Value(name, dtype, shape, tuple(range(len(shape))), np.zeros(shape, dtype) if held else None, q=q)


def convolution(kind: str = "uint8", size: int = 16, channels: int = 64) -> Graph:
    x, y = (value(n, (1, size, size, channels), kind) for n in "xy")
    w = value("w", (3, 3, channels, channels), "float32" if kind == "float32" else "int8", held=True)
    return Graph("g", [x], [y], [Op("Conv2d", {"inputs": [x, w], "params": {}}, [y])])


@pytest.mark.parametrize("soc", QcomChipset)
def test_every_soc_has_figures_with_a_source(soc: QcomChipset) -> None:
    found = peaks(soc)
    for figure in (found.tops, found.memory, found.clock):
        assert figure.value > 0 and figure.derivation
        assert figure.source in SOURCES if figure.source else figure.basis.startswith(f"{ASSUMED}: ")
    made = estimate(convolution(), target_for(soc.name))
    assert len(made["figures"]) == 4 and all(made["figures"].values())
    assert made["memory"]["sram"] <= CHIPSETS[soc].vtcm << 20


def test_products_run_at_the_peak_until_memory_is_slower() -> None:
    found, target = peaks(QcomChipset.SM8650), target_for("SM8650")
    macs = 256 * 256 * 9 * 64 * 64
    made = estimate(convolution(size=256), target)
    seconds = macs / (found.tops.value * 1e12 / 2)
    assert made["cycles"] == pytest.approx(seconds * found.clock.value, rel=1e-3)
    assert made["layers"][0]["macs"] == macs and made["mac_utilisation"] == pytest.approx(1.0, rel=1e-3)
    small = estimate(convolution(size=1), target)
    assert small["cycles"] == pytest.approx(9 * 64 * 64 / (found.memory.value * 1e9) * found.clock.value, abs=1)


def test_wider_numbers_take_longer() -> None:
    times = [estimate(convolution(kind, 128), target_for())["cycles"] for kind in ("uint8", "uint16", "float32")]
    assert times[1] == pytest.approx(2 * times[0], rel=1e-3) and times[2] == pytest.approx(4 * times[0], rel=1e-3)


def test_channels_come_in_whole_tiles() -> None:
    narrow, wide = (estimate(convolution(size=256, channels=n), target_for())["cycles"] for n in (33, 64))
    assert narrow == wide


def test_it_is_told_in_a_line_that_says_whose_it_is() -> None:
    said = describe(estimate(convolution(), target_for("SM8550")))
    assert (
        said.startswith("Edgewright's analytic bound for SM8550: at least ")
        and " to 18" in said
        and " µs per inference" in said
        and "DRAM" in said
    )


def test_the_guide_shows_every_figure_with_its_source() -> None:
    text = (Path(__file__).parents[3] / "docs" / "qualcomm.md").read_text(encoding="utf-8")
    assert guide() in text


def test_every_source_is_used_and_has_an_address() -> None:
    figures = [figure for soc in QcomChipset for figure in (peaks(soc).tops, peaks(soc).memory, peaks(soc).clock)]
    figures.append(CALL)
    said = " ".join(figure.basis for figure in figures)
    for name, (title, address) in SOURCES.items():
        assert name in said and title and address.startswith("https://")


def test_the_socs_of_phones_have_their_memory_from_a_source() -> None:
    for soc in (QcomChipset.SM8450, QcomChipset.SM8475, QcomChipset.SM8550, QcomChipset.SM8650, QcomChipset.SM8750):
        assert peaks(soc).memory.source and "https://" in peaks(soc).memory.citation
