"""``docs/adding-an-op.md`` quotes the source: each block is in the file that is named above it."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from edgewright import to_edge
from edgewright.runtime import Runtime
from edgewright.runtime.registry import all_kernels

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "adding-an-op.md").read_text(encoding="utf-8")
QUOTES = re.findall(r"`([\w/.]+\.py)`:\n\n```python\n(.*?)```", TEXT, re.DOTALL)


def lines(text: str) -> list[str]:
    return [line.strip() for line in text.strip().splitlines()]


@pytest.mark.parametrize(("path", "quote"), QUOTES, ids=[path for path, _ in QUOTES])
def test_quotes_are_in_the_source(path: str, quote: str) -> None:
    assert "\n".join(lines(quote)) in "\n".join(lines((ROOT / path).read_text(encoding="utf-8")))


def test_every_step_quotes_something() -> None:
    assert len(QUOTES) == len(re.findall(r"^## \d", TEXT, re.MULTILINE)) == 6


def test_a_kernel_of_your_own() -> None:
    exec(re.findall(r"```python\n(from edgewright.runtime.*?)```", TEXT, re.DOTALL)[0], {})
    kernel = all_kernels().pop("my::cube.out")
    assert np.array_equal(kernel.fn(np.arange(3)), [0, 1, 8])


def test_an_operator_of_your_own() -> None:
    """As the page defines it, it compiles, and this process computes it with torch."""
    space: dict[str, object] = {}
    exec(re.findall(r"```python\n(import torch\n\nlibrary.*?)```", TEXT, re.DOTALL)[0], space)

    class Net(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            made: torch.Tensor = torch.ops.my.cube(x) + 1
            return made

    try:
        program = to_edge(torch.export.export(Net(), (torch.ones(3),))).to_executorch()
        (found,) = (
            Runtime.get().load_program(program.buffer).load_method("forward").execute([np.arange(3.0, dtype="f4")])
        )
        assert np.array_equal(found, [1, 2, 9])
    finally:
        all_kernels().pop("my::cube.out", None)
