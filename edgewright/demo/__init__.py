"""The demo's model, weights and images. ``model`` needs torch; nothing else here does."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent
MODEL = FOLDER / "cifarnet.pte"
WEIGHTS = FOLDER / "cifarnet.safetensors"
IMAGES = FOLDER / "images.npz"
