"""Damaged files of calibration data: arrays and images that numpy and Pillow cannot read are typed errors."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from edgewright.api.data import Call, load_calls
from edgewright.api.image_data import ImageOptions
from edgewright.errors import EdgewrightError
from tests.fuzz.file_mutations import mutate_bytes

EXAMPLE = Call((torch.zeros(1, 3, 8, 8),))


def archive() -> bytes:
    file = io.BytesIO()
    np.savez(file, in0=np.zeros((2, 3, 8, 8), np.float32))
    return file.getvalue()


def array() -> bytes:
    file = io.BytesIO()
    np.save(file, np.zeros((2, 3, 8, 8), np.float32))
    return file.getvalue()


def huge_array() -> bytes:
    """A header of the right length that names 2 ** 50 elements."""
    return array().replace(b"(2, 3, 8, 8), }", b"(%d,), }" % (1 << 50), 1)


def image() -> bytes:
    pillow = pytest.importorskip("PIL.Image")
    file = io.BytesIO()
    pillow.fromarray(np.arange(300, dtype=np.uint8).reshape(10, 10, 3)).save(file, "PNG")
    return file.getvalue()


@pytest.mark.parametrize(("name", "make"), [("c.npz", archive), ("c.npy", array), ("folder/c.png", image)])
def test_damaged_calibration_data(name: str, make: Callable[[], bytes], tmp_path: Path) -> None:
    path, data = tmp_path / name, make()
    path.parent.mkdir(exist_ok=True)
    source = str(path if path.parent == tmp_path else path.parent)
    rejected = 0
    for seed in range(150):
        path.write_bytes(mutate_bytes(data, random.Random(seed)))
        try:
            load_calls(source, EXAMPLE, images=ImageOptions((0.0,), (1.0,)))
        except EdgewrightError:
            rejected += 1
    assert rejected > 30


def test_an_array_that_is_larger_than_its_file(tmp_path: Path) -> None:
    path = tmp_path / "c.npy"
    path.write_bytes(huge_array())
    with pytest.raises(EdgewrightError):
        load_calls(str(path), EXAMPLE)
