"""Peak performance of SoCs, from public sources; assumed figures are marked as such, with the reason.

Qualcomm publishes few of these figures: most are from press reports without test conditions.
"""

from __future__ import annotations

from dataclasses import dataclass

from edgewright.backends.qualcomm.target import CHIPSETS, QcomChipset

ASSUMED = "assumed"
_C = QcomChipset

# Sources: title and URL.
SOURCES = {
    "CnEVPost": ("JIDU's first model to feature Qualcomm Snapdragon 8295 chip",
                 "https://cnevpost.com/2021/11/29/jidus-first-model-to-feature-qualcomm-snapdragon-8295-chip-based-on-5nm-process/"),
    "e-com-net": ("SA8155P, SA8255P and SA8295P compared", "https://e-com-net.com/article/1714844676231606272.htm"),
    "EEWorld": ("Is the ceiling of cockpit SoC SA8295P?", "https://en.eeworld.com/news/qcdz/eic656854.html"),
    "TechInsights": ("Hexagon Adds INT4 Support", "https://www.techinsights.com/blog/hexagon-adds-int4-support"),
    "RunLocalAI": ("Qualcomm Snapdragon 8 Gen 3", "https://runlocalai.co/hardware/snapdragon-8-gen-3"),
    "Droid Life": ("Qualcomm's Snapdragon 8 Elite",
                   "https://www.droid-life.com/2024/10/21/qualcomms-snapdragon-8-elite-is-gaming-changing/"),
    "Liliputing": ("Qualcomm introduces Snapdragon 888 chip",
                   "https://liliputing.com/2020/12/qualcomm-introduces-snapdragon-888-chip-with-next-gen-ai-5g-and-graphics.html"),
    "The Daily Scout": ("Qualcomm Hexagon NPU Achieves 40% Efficiency Gain", "https://thedailyscout.com/s/T8m_7jw9E7c"),
    "Gadgets in Nepal": ("Snapdragon 8 Gen 1 is Here", "https://www.gadgetsinnepal.com.np/snadpdragon-8-gen-1/"),
    "XDA": ("The new Snapdragon 8 Plus Gen 1", "https://www.xda-developers.com/qualcomm-snapdragon-8-plus-gen-1/"),
    "Wccftech": ("Qualcomm Snapdragon 8 Gen 2 Goes Official",
                 "https://wccftech.com/qualcomm-snapdragon-8-gen-2-goes-official/"),
    "Geektopia": ("Qualcomm anuncia el Snapdragon 8 Elite",
                  "https://geektopia.es/es/technology/2024/10/22/noticias/amp/qualcomm-anuncia-el-snapdragon-8-elite-para-moviles-de-gama-alta.html"),
    "EdgeGate": ("100 Inference Runs on Snapdragon; Person Detection on Snapdragon 8 Gen 3",
                 "https://edgegate.frozo.ai/blog/100-inference-runs-on-snapdragon-what-the-data-shows"),
    "TweakTown": ("Qualcomm Snapdragon X Elite SoC detailed",
                  "https://www.tweaktown.com/news/93943/qualcomm-snapdragon-elite-4-6-tflops-more-gpu-power-than-xbox-series/index.html"),
}  # fmt: skip


@dataclass(frozen=True)
class Figure:
    """A figure and its basis. ``source``: a key of ``SOURCES``; empty if the figure is assumed."""

    value: float
    derivation: str
    source: str = ""

    @property
    def basis(self) -> str:
        """The source and its statement, or "assumed" and the reason."""
        return f"{self.source}: {self.derivation}" if self.source else f"{ASSUMED}: {self.derivation}"

    @property
    def citation(self) -> str:
        """The basis with its URL."""
        return f"{self.basis} ({SOURCES[self.source][1]})" if self.source else self.basis


# On a Galaxy S24 (SM8650), EdgeGate measured 0.369 ms for MobileNet-V2 and 1.403 ms for ResNet-50, both in fp16, which
# is 0.17 and 0.07 ms above the bounds of 0.199 and 1.330 ms; and 0.187 ms for an int8 network of 71,000 weights.
CALL = Figure(0.18e-3, "three networks on a Galaxy S24 take 0.07 to 0.18 ms more than the bound", "EdgeGate")


@dataclass(frozen=True)
class SocPeaks:
    """``tops``: 10^12 8-bit operations per second (a multiply-accumulate is two). ``memory``: DRAM bandwidth of the SoC
    in GB/s, shared with the HTP. ``clock``: of the HTP, in Hz."""

    tops: Figure
    memory: Figure
    clock: Figure


_TOPS = {
    _C.SM8350: Figure(26, "up to 26 TOPS of the entire AI Engine", "Liliputing"),
    _C.SA8295: Figure(30, "30 TOPS of its NPU", "CnEVPost"),
    _C.SA8255: Figure(48, "10 to 48 TOPS, by variant", "e-com-net"),
    _C.SM8550: Figure(48, "QCS8550, the same for other devices, has 48 TOPS of 8 bits", "EEWorld"),
    _C.SM8650: Figure(45, "45 TOPS of 8 bits", "RunLocalAI"),
    _C.SC8380XP: Figure(45, "45 TOPS of the NPU of Snapdragon X Elite", "The Daily Scout"),
    _C.QCM6490: Figure(12, "12 TOPS are often quoted for its AI Engine, without a source"),
}
# Other SoCs, by Hexagon version.
_TOPS_BY_ARCH = {
    68: Figure(15, "half of SA8295's, which has two matrix units"),
    69: Figure(24, "half of SM8550's: TechInsights has its 4-bit peak at four times the one before"),
    73: Figure(48, "as SM8550's, of the same Hexagon"),
    75: Figure(45, "as SM8650's, of the same Hexagon"),
    79: Figure(65, "SM8650's and the 45 % by which Droid Life has it faster"),
    81: Figure(80, "as Snapdragon X2 Elite's, which The Daily Scout has at 80 TOPS"),
}
_SMALL = Figure(8, "HTPs with at most 4 MiB of their own memory are a sixth of SM8550's")

_MEMORY = {
    _C.SM8450: Figure(51.2, "LPDDR5 at 3200 MHz, four channels", "Gadgets in Nepal"),
    _C.SM8475: Figure(51.2, "LPDDR5 at 3200 MHz; four channels of 16 bits are assumed", "XDA"),
    _C.SM8550: Figure(67.2, "LPDDR5X at 4200 MHz; four channels of 16 bits are assumed", "Wccftech"),
    _C.SM8650: Figure(76.8, "76.8 GB/s", "RunLocalAI"),
    _C.SM8750: Figure(84.8, "LPDDR5X at 5300 MHz, 84.8 GB/s", "Geektopia"),
    _C.SA8295: Figure(66.9696, "LPDDR4X at 2092.8 MHz, eight channels of 16 bits", "e-com-net"),
    _C.SA8255: Figure(76.8, "LPDDR5 at 3200 MHz, six channels of 16 bits", "e-com-net"),
    _C.SC8380XP: Figure(136, "LPDDR5X-8533, 136 GB/s", "TweakTown"),
    _C.SM8350: Figure(51.2, "as SM8450's"),
    _C.SXR2230P: Figure(51.2, "as SM8450's, of the same Hexagon"),
    _C.SXR2330P: Figure(84.8, "as SM8750's, of the same Hexagon"),
    _C.SM8845: Figure(84.8, "as SM8750's"),
    _C.SM8850: Figure(84.8, "as SM8750's"),
}
_OTHER_MEMORY = Figure(34, "LPDDR4X at 2133 MHz, four channels of 16 bits")

_CLOCKS = {
    _C.SA8295: Figure(1.4e9, "Hexagon V68 at up to 1.4 GHz", "e-com-net"),
    _C.SA8255: Figure(1.5e9, "Hexagon V73 at up to 1.5 GHz", "e-com-net"),
}
_OLD_CLOCK = Figure(1.4e9, "as SA8295's Hexagon V68")
_NEW_CLOCK = Figure(1.5e9, "as SA8255's Hexagon V73")


def peaks(soc: QcomChipset) -> SocPeaks:
    """The figures of a SoC."""
    htp = CHIPSETS[soc]
    assumed = _SMALL if htp.vtcm <= 4 else _TOPS_BY_ARCH[htp.arch]
    clock = _CLOCKS.get(soc, _OLD_CLOCK if htp.arch < 73 else _NEW_CLOCK)
    return SocPeaks(_TOPS.get(soc, assumed), _MEMORY.get(soc, _OTHER_MEMORY), clock)


def guide() -> str:
    """The figures of every SoC and where they were read, as the guide shows them."""
    lines = ["| SoC | TOPS of 8 bits | GB/s of memory | GHz of the HTP |", "| --- | --- | --- | --- |"]
    for soc in QcomChipset:
        figures = peaks(soc)
        cells = [(figures.tops, 1.0), (figures.memory, 1.0), (figures.clock, 1e9)]
        lines.append(f"| {soc.name} | {' | '.join(f'{f.value / unit:g} ({f.basis})' for f, unit in cells)} |")
    sources = [f"- {name}: [{title}]({address})" for name, (title, address) in SOURCES.items()]
    call = f"A call of the HTP takes up to {CALL.value * 1e3:g} ms beside it ({CALL.basis})."
    return "\n".join([*lines, "", call, "", "Read at:", "", *sources])
