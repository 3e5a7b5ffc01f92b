"""How long it takes to lower a network, here and in stock, in the same run.

Each measurement is a process of its own: export and quantization (not counted), then lowering to the file's bytes,
once, as a user's script does it. Both are given the same quantized graph. Memory is how far the peak of the process
rises above what it held when lowering began. The two take turns, so that a busy machine is busy for both.

    python benchmarks/lowering.py [--rounds 3] [--target portable] [--model mobilenet_v2]       (Linux: it reads /proc)
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from itertools import product
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

ROOT = Path(__file__).parent.parent
TARGETS = ("portable", "xnnpack", "xnnpack-int8")
NETWORKS = ("mobilenet_v2", "vit_b16")

# Runs in the child. The peak is reset (Linux) so that exporting does not hide what lowering takes.
CHILD = """
import json, logging, sys, time, warnings
warnings.simplefilter("ignore")
import torch
from tests.program.networks import MODELS
who, target, network = sys.argv[1:]
if who == "edgewright":
    from edgewright.backends.xnnpack import XnnpackPartitioner
    from edgewright import to_edge_transform_and_lower
else:
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

class Encoder(torch.nn.Module):  # ViT-B/16: 86 million weights
    def __init__(self):
        super().__init__()
        self.patches = torch.nn.Conv2d(3, 768, 16, 16)
        self.token = torch.nn.Parameter(torch.zeros(1, 1, 768))
        self.places = torch.nn.Parameter(torch.randn(1, 197, 768) * 0.02)
        layer = torch.nn.TransformerEncoderLayer(768, 12, 3072, batch_first=True, norm_first=True, activation="gelu")
        self.layers = torch.nn.TransformerEncoder(layer, 12, enable_nested_tensor=False)
        self.norm, self.head = torch.nn.LayerNorm(768), torch.nn.Linear(768, 1000)
        for weight in self.parameters():  # layers are made as copies: equal weights would be stored once
            torch.nn.init.normal_(weight, std=0.02)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.places
        return self.head(self.norm(self.layers(x))[:, 0])

def status(key):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(key)) / 1024

def quantized(model, inputs):
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer, get_symmetric_quantization_config)
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    config = get_symmetric_quantization_config(is_per_channel=True)
    prepared = prepare_pt2e(torch.export.export(model, inputs).module(), XNNPACKQuantizer().set_global(config))
    prepared(*inputs)
    return convert_pt2e(prepared)

torch.manual_seed(0)
model, inputs = MODELS[network]() if network in MODELS else (Encoder().eval(), (torch.randn(1, 3, 224, 224),))
start = time.perf_counter()
if target == "xnnpack-int8":
    model = quantized(model, inputs)
exported = torch.export.export(model, inputs)
export = time.perf_counter() - start
with open("/proc/self/clear_refs", "w") as reset:
    reset.write("5")
before = status("VmRSS")
start = time.perf_counter()
partitioner = [] if target == "portable" else [XnnpackPartitioner()]
program = to_edge_transform_and_lower(exported, partitioner=partitioner).to_executorch()
data = program.buffer
seconds = time.perf_counter() - start
plan = program.executorch_program.execution_plan[0]
print(json.dumps({"export": export, "seconds": seconds, "memory": status("VmHWM") - before, "bytes": len(data),
                  "arena": sum(plan.non_const_buffer_sizes), "delegates": len(plan.delegates)}))
"""


def measure(who: str, target: str, network: str) -> dict[str, float]:
    """One lowering in a fresh process."""
    command = [sys.executable, "-c", CHILD, who, target, network]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def compare(target: str, network: str, rounds: int) -> None:
    """Measure both, and print a table and the ratio."""
    found: dict[str, list[dict[str, float]]] = {"edgewright": [], "stock": []}
    for _ in track(range(rounds), f"{network}, {target}", console=Console(stderr=True)):
        for who, results in found.items():
            results.append(measure(who, target, network))
    middle = {who: {k: statistics.median(r[k] for r in results) for k in results[0]} for who, results in found.items()}
    head = ("", "seconds", "fastest", "peak MiB", "file bytes", "arena bytes", "delegates", "export s")
    table = Table(*head, title=f"{network}, {target}")
    for who, numbers in middle.items():
        fastest = min(r["seconds"] for r in found[who])
        whole = (f"{numbers[k]:.0f}" for k in ("bytes", "arena", "delegates"))
        table.add_row(who, f"{numbers['seconds']:.3f}", f"{fastest:.3f}", f"{numbers['memory']:.1f}", *whole,
                      f"{numbers['export']:.2f}")  # fmt: skip
    ours, theirs = middle["edgewright"], middle["stock"]
    Console().print(table)
    Console().print(
        f"{theirs['seconds'] / ours['seconds']:.1f} times as fast, "
        f"{theirs['memory'] / max(ours['memory'], 0.1):.1f} times less memory (medians of {rounds})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--target", choices=TARGETS, action="append", help="all, unless given; may be repeated")
    parser.add_argument("--model", choices=NETWORKS, action="append", help="mobilenet_v2, unless given")
    args = parser.parse_args()
    for network, target in product(args.model or NETWORKS[:1], args.target or TARGETS):
        compare(target, network, args.rounds)


if __name__ == "__main__":
    main()
