"""A language model of one layer with random weights and the tiny vocabulary, compiled to a ``.pte``."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

import numpy as np

from edgewright import read_program, write_program
from edgewright.formats import schema
from edgewright.llm.compile import Vocabulary, compile_checkpoint
from edgewright.llm.weights import Precision
from tests.llm.fakes import TEMPLATE
from tests.llm.tiny import SPECIAL, tiny_json, tiny_tokenizer
from tests.support.gguf_writer import gguf_bytes

CONTEXT, CHUNK, WIDTH, HIDDEN = 96, 64, 32, 64
GENERATION = {"temperature": 0.5, "top_k": 7}


def checkpoint() -> bytes:
    """A GGUF file."""
    draw = np.random.default_rng(0)
    shapes = {
        "token_embd": (tiny_tokenizer().size, WIDTH), "output": (tiny_tokenizer().size, WIDTH),
        "blk.0.attn_q": (WIDTH, WIDTH), "blk.0.attn_k": (WIDTH // 2, WIDTH), "blk.0.attn_v": (WIDTH // 2, WIDTH),
        "blk.0.attn_output": (WIDTH, WIDTH), "blk.0.ffn_gate": (HIDDEN, WIDTH), "blk.0.ffn_up": (HIDDEN, WIDTH),
        "blk.0.ffn_down": (WIDTH, HIDDEN),
    }  # fmt: skip
    weights = {name: draw.normal(size=shape) / 3 for name, shape in shapes.items()}
    weights |= {name: np.ones(WIDTH) for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm")}
    tensors = {f"{name}.weight": (0, w.shape, w.astype("<f4").tobytes()) for name, w in weights.items()}
    metadata = {
        "general.architecture": "llama", "llama.embedding_length": WIDTH, "llama.block_count": 1,
        "llama.context_length": 128, "llama.feed_forward_length": HIDDEN, "llama.vocab_size": tiny_tokenizer().size,
        "llama.attention.head_count": 2, "llama.attention.head_count_kv": 1,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
    }  # fmt: skip
    return gguf_bytes(metadata, tensors)


def write_model(path: Path, *, tokenizer: bytes | None = None, template: str | None = TEMPLATE) -> Path:
    """The file, by default with the tiny tokenizer in it."""
    source = path.with_suffix(".gguf")
    source.write_bytes(checkpoint())
    special = {"eos_token": SPECIAL[2]}
    vocabulary = Vocabulary(tokenizer or tiny_json(), template, special, GENERATION, None, (2, 0))
    precision = Precision("fp32", 32, "fp32", "fp32")
    lengths = {"max_seq_len": CHUNK, "max_context_len": CONTEXT}
    compile_checkpoint(source, path, precision, vocabulary=vocabulary, **lengths)
    source.unlink()
    path.with_suffix(".tokenizer.json").unlink(missing_ok=True)
    return path


@cache
def tiny_model_bytes() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return write_model(Path(folder) / "tiny.pte").read_bytes()


def replace_named_data(path: Path, **named: bytes | None) -> None:
    """Write other named data into a file; None removes it."""
    program = read_program(path.read_bytes())
    kept = [item for item in program.named_data or () if item.key not in named]
    added = {key: value for key, value in named.items() if value is not None}
    kept += [schema.NamedData(key=key, segment_index=program.add_segment(value)) for key, value in added.items()]
    program.named_data = kept
    write_program(program, path)
