"""Model, weights and images of the demo. Only ``model`` imports torch."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent
MODEL = FOLDER / "cifarnet.pte"
WEIGHTS = FOLDER / "cifarnet.safetensors"
IMAGES = FOLDER / "images.npz"
