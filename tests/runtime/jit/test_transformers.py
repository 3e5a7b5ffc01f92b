"""Transformers: portable programs of attention, norms and moves run in few segments, and give what torch gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from edgewright.errors import ExecutionError
from edgewright.ir.dtypes import ScalarType
from edgewright.ir.graph import Graph, QParams, Value
from edgewright.program.edge import to_edge_transform_and_lower
from edgewright.runtime import Profile
from edgewright.runtime.jit.graph_builder import GraphBuilder
from edgewright.runtime.tensor import TensorSlot
from tests.runtime.jit.test_segments import loaded, lowered, segments


class Block(nn.Module):
    """A layer of a transformer, with a norm of groups and reductions at its end."""

    def __init__(self, width: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.width, self.heads = width, heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.inside, self.outside = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.groups = nn.GroupNorm(4, 16)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        batch, rows, _ = x.shape
        parts = self.inside(self.first(x)).reshape(batch, rows, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        query, key, value = parts[0], parts[1], parts[2]
        match = (query @ key.transpose(-1, -2)) * (self.width // self.heads) ** -0.5
        mixed = (torch.softmax(match, -1) @ value).transpose(1, 2).reshape(batch, rows, -1)
        x = x + self.outside(mixed)
        x = x + self.down(nn.functional.gelu(self.up(self.second(x))))
        images = self.groups(x.reshape(batch, 16, -1)[:, :, :, None] * 2.0)
        shares = torch.softmax(images, 1)
        root = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
        return torch.cat([x * root, x], 1), shares.amax((1, 2)), images.sum(1)


@pytest.fixture(scope="module")
def block() -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(1)
    return Block().eval(), torch.randn(2, 48, 64)


def test_a_portable_layer_is_one_segment(block: tuple[nn.Module, torch.Tensor]) -> None:
    model, x = block
    method = loaded(lowered(model, x))
    made = segments(method)
    assert len(made) == 1
    calls = sum(len(chain) for chain in method._chains)
    assert int(made[0].label.split()[0]) >= calls - 2, made[0].label
    for got, want in zip(method.execute([x.numpy()]), model(x), strict=True):
        np.testing.assert_allclose(got, want.detach().numpy(), atol=3e-5)


def delegated(model: nn.Module, *inputs: torch.Tensor) -> bytes:
    from edgewright.backends.xnnpack import XnnpackPartitioner

    exported = torch.export.export(model, inputs)
    return bytes(to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()]).to_executorch().buffer)


def test_norms_between_delegates_are_the_engines(block: tuple[nn.Module, torch.Tensor]) -> None:
    model, x = block[0], torch.randn(8, 208, 64)  # large enough to be worth it
    method = loaded(delegated(model, x))
    profile = Profile()
    for got, want in zip(method.execute([x.numpy()], profile=profile), model(x), strict=True):
        np.testing.assert_allclose(got, want.detach().numpy(), atol=3e-5)
    parts = [part.name for part in profile.part_rows()]
    assert {"layer_norm", "group_norm"} <= set(parts) and not any("numpy" in name for name in parts)
    assert not any("norm" in row.name for row in profile.rows()), "no kernel call"


class Layers(nn.Module):
    """Norms, which XNNPACK has not, cut a network in many delegates."""

    def __init__(self, layers: int = 4) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 32), nn.Tanh()) for _ in range(layers)
        )
        self.image = nn.Conv2d(3, 32, 2, stride=2)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.image(x).flatten(2).transpose(1, 2)
        for layer in self.layers:
            y = y + layer(y)
        return y, torch.cumsum(y, 1)


def test_many_delegates_and_what_is_between_them_are_one_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(3)
    model, x = Layers().eval(), torch.randn(1, 3, 8, 8)
    data = delegated(model, x)
    method = loaded(data)
    made = segments(method)
    assert len(method._delegates) >= 4 and len(made) == 1
    assert not any("_runner" in vars(d) for d in method._delegates), "nothing is compiled twice"
    wanted = [w.detach().numpy() for w in model(x)]
    for got, want in zip(method.execute([x.numpy()]), wanted, strict=True):
        np.testing.assert_allclose(got, want, atol=1e-5)
    monkeypatch.setenv("EDGEWRIGHT_ENGINE", "reference")
    plain = loaded(data)
    assert not segments(plain)
    for got, want in zip(plain.execute([x.numpy()]), wanted, strict=True):
        np.testing.assert_allclose(got, want, atol=1e-5)


class Attending(nn.Module):
    """PyTorch's own attention, of two inputs at a time."""

    def __init__(self, **how: object) -> None:
        super().__init__()
        self.how, self.inside = how, nn.Linear(64, 192)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = (t.view(2, 40, 4, 16).transpose(1, 2) for t in self.inside(x).split(64, -1))
        made = nn.functional.scaled_dot_product_attention(query, key, value, **self.how)  # type: ignore[arg-type]
        return made.transpose(1, 2).reshape(2, 40, 64)


@pytest.mark.parametrize("how", [{}, {"is_causal": True}])
def test_attention_is_one_node(how: dict[str, object]) -> None:
    torch.manual_seed(5)
    model, x, profile = Attending(**how).eval(), torch.randn(2, 40, 64), Profile()
    method = loaded(lowered(model, x))
    (made,) = method.execute([x.numpy()], profile=profile)
    np.testing.assert_allclose(made, model(x).detach().numpy(), atol=2e-6)
    labels = [part.name for step in profile.runs[0].steps for part in step.parts]
    assert "attention" in labels and "softmax" not in labels and "where" not in labels


class Residual(nn.Module):
    """The sum that goes through all layers is bytes, and both a norm and a sum read it."""

    def __init__(self, layers: int = 3) -> None:
        super().__init__()
        self.first = nn.Linear(32, 32)
        self.layers = nn.ModuleList(nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 32)) for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for layer in self.layers:
            x = x + layer(x)
        return x


def quantized(model: nn.Module, *inputs: torch.Tensor) -> bytes:
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    from edgewright.backends.xnnpack import XNNPACKQuantizer, get_symmetric_quantization_config

    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))
    prepared = prepare_pt2e(torch.export.export(model, inputs).module(), quantizer)
    prepared(*inputs)
    return delegated(convert_pt2e(prepared), *inputs)


def test_delegates_that_pass_on_int8_are_one_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(4)
    x = torch.randn(2, 24, 32)
    data = quantized(Residual().eval(), x)
    method = loaded(data)
    graphs = [d.device_graph for d in method._delegates]
    between = [o for graph in graphs if graph is not None for o in graph.outputs if o.q is not None]
    assert len(method._delegates) >= 4 and between
    assert len(segments(method)) == 1 and not any("_runner" in vars(d) for d in method._delegates)
    monkeypatch.setenv("EDGEWRIGHT_ENGINE", "reference")
    plain = loaded(data)
    assert not segments(plain)
    got, want = (m.execute([x.numpy()])[0] for m in (method, plain))
    step = np.abs(want).max() / 127  # a norm's last bit may move a byte
    assert np.abs(got - want).max() <= 2 * step and np.mean(got != want) < 0.05


def test_int8_of_other_scales_is_not_joined() -> None:
    kind = np.dtype(np.int8)
    known, other = (Value("v", kind, (2, 3), (0, 1), q=QParams(0.5, zero, kind, -128, 127)) for zero in (0, 1))
    slot, builder = TensorSlot(ScalarType.INT8, (2, 3), (0, 1)), GraphBuilder(lambda slot: True)
    assert not builder.inline(Graph("two meanings", [known, other]), [slot, slot], [])
    assert builder.inline(Graph("a", [known]), [slot], [])
    assert not builder.inline(Graph("b", [other]), [slot], [])
    assert builder.inline(Graph("c", [known]), [slot], [])
    assert [v.q for v in builder.graph.inputs] == [known.q]


class Cached(nn.Module):
    """A step of a decoder: a token, its place, and keys that are kept."""

    def __init__(self, width: int = 256, length: int = 20, words: int = 50) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(words, width), nn.Linear(width, 128 * words)
        self.inside = nn.Linear(width, 2 * width)
        self.register_buffer("keys", torch.zeros(1, 4, length, width // 4))
        self.register_buffer("mask", torch.full((length, length), float("-inf")).triu(1))

    def forward(self, token: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        x = self.embed(token)
        query, key = self.inside(x).split(x.shape[-1], -1)
        query, key = (z.view(1, 1, 4, -1).transpose(1, 2) for z in (query, key))
        self.keys[:, :, at] = key
        shares = torch.softmax(query @ self.keys.transpose(-1, -2) + self.mask[at], -1)
        return self.head((shares @ self.keys).transpose(1, 2).reshape(x.shape))


@pytest.fixture(scope="module")
def decoder() -> tuple[Cached, bytes]:
    torch.manual_seed(2)
    model = Cached().eval()
    return model, lowered(model, torch.tensor([[3]]), torch.tensor([0]))


def test_a_decoder_keeps_its_state(decoder: tuple[Cached, bytes]) -> None:
    model, data = decoder
    method = loaded(data)
    assert len(segments(method)) == 1
    with torch.no_grad():
        for at, token in enumerate([3, 49, 0, 7]):
            given = torch.tensor([[token]]), torch.tensor([at])
            (got,) = method.execute([x.numpy() for x in given])
            np.testing.assert_allclose(got, model(*given).numpy(), atol=2e-5)


@pytest.mark.parametrize(("token", "at"), [(50, 0), (-1, 0), (0, 20), (0, -21)])
def test_out_of_range_indices_are_an_error(decoder: tuple[Cached, bytes], token: int, at: int) -> None:
    with pytest.raises(ExecutionError):
        loaded(decoder[1]).execute([np.array([[token]]), np.array([at])])


def test_a_segment_seen_before_is_not_compiled_again(
    block: tuple[nn.Module, torch.Tensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, x = block
    monkeypatch.setenv("EDGEWRIGHT_CACHE", str(tmp_path))
    data = lowered(model, x)
    first = loaded(data).execute([x.numpy()])
    monkeypatch.setattr("edgewright.engine.jit.shape_specialization.make_plan", None)
    for got, want in zip(loaded(data).execute([x.numpy()]), first, strict=True):
        np.testing.assert_array_equal(got, want)
    with torch.no_grad():
        model.down.bias[0] += 1  # type: ignore[operator, index, union-attr]
    assert not segments(loaded(lowered(model, x))), "another number, another plan: there is none"


class Recurrent(nn.Module):
    """Steps of a recurrent network, one after the other."""

    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.steps, self.head = kind(96, 96, 2, batch_first=True), nn.Linear(96, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(self.head(self.steps(x)[0]))


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_recurrent_networks_are_one_segment(kind: type[nn.RNNBase]) -> None:
    torch.manual_seed(4)
    model, x = Recurrent(kind).eval(), torch.randn(1, 14, 96)
    method = loaded(lowered(model, x))
    assert len(segments(method)) == 1
    np.testing.assert_allclose(method.execute([x.numpy()])[0], model(x).detach().numpy(), atol=1e-6)
