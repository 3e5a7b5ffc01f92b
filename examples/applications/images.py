"""Photographs: reading, resizing, drawing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont

from examples.applications.assets import SKIMAGE

# An astronaut of NASA, public domain; a cat and a cup of coffee, CC0.
FREE = ("astronaut.png", "chelsea.png", "coffee.png")


def free_photos() -> list[Image.Image]:
    """Photographs that may be shown in the documentation."""
    return [read(SKIMAGE.path(f"skimage/data/{name}")) for name in FREE]


def read(path: Path) -> Image.Image:
    return Image.open(path).convert("RGB")


def pixels(photo: Image.Image, width: int, height: int) -> torch.Tensor:
    """A photograph in the size of a model's input: uint8, [1, 3, height, width]. The whole photograph, stretched."""
    resized = np.asarray(photo.resize((width, height), Image.Resampling.BILINEAR))
    return torch.from_numpy(np.ascontiguousarray(resized.transpose(2, 0, 1)[None]))


def caption(photo: Image.Image, lines: Sequence[str], width: int = 320) -> Image.Image:
    """A photograph with lines of text below it."""
    small = photo.resize((width, round(photo.height * width / photo.width)), Image.Resampling.BICUBIC)
    sheet = Image.new("RGB", (width, small.height + 20 * len(lines) + 8), "white")
    sheet.paste(small)
    draw = ImageDraw.Draw(sheet)
    for number, line in enumerate(lines):
        draw.text((6, small.height + 4 + 20 * number), line, "black", ImageFont.load_default(14))
    return sheet


def beside(sheets: Sequence[Image.Image], gap: int = 8) -> Image.Image:
    """Pictures side by side."""
    result = Image.new("RGB", (sum(s.width + gap for s in sheets) - gap, max(s.height for s in sheets)), "white")
    left = 0
    for sheet in sheets:
        result.paste(sheet, (left, 0))
        left += sheet.width + gap
    return result
