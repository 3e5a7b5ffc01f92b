"""Voice activity: Silero VAD says for each 32 ms of sound whether somebody speaks.

The program takes 512 samples and returns the probability of speech. The short-time Fourier transform is inside, and so
is the state carried from window to window: the last 64 samples, and the LSTM's. ``reset`` starts a new recording.

What is measured are five sentences of LibriVox between pauses of noise. Loud windows of a sentence are speech, those of
the pauses are not, and the others are not counted. Another speaker's names of playing cards calibrate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from edgewright.api.recipe import Recipe
from examples.applications import sounds
from examples.applications.application import Application, Part, Program
from examples.applications.assets import SILERO

WINDOW, CONTEXT, WIDTH = 512, 64, 128
_LOUD = 10 ** (-25 / 20)  # of the loudest window of a sentence


class SileroVad(nn.Module):
    """Silero VAD for 16,000 samples a second, one window at a time."""

    context: torch.Tensor
    hidden: torch.Tensor
    cell: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.stft = nn.Conv1d(1, 258, 256, 128, bias=False)
        self.encoder = nn.Sequential(
            nn.Conv1d(129, 128, 3, 1, 1), nn.ReLU(), nn.Conv1d(128, 64, 3, 2, 1), nn.ReLU(),
            nn.Conv1d(64, 64, 3, 2, 1), nn.ReLU(), nn.Conv1d(64, 128, 3, 1, 1), nn.ReLU(),
        )  # fmt: skip
        self.lstm = nn.LSTMCell(WIDTH, WIDTH)
        self.decoder = nn.Conv1d(WIDTH, 1, 1)
        self.register_buffer("context", torch.zeros(1, CONTEXT))
        self.register_buffer("hidden", torch.zeros(1, WIDTH))
        self.register_buffer("cell", torch.zeros(1, WIDTH))

    def forward(self, window: torch.Tensor) -> torch.Tensor:
        sound = nn.functional.pad(torch.cat([self.context, window], 1), (0, 64), "reflect")
        real, imaginary = self.stft(sound[:, None]).chunk(2, 1)
        features = self.encoder((real**2 + imaginary**2).sqrt())
        hidden, cell = self.lstm(features.squeeze(-1), (self.hidden, self.cell))
        self.context.copy_(window[:, -CONTEXT:])
        self.hidden.copy_(hidden)
        self.cell.copy_(cell)
        return torch.sigmoid(self.decoder(hidden.relu().unsqueeze(-1))).flatten(1)


_NAMES = {
    "stft.weight": "stft.forward_basis_buffer", "encoder.0": "encoder.0.reparam_conv",
    "encoder.2": "encoder.1.reparam_conv", "encoder.4": "encoder.2.reparam_conv",
    "encoder.6": "encoder.3.reparam_conv", "lstm": "decoder.rnn", "decoder": "decoder.decoder.2",
}  # fmt: skip


def original() -> torch.jit.ScriptModule:
    """The package's own program, whose call is ``(window, rate)``."""
    program: torch.jit.ScriptModule = torch.jit.load(str(SILERO.path("silero_vad/data/silero_vad.jit")))
    return program


def silero() -> SileroVad:
    """The network with the weights of the package's program (its ``.safetensors`` has those of an earlier release)."""
    model = SileroVad()
    theirs, ours = original().state_dict(), model.state_dict()
    for name in ours.keys() - {"context", "hidden", "cell"}:
        module, _, parameter = name.rpartition(".")
        ours[name] = theirs[f"_model.{_NAMES.get(name) or f'{_NAMES[module]}.{parameter}'}"]
    model.load_state_dict(ours)
    return model.eval()


def recording(sentences: Sequence[str] = tuple(sounds.LIBRIVOX)) -> tuple[sounds.Array, sounds.Array]:
    """Sentences between pauses, with noise; and for each sample the number of its sentence, or -1."""
    pause = np.zeros(sounds.RATE * 3 // 2, np.float32)
    parts, numbers = [pause], [np.full(len(pause), -1)]
    for number, name in enumerate(sentences):
        sentence = sounds.librivox(name)
        parts += [sentence, pause]
        numbers += [np.full(len(sentence), number), np.full(len(pause), -1)]
    sound = np.concatenate(parts)
    return sound + sounds.noise(len(sound), 0.004, 1), np.concatenate(numbers)


def windows(sound: sounds.Array) -> list[torch.Tensor]:
    count = len(sound) // WINDOW
    return list(torch.from_numpy(sound[: count * WINDOW].reshape(count, 1, WINDOW)))


def speech(sound: sounds.Array, numbers: sounds.Array) -> sounds.Array:
    """Of each window of a recording: 1 for speech, 0 for a pause, -1 for what is not counted."""
    count = len(sound) // WINDOW
    level = np.sqrt((sound[: count * WINDOW].reshape(count, WINDOW) ** 2).mean(1))
    owner = numbers[: count * WINDOW].reshape(count, WINDOW)
    truth = np.full(count, -1)
    truth[(owner == -1).all(1)] = 0
    for number in range(numbers.max() + 1):
        own = (owner == number).all(1)
        truth[own & (level > _LOUD * level[own].max())] = 1
    return truth


class VoiceActivity(Application):
    name = "voice-activity"
    targets: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "xnnpack": ("float", "dynamic", "int8", "int8, LSTM in float"),
        "ethos-u55-128": ("int8",),
        "sm8550": ("int8", "a16w8"),
        "e9955": ("int8",),
        "imxrt700": ("int8",),
    }
    recipes: ClassVar[Mapping[str, Recipe]] = {
        "int8, LSTM in float": Recipe("int8", {"lstm": "float"}),
    }
    headline = "right"
    figures: ClassVar[Mapping[str, str]] = {"right": ".1%", "same decision": ".1%", "mean difference": ".4f"}

    @cached_property
    def _parts(self) -> dict[str, Part]:
        sound, _ = recording()
        evaluation = [(window,) for window in windows(sound)[60:76]]
        return {"forward": Part(silero(), evaluation[0], [(window,) for window in windows(sounds.cards())], evaluation)}

    def parts(self) -> dict[str, Part]:
        return self._parts

    def predict(self, programs: Mapping[str, Program]) -> Any:
        """The probability of speech in each window of the recording."""
        program = programs["forward"]
        program.reset()
        return np.array([float(program(window)[0].item()) for window in windows(recording()[0])])

    @cached_property
    def truth(self) -> sounds.Array:
        return speech(*recording())

    def score(self, answers: Any, original: Any) -> dict[str, float]:
        counted = self.truth >= 0
        return {
            "right": float(((answers > 0.5) == (self.truth == 1))[counted].mean()),
            "same decision": float(((answers > 0.5) == (original > 0.5)).mean()),
            "mean difference": float(np.abs(answers - original).mean()),
        }

    def show(self, answers: Any, original: Any, folder: Path) -> None:
        curves = [("in floating point", "#2060c0", original), ("compiled", "#d04020", answers)]
        sounds.plot(recording()[0], curves, folder / f"{self.name}.png", (0, 1))
        speech, start = [], None
        for number, speaks in enumerate([*(answers > 0.5), False]):
            if speaks and start is None:
                start = number
            elif not speaks and start is not None:
                speech.append(f"{start * WINDOW / sounds.RATE:.1f} to {number * WINDOW / sounds.RATE:.1f} s")
                start = None
        print("speech: " + ", ".join(speech))


APPLICATION = VoiceActivity()
