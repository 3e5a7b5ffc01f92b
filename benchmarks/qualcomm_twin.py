"""How fast the host twin runs a network for Qualcomm's HTP, beside Qualcomm's own emulator, and how far they agree.

    python benchmarks/qualcomm_twin.py [--fitted] [--size 224] [--soc SM8550] [--threads 1] [--rounds 5] [--no-emulator]

The network is DeepLabV3-ResNet101, of 8 bits, with random weights unless ``--weights`` gives trained ones: most pixels
of a random network are ties, which the least difference decides. ``--fitted`` gives its last layer weights that tell
shapes by their colours, and shows it a picture of them. Times are of the least of the rounds, by the wall clock and by
the processor: on a busy machine the second is nearer to the truth. The emulator is run once, in a process of its own;
it takes minutes.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1]))

from edgewright.backends.qualcomm.delegate import CHOICE
from edgewright.runtime import Runtime
from examples.qualcomm import flow
from examples.qualcomm.models.deeplab import DeepLabV3
from examples.qualcomm.scripts.deeplab_v3 import SCRIPT
from tests.support.shapes import fit, inputs_of, pictures

OUT = Console(width=120)
SHOWN = 11  # classes of its 21 that pictures are of


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--soc", default="SM8550")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--weights", help="a .safetensors of torchvision's deeplabv3_resnet101")
    parser.add_argument("--fitted", action="store_true", help="a last layer that tells shapes by their colours")
    parser.add_argument("--folder", help="keep, and find again, the compiled program here")
    parser.add_argument("--no-emulator", action="store_true", help="the twin only")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        measure(args, Path(args.folder or temporary))


def measure(args: argparse.Namespace, folder: Path) -> None:
    path = folder / f"{SCRIPT.file}.pte"
    if not path.exists():
        given = ["--ci", *(["--weights", args.weights] if args.weights else [])]
        given = fitted(folder, args.size) if args.fitted else given
        flow.main(SCRIPT, ["-m", args.soc, "-a", str(folder), "-c", "--size", str(args.size), *given])
    data = np.fromfile(folder / "input_0_0.raw", np.float32).reshape(1, 3, args.size, args.size)
    rows = [run(path, data, "twin", args.threads, args.rounds)]
    if not args.no_emulator:
        rows.append(run(path, data, "emulator", args.threads, 1))
    show(rows)


def fitted(folder: Path, size: int) -> list[str]:
    """Write weights with a fitted last layer, and a picture that it was not fitted to; the flags that give them."""
    torch.manual_seed(0)
    model = DeepLabV3().eval()
    flow.randomize(model)
    images, labels = pictures(16, size, SHOWN, seed=1)
    fit(model.classifier[-1], inputs_of(model.classifier[-1], model, images), labels)
    image, labels = pictures(1, size, SHOWN, seed=2)
    with torch.no_grad():
        right = (model(image)[0].argmax(1) == labels).float().mean()
    OUT.print(f"fitted on {len(images)} pictures: right about {right:.1%} of the pixels of another")
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(model.state_dict(), folder / "fitted.pth")
    np.savez(folder / "shapes.npz", image=image.numpy())
    return ["--weights", str(folder / "fitted.pth"), "--dataset", str(folder / "shapes.npz")]


def run(path: Path, data: Any, choice: str, threads: int, rounds: int) -> tuple[str, float, float, list[Any]]:
    """What ran it, the least seconds by both clocks, and the outputs."""
    os.environ[CHOICE] = choice
    method = Runtime(threads=threads).load_program(path).load_method("forward")
    times = []
    for _ in range(rounds):
        before = time.perf_counter(), time.process_time()
        outputs = method.execute([data])
        times.append((time.perf_counter() - before[0], time.process_time() - before[1]))
    return choice, min(t[0] for t in times), min(t[1] for t in times), [np.asarray(o) for o in outputs]


def show(rows: list[tuple[str, float, float, list[Any]]]) -> None:
    table = Table("", "seconds", "of this process", title="DeepLabV3-ResNet101")
    for how, wall, processor, _ in rows:
        table.add_row(how, f"{wall:.3f}", f"{processor:.3f}")
    OUT.print(table)
    if len(rows) > 1:
        twin, emulated = (row[3][0].astype(np.float64) for row in rows)
        noise = ((twin - emulated) ** 2).sum()
        ratio = 10 * np.log10((emulated**2).sum() / noise) if noise else float("inf")
        same = (twin.argmax(1) == emulated.argmax(1)).mean()
        OUT.print(f"twin against emulator: {ratio:.1f} dB, the same class for {same:.2%} of pixels")
        OUT.print(f"the twin is {rows[1][1] / rows[0][1]:.0f} times as fast")


if __name__ == "__main__":
    main()
