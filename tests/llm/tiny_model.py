"""A language model of one layer with a key-value cache, as a ``.pte`` in the stock runtime's conventions."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import torch

from edgewright import export, read_program, to_edge_transform_and_lower, write_program
from edgewright.formats import schema
from edgewright.llm import Description
from edgewright.llm.description import KEY, TOKENIZER_KEY
from tests.llm.fakes import TEMPLATE
from tests.llm.tiny import SPECIAL, tiny_json, tiny_tokenizer

CONTEXT, CHUNK, WIDTH = 96, 64, 16
DESCRIPTION = Description(
    "tiny", {"layers": 1}, {}, TEMPLATE, {"eos_token": SPECIAL[2]}, {"temperature": 0.5, "top_k": 7}
)


class TinyDecoder(torch.nn.Module):
    """Attention over embeddings, with positions added."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        vocabulary = tiny_tokenizer().size
        self.embedding = torch.nn.Parameter(torch.randn(vocabulary, WIDTH, generator=generator))
        self.positions = torch.nn.Parameter(torch.randn(CONTEXT, WIDTH, generator=generator))
        self.head = torch.nn.Parameter(torch.randn(WIDTH, vocabulary, generator=generator))
        self.register_buffer("rows", torch.zeros(CONTEXT, WIDTH))

    def forward(self, tokens: torch.Tensor, input_pos: torch.Tensor) -> torch.Tensor:
        places = input_pos + torch.arange(tokens.shape[1])
        x = self.embedding[tokens[0]] + self.positions[places]
        rows = self.rows.index_put_((places,), x)  # type: ignore[operator]
        scores = x @ rows.t() / 4
        hidden = scores.masked_fill(torch.arange(CONTEXT)[None] > places[:, None], -torch.inf).softmax(-1) @ rows
        return (x + hidden)[-1:] @ self.head


def constant_methods() -> dict[str, Any]:
    return {
        "get_max_seq_len": CHUNK, "get_max_context_len": CONTEXT, "get_vocab_size": tiny_tokenizer().size,
        "use_kv_cache": True, "enable_dynamic_shape": True, "get_eos_ids": [2, 0],
    }  # fmt: skip


@cache
def program_bytes() -> bytes:
    length = torch.export.Dim("length", min=1, max=CHUNK)
    inputs = (torch.zeros(1, 3, dtype=torch.long), torch.zeros(1, dtype=torch.long))
    exported = export(TinyDecoder(), inputs, dynamic_shapes=({1: length}, None))
    edge = to_edge_transform_and_lower(exported, constant_methods=constant_methods())
    return bytes(edge.to_executorch().buffer)


def write_model(path: Path, **named: bytes) -> Path:
    """The file, with named data: by default, the description and the tokenizer."""
    data = named or {KEY: DESCRIPTION.to_json(), TOKENIZER_KEY: tiny_json()}
    program = read_program(program_bytes())
    added = [schema.NamedData(key=key, segment_index=program.add_segment(value)) for key, value in data.items()]
    program.named_data = [*(program.named_data or ()), *added]
    write_program(program, path)
    return path
