"""Networks of MLPerf Tiny's kinds as object files on QEMU's boards and in its user mode: sizes and instructions.

    python -m tests.bare_metal.table [--write] [--target cortex-m4] [--network ds_cnn]

Every output is compared with this machine's runtime, bit for bit, on four inputs. Instructions are those that the
processor executes in ``model_run`` (boards: QEMU's ``-icount``, on a clock that they calibrate; x86-64 and AArch64: a
trace of one input), not cycles. ``--write`` replaces the table in ``docs/microcontrollers.md``.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from edgewright.bare_metal.object_export import export_object
from tests.bare_metal.boards import BOARDS, run_on_board
from tests.bare_metal.programs import compile_network, expected_output, random_inputs
from tests.bare_metal.tiny_networks import NETWORKS, PUBLISHED
from tests.bare_metal.user_mode import run_in_user_mode

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "microcontrollers.md"
BEGIN, END = "<!-- object files: begin -->", "<!-- object files: end -->"
TITLES = {
    "ds_cnn": "DS-CNN, keyword spotting", "cifar_net": "CifarNet, images", "mobilenet_v2": "MobileNetV2 0.35, 96 px",
    "autoencoder": "autoencoder, anomalies", "lstm": "LSTM (float32), gestures",
    "mobilenet_v2_128": "MobileNetV2 0.35, 128 px, 5 classes",
}  # fmt: skip
HEADS = ("network", "processor", "MACs", "code", "constants", "arena", "stack", "instructions", "per MAC")
INPUTS = 4
TARGETS = (*BOARDS, "aarch64-linux", "aarch64-linux+dotprod", "aarch64-linux+i8mm", "x86-64-v3")


def measure(network: str, target: str, path: Path, folder: Path) -> list[str]:
    """A row of the table; an output that differs is an error."""
    about, _ = export_object(path, folder, target)
    inputs = random_inputs(about, INPUTS)
    if target in BOARDS:
        executions = run_on_board(target, folder, inputs)
    else:
        executions = [run_in_user_mode(target, folder, inputs[0])]
    for x, execution in zip(inputs, executions, strict=target in BOARDS):
        if execution.output != expected_output(path, x).tobytes():
            raise AssertionError(f"{network} on {target}: other results than here")
    made, count = about.object, max(e.instructions for e in executions)
    sizes = [f"{size / 1000:.1f} kB" for size in (made.code_size, made.rodata_size, made.arena_size)]
    sizes.append(f"{max(e.stack for e in executions) / 1000:.1f} kB" if target in BOARDS else "")
    return [TITLES[network], target, f"{about.macs / 1e6:.2f} M", *sizes, f"{count / 1e6:.2f} M",
            f"{count / about.macs:.2f}"]  # fmt: skip


def markdown(rows: Sequence[Sequence[str]]) -> str:
    lines = [HEADS, ["---"] * len(HEADS), *rows]
    return "".join(f"| {' | '.join(row)} |\n" for row in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--target", action="append", choices=TARGETS)
    parser.add_argument("--network", action="append", choices=sorted(NETWORKS | PUBLISHED))
    args = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for network in args.network or NETWORKS:
            path = compile_network(network, folder)
            for target in args.target or TARGETS:
                rows.append(measure(network, target, path, folder))
                print(*rows[-1], sep=" | ", flush=True)
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    text = f"{markdown(rows)}\n{date.today()}, commit {commit.stdout.strip()}: `python -m tests.bare_metal.table`.\n"
    print(text)
    if args.write:
        page = PAGE.read_text()
        before, after = page.split(BEGIN)[0], page.split(END)[1]
        PAGE.write_text(f"{before}{BEGIN}\n{text}{END}{after}")


if __name__ == "__main__":
    main()
