"""How long it takes to quantize a network in 8 bits for XNNPACK, here and in stock, in the same run.

Each measurement is a process of its own. Export is not counted; what is: observers are put in, see eight inputs, become
scales, and the result is exported for lowering. Both call torchao, each with its own quantizer. Times are the
processor's, of one thread; the two take turns.

    python benchmarks/quantizing.py [--rounds 3] [--model densenet]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

ROOT = Path(__file__).parent.parent
NETWORKS = ("mobilenet_v2", "densenet", "mobilenet_v2-decomposed", "lstm")

CHILD = """
import json, sys, time, warnings
warnings.simplefilter("ignore")
import torch
from torch import nn
from tests.program.networks import MODELS
who, network = sys.argv[1:]
if who == "edgewright":
    from edgewright.backends.xnnpack import XNNPACKQuantizer, get_symmetric_quantization_config
    from edgewright.quantize.pt2e import convert_pt2e as converted, prepare_pt2e as prepared
else:
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer, get_symmetric_quantization_config)
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e as converted, prepare_pt2e as prepared

class Dense(nn.Module):  # batch norms ahead of convolutions, as DenseNet has them: they are part of none
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, padding=1)
        self.blocks = nn.ModuleList(nn.Sequential(nn.BatchNorm2d(16 + 8 * n), nn.ReLU(),
            nn.Conv2d(16 + 8 * n, 32, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU(),
            nn.Conv2d(32, 8, 3, padding=1, bias=False)) for n in range(12))

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = torch.cat([x, block(x)], 1)
        return x.mean((2, 3))

class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells, self.head = nn.LSTM(32, 32, batch_first=True), nn.Linear(32, 10)

    def forward(self, x):
        return self.head(self.cells(x)[0][:, -1])

torch.manual_seed(0)
torch.set_num_threads(1)
own = {"densenet": (Dense, (1, 3, 32, 32)), "lstm": (Recurrent, (1, 64, 32))}
name = network.partition("-")[0]
model, inputs = (own[name][0]().eval(), (torch.randn(own[name][1]),)) if name in own else MODELS[name]()
exported = torch.export.export(model, inputs)
if network.endswith("-decomposed"):
    exported = exported.run_decompositions()
quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))
start = time.process_time()
module = prepared(exported.module(), quantizer)
with torch.no_grad():
    for _ in range(8):
        module(*(torch.randn_like(x) for x in inputs))
made = torch.export.export(converted(module), inputs)
seconds = time.process_time() - start
nodes = sum(str(n.target).startswith("quantized_decomposed.quantize") for n in made.graph.nodes)
print(json.dumps({"seconds": seconds, "quantized": nodes}))
"""


def measure(who: str, network: str) -> dict[str, float]:
    """One network quantized in a fresh process."""
    done = subprocess.run([sys.executable, "-c", CHILD, who, network], cwd=ROOT, capture_output=True, text=True,
                          check=False)  # fmt: skip
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def compare(network: str, rounds: int) -> tuple[str, ...]:
    """A row of the table: the medians, and what was quantized."""
    found: dict[str, list[dict[str, float]]] = {"edgewright": [], "stock": []}
    for _ in track(range(rounds), network, console=Console(stderr=True)):
        for who, results in found.items():
            results.append(measure(who, network))
    ours, theirs = (statistics.median(r["seconds"] for r in results) for results in found.values())
    values = (f"{results[0]['quantized']:.0f}" for results in found.values())
    return network, f"{ours:.2f}", f"{theirs:.2f}", f"{theirs / ours:.1f}", *values


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model", choices=NETWORKS, action="append", help="all, unless given; may be repeated")
    args = parser.parse_args()
    table = Table("", "ours, s", "stock, s", "times as fast", "values quantized, ours", "stock")
    for network in args.model or NETWORKS:
        table.add_row(*compare(network, args.rounds))
    Console().print(table)


if __name__ == "__main__":
    main()
