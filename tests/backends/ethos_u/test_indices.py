"""Places come from the user in 64 bits, and the NPU has 32."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from edgewright.backends.ethos_u.dialect import DIALECT
from tests.backends.ethos_u.lowered import lower, quantize


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.layer = nn.Embedding(50, 32), nn.Linear(32, 16)

    def forward(self, places: Tensor) -> Tensor:
        return torch.relu(self.layer(self.words(places)))


def test_an_embedding_runs_on_a_u85_and_its_places_are_narrowed_before() -> None:
    torch.manual_seed(0)
    places = torch.randint(0, 50, (1, 7))
    made = lower(quantize((Words().eval(), (places,)), "a8w8", "ethos-u85-256"), "ethos-u85-256")
    assert [v.operator for v in made.report.rejected] == ["cast", "dequantize"]
    ((device, _, _),) = made.groups
    stored = places.numpy().astype(np.int32)
    (found,) = DIALECT.execute(device, [stored])
    (wanted,) = made.reference([stored])
    assert np.array_equal(found, wanted)
    assert len(np.unique(wanted)) > 10


def test_a_u55_says_what_it_lacks() -> None:
    places = torch.randint(0, 50, (1, 7))
    made = lower(quantize((Words().eval(), (places,)), "a8w8", "ethos-u55-128"), "ethos-u55-128")
    (why,) = (v.rejections for v in made.report.rejected if v.operator == "embedding")
    assert any("needs a U85; got ethos-u55-128" in w for w in why)
