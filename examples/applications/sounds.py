"""Recordings and synthesized sounds, 16,000 samples a second, float32 from -1 to 1; and pictures of them."""

from __future__ import annotations

import wave
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from examples.applications.assets import POCKETSPHINX

RATE = 16000
Array = np.ndarray[Any, Any]

# Sense and Sensibility, chapter 2, read for LibriVox: public domain. The text is the recordings' transcription.
LIBRIVOX = {
    "0870": "and mister john dashwood had then leisure to consider how much there might be prudently in his power "
    "to do for them",
    "0880": "he was not an ill disposed young man",
    "0890": "unless to be rather cold hearted and rather selfish is to be ill disposed",
    "0920": "had he married a more amiable woman he might have been made still more respectable than he was",
    "0930": "he might even have been made amiable himself",
}


def librivox(name: str) -> Array:
    """A sentence of ``LIBRIVOX``."""
    member = f"pocketsphinx-5.1.1/test/data/librivox/sense_and_sensibility_01_austen_64kb-{name}.wav"
    return read(POCKETSPHINX.path(member))


def cards() -> Array:
    """Names of playing cards by another speaker, one after the other."""
    members = [f"pocketsphinx-5.1.1/test/data/cards/00{number}.wav" for number in range(1, 6)]
    return np.concatenate([read(POCKETSPHINX.path(member)) for member in members])


def read(path: Path) -> Array:
    with wave.open(str(path)) as file:
        assert file.getparams()[:3] == (1, 2, RATE), path
        samples = np.frombuffer(file.readframes(file.getnframes()), np.int16)
    return samples.astype(np.float32) / 32768


def noise(length: int, level: float, seed: int) -> Array:
    """Noise with as much power in each octave, as of a room."""
    random = np.random.default_rng(seed)
    spectrum = np.fft.rfft(random.standard_normal(length))
    spectrum /= np.sqrt(np.maximum(np.arange(len(spectrum)), 20 * length / RATE))
    samples = np.fft.irfft(spectrum, length)
    return np.asarray(samples * (level / np.sqrt((samples**2).mean())), np.float32)


def plot(
    sound: Array, curves: Sequence[tuple[str, str, Array]], path: Path, limits: tuple[float, float], unit: str = ""
) -> None:
    """A sound above curves over the same time: (name, color, values), NaN where there is none."""
    width, top, height, margin = 960, 120, 220, 44
    picture = Image.new("RGB", (width, top + height + 40), "white")
    draw, font = ImageDraw.Draw(picture), ImageFont.load_default(13)
    inner = width - margin - 8
    columns = np.array_split(sound, inner)
    loudest = max(1e-9, float(np.abs(sound).max()))
    for x, part in enumerate(columns):
        high, low = (top / 2 * (1 - float(v) / loudest) for v in (part.max(), part.min()))
        draw.line((margin + x, high, margin + x, low), "#8090a0")
    lowest, highest = limits

    def row(value: float) -> float:
        return top + 8 + (highest - value) / (highest - lowest) * (height - 8)

    for value in np.linspace(lowest, highest, 5):
        draw.line((margin, row(value), width - 8, row(value)), "#e0e0e0")
        draw.text((2, row(value) - 8), f"{value:g}{unit}", "#505050", font)
    for number, (name, color, values) in enumerate(curves):
        points = [(margin + i * inner / len(values), row(float(v))) for i, v in enumerate(values)]
        for first, second in pairwise(points):
            if not np.isnan(first[1] + second[1]):
                draw.line((*first, *second), color, 2)
        left = margin + number * 260
        draw.line((left, top + height + 24, left + 20, top + height + 24), color, 2)
        draw.text((left + 26, top + height + 16), name, color, font)
    draw.text((width - 70, top + height + 16), f"{len(sound) / RATE:.1f} s", "#505050", font)
    picture.save(path)
