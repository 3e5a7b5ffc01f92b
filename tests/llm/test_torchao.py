"""A user's own decoder with torchao's 8da4w, through ``edgewright.compile``: eager, here and in the stock runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torchao.quantization.granularity import PerGroup
from torchao.quantization.quant_api import Int8DynamicActivationIntxWeightConfig, quantize_

import edgewright as ew
from edgewright.runtime import Runtime
from tests.support.stock import stock

pytestmark = pytest.mark.slow
DIM, HEADS, VOCABULARY, LENGTH = 64, 4, 96, 12
W4 = Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4, weight_granularity=PerGroup(32))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(DIM), nn.RMSNorm(DIM)
        self.qkv, self.out = nn.Linear(DIM, 3 * DIM, bias=False), nn.Linear(DIM, DIM, bias=False)
        self.gate, self.up = nn.Linear(DIM, 2 * DIM, bias=False), nn.Linear(DIM, 2 * DIM, bias=False)
        self.down = nn.Linear(2 * DIM, DIM, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (y.unflatten(2, (HEADS, -1)).transpose(1, 2) for y in self.qkv(self.norm1(x)).chunk(3, -1))
        attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        normed = self.norm2(x)
        return x + self.down(nn.functional.silu(self.gate(normed)) * self.up(normed))


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(VOCABULARY, DIM), nn.Linear(DIM, VOCABULARY, bias=False)
        self.block, self.norm = Block(), nn.RMSNorm(DIM)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.block(self.embedding(tokens))))


def check(model: nn.Module, tokens: torch.Tensor, tmp_path: Path, linears: int) -> None:
    """4-bit weights in the file, and logits of eager torch in both runtimes."""
    original = model(tokens).detach().numpy()
    quantize_(model, W4)
    eager = model(tokens).detach().numpy()
    weights = sum(m.weight.numel() for m in model.modules() if isinstance(m, nn.Linear))
    assert sum(isinstance(m, nn.Linear) for m in model.modules()) == linears
    result = ew.compile(model, (tokens,), target="xnnpack")
    path = tmp_path / "model.pte"
    result.save(path)
    ours = Runtime.get().load_program(path).load_method("forward").execute([tokens.numpy()])[0]
    theirs = stock().run(path.read_bytes(), "forward", [tokens.numpy()])[0]
    scale = np.abs(eager).max()
    assert np.linalg.norm(eager - original) > 0.01 * np.linalg.norm(original)  # it was quantized
    for logits in (ours, theirs):
        assert np.abs(logits - eager).max() < 0.05 * scale
        assert np.linalg.norm(logits - eager) < 0.02 * np.linalg.norm(eager)
    floats = sum(p.numel() for p in model.parameters()) - weights
    assert path.stat().st_size < weights * 0.6 + floats * 4 + 120_000  # half a byte a weight, and scales


def test_a_decoder_of_ones_own(tmp_path: Path) -> None:
    torch.manual_seed(0)
    check(Decoder().eval(), torch.randint(0, VOCABULARY, (1, LENGTH)), tmp_path, linears=6)


@pytest.mark.parametrize("family", ["Llama", "Qwen2", "Qwen3"])
def test_a_model_of_transformers(family: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = getattr(transformers, f"{family}Config")(
        vocab_size=VOCABULARY, hidden_size=DIM, intermediate_size=2 * DIM, num_hidden_layers=2, head_dim=16,
        num_attention_heads=HEADS, num_key_value_heads=2, tie_word_embeddings=False, use_cache=False,
        max_position_embeddings=64,
    )  # fmt: skip
    torch.manual_seed(0)
    model = getattr(transformers, f"{family}ForCausalLM")(config).eval()

    class Logits(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.model(input_ids=tokens, use_cache=False).logits

    check(Logits().eval(), torch.randint(0, VOCABULARY, (1, LENGTH)), tmp_path, linears=15)
