"""The page's code on all its SoCs, in floating point and in every scheme, calibrated and trained, with a custom model
and with MobileNetV2. A quick run takes a scheme for each SoC; ``-m slow`` takes them all: 242 programs."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
import torch
from torch import nn

from edgewright.backends.qualcomm.target import CHIPSETS, QcomChipset
from tests.backends.qualcomm.lowered import agreement, ratio
from tests.backends.qualcomm.page import LEAST, PTQ, QAT, SCHEMES, SOCS, YourModelClass, lower, quantize
from tests.support import cifar

FLOAT = "fp16"
CUSTOM, MOBILENET = "custom", "mobilenet_v2"
DECIBELS = {FLOAT: 40, "8a8w": 30, **{s: 45 for s in SCHEMES if s.startswith("16a")}}
# In the quick run: a scheme for each SoC, that its architecture has.
QUICK = {
    "SA8295": "8a8w", "SM8450": "16a4w_block", "SM8475": "16a8w", "SM8550": "16a16w", "SM8650": "8a8w",
    "SM8750": "16a4w_block", "SSG2115P": "16a8w", "SSG2125P": "16a4w", "SXR1230P": "16a16w", "SXR2230P": "16a4w",
    "SXR2330P": "8a8w",
}  # fmt: skip


@cache
def given(name: str) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """A model, and batches to calibrate or to train it with."""
    if name == MOBILENET:
        return cifar.mobilenet(), torch.cat(list(cifar.calibration(16))).split(4)
    return YourModelClass().eval(), torch.randn(8, 3, 32, 32, generator=torch.Generator().manual_seed(1)).split(2)


@cache
def made(name: str, scheme: str, kind: str) -> nn.Module:
    model, batches = given(name)
    return model if scheme == FLOAT else quantize(model, batches, scheme, kind)


def check(soc: str, name: str, scheme: str, kind: str, folder: Path) -> None:
    """Compile, read what the contexts say of themselves, and run the file: it says what its model says. What the SoC
    does not have is refused in words, and runs as calls of kernels on the CPU, between contexts of the rest if any."""
    model, example = made(name, scheme, kind), given(name)[1][0]
    compiled = lower(model, example, soc, folder, quantized=scheme != FLOAT)
    refused = [text for verdict in compiled.report.rejected for text in verdict.rejections]
    lacking = lacks(soc, scheme)
    assert any(lacking in text for text in refused) if lacking else not refused, refused
    htp, contexts = CHIPSETS[QcomChipset[soc]], compiled.contexts()
    assert len(contexts) == compiled.report.groups and (contexts or lacking)
    for said in contexts:
        assert said["soc_type"] == {soc} and said["vtcm_size"] == {str(htp.vtcm << 20)}
        assert str(htp.arch) in said["arch"] | said.get("min_arch", set())
    with torch.no_grad():
        wanted, found = model(example), compiled(example)
    same, sure = agreement(wanted, found, 1, 16 if scheme.startswith("16a") else 6 if kind == QAT else 8)
    beside = f", {len(compiled.report.rejected)} of {len(compiled.report.verdicts)} operators on the CPU"
    print(f"{name} {scheme} {kind} on {soc}: {ratio(wanted, found):.1f} dB, {same:.0%} of the answers the same"
          f"{beside if lacking else ''}")  # fmt: skip
    assert ratio(wanted, found) > DECIBELS[scheme]
    assert sure == 1


def lacks(soc: str, scheme: str) -> str:
    """A part of what is said where a SoC does not have a scheme; empty if it has."""
    htp = CHIPSETS[QcomChipset[soc]]
    if scheme == FLOAT:
        return "" if htp.has_fp16 else soc
    return f"v{LEAST[scheme]} on" if htp.arch < LEAST.get(scheme, 0) else ""


@pytest.mark.slow
@pytest.mark.parametrize("soc", SOCS)
def test_the_pages_code_runs_on_all_its_socs(soc: str, tmp_path: Path) -> None:
    check(soc, CUSTOM, FLOAT, PTQ, tmp_path)
    check(soc, CUSTOM, QUICK[soc], PTQ, tmp_path)
    check(soc, CUSTOM, QUICK[soc], QAT, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("soc", SOCS)
@pytest.mark.parametrize(
    ("scheme", "kind"), [(FLOAT, PTQ), *((scheme, kind) for kind in (PTQ, QAT) for scheme in SCHEMES)]
)
@pytest.mark.parametrize("name", [CUSTOM, MOBILENET])
def test_every_scheme_on_every_soc(name: str, scheme: str, kind: str, soc: str, tmp_path: Path) -> None:
    check(soc, name, scheme, kind, tmp_path)
