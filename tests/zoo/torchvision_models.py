"""All architectures of torchvision but the quantized ones, for small inputs; detectors up to their heads."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any
from unittest import mock

import torch
from torch import nn

from tests.zoo.network import (
    Call,
    Draw,
    ModelError,
    Network,
    TensorOutputs,
    count_parameters,
    draw_calls,
    image,
    images,
    run_eager,
)

SIZES = (64, 96, 128, 224)  # the first that the model takes
SIZES_OF_14 = (112,)  # for patches of 14 pixels
DETECTOR_SIZES = (96, 128, 224, 320)
_DEFINED: list[Any] = []


def library() -> Any:
    """torchvision. Beside a CPU build of torch of another index its compiled operators are missing, and the import
    fails unless the two that it registers shapes for are declared."""
    if not _DEFINED:
        for schema in (
            "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
            "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
        ):
            with contextlib.suppress(RuntimeError):  # the compiled operators are there
                torch.library.define(f"torchvision::{schema.partition('(')[0]}", f"({schema.partition('(')[2]}")
        _DEFINED.append(True)
    import torchvision

    return torchvision


def choose() -> dict[str, int]:
    models = library().models
    sizes = {}
    for name in models.list_models():
        if not name.startswith("quantized_"):
            sizes[name] = count_parameters(partial(_create, name, _options(name, 224)))
    return sizes


def _create(name: str, options: Mapping[str, Any]) -> Any:
    return library().models.get_model(name, weights=None, **options)


def _options(name: str, size: int) -> dict[str, Any]:
    """Arguments that make a model small, or fit its input."""
    module = library().models.get_model_builder(name).__module__
    if ".detection" in module or ".segmentation" in module:
        return {"weights_backbone": None}
    if name.startswith("vit_"):
        return {"image_size": size}
    if name.startswith("maxvit"):
        return {"input_size": (size, size)}
    if name in ("googlenet", "inception_v3"):
        return {"init_weights": False, "aux_logits": False}
    return {}


def build(name: str) -> Network:
    module = library().models.get_model_builder(name).__module__
    if ".optical_flow" in module:
        model = TensorOutputs(_create(name, {}).eval(), num_flow_updates=2)
        return _prepared(name, _pairs, model, "pairs of 128x128, 2 updates")
    if ".video" in module:
        return _video(name)
    failures = []
    detector = ".detection" in module
    for size in DETECTOR_SIZES if detector else SIZES_OF_14 if name.endswith("_14") else SIZES:
        try:
            created = _create(name, _options(name, size)).eval()
            model = TensorOutputs(DetectorHeads(created) if detector else created)
            calls = draw_calls(name, images(1, 3, size, size))
            run_eager(model, calls[0])
            return Network(model, calls, f"{size}x{size}{', heads only' if detector else ''}")
        except Exception as error:  # the model's: an input it cannot take
            failures.append(f"{size}: {type(error).__name__}: {error}")
    raise ModelError(f"takes none of the sizes: {'; '.join(failures)}")


class DetectorHeads(nn.Module):
    """A detector up to what its heads give for every anchor.

    Resizing, decoding, NMS and the choice of regions give as many numbers as they find, which is no graph. Heads of
    regions (boxes, masks, keypoints) get one: the corner of the finest features that is as large as they take it.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> list[Any]:
        model = self.model
        features = model.backbone(x)
        maps = list(features.values()) if isinstance(features, Mapping) else [features]
        if hasattr(model, "head"):
            return [model.head(maps)]
        regions, (box, mask) = model.roi_heads, (_corner(maps[0], 7), _corner(maps[0], 14))
        found = [model.rpn.head(maps), regions.box_predictor(regions.box_head(box))]
        if regions.has_mask():
            found.append(regions.mask_predictor(regions.mask_head(mask)))
        if regions.has_keypoint():
            found.append(regions.keypoint_predictor(regions.keypoint_head(mask)))
        return found


def _corner(features: torch.Tensor, size: int) -> torch.Tensor:
    return features[:, :, :size, :size]


def _video(name: str) -> Network:
    failures = []
    for frames, size in ((4, 64), (16, 64), (16, 224)):
        try:
            model = TensorOutputs(
                _create_mvit(name, frames, size) if name.startswith("mvit") else _create(name, {})
            ).eval()
            calls = draw_calls(name, images(1, 3, frames, size, size), 2)
            run_eager(model, calls[0])
            return Network(model, calls, f"{frames} frames of {size}x{size}")
        except Exception as error:
            failures.append(f"{frames}x{size}: {type(error).__name__}: {error}")
    raise ModelError(f"takes none of the sizes: {'; '.join(failures)}")


def _create_mvit(name: str, frames: int, size: int) -> Any:
    """A multiscale vision transformer for small videos: the public builders pass the size of the published weights to
    the common one, and take no other."""
    module = import_module(library().models.get_model_builder(name).__module__)
    build = partial(_build_small, module._mvit, {"temporal_size": frames, "spatial_size": (size, size)})
    with mock.patch.object(module, "_mvit", build):
        return _create(name, {})


def _build_small(build: Callable[..., Any], sizes: Mapping[str, Any], *args: Any, **options: Any) -> Any:
    return build(*args, **{**options, **sizes})


def _pairs(random: torch.Generator) -> Call:
    return image((1, 3, 128, 128), random), image((1, 3, 128, 128), random)


def _prepared(name: str, draw: Draw, model: Any, note: str) -> Network:
    return Network(model, draw_calls(name, draw, 2), note)
