"""``edgewright demo``: a small image classifier, compiled and run here and now on images that come with it."""

from __future__ import annotations

import argparse
import importlib.util
import shlex
import statistics
import time
from typing import Any

import numpy as np

from edgewright.cli.console import console, progress, size, table
from edgewright.cli.stages import Stages
from edgewright.demo import IMAGES, MODEL
from edgewright.files import Source
from edgewright.runtime.program import Runtime

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_MEAN = np.array((0.4914, 0.4822, 0.4465), np.float32)
_STD = np.array((0.2470, 0.2435, 0.2616), np.float32)
_EXAMPLES = 8
_STAGES = 3

Array = np.ndarray[Any, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Nothing to choose: the demo is what it is."""


def run(args: argparse.Namespace) -> int:
    program, story = _compiled(args.quiet) if importlib.util.find_spec("torch") else _shipped()
    method = Runtime.get().load_program(program).load_method("forward")
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
    speed = f"{statistics.median(times) * 1e3:.2f} ms per image (median)"
    lines = [*story, f"planned memory {size(method.metadata.planned_bytes)}; {speed}"]
    _show(np.stack(probabilities), labels, lines, args.quiet)
    return 0


def _compiled(quiet: bool) -> tuple[Source, list[str]]:
    """CifarNet compiled now: the program, and what to say of it."""
    with progress("compiling", _STAGES, quiet=quiet) as step:
        stages = Stages(step)
        with stages("import torch"):
            from edgewright.demo import model
        with stages("export"):
            exported = model.exported()
        with stages("lower"):
            program: bytes = model.lowered(exported).buffer
    times = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in stages.times.items())
    return program, [f"CifarNet, compiled to a .pte of {size(len(program))}: {times};"]


def _shipped() -> tuple[Source, list[str]]:
    """The same program as it was compiled for the package."""
    told = f"torch is not installed, so this runs the .pte that comes with Edgewright ({size(MODEL.stat().st_size)});"
    return MODEL, [told]


def prepare(image: Array) -> Array:
    """A uint8 picture (height, width, RGB) as the model wants it: float32, normalised, channels first, batch of 1."""
    x = (image.astype(np.float32) / 255 - _MEAN) / _STD
    return np.ascontiguousarray(x.transpose(2, 0, 1)[None], np.float32)


def _softmax(logits: Array) -> Array:
    powers = np.exp(logits - logits.max())
    return np.asarray(powers / powers.sum())


def _show(probabilities: Array, labels: Array, lines: list[str], quiet: bool) -> None:
    out = console()
    guesses = probabilities.argmax(1)
    right = int((guesses == labels).sum())
    out.print(f"{right} of {len(labels)} images right: {right / len(labels):.1%}", style="bold green")
    if quiet:
        return
    for line in lines:
        out.print(line, soft_wrap=True)
    rows = [
        (n, CLASSES[labels[n]], CLASSES[guesses[n]], f"{probabilities[n].max():.1%}", "" if hit else "wrong")
        for n, hit in enumerate((guesses == labels)[:_EXAMPLES])
    ]
    out.print(table(f"the first {_EXAMPLES} images", (">image", "label", "prediction", ">probability", ""), rows))
    out.print("\nwhere to go next", style="bold")
    model = shlex.quote(str(MODEL))
    for command in (
        f"edgewright inspect {model}",
        f"edgewright run {model} --profile",
        "edgewright compile edgewright.demo.model:cifarnet -o cifarnet.pte",
    ):
        out.print(f"  {command}", soft_wrap=True)
