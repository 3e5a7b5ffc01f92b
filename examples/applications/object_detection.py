"""Object detection: SSDLite with MobileNetV2, trained on COCO, draws boxes around what it finds in a photograph.

The program takes the pixels (uint8, 300 by 300) and returns, for each of 1917 anchors, a box and the probability of
each of 90 kinds of objects: scaling, sigmoid and the decoding of boxes are inside. What remains is to drop boxes that
overlap a more probable one. Sixteen photographs are measured; thirteen others and their mirror images calibrate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont

from edgewright.api.recipe import Recipe
from examples.applications import images
from examples.applications.application import Application, Part, Program
from examples.applications.assets import COCO_SSD, FACE_API, FOOLBOX
from examples.applications.image_classification import PHOTOS
from examples.applications.tfjs import TfjsGraph, TfjsNetwork

SIZE, SURE, MAYBE = 300, 0.5, 0.4
# COCO's numbers have gaps.
KINDS = """- person bicycle car motorcycle airplane bus train truck boat traffic_light fire_hydrant -
stop_sign parking_meter bench bird cat dog horse sheep cow elephant bear zebra giraffe - backpack umbrella - -
handbag tie suitcase frisbee skis snowboard sports_ball kite baseball_bat baseball_glove skateboard surfboard
tennis_racket bottle - wine_glass cup fork knife spoon bowl banana apple sandwich orange broccoli carrot
hot_dog pizza donut cake chair couch potted_plant bed - dining_table - - toilet - tv laptop mouse remote
keyboard cell_phone microwave oven toaster sink refrigerator - book clock vase scissors teddy_bear hair_drier
toothbrush""".split()  # noqa: SIM905
# What a person sees in the photographs that are measured, of the kinds that the network knows; None: nothing.
EXPECTED = ("chair", None, None, "car", None, None, None, "bird", "bird", None, "person", "cat", "cup",
            "person", "person", "person")  # fmt: skip


class BoxDecoder(torch.nn.Module):
    """Offsets from anchors, in units of their size, to corners of boxes from 0 to 1: top, left, bottom, right."""

    def __init__(self, graph: TfjsGraph) -> None:
        super().__init__()
        anchors = torch.from_numpy(graph.weights["Postprocessor/ExpandDims"].copy())
        self.register_buffer("size", anchors[..., 2:] - anchors[..., :2])
        self.register_buffer("center", (anchors[..., 2:] + anchors[..., :2]) / 2)
        self.scales = [float(graph.weights[f"ConstantFolding/Postprocessor/Decode/{name}"])
                       for name in ("div_recip", "div_2_recip")]  # fmt: skip

    def forward(self, offsets: torch.Tensor) -> torch.Tensor:
        center = offsets[..., :2] * self.scales[0] * self.size + self.center
        half = torch.exp(offsets[..., 2:] * self.scales[1]) * self.size / 2
        return torch.cat([center - half, center + half], -1)


class Detector(torch.nn.Module):
    """Pixels to boxes, and to the probability of each kind of object in each box."""

    def __init__(self) -> None:
        super().__init__()
        folder = "package/models/coco-ssd"
        graph = TfjsGraph(COCO_SSD.path(f"{folder}/model.json"), lambda name: COCO_SSD.path(f"{folder}/{name}"))
        outputs = [f"BoxPredictor_{n}/{kind}/BiasAdd" for kind in ("BoxEncodingPredictor", "ClassPredictor")
                   for n in range(6)]  # fmt: skip
        self.network = TfjsNetwork(graph, {"Preprocessor/sub": torch.zeros(1, 3, SIZE, SIZE)}, outputs)
        self.decode = BoxDecoder(graph)

    def forward(self, pixels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        maps = self.network(pixels.float() * (2 / 255) - 1)
        offsets, scores = (
            torch.cat([part.permute(0, 2, 3, 1).reshape(1, -1, width) for part in parts], 1)
            for parts, width in ((maps[:6], 4), (maps[6:], len(KINDS)))
        )
        return self.decode(offsets), torch.sigmoid(scores)


@dataclass(frozen=True)
class Detection:
    """``box``: top, left, bottom, right, as shares of the photograph."""

    kind: str
    probability: float
    box: tuple[float, ...]

    @property
    def area(self) -> float:
        top, left, bottom, right = self.box
        return (bottom - top) * (right - left)

    def overlap(self, other: Detection) -> float:
        """Intersection over union."""
        top, left, bottom, right = (
            choose(a, b) for choose, a, b in zip((max, max, min, min), self.box, other.box, strict=True)
        )
        both = max(0.0, bottom - top) * max(0.0, right - left)
        return both / (self.area + other.area - both)


def detections(boxes: Any, probabilities: Any, least: float = MAYBE) -> list[Detection]:
    """Those that do not overlap a more probable one of their kind, the most probable first."""
    kept: list[Detection] = []
    anchors, kinds = np.nonzero(probabilities[0, :, 1:] >= least)
    for number in np.argsort(-probabilities[0, anchors, kinds + 1]):
        anchor, kind = anchors[number], kinds[number] + 1
        box = tuple(float(v) for v in boxes[0, anchor].clip(0, 1))
        found = Detection(KINDS[kind].replace("_", " "), float(probabilities[0, anchor, kind]), box)
        if all(found.kind != other.kind or found.overlap(other) < 0.5 for other in kept):
            kept.append(found)
    return kept


class ObjectDetection(Application):
    name = "object-detection"
    targets: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "xnnpack": ("float", "int8", "int8, boxes in float"),
        "ethos-u55-128": ("int8, boxes in float",),
        "sm8550": ("int8", "a16w8"),
        "e9955": ("int8, boxes in float",),
        "imxrt700": ("int8, boxes in float",),
    }
    recipes: ClassVar[Mapping[str, Recipe]] = {"int8, boxes in float": Recipe("int8", {"decode": "float"})}
    headline = "boxes of float found"
    figures: ClassVar[Mapping[str, str]] = {
        "expected objects": ".0%",
        "boxes of float found": ".0%",
        "their overlap": ".1%",
        "other boxes": "d",
    }

    @cached_property
    def _photos(self) -> list[Image.Image]:
        """Those that are measured, the free ones after the first ten; then those to calibrate with."""
        photos = [images.read(FOOLBOX.path(f"foolbox/data/imagenet_{name}.jpg")) for name in PHOTOS]
        people = [images.read(FACE_API.path(f"package/demo/sample{number}.jpg")) for number in range(1, 7)]
        return [*photos[1::2], *images.free_photos(), *people[::2], *photos[::2], *people[1::2]]

    @cached_property
    def _parts(self) -> dict[str, Part]:
        inputs = [images.pixels(photo, SIZE, SIZE) for photo in self._photos]
        count = len(EXPECTED)
        calibration = [(part,) for x in inputs[count:] for part in (x, x.flip(-1))]
        evaluation = [(x,) for x in inputs[:count]]
        return {"forward": Part(Detector().eval(), evaluation[0], calibration, evaluation)}

    def parts(self) -> dict[str, Part]:
        return self._parts

    def predict(self, programs: Mapping[str, Program]) -> Any:
        """The detections of each photograph that is measured."""
        return [detections(*programs["forward"](*x)) for x in self._parts["forward"].evaluation]

    def score(self, answers: Any, original: Any) -> dict[str, float]:
        hits, overlaps, wanted, others = 0, [], 0, 0
        for found, before, expected in zip(answers, original, EXPECTED, strict=True):
            hits += expected is not None and any(d.kind == expected and d.probability >= SURE for d in found)
            for detection in before:
                if detection.probability >= SURE:
                    wanted += 1
                    overlaps += _best([detection], found)
            others += sum(d.probability >= SURE and not _best([d], before) for d in found)
        return {
            "expected objects": hits / sum(kind is not None for kind in EXPECTED),
            "boxes of float found": len(overlaps) / wanted,
            "their overlap": float(np.mean(overlaps)) if overlaps else 0.0,
            "other boxes": others,
        }

    def show(self, answers: Any, original: Any, folder: Path) -> None:
        sheets = [draw(self._photos[n], answers[n]) for n in range(10, 13)]
        images.beside(sheets).save(folder / f"{self.name}.jpg", quality=85)
        for number, found in enumerate(answers):
            print(f"{number:2} {EXPECTED[number] or '-':8}", *(f"{d.probability:.0%} {d.kind}," for d in found))


def _best(wanted: list[Detection], found: list[Detection]) -> list[float]:
    """The overlap of a detection with the best of the same kind, if it is one half or more."""
    overlaps = [a.overlap(b) for a in wanted for b in found if a.kind == b.kind]
    return [max(overlaps)] if overlaps and max(overlaps) >= 0.5 else []


def draw(photo: Image.Image, found: list[Detection], height: int = 300) -> Image.Image:
    sheet = photo.resize((round(photo.width * height / photo.height), height), Image.Resampling.BICUBIC)
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(14)
    for detection in (d for d in found if d.probability >= SURE):
        top, left, bottom, right = (v * n for v, n in zip(detection.box, (height, sheet.width) * 2, strict=True))
        text = f"{detection.kind} {detection.probability:.0%}"
        pen.rectangle((left, top, right, bottom), outline="#30e060", width=3)
        pen.rectangle((left, top, left + pen.textlength(text, font) + 8, top + 20), "#30e060")
        pen.text((left + 4, top + 1), text, "black", font)
    return sheet


APPLICATION = ObjectDetection()
