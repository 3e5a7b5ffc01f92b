"""What the pages use of torchvision: MobileNetV2, with weights from a file of ours instead of the network."""

from __future__ import annotations

import enum
import sys
from types import ModuleType
from typing import Any

from torch import nn

from tests.support.cifar import DATA, MobileNet, read_weights


class MobileNet_V2_Weights(enum.Enum):  # noqa: N801
    DEFAULT = "mv2_cifar10.safetensors"


def mobilenet_v2(*, weights: MobileNet_V2_Weights) -> nn.Module:
    """The network of torchvision's, which has two steps more than that for small images; ten classes."""
    model: Any = MobileNet()
    for convolution in (model.features[0][0], model.features[2].conv[1][0]):
        convolution.stride = (2, 2)
    model.load_state_dict(read_weights(DATA / weights.value))
    return model


def install() -> None:
    """Make ``import torchvision.models`` find this."""
    names = ("torchvision", "torchvision.models", "torchvision.models.mobilenetv2")
    package, models, mobilenetv2 = (ModuleType(name) for name in names)
    package.models, models.mobilenetv2 = models, mobilenetv2  # type: ignore[attr-defined]
    mobilenetv2.mobilenet_v2 = mobilenet_v2  # type: ignore[attr-defined]
    mobilenetv2.MobileNet_V2_Weights = MobileNet_V2_Weights  # type: ignore[attr-defined]
    for module in (package, models):
        module.__path__ = []
    sys.modules.update(zip(names, (package, models, mobilenetv2), strict=True))
