"""Whisper models of whisper.cpp (``ggml-*.bin``): sizes, mel filters, the texts of tokens, and weights."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch

_MAGIC = 0x67676D6C
_TYPES = (np.dtype("<f4"), np.dtype("<f2"))


@dataclass(frozen=True)
class WhisperFile:
    """``tokens``: the bytes of each token of text; those above are commands, such as the start of a transcript."""

    heads: int
    width: int
    layers: int
    filters: torch.Tensor
    tokens: list[bytes]
    weights: dict[str, torch.Tensor]


def read_whisper(path: Path) -> WhisperFile:
    with path.open("rb") as file:
        magic, _, _, width, heads, layers, _, _, _, _, _, kind = _numbers(file, 12)
        assert magic == _MAGIC and kind == 1, f"{path} must be a model of whisper.cpp with weights of 16 bits"
        mels, bins = _numbers(file, 2)
        filters = torch.from_numpy(_array(file, _TYPES[0], (mels, bins)))
        (count,) = _numbers(file, 1)
        tokens = [file.read(_numbers(file, 1)[0]) for _ in range(count)]
        weights = {}
        while head := file.read(12):
            dimensions, length, number = struct.unpack("<3i", head)
            shape = _numbers(file, dimensions)[::-1]  # ggml's begin with the innermost
            name = file.read(length).decode()
            weights[name] = torch.from_numpy(_array(file, _TYPES[number], shape))
    return WhisperFile(heads, width, layers, filters, tokens, weights)


def _numbers(file: BinaryIO, count: int) -> tuple[int, ...]:
    return struct.unpack(f"<{count}i", file.read(4 * count))


def _array(file: BinaryIO, kind: Any, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    data = bytearray(file.read(int(np.prod(shape)) * kind.itemsize))
    return np.frombuffer(data, kind).reshape(shape)
