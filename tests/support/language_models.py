"""Small language models for tests: weights from a seed, as Hugging Face folders and as GGUF files."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

DATA = Path(__file__).parent.parent / "data" / "language_models"
PROMPT, GENERATED = 20, 64  # tokens of a recorded run


def seeded_weight(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """The same weights for the same name and shape, wherever they are made."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    norm = len(shape) == 1 and not name.endswith("bias")
    return (rng.standard_normal(shape) * (0.2 if len(shape) == 1 else 0.25) + norm).astype(np.float32)


class RecordedModel:
    """A model whose tokens and logits transformers recorded (``tests/llm/record.py``)."""

    def __init__(self, name: str) -> None:
        with np.load(DATA / f"{name}.npz") as data:
            self.config: dict[str, Any] = json.loads(str(data["config"]))
            shapes = json.loads(str(data["shapes"]))
            self.tokens, self.logits = data["tokens"], data["logits"]  # [PROMPT + GENERATED], [GENERATED, vocabulary]
        self.weights = {key: seeded_weight(key, tuple(shape)) for key, shape in shapes.items()}

    def save(self, folder: Path, files: int = 1) -> Path:
        """Write a folder with config.json and safetensors, in several files if asked."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(self.config))
        if files == 1:
            (folder / "model.safetensors").write_bytes(safetensors(self.weights))
            return folder
        index: dict[str, str] = {}
        for part in range(files):
            names = sorted(self.weights)[part::files]
            file = f"model-{part + 1:05}-of-{files:05}.safetensors"
            (folder / file).write_bytes(safetensors({n: self.weights[n] for n in names}))
            index |= dict.fromkeys(names, file)
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
        return folder


def safetensors(tensors: Mapping[str, np.ndarray]) -> bytes:
    header: dict[str, Any] = {}
    at = 0
    for name, array in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + b"".join(a.tobytes() for a in tensors.values())
