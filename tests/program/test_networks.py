"""Whole networks: eager torch, our runtime and stock's agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from edgewright.demo import IMAGES, model
from edgewright.demo.images import prepare
from edgewright.runtime import Runtime
from tests.program.case import Case, compile_exported
from tests.program.check import check_ours, check_stock
from tests.program.networks import MODELS, Decoder, MobileNetV2, ResNet18, Upscaler, encoder
from tests.support.stock import stock


class Generator(nn.Module):
    """A decoder block that counts its own steps."""

    def __init__(self) -> None:
        super().__init__()
        self.block = Decoder()
        self.register_buffer("at", torch.zeros(1, dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        y = self.block(x, self.at)
        self.at += 1
        return y


def image(size: int) -> Any:
    return lambda **_: (torch.randn(1, 3, size, size),)


def random_words(**_: int) -> tuple[Tensor]:
    return (torch.randint(0, 50, (1, 7)),)


_CASES = [
    Case("mobilenet_v2", MobileNetV2, image(64), atol=1e-4),
    Case("resnet18", ResNet18, image(64), atol=1e-4),
    Case("vit", lambda: MODELS["vit"]()[0], image(32), factory=True),
    Case("bilstm", lambda: MODELS["bilstm"]()[0], random_words, factory=True),
    Case(
        "encoder",
        lambda: encoder(32, 4, 2),
        lambda t: (torch.randn(1, t, 32),),
        {"t": (2, 12)},
        ({1: "t"},),
        factory=True,
    ),
    Case("decoder", Decoder, lambda: (torch.randn(1, 1, 32), torch.randint(0, 16, (1,))), steps=4),
    Case(
        "decoder_prefill",
        Decoder,
        lambda t: (torch.randn(1, t, 32), torch.arange(t)),
        {"t": (2, 16)},
        ({1: "t"}, {0: "t"}),
        steps=2,
    ),
    Case("generator", Generator, lambda: (torch.randn(1, 1, 32),), steps=6),
    Case("upscaler", Upscaler, lambda n: (torch.randn(1, 3, n, 24),), {"n": (8, 24)}, ({2: "n"},)),
]
CASES = {case.name: case for case in _CASES}


@pytest.mark.sample("bilstm", "decoder_prefill", "upscaler")
@pytest.mark.parametrize("name", CASES)
def test_network(name: str) -> None:
    case = CASES[name]
    program = compile_exported(case.export())
    for sizes in case.points():
        check_ours(case, program, sizes)
        check_stock(case, program, sizes)


def test_trained_network() -> None:
    """CifarNet with trained weights: the same logits everywhere, and the accuracy that training gave."""
    exported = model.export_cifarnet()
    program = compile_exported(exported)
    with np.load(IMAGES) as file:
        images, labels = [prepare(i) for i in file["images"]], file["labels"]
    method = Runtime.get().load_program(program).load_method("forward")
    given = np.concatenate([method.execute([i])[0] for i in images])
    with torch.no_grad():
        wanted = exported.module()(torch.from_numpy(images[0]))
    np.testing.assert_allclose(given[:1], wanted.numpy(), 1e-4, 1e-4)
    by_stock = stock().run_many(program, "forward", [[i] for i in images[:20]])
    np.testing.assert_allclose(given[:20], np.concatenate([o[0] for o in by_stock]), 1e-4, 1e-4)
    assert (given.argmax(1) == labels).mean() > 0.8
