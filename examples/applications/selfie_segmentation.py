"""Selfie segmentation: MediaPipe's network separates people from what is behind them.

The program takes the pixels (uint8, 256 by 256) and returns for each the probability that it belongs to a person:
scaling is inside. Four photographs of people are measured; three others, mirror images and parts of them calibrate.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from PIL import Image

from edgewright.api.recipe import Recipe
from examples.applications import images
from examples.applications.application import Application, Part, Program
from examples.applications.assets import FACE_API, HUMAN_MODELS
from examples.applications.tfjs import TfjsGraph, TfjsNetwork

SIZE = 256


class Segmenter(torch.nn.Module):
    """Pixels to the probability of a person."""

    def __init__(self) -> None:
        super().__init__()
        graph = TfjsGraph(_file("selfie.json"), _file)
        self.network = TfjsNetwork(graph, {"input_1": torch.zeros(1, 3, SIZE, SIZE)}, ["activation_10"])

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        (mask,) = self.network(pixels.float() / 255)
        return mask


def _file(name: str) -> Path:
    return HUMAN_MODELS.path(f"package/models/{name}")


class SelfieSegmentation(Application):
    name = "selfie-segmentation"
    targets: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "xnnpack": ("float", "int8", "int8, ends in float"),
        "ethos-u55-128": ("int8", "int8, ends in float"),
        "sm8550": ("int8", "a16w8"),
        "e9955": ("int8", "int8, ends in float"),
        "imxrt700": ("int8", "int8, ends in float"),
    }
    # The layers that cost most by "edgewright compare": the first, and the one that writes the mask.
    recipes: ClassVar[Mapping[str, Recipe]] = {
        "int8, ends in float": Recipe("int8", {"network.layers.0": "float", "network.layers.54": "float"}),
    }
    headline = "overlap with float"
    figures: ClassVar[Mapping[str, str]] = {"same pixels": ".2%", "overlap with float": ".2%"}

    @cached_property
    def _photos(self) -> list[Image.Image]:
        """The astronaut, then groups of people."""
        people = [images.read(FACE_API.path(f"package/demo/sample{number}.jpg")) for number in range(1, 7)]
        return [images.free_photos()[0], *people]

    @cached_property
    def _parts(self) -> dict[str, Part]:
        inputs = [(images.pixels(photo, SIZE, SIZE),) for photo in self._photos]
        even = [x for (x,) in inputs[1::2]]
        # Parts of the photographs that are not measured, as they are and mirrored.
        quarters = [
            images.pixels(photo.crop(box), SIZE, SIZE) for photo in self._photos[1::2] for box in _quarters(photo)
        ]
        calibration = [(part,) for x in even + quarters for part in (x, x.flip(-1))]
        return {"forward": Part(Segmenter().eval(), inputs[0], calibration, inputs[::2])}

    def parts(self) -> dict[str, Part]:
        return self._parts

    def predict(self, programs: Mapping[str, Program]) -> Any:
        return np.concatenate([programs["forward"](*x)[0] for x in self._parts["forward"].evaluation])

    def score(self, answers: Any, original: Any) -> dict[str, float]:
        found, expected = answers > 0.5, original > 0.5
        both, either = (found & expected).sum((1, 2, 3)), (found | expected).sum((1, 2, 3))
        return {"same pixels": float((found == expected).mean()), "overlap with float": float((both / either).mean())}

    def show(self, answers: Any, original: Any, folder: Path) -> None:
        photo = self._photos[0]
        sheets = [photo.resize((320, 320), Image.Resampling.BICUBIC)]
        for mask in (original[0, 0], answers[0, 0]):
            alpha = Image.fromarray((mask * 255).astype(np.uint8)).resize((320, 320), Image.Resampling.BILINEAR)
            sheets.append(Image.composite(sheets[0], Image.new("RGB", (320, 320), "#40b070"), alpha))
        images.beside(sheets).save(folder / f"{self.name}.jpg", quality=85)
        print(", ".join(f"{share:.0%}" for share in (answers > 0.5).mean((1, 2, 3))) + " of the photographs are people")


def _quarters(photo: Image.Image) -> list[tuple[int, int, int, int]]:
    width, height = photo.width // 2, photo.height // 2
    return [(x, y, x + width, y + height) for y in (0, height) for x in (0, width)]


APPLICATION = SelfieSegmentation()
