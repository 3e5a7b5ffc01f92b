"""Perplexity of 4-bit files on a fixed text, here and in llama.cpp, at the same bits.

    python benchmarks/llm_perplexity.py model.gguf --llama-cpp FOLDER [--calibrate lcet10.txt]

The text is Alice's Adventures in Wonderland (``tests/data/alice.txt``), in windows of 512 tokens, each from an empty
cache; all tokens but the first of a window count. Ours is run token by token by the compiled program. llama.cpp runs
the same model with its layers in Q4_0, rounded by its own rule, and the model's own file. Calibration is by our own
text, and by another one: one that is given, or Python's documentation, ``pydoc_data``.
"""

from __future__ import annotations

import argparse
import pydoc_data.topics
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from llm_models import write_q4_0
from rich.console import Console
from rich.table import Table

from edgewright.llm.checkpoint import open_checkpoint
from edgewright.llm.compile import compile_checkpoint
from edgewright.llm.decoder_method import DecoderMethod
from edgewright.llm.text_windows import LENGTH, read_tokens, windows_of
from edgewright.llm.vocabulary import read_vocabulary
from edgewright.peers.llama_cpp import LlamaCpp, find_library
from edgewright.runtime import Runtime

TEXT = Path(__file__).parent.parent / "tests" / "data" / "alice.txt"


def ours(path: Path, windows: np.ndarray) -> float:
    """The perplexity of a program, token by token."""
    decoder, total = DecoderMethod(Runtime.get().load_program(path)), 0.0
    for window in windows:
        decoder.reset()
        for at, following in enumerate(window[1:]):
            logits = decoder.forward([int(window[at])], at).astype(np.float64)
            largest = logits.max()
            total += float(np.log(np.exp(logits - largest).sum()) + largest - logits[following])
    decoder.close()
    return float(np.exp(total / windows[:, 1:].size))


def theirs(library: str, path: Path, windows: np.ndarray, threads: int) -> float:
    with LlamaCpp(library, str(path), threads, LENGTH) as peer:
        total = sum(peer.score(window.tolist()) for window in windows)
    return float(np.exp(total / windows[:, 1:].size))


def results(args: argparse.Namespace, folder: Path, windows: np.ndarray) -> Iterator[tuple[str, float]]:
    library = find_library(args.llama_cpp)
    yield "llama.cpp, the model's own file", theirs(library, args.model, windows, args.threads)
    write_q4_0(args.model, folder / "q4_0.gguf")
    yield "llama.cpp, Q4_0", theirs(library, folder / "q4_0.gguf", windows, args.threads)
    text = args.calibrate or folder / "pydoc.txt"
    if not args.calibrate:
        text.write_text("\n\n".join(pydoc_data.topics.topics[name] for name in sorted(pydoc_data.topics.topics)))
    for kind, model in (("", args.model), (" of the Q4_0 file", folder / "q4_0.gguf")):
        for way, calibrate in (
            (", not calibrated", False), (", as by default", True), (f", calibrated on {text.name}", text),
        ):  # fmt: skip
            compile_checkpoint(model, folder / "model.pte", calibrate=calibrate)
            yield f"Edgewright, 8da4w{kind}{way}", ours(folder / "model.pte", windows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="a GGUF file with a tokenizer")
    parser.add_argument("--llama-cpp", metavar="PATH", help="llama.cpp's shared library, or its folder")
    parser.add_argument("--calibrate", type=Path, metavar="TEXT", help="a text to calibrate on, other than Alice")
    parser.add_argument("--tokens", type=int, default=40 * LENGTH, help="of the text")
    parser.add_argument("--threads", type=int, default=1, help="of llama.cpp")
    args = parser.parse_args()
    vocabulary = read_vocabulary(open_checkpoint(args.model))
    windows = windows_of(*read_tokens(TEXT, vocabulary), LENGTH, args.tokens)
    table = Table("", "perplexity", title=f"{windows.size} tokens of {TEXT.name}")
    with tempfile.TemporaryDirectory() as folder:
        for name, value in results(args, Path(folder), windows):
            print(f"{name}: {value:.4f}", flush=True)
            table.add_row(name, f"{value:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
