"""Places: what finds them, reads at them and writes at them, in real models and with 64 bits as torch has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from edgewright.backends.qualcomm import QuantDtype
from edgewright.backends.qualcomm.dialect import DIALECT
from edgewright.backends.qualcomm.dialect.twin import to_twin
from edgewright.errors import ExecutionError, VendorError
from edgewright.ir.graph import Array, Graph, Op
from tests.backends.qualcomm.lowered import lower, quantize
from tests.backends.qualcomm.rows import emulated_result, target_for
from tests.engine.qnn import TYPES, given, plain, tensor

X = torch.randn(2, 6, 8, generator=torch.Generator().manual_seed(3))


class Net(nn.Module):
    """A product, so that there is something to delegate, and then what is tested."""

    def __init__(self, then: Callable[..., Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.fc, self.then = nn.Linear(8, 8), then
        self.table = nn.Embedding(16, 8)

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.then(self.fc(inputs[0]), *inputs[1:])


def _best(x: torch.Tensor) -> Any:
    return torch.topk(x, 3, dim=1)


def _sorted(x: torch.Tensor) -> Any:
    return torch.sort(x, dim=-1, descending=True)


def _largest(x: torch.Tensor) -> Any:
    return torch.max(x, dim=1)


def _only_places(x: torch.Tensor) -> Any:
    return torch.topk(x, 2).indices, x.argmin(-1)


def _chained(x: torch.Tensor) -> Any:
    return torch.gather(x, 2, x.argmax(-1, keepdim=True)), x.sum()


def _masked(x: torch.Tensor) -> Any:
    steps = torch.arange(8, dtype=torch.int32)
    return torch.where(steps > 3, x, torch.full((8,), -1.0)) + torch.ones(8), (x > 0).to(torch.float32).cumsum(-1)


def _detected(x: torch.Tensor) -> Any:
    """As heads of detectors do: the best rows, and the class of each. Places are moved before they are read at."""
    score, kind = x.max(-1)
    best, keep = torch.topk(score, 3, dim=1)
    return torch.gather(x, 1, keep[..., None].expand(-1, -1, 8)), best, torch.gather(kind, 1, keep)


@pytest.mark.sample(2)
@pytest.mark.parametrize("then", [_best, _sorted, _largest, _only_places, _chained, _masked, _detected])
def test_places_and_numbers_are_those_of_eager(then: Callable[..., Any]) -> None:
    model = Net(then).eval()
    made = lower(model, (X,), fp16=True)
    assert not made.report.rejected, made.report
    wanted, found = model(X), made.method.execute([X.numpy()])
    for real, ours in zip(wanted, found, strict=True):
        ours = np.asarray(ours)
        assert str(ours.dtype) == str(real.dtype).removeprefix("torch.")
        if real.dtype == torch.int64:
            assert np.mean(ours == real.numpy()) > 0.95  # 16 bits may tie what 32 do not
        else:
            np.testing.assert_allclose(ours, real.detach().numpy(), 1e-2, 2e-2)


@pytest.mark.sample(2)
@pytest.mark.parametrize("then", [_best, _sorted, _largest, _only_places, _chained, _detected])
def test_what_gives_numbers_and_places_is_quantized(then: Callable[..., Any]) -> None:
    model = Net(then).eval()
    converted = quantize(model, (X,), QuantDtype.use_16a8w)
    made = lower(converted, (X,), fp16=False)
    assert not made.report.rejected, made.report
    for real, ours in zip(converted(X), made.method.execute([X.numpy()]), strict=True):
        if real.dtype == torch.int64:
            assert np.mean(np.asarray(ours) == real.numpy()) > 0.95
        else:
            np.testing.assert_allclose(np.asarray(ours), real.detach().numpy(), 1e-3, 1e-2)


def test_integers_that_may_not_fit_stay_where_they_are() -> None:
    """Of 64 bits that were given nobody knows what they are: moved, they may be anything."""
    model = Net(lambda x, ids: (x.sum(), torch.cat([ids, ids.flip(0)]).unsqueeze(0))).eval()
    made = lower(model, (X, torch.tensor([1, 1 << 40])), fp16=True)
    assert {v.operator for v in made.report.rejected} == {"cat", "flip", "unsqueeze"}, made.report
    assert all("int64 may only hold" in v.rejections[0] for v in made.report.rejected)


TRUTHS = torch.tril(torch.ones(10, 8, dtype=torch.bool))


def test_rows_of_truths_are_read() -> None:
    """Which mask of attention holds at a place."""
    model = Net(lambda x, place: torch.where(TRUTHS[place], x, torch.full((8,), -1.0))).eval()
    place = torch.tensor([0, 9, 3, -2, 5, 1])
    made = lower(model, (X, place), fp16=True)
    assert not made.report.rejected and made.report.groups == 1, made.report
    for run in (made, made.twinned()):
        np.testing.assert_allclose(run(X, place).numpy(), model(X, place).detach().numpy(), 1e-2, 2e-2)


class Cache(nn.Module):
    """Rows of a table, written to a cache at a place and read again."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table, self.fc = nn.Embedding(16, 8), nn.Linear(8, 8)
        self.register_buffer("cache", torch.zeros(1, 4, 8))

    def forward(self, token: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        row = self.fc(self.table(token))
        self.cache.index_copy_(1, place, row)
        return torch.softmax(self.cache.sum(-1), -1) + self.cache[:, place].sum(-1)


def test_a_cache_is_written_and_read() -> None:
    model, eager = Cache().eval(), Cache().eval()
    inputs = (torch.tensor([[3]]), torch.tensor([0]))
    made = lower(model, inputs, fp16=True)
    assert "embedding" in {v.operator for v in made.report.delegated}
    for step, token in enumerate((3, 7, 1)):
        given = [torch.tensor([[token]]), torch.tensor([step])]
        (found,) = made.method.execute([g.numpy() for g in given])
        np.testing.assert_allclose(np.asarray(found), eager(*given).detach().numpy(), 1e-2, 1e-2)


def alone(kind: str, held: str, places: Any, **params: Any) -> tuple[Graph, list[Array]]:
    """One operator on a tensor of six rows of four."""
    index, table = np.asarray(places, np.int32), tensor("x", (6, 4), held)
    inputs = [table, plain("places", index.shape, "int32")]
    shape = {"Gather": (index.shape[0], 4), "GatherElements": index.shape}.get(kind, (6, 4))
    if kind.startswith("Scatter"):
        inputs.append(tensor("u", index.shape if kind == "ScatterElements" else (index.shape[0],), held))
    out = tensor("y", shape, held)
    device = Graph("places", inputs, [out], [Op(kind, {"inputs": inputs, "params": params}, [out])])
    return device, [given(table, 1), index, *(given(v, 2) for v in inputs[2:])]


@pytest.mark.parametrize("held", TYPES)
@pytest.mark.parametrize(
    ("kind", "places", "params"),
    [
        ("GatherElements", [[0, -1, 6, 2], [-6, 5, 100, -100]], {"axis": 0}),
        ("ScatterElements", [[0, -1, 6, 2], [-6, 5, 100, -100]], {"axis": 0, "reduction": 0}),
        ("ScatterNd", [[0, 3], [-1, 2], [6, 0], [2, -1], [3, 4], [5, 1]], {}),
    ],
)
def test_places_that_are_not_there_are_what_the_emulator_makes_of_them(
    held: str, kind: str, places: Any, params: dict[str, Any]
) -> None:
    device, arrays = alone(kind, held, places, **params)
    (wanted,) = DIALECT.execute(to_twin(device), arrays)
    np.testing.assert_allclose(emulated_result(device, target_for(), arrays), wanted, 2.0**-9 if held == "half" else 0)


def test_rows_that_are_not_there_are_an_error_in_the_emulator_too() -> None:
    for held in ("half", "uint8"):
        for places in ([1, -1], [6, 0]):
            device, arrays = alone("Gather", held, places, axis=np.int32(0))
            with pytest.raises(VendorError):
                emulated_result(device, target_for(), arrays)
            with pytest.raises(ExecutionError, match="indices must be from 0 to 5"):
                DIALECT.execute(to_twin(device), arrays)
