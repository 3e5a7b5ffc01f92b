"""Makes the golden files that come from elsewhere: stock ExecuTorch, and data sets.

    python -m tests.golden.make_stock --models DIR [name ...]

``DIR`` holds ``cifar10_subset.npz``. One function makes one file; a new golden file is a new function in ``FILES``.
Needs the ``test`` extra. The demo's program is made by ``python -m edgewright.demo``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from edgewright.cli.outputs import npz_bytes
from edgewright.files import write_file
from edgewright.formats import read_program

DEMO = Path(__file__).parents[2] / "edgewright" / "demo"
IMAGES = 200


def make_images(models: Path) -> None:
    """The demo's images: the first of the test set, as bytes, with their labels."""
    with np.load(models / "cifar10_subset.npz") as subset:
        arrays = {
            "images": subset["test_images"][:IMAGES].astype(np.uint8),
            "labels": subset["test_labels"][:IMAGES].astype(np.uint8),
        }
    write_file(DEMO / "images.npz", [npz_bytes(arrays, compress=True)])


def make_sizes(models: Path) -> None:
    """How large stock's files and arenas are for the networks the compiler is measured with. Slow."""
    import torch
    from executorch.exir import to_edge_transform_and_lower

    from tests.program.networks import MODELS

    sizes = {}
    for name, make in MODELS.items():
        model, inputs = make()
        program = to_edge_transform_and_lower(torch.export.export(model, inputs)).to_executorch().buffer
        (plan,) = read_program(program).execution_plan
        sizes[name] = {"bytes": len(program), "arena": sum(plan.non_const_buffer_sizes)}
        print(name, sizes[name], flush=True)
    text = json.dumps({"executorch": version("executorch"), "models": sizes}, indent=1) + "\n"
    write_file(Path(__file__).parent / "stock_sizes.json", [text.encode()])


def make_xnnpack_sizes(models: Path) -> None:
    """How large stock's files and arenas are when XNNPACK takes what it can. Slow."""
    import torch
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    from tests.backends.networks import NETWORKS

    sizes = {}
    for name, make in NETWORKS.items():
        model, inputs = make()
        exported = torch.export.export(model, inputs)
        program = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()]).to_executorch().buffer
        (plan,) = read_program(program).execution_plan
        sizes[name] = {"bytes": len(program), "arena": sum(plan.non_const_buffer_sizes),
                       "delegates": len(plan.delegates)}  # fmt: skip
        print(name, sizes[name], flush=True)
    text = json.dumps({"executorch": version("executorch"), "models": sizes}, indent=1) + "\n"
    write_file(Path(__file__).parent / "stock_xnnpack_sizes.json", [text.encode()])


def make_shared_state(models: Path) -> None:
    """Three methods that share two buffers."""
    from executorch.exir import ExecutorchBackendConfig, to_edge
    from executorch.exir.passes import MemoryPlanningPass

    from tests.program.test_shared_state import Counter, exported

    config = ExecutorchBackendConfig(memory_planning_pass=MemoryPlanningPass(share_mutable_buffers=True))
    program = to_edge(exported(Counter(), "step", "set_state", "get_state")).to_executorch(config)
    write_file(Path(__file__).parent / "shared_state.pte", [program.buffer])


def make_int8_cache(models: Path) -> None:
    """A language model of random weights, whose keys and values are int8 in the cache. Slow."""
    _export_llama("llama_int8_cache_xnnpack.pte", "--max_seq_length", "32", "--quantize_kv_cache")


def make_ring_cache(models: Path) -> None:
    """A language model of random weights, whose first layer attends to the last 16 tokens, in a ring buffer. Slow."""
    _export_llama("llama_ring_cache_xnnpack.pte", "--max_seq_length", "16", "--local_global_attention", "[16, 0]")


def _export_llama(name: str, *more: str) -> None:
    import torch
    from executorch.examples.models.llama.export_llama_lib import build_args_parser, export_llama
    from executorch.extension.llm.export.config.llm_config import LlmConfig

    sizes = {"dim": 32, "hidden_dim": 64, "vocab_size": 64, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2,
             "norm_eps": 1e-5, "rope_theta": 1e4, "use_scaled_rope": False}  # fmt: skip
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        Path("params.json").write_text(json.dumps(sizes))
        torch.save(_random_llama(32, 64, 64, 2, 16), "checkpoint.pth")
        options = "-c checkpoint.pth -p params.json -kv --use_sdpa_with_kv_cache -X -d fp32"
        options += f" --xnnpack-extended-ops --max_context_length 64 -n {name}"
        export_llama(LlmConfig.from_args(build_args_parser().parse_args([*options.split(), *more])))
        program = Path(name).read_bytes()
    write_file(Path(__file__).parent / name, [program])


def _random_llama(dim: int, hidden: int, words: int, layers: int, kv_dim: int) -> dict[str, Any]:
    """Weights under the exporter's names, large enough for logits that differ."""
    import torch

    generator = torch.Generator().manual_seed(0)
    shapes = {"tok_embeddings": (words, dim), "output": (words, dim)}
    for layer in range(layers):
        attention, feed_forward = f"layers.{layer}.attention", f"layers.{layer}.feed_forward"
        shapes |= {f"{attention}.wq": (dim, dim), f"{attention}.wk": (kv_dim, dim), f"{attention}.wv": (kv_dim, dim),
                   f"{attention}.wo": (dim, dim), f"{feed_forward}.w1": (hidden, dim),
                   f"{feed_forward}.w3": (hidden, dim), f"{feed_forward}.w2": (dim, hidden)}  # fmt: skip
    norms = ["norm", *(f"layers.{i}.{name}_norm" for i in range(layers) for name in ("attention", "ffn"))]
    weights = {f"{name}.weight": torch.randn(shape, generator=generator) * 0.3 for name, shape in shapes.items()}
    return {**weights, **{f"{name}.weight": torch.ones(dim) for name in norms}}


FILES: dict[str, Callable[[Path], None]] = {
    "images": make_images,
    "int8_cache": make_int8_cache,
    "ring_cache": make_ring_cache,
    "shared_state": make_shared_state,
    "sizes": make_sizes,
    "xnnpack_sizes": make_xnnpack_sizes,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=Path, required=True, help="folder with the trained weights and images")
    parser.add_argument("names", nargs="*", metavar="name", help=f"any of {', '.join(FILES)}; all if none is given")
    args = parser.parse_args()
    for name in args.names or FILES:
        FILES[name](args.models)
        print(f"made {name}")


if __name__ == "__main__":
    main()
