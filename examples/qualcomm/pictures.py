"""Inputs from files: a folder of images, as ImageNet's and others have them, or arrays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from edgewright.api.image_data import SUFFIXES, ImageOptions, read_image
from edgewright.errors import InputError, UsageError

Inputs = tuple[torch.Tensor, ...]
IMAGENET = ImageOptions(mean=(123.675, 116.28, 103.53), std=(58.395, 57.12, 57.375))
PLAIN = ImageOptions(mean=(0.0,), std=(255.0,))  # pixels from 0 to 1


def from_folder(folder: Path, count: int, size: int, options: ImageOptions = IMAGENET) -> list[Inputs]:
    """The first images of a folder and of those in it, by name."""
    found = sorted(p for p in folder.rglob("*") if p.suffix.lower() in SUFFIXES)[:count]
    if not found:
        raise UsageError(str(folder), f"must hold images ({', '.join(SUFFIXES)})")
    shape = (1, 3, size, size)
    return [(torch.from_numpy(read_image(path, shape, "float32", options)),) for path in found]


def from_arrays(path: Path, count: int, example: Inputs) -> list[Inputs]:
    """An ``.npz`` of arrays, as many for an inference as the model has inputs, each of its shape and dtype."""
    with np.load(path, allow_pickle=False) as file:
        arrays = [torch.from_numpy(file[name]) for name in file.files]
    if not arrays or len(arrays) % len(example):
        raise InputError(str(path), f"must hold arrays, {len(example)} for each inference", value=len(arrays))
    sets = [tuple(arrays[i : i + len(example)]) for i in range(0, len(arrays), len(example))][:count]
    for given in sets:
        for array, wanted in zip(given, example, strict=True):
            if array.shape != wanted.shape or array.dtype != wanted.dtype:
                rule = f"must be {list(wanted.shape)} {wanted.dtype}"
                raise InputError(str(path), rule, value=f"{list(array.shape)} {array.dtype}")
    return sets
