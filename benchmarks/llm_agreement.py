"""How often two runs of one file choose the same token: here and in ExecuTorch's runtime, each fed in two ways.

    python benchmarks/llm_agreement.py model.gguf text.txt

A text is fed token by token, or its first 64 tokens in one call and then token by token. The sums of floats are in
another order in each, so single activations are rounded to the neighboring 8-bit step. What ExecuTorch's runtime
differs by from itself is what any other runtime may differ by.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from edgewright.llm.checkpoint import open_checkpoint
from edgewright.llm.compile import compile_checkpoint
from edgewright.llm.text_windows import read_tokens
from edgewright.llm.vocabulary import read_vocabulary
from edgewright.llm.weights import LINEAR_PRECISIONS, Precision
from edgewright.runtime import Runtime

Array = np.ndarray[Any, Any]
PROMPT = 64


class Stock:
    """ExecuTorch's runtime, which has no ``reset``: rows that later calls do not write are never read."""

    def __init__(self, path: Path) -> None:
        self._torch: Any = importlib.import_module("torch")
        lib: Any = importlib.import_module("executorch.extension.pybindings.portable_lib")
        for operators in ("extension.llm.custom_ops.custom_ops", "kernels.quantized"):
            importlib.import_module(f"executorch.{operators}")
        self._module = lib._load_for_executorch(str(path))

    def execute(self, inputs: list[Array]) -> list[Any]:
        return [out.numpy() for out in self._module.forward([self._torch.from_numpy(x) for x in inputs])]


def logits(method: Any, tokens: list[int], prompt: int) -> Array:
    """After each token from the ``PROMPT``-th on, the first ``prompt`` of them in one call."""
    calls = [(0, prompt), *((at, at + 1) for at in range(prompt, len(tokens)))]
    rows = [np.array(method.execute([np.array([tokens[a:b]]), np.array([a])])[0]).reshape(-1) for a, b in calls]
    return np.stack(rows[PROMPT - len(tokens) - 1 :])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="a GGUF file")
    parser.add_argument("text", type=Path)
    parser.add_argument("--tokens", type=int, default=480)
    parser.add_argument("--quantize", choices=LINEAR_PRECISIONS, default="8da4w")
    parser.add_argument("--kv-cache", choices=("int8", "fp32"), default="int8")
    args = parser.parse_args()
    tokens = read_tokens(args.text, read_vocabulary(open_checkpoint(args.model)))[1][: args.tokens + 1]
    tables = "fp32" if args.quantize == "fp32" else "int8"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.pte"
        precision = Precision(args.quantize, 32, tables, tables, args.kv_cache)
        compile_checkpoint(args.model, path, precision, max_seq_len=PROMPT, max_context_len=args.tokens)
        methods = {"ExecuTorch": Stock(path), "Edgewright": Runtime(1).load_program(path).load_method("forward")}
        runs = {
            f"{name}, {way}": logits(method, tokens[:-1], prompt)
            for name, method in methods.items()
            for way, prompt in (("token by token", 1), (f"{PROMPT} in one call", PROMPT))
        }
    table = Table("runs", "same token", "logits differ by (rms)", "median gap where tokens differ", "of all")
    for (first, a), (second, b) in itertools.combinations(runs.items(), 2):
        best = np.sort(a, 1)
        gaps, same = best[:, -1] - best[:, -2], a.argmax(1) == b.argmax(1)
        gap = "-" if same.all() else f"{np.median(gaps[~same]):.3f}"
        cells = f"{same.mean():.1%}", f"{np.sqrt(np.mean((a - b) ** 2)):.3g}", gap, f"{np.median(gaps):.3f}"
        table.add_row(f"{first} | {second}", *cells)
    Console().print(table)


if __name__ == "__main__":
    main()
