"""Methods whose sizes vary: joined for each set of input sizes, compiled once, and equal to fixed ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from edgewright.errors import EdgewrightError
from edgewright.program.edge import to_edge_transform_and_lower
from edgewright.runtime import Profile
from edgewright.runtime.method import Method
from edgewright.runtime.specialized_step import SpecializedSegmentStep
from tests.runtime.jit.test_segments import loaded, segments

LENGTHS = (64, 33, 100, 47, 128, 16, 90)


class Layer(nn.Module):
    """A layer of a transformer: attention, norms, gelu, residuals."""

    def __init__(self, width: int = 96, heads: int = 3) -> None:
        super().__init__()
        self.heads = heads
        self.parts, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, count, width = x.shape
        parts = self.parts(x).view(batch, count, 3, self.heads, -1)
        query, key, value = (parts[:, :, i].transpose(1, 2) for i in range(3))
        shares = torch.softmax(query @ key.transpose(-1, -2) * (width // self.heads) ** -0.5, -1)
        x = self.first(x + self.out((shares @ value).transpose(1, 2).reshape(batch, count, width)))
        return self.second(x + self.down(nn.functional.gelu(self.up(x))))


def exported(model: nn.Module, inputs: tuple[torch.Tensor, ...], dims: Any) -> torch.export.ExportedProgram:
    with torch.no_grad():
        return torch.export.export(model, inputs, dynamic_shapes=dims)


def compiled(program: torch.export.ExportedProgram, *, delegated: bool) -> bytes:
    from edgewright.backends.xnnpack import XnnpackPartitioner

    partitioner = [XnnpackPartitioner()] if delegated else []
    return bytes(to_edge_transform_and_lower(program, partitioner=partitioner).to_executorch().buffer)


@pytest.fixture(scope="module")
def encoder() -> tuple[nn.Module, torch.export.ExportedProgram]:
    torch.manual_seed(0)
    model = nn.Sequential(Layer(), Layer()).eval()
    length = torch.export.Dim("length", min=2, max=128)
    return model, exported(model, (torch.randn(1, 24, 96),), {"input": {1: length}})


def compilations(method: Method) -> int:
    assert method._specializer is not None
    return sum(engine.compilations for engine in method._specializer.engines.values())


def forms(method: Method) -> list[SpecializedSegmentStep]:
    """Of the sizes that ran last."""
    return [step for chain in method._current_chains for step in chain if isinstance(step, SpecializedSegmentStep)]


def check(model: nn.Module, method: Method, x: torch.Tensor, bound: float = 2e-5) -> None:
    with torch.no_grad():
        want = model(x).numpy()
    (got,) = method.execute([x.numpy()])
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, atol=bound)


@pytest.mark.slow
@pytest.mark.parametrize("delegated", [False, True])
def test_an_encoder_is_compiled_once(encoder: Any, delegated: bool) -> None:
    model, program = encoder
    method = loaded(compiled(program, delegated=delegated))
    for length in (*LENGTHS, LENGTHS[0]):
        check(model, method, torch.randn(1, length, 96, generator=torch.Generator().manual_seed(length)))
        assert len(forms(method)) == 1
    assert compilations(method) == 1


@pytest.mark.slow
def test_stock_files() -> None:
    from executorch.exir import EdgeCompileConfig, to_edge

    model, length = Layer().eval(), torch.export.Dim("length", min=2, max=128)
    program = exported(model, (torch.randn(1, 24, 96),), {"x": {1: length}})
    with torch.no_grad():
        edge = to_edge(program, compile_config=EdgeCompileConfig(_check_ir_validity=False))
        method = loaded(bytes(edge.to_executorch().buffer))
    for count in (64, 100, 40):
        check(model, method, torch.randn(1, count, 96))
        assert len(forms(method)) == 1
    assert compilations(method) == 1


def test_a_batch_of_any_size(encoder: Any) -> None:
    model, _ = encoder
    batch = torch.export.Dim("batch", min=1, max=6)
    program = exported(model, (torch.randn(2, 20, 96),), {"input": {0: batch}})
    method = loaded(compiled(program, delegated=False))
    for size in (2, 5, 3):
        check(model, method, torch.randn(size, 20, 96))
        assert forms(method)
    assert compilations(method) == 1


def test_profiles_name_the_steps(encoder: Any) -> None:
    _, program = encoder
    method, profile = loaded(compiled(program, delegated=False)), Profile()
    method.execute([np.zeros((1, 40, 96), np.float32)], profile=profile)
    text = " ".join(part.name for step in profile.runs[0].steps for part in step.parts)
    assert "bmm" in text
    assert "softmax" in text
    assert "for these sizes" in profile.runs[0].steps[0].name


@pytest.mark.parametrize("shape", [(1, 129, 96), (1, 40, 95), (2, 40, 96), (40, 96)])
def test_sizes_that_do_not_fit_are_refused(encoder: Any, shape: tuple[int, ...]) -> None:
    with pytest.raises(EdgewrightError):
        loaded(compiled(encoder[1], delegated=False)).execute([np.zeros(shape, np.float32)])


class Prompt(nn.Module):
    """Tokens at places of any number, written to a cache that all later ones see."""

    def __init__(self, width: int = 96, length: int = 48, words: int = 40) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(words, width), nn.Linear(width, 1000)
        self.inside = nn.Linear(width, 2 * width)
        self.register_buffer("keys", torch.zeros(1, 3, length, width // 3))
        self.register_buffer("mask", torch.full((length, length), float("-inf")).triu(1))

    def forward(self, tokens: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        query, key = self.inside(x).split(x.shape[-1], -1)
        query, key = (z.view(1, x.shape[1], 3, -1).transpose(1, 2) for z in (query, key))
        torch.ops.aten.index_put_(self.keys, [None, None, at], key)
        shares = torch.softmax(query @ self.keys.transpose(-1, -2) + self.mask[at], -1)
        return self.head((shares @ self.keys).transpose(1, 2).reshape(x.shape))


def test_a_prompt_of_any_length_keeps_its_state() -> None:
    torch.manual_seed(1)
    model, count = Prompt().eval(), torch.export.Dim("count", min=2, max=40)
    given = torch.randint(0, 40, (1, 8)), torch.arange(8)
    program = exported(model, given, {"tokens": {1: count}, "at": {0: count}})
    method = loaded(compiled(program, delegated=False))
    start = 0
    with torch.no_grad():
        for size in (20, 12, 16):
            tokens, at = torch.randint(0, 40, (1, size)), torch.arange(start, start + size)
            (got,) = method.execute([tokens.numpy(), at.numpy()])
            np.testing.assert_allclose(got, model(tokens, at).numpy(), atol=2e-5)
            assert forms(method)
            start += size
    assert compilations(method) == 1
    with pytest.raises(EdgewrightError):
        method.execute([np.full((1, 20), 41), np.arange(20)])


class Chosen(nn.Module):
    """How many rows are left is known only when their contents are."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 512)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x[x[:, 0] > 0]).sum()


def test_sizes_that_contents_decide_stay_with_numpy() -> None:
    torch.manual_seed(2)
    model, rows = Chosen().eval(), torch.export.Dim("rows", min=2, max=64)
    program = exported(model, (torch.randn(8, 64),), {"x": {0: rows}})
    method = loaded(compiled(program, delegated=False))
    for count in (8, 30):
        x = torch.randn(count, 64)
        with torch.no_grad():
            np.testing.assert_allclose(method.execute([x.numpy()])[0], model(x).numpy(), rtol=1e-4)
        assert not forms(method) and not segments(method)


def test_a_device_that_was_asked_for_the_reference_has_no_forms(encoder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEWRIGHT_ENGINE", "reference")
    method = loaded(compiled(encoder[1], delegated=False))
    assert method._specializer is None
    check(encoder[0], method, torch.randn(1, 40, 96))
