"""Joint forward and backward graphs: loss, gradients and weights are outputs, and the file says which is which."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.export import ExportedProgram
from torch.export.experimental import _export_forward_backward

from edgewright.formats import read_program, schema
from edgewright.program.config import ExecutorchBackendConfig
from edgewright.program.edge import to_edge_transform_and_lower
from edgewright.runtime import Runtime
from tests.support.stock import stock


class Dense(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        scores = self.b(torch.relu(self.a(x)))
        return nn.functional.cross_entropy(scores, y), scores.detach().argmax(1)


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.a = nn.LayerNorm(4), nn.Linear(4, 3)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        scores = self.a(torch.tanh(self.norm(x)))
        return nn.functional.cross_entropy(scores, y), scores.detach()


class Convolved(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.a = nn.Conv2d(1, 2, 3), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        image = nn.functional.max_pool2d(torch.sigmoid(self.conv(x)), 2)
        scores = self.a(image.flatten(1))
        return nn.functional.cross_entropy(scores, y), scores.detach()


class Attending(nn.Module):
    def __init__(self, causal: bool = False) -> None:
        super().__init__()
        self.causal, self.qkv, self.a = causal, nn.Linear(8, 24), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        query, key, value = self.qkv(x).view(2, 5, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
        seen = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        scores = self.a(seen.transpose(1, 2).reshape(2, 5, 8).mean(1))
        return nn.functional.cross_entropy(scores, y), scores.detach()


class Causal(Attending):
    def __init__(self) -> None:
        super().__init__(causal=True)


CASES: dict[str, tuple[type[nn.Module], tuple[int, ...]]] = {
    "dense": (Dense, (2, 4)),
    "normed": (Normed, (2, 4)),
    "convolved": (Convolved, (2, 1, 6, 6)),
    "attending": (Attending, (2, 5, 8)),
    "causal": (Causal, (2, 5, 8)),
}


def made(name: str) -> tuple[nn.Module, tuple[torch.Tensor, torch.Tensor], ExportedProgram]:
    torch.manual_seed(7)
    kind, shape = CASES[name]
    model, inputs = kind(), (torch.randn(shape), torch.tensor([0, 2]))
    return model, inputs, _export_forward_backward(torch.export.export(model, inputs))


def expected(model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> list[np.ndarray]:
    """Loss, result, gradients, weights: as eager torch has them."""
    loss, result = model(*inputs)
    loss.backward()
    weights = list(model.parameters())
    return [t.detach().numpy() for t in (loss, result, *(w.grad for w in weights if w.grad is not None), *weights)]


def assert_same(given: Any, wanted: list[np.ndarray]) -> None:
    assert len(given) == len(wanted)
    for have, want in zip(given, wanted, strict=True):
        np.testing.assert_allclose(np.asarray(have), want, 1e-4, 1e-6)


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", CASES)
def test_gradients_and_weights_are_those_of_eager_torch(name: str) -> None:
    model, inputs, joint = made(name)
    program = to_edge_transform_and_lower(joint).to_executorch().buffer
    arrays = [i.numpy() for i in inputs]
    wanted = expected(model, inputs)
    assert_same(Runtime.get().load_program(program).load_method("forward").execute(arrays), wanted)
    assert_same(stock().run(program, "forward", arrays), wanted)


def test_the_file_says_which_outputs_are_what() -> None:
    model, _, joint = made("dense")
    program = to_edge_transform_and_lower({"train": joint}).to_executorch().buffer
    answers = {m: stock().run(program, m, []) for m in stock().methods(program) if m != "train"}
    assert answers == {
        "__et_training_gradients_index_train": [2],
        "__et_training_parameters_index_train": [6],
        "__et_training_fqn_train": [name for name, _ in model.named_parameters()],
    }


def test_weights_are_state_with_initial_contents() -> None:
    _, _, joint = made("dense")
    program = read_program(to_edge_transform_and_lower(joint).to_executorch().buffer)
    plan = next(p for p in program.execution_plan if p.name == "forward")
    weights = [plan.values[i] for i in plan.outputs[6:]]
    assert all(isinstance(w, schema.Tensor) and w.allocation_info and w.data_buffer_idx for w in weights)
    assert program.mutable_data_segments
    assert len(program.mutable_data_segments[0].offsets) == 1 + len(weights)


def test_external_mutable_weights_are_in_a_data_file(tmp_path: Path) -> None:
    model, inputs, joint = made("dense")
    options = ExecutorchBackendConfig(external_mutable_weights=True)
    compiled = to_edge_transform_and_lower(joint).to_executorch(options)
    program = read_program(compiled.buffer)
    assert not program.mutable_data_segments
    plan = next(p for p in program.execution_plan if p.name == "forward")
    infos = [plan.values[i].extra_tensor_info for i in plan.outputs[6:]]
    assert [i.fully_qualified_name for i in infos] == [name for name, _ in model.named_parameters()]
    assert {i.location for i in infos} == {schema.TensorDataLocation.EXTERNAL}
    (path,) = compiled.write_tensor_data_to_file(tmp_path)
    arrays, wanted = [i.numpy() for i in inputs], expected(model, inputs)
    ours = Runtime.get().load_program(compiled.buffer, data=path).load_method("forward")
    assert_same(ours.execute(arrays), wanted)
    assert_same(stock().run(compiled.buffer, "forward", arrays, path), wanted)
