"""Images to calibrate, train and test with: an ``.npz`` file, or what a network's name brings along.

``images`` are bytes, rows of pixels with three colours (they get CIFAR-10's usual mean and deviation), or real numbers
as the model takes them, one sample after the other; ``labels`` are numbers of classes. In a file without ``images``,
every array is one sample.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgewright.demo import IMAGES
from edgewright.errors import UsageError

Inputs = tuple[Tensor, ...]
_MEAN, _STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
_EPOCHS, _RATE = 2, 1e-5
OWN = {"cifar10": str(IMAGES)}


@dataclass
class Dataset:
    """Samples, each as the model is called with it, and what is to be seen on them (None: not known)."""

    samples: list[Inputs]
    labels: Tensor | None = None

    def split(self, count: int) -> tuple[Dataset, Dataset]:
        """The first ones to learn from, and the others to test with (the same, if there are no others)."""
        if len(self.samples) <= count:
            return self, self
        first, rest = self.samples[:count], self.samples[count:]
        if self.labels is None:
            return Dataset(first), Dataset(rest)
        return Dataset(first, self.labels[:count]), Dataset(rest, self.labels[count:])


def find_dataset(model: str, inputs: Inputs, path: str | None, random: bool) -> Dataset:
    """The file's samples, the network's own, or random ones (which calibrate a model for nothing but noise)."""
    path = path or (None if random else OWN.get(model))
    if path is None:
        generator = torch.Generator().manual_seed(0)
        like = [[torch.randn(x.shape, generator=generator).to(x.dtype) for x in inputs] for _ in range(8)]
        return Dataset([inputs, *map(tuple, like)] if random else [inputs])
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    images = arrays.get("images")
    if images is None:
        return _checked(Dataset([(torch.from_numpy(array),) for array in arrays.values()]), inputs, path)
    if images.dtype == np.uint8:
        images = ((images.astype(np.float32) / 255 - _MEAN) / _STD).astype(np.float32).transpose(0, 3, 1, 2)
    samples = [(x,) for x in torch.from_numpy(np.ascontiguousarray(images)).split(1)]
    labels = torch.from_numpy(arrays["labels"].astype(np.int64)) if "labels" in arrays else None
    return _checked(Dataset(samples, labels), inputs, path)


def _checked(data: Dataset, inputs: Inputs, path: str) -> Dataset:
    wanted = [(list(x.shape), x.dtype) for x in inputs]
    for sample in data.samples:
        found = [(list(x.shape), x.dtype) for x in sample]
        if found != wanted:
            raise UsageError(path, f"must hold samples of {wanted}", value=found)
    if data.labels is not None and len(data.labels) != len(data.samples):
        raise UsageError(path, "must have a label for each image", value=len(data.labels))
    return data


def trainer(model: torch.nn.Module, data: Dataset) -> Callable[[Any], None]:
    """Two rounds over the samples: towards their labels or, if there are none, towards what the model itself gives."""

    def train(module: Any) -> None:
        optimizer = torch.optim.SGD(module.parameters(), _RATE, momentum=0.9)
        for _ in range(_EPOCHS):
            for index, inputs in enumerate(data.samples):
                optimizer.zero_grad()
                loss(model, module(*inputs), inputs, data.labels, index).backward()
                optimizer.step()

    return train


def loss(model: torch.nn.Module, found: Tensor, inputs: Inputs, labels: Tensor | None, index: int) -> Tensor:
    if labels is not None:
        shares = bool((found >= 0).all() and (found.sum(1) - 1).abs().max() < 1e-2)  # the model ends with a softmax
        likely = found.clamp_min(1e-6).log() if shares else found.log_softmax(1)
        return torch.nn.functional.nll_loss(likely, labels[index : index + 1])
    with torch.no_grad():
        wanted = model(*inputs)
    return torch.nn.functional.mse_loss(found, wanted)


def accuracy(classify: Callable[[Inputs], Any], data: Dataset, like: Callable[[Inputs], Any]) -> float:
    """The share of samples that are classified as labelled (or, without labels, as ``like`` does), in percent."""
    right = 0
    for index, inputs in enumerate(data.samples):
        wanted = int(data.labels[index]) if data.labels is not None else int(np.argmax(np.asarray(like(inputs))))
        right += int(np.argmax(np.asarray(classify(inputs)))) == wanted
    return 100.0 * right / len(data.samples)
