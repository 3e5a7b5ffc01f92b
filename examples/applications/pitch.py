"""Pitch: CREPE finds the fundamental frequency of a sound, 100 times a second.

The program takes 1024 samples and returns the probability of each of 360 pitches, 20 cents apart; subtracting the mean
and dividing by the standard deviation are inside. The pitch is the mean of the pitches around the most probable one.

What is measured are synthesized notes, whose pitch is known, and a sentence of LibriVox. Windows in which the original
is not sure of a pitch are not counted. Other notes, and names of playing cards, calibrate.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from examples.applications import sounds
from examples.applications.application import Application, Part, Program
from examples.applications.assets import CREPE

WINDOW, HOP, BINS = 1024, 160, 360
CENTS = 20 * np.arange(BINS) + 1997.3794084376191  # above 10 Hz
_SURE = 0.21  # the probability below which torchcrepe's documentation calls a window unvoiced
Array = sounds.Array


class Crepe(nn.Module):
    """The tiny model: six convolutions over time, and a linear layer. Names are those of its weights."""

    def __init__(self) -> None:
        super().__init__()
        channels = (1, 128, 16, 16, 16, 32, 64)
        for number in range(1, 7):
            kernel, stride = (512, 4) if number == 1 else (64, 1)
            self.add_module(
                f"conv{number}", nn.Conv2d(channels[number - 1], channels[number], (kernel, 1), (stride, 1))
            )
            self.add_module(f"conv{number}_BN", nn.BatchNorm2d(channels[number], eps=0.001))
        self.classifier = nn.Linear(256, BINS)

    def forward(self, window: torch.Tensor) -> torch.Tensor:
        x = window - window.mean(1, keepdim=True)
        x = x / torch.clamp(x.std(1, keepdim=True), min=1e-10)
        x = x[:, None, :, None]
        for number in range(1, 7):
            convolution, norm = getattr(self, f"conv{number}"), getattr(self, f"conv{number}_BN")
            x = nn.functional.pad(x, (0, 0, 254, 254) if number == 1 else (0, 0, 31, 32))
            x = nn.functional.max_pool2d(norm(torch.relu(convolution(x))), (2, 1), (2, 1))
        return torch.sigmoid(self.classifier(x.permute(0, 2, 1, 3).flatten(1)))


def crepe() -> Crepe:
    """The network with the weights of ``torchcrepe/assets/tiny.pth``."""
    model = Crepe()
    model.load_state_dict(torch.load(CREPE.path("torchcrepe/assets/tiny.pth"), weights_only=True))
    return model.eval()


def decode(probabilities: Array) -> Array:
    """Pitch in cents above 10 Hz: the mean of the nine pitches around the most probable one."""
    best = probabilities.argmax(1)
    near = np.clip(best[:, None] + np.arange(-4, 5), 0, BINS - 1)
    weights = np.take_along_axis(probabilities, near, 1)
    return np.asarray((weights * CENTS[near]).sum(1) / weights.sum(1))


def notes(frequencies: list[float], seed: int) -> tuple[Array, Array]:
    """Notes of half a second with vibrato and overtones, in a little noise; and the pitch of each sample, in cents."""
    random = np.random.default_rng(seed)
    time = np.arange(sounds.RATE // 2) / sounds.RATE
    parts, pitches = [], []
    for frequency in frequencies:
        cents = 1200 * np.log2(frequency / 10) + 30 * np.sin(2 * np.pi * 5 * time)
        phase = 2 * np.pi * np.cumsum(10 * 2 ** (cents / 1200)) / sounds.RATE
        tone = sum(random.uniform(0.3, 1) / k * np.sin(k * phase) for k in range(1, 9))
        parts.append(0.2 * np.asarray(tone))
        pitches.append(cents)
    sound = np.concatenate(parts).astype(np.float32)
    return sound + sounds.noise(len(sound), 0.002, seed), np.concatenate(pitches)


def windows(sound: Array) -> list[torch.Tensor]:
    padded = np.pad(sound, WINDOW // 2)
    return [torch.from_numpy(padded[None, start : start + WINDOW].copy()) for start in range(0, len(sound), HOP)]


class Pitch(Application):
    name = "pitch"
    targets: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "xnnpack": ("float", "int8"),
        "ethos-u55-128": ("int8",),
        "sm8550": ("int8",),
        "e9955": ("int8",),
        "imxrt700": ("int8",),
    }
    headline = "speech within 50 cents of float"
    figures: ClassVar[Mapping[str, str]] = {
        "from the known pitch, cents": ".1f",
        "within 50 cents of it": ".1%",
        "speech within 50 cents of float": ".1%",
    }

    @cached_property
    def _sounds(self) -> tuple[Array, Array, Array]:
        """Notes and their pitches; a sentence."""
        sound, pitches = notes([110 * 2 ** (k * 5 / 12) for k in (0, 4, 1, 6, 2, 7, 3, 5)], 1)
        return sound, pitches, sounds.librivox("0880")

    @cached_property
    def _parts(self) -> dict[str, Part]:
        other, _ = notes([98 * 2 ** (k * 7 / 12) for k in range(5)], 2)
        calibration = [(window,) for window in windows(np.concatenate([other, sounds.cards()]))[::8]]
        evaluation = [(window,) for window in windows(self._sounds[0])[10::40]]
        return {"forward": Part(crepe(), evaluation[0], calibration, evaluation)}

    def parts(self) -> dict[str, Part]:
        return self._parts

    def predict(self, programs: Mapping[str, Program]) -> Any:
        """The probabilities of each window, of the notes and of the sentence."""
        tones, _, speech = self._sounds
        return [np.concatenate([programs["forward"](w)[0] for w in windows(sound)]) for sound in (tones, speech)]

    def score(self, answers: Any, original: Any) -> dict[str, float]:
        known = self._sounds[1][::HOP]
        away = [np.abs(decode(a) - b) for a, b in zip(answers, (known, decode(original[1])), strict=True)]
        tones, speech = (away[i][original[i].max(1) > _SURE] for i in range(2))
        return {
            "from the known pitch, cents": float(np.median(tones)),
            "within 50 cents of it": float((tones < 50).mean()),
            "speech within 50 cents of float": float((speech < 50).mean()),
        }

    def show(self, answers: Any, original: Any, folder: Path) -> None:
        lowest, highest = 50, 250

        def voiced(probabilities: Array) -> Array:
            hertz = 10 * 2 ** (decode(probabilities) / 1200)
            return np.where((original[1].max(1) > _SURE) & (hertz > lowest) & (hertz < highest), hertz, np.nan)

        curves = [("in floating point", "#2060c0", voiced(original[1])), ("compiled", "#d04020", voiced(answers[1]))]
        sounds.plot(self._sounds[2], curves, folder / f"{self.name}.png", (lowest, highest), " Hz")
        found = voiced(answers[1])
        print(f"spoken at {np.nanmin(found):.0f} to {np.nanmax(found):.0f} Hz, mostly {np.nanmedian(found):.0f} Hz")


APPLICATION = Pitch()
