"""A prompt beside the int8 peak of this machine, and decoding beside its memory, in turns in one process.

    python benchmarks/llm_peak.py smol.pte [--threads 1] [--rounds 10]

The int8 peak is a loop of the engine's own product instruction on registers, the memory's one that only reads; both are
measured in each round. A prompt of 512 tokens, in two chunks, and a token after it are profiled step by step. The
fastest of all rounds counts for each step, so that other processes on the machine matter less.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from edgewright.engine.isa import host_isa
from edgewright.engine.profile import Profile
from edgewright.engine.roofline import Peaks, measure
from edgewright.formats.pte_reader import read_program
from edgewright.llm.description import read_description
from edgewright.runtime import Runtime
from edgewright.runtime.method import Method

CHUNK = 256


class Runs:
    """The fewest nanoseconds of each step of calls of one length."""

    def __init__(self, method: Method, length: int, start: int) -> None:
        self._method = method
        self._inputs = [np.arange(1, length + 1, dtype=np.int64)[None], np.array([start])]
        self.steps: dict[tuple[int, str], tuple[float, int]] = {}

    def measure(self) -> None:
        profile = Profile()
        self._method.execute(self._inputs, profile=profile)
        run = profile.runs[-1]
        parts = [part for step in run.steps for part in step.parts]
        for at, part in enumerate(parts):
            best = self.steps.get((at, part.name), (float("inf"), 0))[0]
            self.steps[at, part.name] = (min(best, part.end - part.start), part.macs)

    @property
    def nanoseconds(self) -> float:
        return sum(nanoseconds for nanoseconds, _ in self.steps.values())

    @property
    def linear(self) -> tuple[float, int]:
        """Nanoseconds and products of linear layers and the head."""
        found = [step for (_, name), step in self.steps.items() if name.startswith("linear")]
        return sum(s[0] for s in found), sum(s[1] for s in found)

    def by_kind(self) -> list[tuple[str, float]]:
        """Nanoseconds by kind of step."""
        kinds: dict[str, float] = defaultdict(float)
        for (_, name), (nanoseconds, _) in self.steps.items():
            kinds[name] += nanoseconds
        return list(kinds.items())


def best_of(first: Peaks | None, other: Peaks) -> Peaks:
    if first is None:
        return other
    names = ("float_gmacs", "byte_gmacs", "memory_gbytes")
    return Peaks(other.threads, other.isa, *(max(getattr(first, n), getattr(other, n)) for n in names))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a program that edgewright llm compile wrote")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=10)
    args = parser.parse_args()
    method = Runtime(args.threads).load_program(args.model).load_method("forward")
    prompt, decode = [Runs(method, CHUNK, at) for at in (0, CHUNK)], Runs(method, 1, 2 * CHUNK)
    peaks: Peaks | None = None
    for _ in range(args.rounds):
        peaks = best_of(peaks, measure(args.threads, host_isa()))
        for chunk in prompt:
            chunk.measure()
        for _ in range(8):
            decode.measure()
    assert peaks is not None
    show(prompt, decode, peaks, weight_bytes(Path(args.model)))


def weight_bytes(path: Path) -> float:
    """Bytes of the weights that a token reads: of linear layers and the head, with the scales of groups."""
    description = read_description(read_program(path))
    assert description is not None
    q = description.quantization
    by_element = {"8da4w": 0.5 + 2 / q["group_size"], "int4": 0.5 + 2 / q["group_size"], "int8": 1.0, "fp32": 4.0}
    c = description.config
    head, heads = c["vocab_size"] * c["dim"], c["head_dim"] * (2 * c["heads"] + 2 * c["kv_heads"])
    return c["layers"] * c["dim"] * (heads + 3 * c["ffn_dim"]) * by_element[q["linear"]] + head * by_element[q["head"]]


def show(prompt: list[Runs], decode: Runs, peaks: Peaks, size: float) -> None:
    console = Console()
    total = sum(chunk.nanoseconds for chunk in prompt)
    table = Table("steps", "ms", "share", title=f"{CHUNK * len(prompt)} tokens, by kind of step")
    times: dict[str, float] = defaultdict(float)
    for chunk in prompt:
        for kind, nanoseconds in chunk.by_kind():
            times[kind] += nanoseconds
    for kind, nanoseconds in sorted(times.items(), key=lambda row: -row[1])[:10]:
        table.add_row(kind, f"{nanoseconds / 1e6:.2f}", f"{nanoseconds / total:.1%}")
    console.print(table)
    linear = [sum(numbers) for numbers in zip(*(chunk.linear for chunk in prompt), strict=True)]
    peak, memory = peaks.byte_gmacs, peaks.memory_gbytes
    console.print(f"peaks: {peak:.0f} int8 GMAC/s on registers, {memory:.1f} GB/s of reading")
    console.print(
        f"prompt: {total / 1e6:.1f} ms, linear layers {linear[1] / 1e9:.1f} GMAC: {linear[1] / total / peak:.0%} of "
        f"the peak; while they run {linear[1] / linear[0] / peak:.0%}"
    )
    nanoseconds = decode.linear[0]
    console.print(
        f"token: {decode.nanoseconds / 1e6:.2f} ms, {size / decode.nanoseconds / memory:.0%} of the reading; "
        f"while linear layers run {size / nanoseconds / memory:.0%}"
    )


if __name__ == "__main__":
    main()
