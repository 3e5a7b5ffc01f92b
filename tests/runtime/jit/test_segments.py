"""Portable programs: runs of kernel calls that the engine does, and what must stay as it was."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from edgewright.engine.runner import ENGINE_VARIABLE
from edgewright.errors import LimitError
from edgewright.ir.dtypes import ScalarType
from edgewright.program.edge import to_edge_transform_and_lower
from edgewright.runtime import Profile, Runtime, register_kernel
from edgewright.runtime.jit.segment_step import SegmentStep
from edgewright.runtime.method import Method
from edgewright.runtime.registry import _KERNELS, KERNELS
from edgewright.runtime.tensor import TensorSlot


class Net(nn.Module):
    """Convolutions of each kind, norms, a residual, means and products, and something in the middle that is shown."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 24, 3, stride=2, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(24)
        self.across = nn.Conv2d(24, 24, 3, padding=1, groups=24)
        self.grouped = nn.Conv2d(24, 24, (3, 1), padding=(1, 0), groups=3)
        self.wide = nn.Conv2d(24, 64, 3, dilation=2)
        self.head = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> Any:
        x = torch.relu(self.norm(self.first(x)))
        y = nn.functional.hardtanh(self.across(x), -1.0, 0.5)
        z = torch.sigmoid(self.grouped(y)) * y + x
        w = self.wide(z).mean((2, 3), keepdim=True)
        return self.head(w.flatten(1)), z


class Branch(nn.Module):
    """A tensor that is read by the engine's calls and by others."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Conv2d(8, 32, 3, padding=1)
        self.b = nn.Conv2d(32, 32, 1)

    def forward(self, x: torch.Tensor) -> Any:
        y = self.a(x)
        return self.b(y), torch.cumsum(y, 1), x.sum((1, 2))


def lowered(model: nn.Module, *inputs: torch.Tensor) -> bytes:
    torch.manual_seed(0)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.running_mean)  # type: ignore[arg-type]
            nn.init.uniform_(module.running_var, 0.5, 2)  # type: ignore[arg-type]
    return bytes(to_edge_transform_and_lower(torch.export.export(model.eval(), inputs)).to_executorch().buffer)


def loaded(data: bytes) -> Method:
    made: Method = Runtime(threads=1).load_program(data).load_method()
    return made


def segments(made: Method) -> list[SegmentStep]:
    return [step for chain in made._chains for step in chain if isinstance(step, SegmentStep)]


def same(data: bytes, inputs: list[Any], monkeypatch: pytest.MonkeyPatch) -> Method:
    """The method, after it gave what numpy gives, twice."""
    ours = loaded(data)
    got = [ours.execute(inputs) for _ in range(2)]
    with monkeypatch.context() as patch:
        patch.setenv(ENGINE_VARIABLE, "reference")
        plain = loaded(data)
        assert not segments(plain)
        want = plain.execute(inputs)
    for outputs in got:
        for a, b in zip(outputs, want, strict=True):
            assert a.shape == b.shape and a.dtype == b.dtype
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5 * max(1.0, float(np.abs(b).max())))
    return ours


@pytest.fixture(scope="module")
def net() -> bytes:
    return lowered(Net(), torch.randn(1, 3, 64, 64))


def image(*shape: int) -> Any:
    return np.random.default_rng(5).standard_normal(shape).astype(np.float32)


def test_a_network_runs_as_one(net: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    made = same(net, [image(1, 3, 64, 64)], monkeypatch)
    (found,) = segments(made)
    assert found.end == sum(len(chain) for chain in made._chains), "from the first call to the last"


def test_norms_are_folded_into_convolutions(net: bytes) -> None:
    profile = Profile()
    loaded(net).execute([image(1, 3, 64, 64)], profile=profile)
    names = [part.name for part in profile.part_rows()]
    assert any("conv2d" in name for name in names)
    assert not any("numpy" in name for name in names)
    kinds = {kind for name in names for kind in name.split("+")}
    assert not any("norm" in kind for kind in kinds)
    assert sum("mul" in name for name in names) <= sum("conv2d+sigmoid+mul" in name for name in names)


def test_what_others_read_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    data = lowered(Branch(), torch.randn(2, 8, 40, 40))
    assert segments(same(data, [image(2, 8, 40, 40)], monkeypatch))


def test_channels_last(monkeypatch: pytest.MonkeyPatch) -> None:
    example = torch.randn(1, 8, 40, 40).to(memory_format=torch.channels_last)
    data = lowered(Branch(), example)
    given = np.ascontiguousarray(image(1, 8, 40, 40).transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    same(data, [given], monkeypatch)


def test_products(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Sequential(nn.Linear(96, 300), nn.Tanh(), nn.Linear(300, 70, bias=False))
    assert segments(same(lowered(model, torch.randn(50, 96)), [image(50, 96)], monkeypatch))


def test_small_ones_stay_with_numpy() -> None:
    assert not segments(loaded(lowered(nn.Linear(4, 4), torch.randn(2, 4))))


def test_a_kernel_of_the_users_is_used(net: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    stock, calls = KERNELS["aten::relu.out"], []

    def relu(x: Any) -> Any:
        calls.append(1)
        return np.maximum(x, 0)

    monkeypatch.setitem(_KERNELS, "aten::relu.out", stock)
    register_kernel("aten::relu.out", relu, shape=lambda x: x.shape)
    made = same(net, [image(1, 3, 64, 64)], monkeypatch)
    assert calls and segments(made)


def test_inputs_stay_as_they_are(net: bytes) -> None:
    x = image(1, 3, 64, 64)
    before = x.copy()
    loaded(net).execute([x])
    np.testing.assert_array_equal(x, before)


def test_what_the_engine_refuses_stays_with_numpy(
    net: bytes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise LimitError("device graph", "values may take 5 bytes at a time")

    monkeypatch.setattr("edgewright.runtime.jit.segments.make_runner", refuse)
    with caplog.at_level(logging.INFO, "edgewright.runtime"):
        made = loaded(net)
    assert any("stay with numpy" in record.getMessage() for record in caplog.records)
    assert not segments(made)
    assert made.execute([image(1, 3, 64, 64)])[0].shape == (1, 10)


class TimesNumber(nn.Module):
    """A product with a number that is read from a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(128, 128))

    def forward(self, x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        number = n.item()  # first, so that everything else may be one segment
        return torch.softmax(x @ self.weight, -1) * number


def test_numbers_that_calls_compute_are_read_at_run_time() -> None:
    model, x = TimesNumber(), torch.rand(128, 128)
    made = loaded(lowered(model, x, torch.tensor(3)))
    assert segments(made)
    for n in (3, 5):
        (result,) = made.execute([x.numpy(), np.array(n)])
        np.testing.assert_allclose(result, model(x, torch.tensor(n)).detach().numpy(), 1e-5)


class _WritesSecondInPlace:
    """Returns its first output in memory of its own, and writes the second where it is stored if that is passed."""

    how, input_count, compiled = "test", 0, None

    def run(self, inputs: Any, outputs: Any = None, profile: Any = None) -> list[Any]:
        first, second = np.full(4, 1.0, np.float32), np.full(4, 2.0, np.float32)
        if outputs[1] is None:
            return [first, second]
        outputs[1][...] = second
        return [first, outputs[1]]


def test_a_dead_output_does_not_overwrite_the_one_that_took_its_memory() -> None:
    """Rows of attention with relative positions (MViT): every call's result is observed, and memory is reused."""
    memory = np.zeros(6, np.float32)
    slots = [TensorSlot(ScalarType.FLOAT32, (4,), (0,)) for _ in range(2)]
    slots[0].array, slots[1].array = memory[2:], memory[:4]
    SegmentStep(_WritesSecondInPlace(), [], slots, [], 1, ()).run([], None)
    assert memory.tolist() == [2, 2, 2, 2, 1, 1]
