"""Image classification: EfficientNet-Lite0, trained on ImageNet, on 20 labelled photographs.

The program takes the pixels (uint8) and returns the probability of each class: normalization and softmax are inside.
Even photographs and their mirror images calibrate; the ten others are measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from examples.applications import images
from examples.applications.application import Application, Part, Program
from examples.applications.assets import FOOLBOX, TIMM
from examples.efficientnet_lite0 import MEAN, SIZE, STD
from examples.efficientnet_lite0 import model as efficientnet

PHOTOS = (
    "00_243", "01_559", "02_438", "03_990", "04_949", "05_853", "06_609", "07_609", "08_915", "09_455", "10_541",
    "11_630", "12_741", "13_471", "14_129", "15_99", "16_251", "17_22", "18_317", "19_305",
)  # fmt: skip


class Classifier(torch.nn.Module):
    """Pixels to probabilities."""

    def __init__(self) -> None:
        super().__init__()
        self.network, _ = efficientnet()

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.network((pixels.float() - MEAN) / STD), -1)


class ImageClassification(Application):
    name = "image-classification"
    targets: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "xnnpack": ("float", "int8", "int8+adaround"),
        "ethos-u55-128": ("int8", "int8+adaround"),
        "sm8550": ("int8", "a16w8"),
        "e9955": ("int8",),
        "imxrt700": ("int8",),
    }
    headline = "right"
    figures: ClassVar[Mapping[str, str]] = {"right": ".0%", "right in five": ".0%", "same class": ".0%"}

    @cached_property
    def _photos(self) -> list[tuple[torch.Tensor, int]]:
        paths = [FOOLBOX.path(f"foolbox/data/imagenet_{name}.jpg") for name in PHOTOS]
        labels = [int(name.partition("_")[2]) for name in PHOTOS]
        return [(images.pixels(images.read(p), SIZE, SIZE), label) for p, label in zip(paths, labels, strict=True)]

    @cached_property
    def _parts(self) -> dict[str, Part]:
        even = [x for x, _ in self._photos[::2]]
        odd = [(x,) for x, _ in self._photos[1::2]]
        calibration = [(part,) for x in even for part in (x, x.flip(-1))]
        return {"forward": Part(Classifier().eval(), odd[0], calibration, odd)}

    def parts(self) -> dict[str, Part]:
        return self._parts

    def predict(self, programs: Mapping[str, Program]) -> Any:
        """The probabilities of each photograph that is measured, and of the free ones that ``show`` draws."""
        free = [images.pixels(photo, SIZE, SIZE) for photo in images.free_photos()]
        inputs = [x for x, _ in self._photos[1::2]] + free
        return np.concatenate([programs["forward"](x)[0] for x in inputs])

    def score(self, answers: Any, original: Any) -> dict[str, float]:
        labels = np.array([label for _, label in self._photos[1::2]])
        found, expected = answers[: len(labels)], original[: len(labels)]
        five = np.argsort(found, 1)[:, -5:]
        return {
            "right": float((found.argmax(1) == labels).mean()),
            "right in five": float((five == labels[:, None]).any(1).mean()),
            "same class": float((found.argmax(1) == expected.argmax(1)).mean()),
        }

    def show(self, answers: Any, original: Any, folder: Path) -> None:
        names = class_names()
        sheets = []
        for photo, found in zip(images.free_photos(), answers[-len(images.FREE) :], strict=True):
            best = np.argsort(found)[::-1][:3]
            sheets.append(images.caption(photo, [f"{found[c]:.0%} {names[c]}" for c in best], 300))
        images.beside(sheets).save(folder / f"{self.name}.jpg", quality=85)
        for (_, label), found in zip(self._photos[1::2], answers, strict=False):
            print(f"{names[label]:28} {found.max():4.0%} {names[int(found.argmax())]}")


def class_names() -> list[str]:
    """The first name of each class of ImageNet."""
    read = {name: TIMM.path(f"timm/data/_info/{name}.txt").read_text() for name in
            ("imagenet_synsets", "imagenet_synset_to_lemma")}  # fmt: skip
    lemmas = dict(line.split("\t", 1) for line in read["imagenet_synset_to_lemma"].splitlines())
    return [lemmas[synset].split(",")[0] for synset in read["imagenet_synsets"].split()]


APPLICATION = ImageClassification()
