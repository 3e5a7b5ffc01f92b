"""``edgewright demo``: a small image classifier, shipped with its images, run here and now."""

from __future__ import annotations

import argparse
import shlex
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np

import edgewright
from edgewright.cli.console import console, progress, size, table
from edgewright.runtime.program import Runtime

FOLDER = Path(edgewright.__file__).parent / "demo"
MODEL, IMAGES = FOLDER / "cifarnet.pte", FOLDER / "images.npz"
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_MEAN = np.array((0.4914, 0.4822, 0.4465), np.float32)
_STD = np.array((0.2470, 0.2435, 0.2616), np.float32)
_EXAMPLES = 8

Array = np.ndarray[Any, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Nothing to choose: the demo is what it is."""


def run(args: argparse.Namespace) -> int:
    method = Runtime.get().load_program(MODEL).load_method("forward")
    with np.load(IMAGES) as file:
        images, labels = file["images"], file["labels"]
    probabilities, times = [], []
    with progress("classifying", len(images), quiet=args.quiet) as step:
        for image in images:
            x = prepare(image)
            start = time.perf_counter()
            (logits,) = method.execute([x])
            times.append(time.perf_counter() - start)
            probabilities.append(_softmax(logits[0]))
            step()
    _show(np.stack(probabilities), labels, times, method.metadata.planned_bytes, args.quiet)
    return 0


def prepare(image: Array) -> Array:
    """A uint8 picture (height, width, RGB) as the model wants it: float32, normalised, channels first, batch of 1."""
    x = (image.astype(np.float32) / 255 - _MEAN) / _STD
    return np.ascontiguousarray(x.transpose(2, 0, 1)[None], np.float32)


def _softmax(logits: Array) -> Array:
    powers = np.exp(logits - logits.max())
    return np.asarray(powers / powers.sum())


def _show(probabilities: Array, labels: Array, times: list[float], planned: int, quiet: bool) -> None:
    out = console()
    guesses = probabilities.argmax(1)
    right = int((guesses == labels).sum())
    out.print(f"{right} of {len(labels)} images right: {right / len(labels):.1%}", style="bold green")
    if quiet:
        return
    out.print(f"CifarNet, {size(MODEL.stat().st_size)} .pte; planned memory {size(planned)};", end=" ")
    out.print(f"{statistics.median(times) * 1e3:.2f} ms per image (median)")
    rows = [
        (n, CLASSES[labels[n]], CLASSES[guesses[n]], f"{probabilities[n].max():.1%}", "" if hit else "wrong")
        for n, hit in enumerate((guesses == labels)[:_EXAMPLES])
    ]
    out.print(table(f"the first {_EXAMPLES} images", (">image", "label", "prediction", ">probability", ""), rows))
    out.print("\nwhere to go next", style="bold")
    model = shlex.quote(str(MODEL))
    for command in (f"edgewright inspect {model}", f"edgewright run {model} --profile", "edgewright run --help"):
        out.print(f"  {command}", soft_wrap=True)
