"""Images as model inputs. Users specify the preprocessing: a guess would calibrate the model wrongly."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgewright.errors import InputError, MissingError, UsageError

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".ppm", ".webp")
_MAX_PIXELS = 1 << 28  # limit per file
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class ImageOptions:
    """``x = (pixel - mean) / std`` with pixels from 0 to 255; one number for all channels or one for each."""

    mean: float | Sequence[float]
    std: float | Sequence[float]

    def __post_init__(self) -> None:
        mean, std = self._normalized("mean"), self._normalized("std")
        if not all(std):
            raise UsageError("std", "must not be 0", value=_numbers(std))
        if all(abs(s) < 1 for s in std):  # ImageNet's as torchvision has them: inputs would be 255 times too large
            scaled = (" ".join(f"{255 * n:.6g}" for n in numbers) for numbers in (mean, std))
            remedy = "For mean and std of pixels from 0 to 1, multiply by 255: --mean {} --std {}.".format(*scaled)
            raise UsageError("std", "must be that of pixels from 0 to 255", value=_numbers(std), remedy=remedy)

    def _normalized(self, name: str) -> tuple[float, ...]:
        """A field as a tuple, which it becomes."""
        value = getattr(self, name)
        try:
            numbers = tuple(map(float, value if isinstance(value, Iterable) else [value]))
        except (TypeError, ValueError):
            numbers = ()
        if len(numbers) not in (1, 3) or isinstance(value, str):
            raise UsageError(name, "must be one number, or one for each of red, green and blue", value=value)
        object.__setattr__(self, name, numbers)
        return numbers


def _numbers(values: Sequence[float]) -> str:
    return " ".join(f"{n:g}" for n in values)


def read_image(path: Path, shape: Sequence[int], dtype: str, options: ImageOptions | None) -> Array:
    """An image in the shape of the model's only input: resized by its shorter side, and center-cropped. A model that
    takes ``uint8`` gets the pixels; others get floats."""
    if dtype not in ("uint8", "float32"):
        remedy = f"Convert them yourself, and pass an .npz of {dtype}."
        raise InputError(str(path), "images are for models that take uint8 or float32", value=dtype, remedy=remedy)
    if dtype == "uint8" and options is not None:
        remedy = "Leave mean and std out: the model gets the pixels from 0 to 255, and scales them itself."
        raise UsageError(str(path), "must not be normalized for a model that takes uint8", remedy=remedy)
    if dtype == "float32" and options is None:
        remedy = (
            "Pass what the model was trained with: --mean 127 --std 128, or a mean and std for each channel "
            "(in Python: images=ImageOptions(127, 128), from edgewright.api.image_data)."
        )
        raise UsageError(str(path), "images need the model's mean and std (pixels are 0..255)", remedy=remedy)
    if len(shape) != 4 or shape[0] != 1 or 3 not in (shape[1], shape[3]):
        rule = "images are for models with one input of [1, 3, height, width] or [1, height, width, 3]"
        raise InputError(str(path), rule, value=list(shape))
    channels_first = shape[1] == 3
    height, width = shape[2:] if channels_first else shape[1:3]
    x = _read_pixels(path, int(height), int(width))
    if options is not None:
        x = (x.astype(np.float32) - np.array(options.mean, np.float32)) / np.array(options.std, np.float32)
    return np.array((x.transpose(2, 0, 1) if channels_first else x)[None], order="C")  # writable, unlike Pillow's


def _read_pixels(path: Path, height: int, width: int) -> Array:
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError as error:
        raise MissingError("Pillow", "is needed to read images", remedy="pip install pillow") from error
    try:
        with Image.open(path) as picture:
            if picture.width * picture.height > _MAX_PIXELS:
                rule = f"must have at most {_MAX_PIXELS} pixels"
                raise InputError(str(path), rule, value=f"{picture.width} x {picture.height}")
            scale = max(height / picture.height, width / picture.width)
            size = max(width, round(picture.width * scale)), max(height, round(picture.height * scale))
            resized = picture.convert("RGB").resize(size, Image.Resampling.BILINEAR)
    except (OSError, UnidentifiedImageError, ValueError, Image.DecompressionBombError) as error:
        raise InputError(str(path), f"cannot be read as an image: {error}") from error
    left, top = (size[0] - width) // 2, (size[1] - height) // 2
    return np.asarray(resized.crop((left, top, left + width, top + height)))
