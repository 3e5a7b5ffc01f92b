"""What SoCs can do at most, as far as it is said in public; everything else is assumed, and says so."""

from __future__ import annotations

from dataclasses import dataclass

from edgewright.backends.qualcomm.target import CHIPSETS, QcomChipset

ASSUMED = "assumed"
_C = QcomChipset


@dataclass(frozen=True)
class Figure:
    """A number and where it comes from."""

    value: float
    source: str = ASSUMED


@dataclass(frozen=True)
class Peaks:
    """``tops``: 10^12 operations of 8 bits a second (a multiply-add is two). ``memory``: GB/s of the SoC's DRAM, which
    the HTP shares. ``clock``: of the HTP, in Hz."""

    tops: Figure
    memory: Figure
    clock: Figure


_TOPS = {
    _C.SM8350: Figure(26, "Qualcomm, Snapdragon 888: 26 TOPS of the whole AI Engine"),
    _C.SA8295: Figure(30, "Qualcomm, SA8295P: 30 TOPS"),
    _C.SC8380XP: Figure(45, "Qualcomm, Snapdragon X Elite: 45 TOPS"),
    _C.QCM6490: Figure(12, "Qualcomm, QCM6490: 12 TOPS of the whole AI Engine"),
}
_TOPS_BY_ARCH = {68: 15.0, 69: 20.0, 73: 36.0, 75: 45.0, 79: 60.0, 81: 80.0}
_SMALL = 8.0  # TOPS of HTPs with little memory of their own

# Megahertz of the memory that Qualcomm names; twice as many transfers a second, of 64 bits if four channels are wired.
_MEMORY = {
    _C.SM8350: 3200, _C.SM8450: 3200, _C.SM8475: 3200, _C.SM8550: 4200, _C.SM8650: 4800, _C.SM8750: 5300,
    _C.SM8850: 5300,
}  # fmt: skip
_OTHER_MEMORY = Figure(34)
_CLOCKS = {68: 1.0e9, 69: 1.0e9, 73: 1.2e9, 75: 1.3e9, 79: 1.4e9, 81: 1.5e9}


def peaks(soc: QcomChipset) -> Peaks:
    """The figures of a SoC."""
    htp = CHIPSETS[soc]
    assumed = _SMALL if htp.vtcm <= 4 else _TOPS_BY_ARCH[htp.arch]
    return Peaks(_TOPS.get(soc, Figure(assumed)), _memory(soc), Figure(_CLOCKS[htp.arch]))


def _memory(soc: QcomChipset) -> Figure:
    if soc not in _MEMORY:
        return _OTHER_MEMORY
    megahertz = _MEMORY[soc]
    source = f"Qualcomm, {soc.name}: LPDDR5 at {megahertz} MHz; four channels of 16 bits are assumed"
    return Figure(megahertz * 2 * 8 / 1000, source)
