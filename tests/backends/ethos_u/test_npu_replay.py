"""A stream's second run is machine code: it gives what the first one gives, on any data."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch import nn

import edgewright
from edgewright.backends.ethos_u.npu import decode, run
from edgewright.backends.ethos_u.npu.memory import Budget
from edgewright.backends.ethos_u.npu.simulator import Npu
from edgewright.errors import LimitError
from edgewright.runtime import Runtime
from tests.backends.ethos_u.test_npu_networks import Layers, mobilenet
from tests.backends.ethos_u.tosa_graphs import Graph, compile_graph, random_inputs


class Stream:
    """What Vela made of a graph; each call runs the stream on new memories."""

    def __init__(self, graph: Graph, accelerator: str, options: str = "") -> None:
        self.graph, self.model = graph, compile_graph(graph, accelerator, options)
        self.weights = bytes(self.model.read_only.data)
        self.program = self.fresh()

    def fresh(self) -> Any:
        return decode(bytes(self.model.command_stream))

    def __call__(self, seed: int, program: Any = None, **options: Any) -> list[np.ndarray]:
        scratch = np.zeros(self.model.scratch.size, np.uint8)
        fast = np.zeros(max(self.model.scratch_fast.size, 0), np.uint8)
        for tensor, array in zip(self.model.inputs, random_inputs(self.graph, seed), strict=True):
            scratch[tensor.address : tensor.address + array.nbytes] = np.frombuffer(array.tobytes(), np.uint8)
        run(program or self.program, weights=self.weights, scratch=scratch, fast_scratch=fast, **options)
        return [scratch[t.address : t.address + t.size].copy() for t in self.model.outputs]

    def simulated(self, seed: int) -> list[np.ndarray]:
        """By the simulator alone."""
        with patch.dict(os.environ, {"EDGEWRIGHT_ENGINE": "reference"}):
            return self(seed, self.fresh())

    @property
    def interpreted(self) -> int:
        """Operations that are not machine code."""
        self(0)
        self(0)
        count: int = self.program.cache["run"]._replay.interpreted_count
        return count


def same(stream: Stream, most: int = 0) -> None:
    """Three runs as each would be by itself; ``most`` operations may stay with the simulator."""
    for seed in range(3):
        for first, again in zip(stream.simulated(seed), stream(seed), strict=True):
            np.testing.assert_array_equal(again, first)
            assert first.size < 8 or len(np.unique(first)) > 1
    assert stream.interpreted <= most


def _sum() -> Graph:
    layers = Layers()
    x = layers.conv(layers.graph.input((1, 8, 8, 8), "i8"), 24, 3, relu=False)
    return layers.graph.output(layers.add(x, layers.conv(x, 24)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "accelerator",
    ["ethos-u55-128", *(pytest.param(n, marks=pytest.mark.slow) for n in ("ethos-u55-32", "ethos-u65-256"))],
)
def test_mobilenet(accelerator: str) -> None:
    same(Stream(mobilenet(64, 0.35, classes=40), accelerator), most=1)  # the mean: its factor has 32 bits


def test_threads() -> None:
    """Blocks wait for each other: what one leaves in memory another reads."""
    stream = Stream(_sum(), "ethos-u55-128")
    wanted = stream.simulated(0)[0]
    for _ in range(4):
        np.testing.assert_array_equal(stream(0, threads=3)[0], wanted)


@pytest.mark.slow
def test_stripes_of_rows_and_channels() -> None:
    """With little fast memory layers come in pieces, which lie in larger maps with gaps between."""
    same(Stream(mobilenet(96, 0.35, classes=100), "ethos-u55-128", "arena_size_limit=98304\n"), most=9)


def test_16_bits_stay_with_the_simulator() -> None:
    stream = Stream(mobilenet(32, 0.35, "i16", classes=10), "ethos-u55-128")
    same(stream, most=1000)
    assert stream.interpreted > 0


def _pools(kind: str, pad: tuple[int, int, int, int]) -> Graph:
    layers = Layers()
    x = layers.conv(layers.graph.input((1, 12, 13, 5), "i8"), 20, 3)
    return layers.graph.output(layers.graph.pool(x, kind, (3, 3), pad=pad, zero=(-3, -3)))


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", ["MAX_POOL2D", "AVG_POOL2D"])
@pytest.mark.parametrize("pad", [(0, 0, 0, 0), (1, 1, 1, 1)])
def test_pools(kind: str, pad: tuple[int, int, int, int]) -> None:
    same(Stream(_pools(kind, pad), "ethos-u55-128"), most=kind == "AVG_POOL2D")


@pytest.mark.parametrize("kind", ["ADD", "SUB", "MAXIMUM", "MINIMUM"])
@pytest.mark.parametrize("shape", [(1, 9, 7, 21), (1, 1, 1, 21)])
def test_pairs(kind: str, shape: tuple[int, ...]) -> None:
    layers = Layers()
    a, b = layers.graph.input((1, 9, 7, 21), "i8"), layers.graph.input(shape, "i8")
    wide = [layers.graph.rescale(x, 2.0**17 * by, zero=(-3, 0), to="i32") for x, by in ((a, 1.0), (b, 0.7))]
    total = layers.graph.binary(kind, *wide)
    same(Stream(layers.graph.output(layers.graph.rescale(total, 0.6 / 2**17, zero=(0, -3), to="i8")), "ethos-u55-128"),
         most=9)  # fmt: skip


def test_tables_between_layers() -> None:
    layers = Layers()
    x = layers.conv(layers.graph.input((1, 8, 8, 8), "i8"), 24, 3, relu=False)
    table = np.random.default_rng(1).permutation(256) - 128
    same(Stream(layers.graph.output(layers.conv(layers.graph.table(x, table), 16)), "ethos-u55-128"))


def test_maps_inside_larger_ones() -> None:
    """What lies between rows and bricks of a map stays: here pixels around an image, and another's channels."""
    layers = Layers()
    x = layers.conv(layers.graph.input((1, 9, 10, 8), "i8"), 40, 3)
    sides = layers.graph.sizes(0, 0, 1, 2, 2, 1, 0, 0)
    wide = layers.graph.op("PAD", [x, sides, layers.graph.const([7], "i8")], (1, 12, 13, 40), "i8")
    parts = [layers.conv(wide, 32), layers.conv(wide, 24)]
    joined = layers.graph.op("CONCAT", parts, (1, 12, 13, 56), "i8", 3)
    same(Stream(layers.graph.output(layers.conv(joined, 16)), "ethos-u55-128"), most=2)


def test_other_constants_are_another_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiled stream belongs to the constants it was compiled with."""
    monkeypatch.setenv("EDGEWRIGHT_CACHE", str(tmp_path / "cache"))
    stream = Stream(_sum(), "ethos-u55-128")
    before = [stream(0)[0] for _ in range(3)][-1]
    assert simulated_runs(stream) == 0
    stream.weights += b"more"
    assert simulated_runs(stream) == 1
    np.testing.assert_array_equal(stream(0)[0], before)


def simulated_runs(stream: Stream) -> int:
    """How often the simulator interprets the stream in one run of it."""
    with patch.object(Npu, "run", autospec=True, side_effect=Npu.run) as runs:
        stream(0)
    return int(runs.call_count)


def test_a_second_run_costs_what_the_first_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEWRIGHT_CACHE", str(tmp_path / "cache"))
    stream, budgets = Stream(_sum(), "ethos-u55-128"), []
    with patch.object(
        sys.modules[run.__module__], "Budget", side_effect=lambda n: budgets.append(Budget(n)) or budgets[-1]
    ):
        stream(0)
        stream(0)
    assert budgets[0].used == budgets[1].used > 1000
    with pytest.raises(LimitError):
        stream(0, steps=1000)


def test_without_the_engine_nothing_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEWRIGHT_ENGINE", "reference")
    stream = Stream(_sum(), "ethos-u55-128")
    np.testing.assert_array_equal(stream(0)[0], stream(0)[0])
    assert not stream.program.cache


def test_another_process_does_not_interpret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was compiled is kept with the engine's plans, for these constants and memories."""
    monkeypatch.setenv("EDGEWRIGHT_CACHE", str(tmp_path / "cache"))
    stream = Stream(_sum(), "ethos-u55-128")
    first = [stream(0)[0] for _ in range(2)][-1]

    def refuse(self: Any, timer: Any) -> Any:
        raise AssertionError("interpreted")

    with monkeypatch.context() as patched:
        patched.setattr(Npu, "run", refuse)
        np.testing.assert_array_equal(stream(0, stream.fresh())[0], first)
        with pytest.raises(LimitError):
            stream(0, stream.fresh(), steps=1000)
        stream.weights += b"more"
        with pytest.raises(AssertionError, match="interpreted"):
            stream(0, stream.fresh())


def test_kept_streams_that_are_not_in_order_are_interpreted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEWRIGHT_CACHE", str(tmp_path / "cache"))
    stream = Stream(_sum(), "ethos-u55-128")
    first = [stream(0)[0] for _ in range(2)][-1]
    for path in (tmp_path / "cache").rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[:-9] + b"otherwise")
    stream.program = stream.fresh()
    assert simulated_runs(stream) == 1
    np.testing.assert_array_equal(stream(0, stream.fresh())[0], first)


class _Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(4, 17, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.gru(x)[0]


def test_results_that_are_written_over_their_operands() -> None:
    """Vela gives an element-wise result its operand's memory; a kernel's last vector covers some elements twice."""
    torch.manual_seed(0)
    model, inputs = _Recurrent().eval(), (torch.randn(1, 4, 4),)
    samples = [(torch.randn(1, 4, 4),) for _ in range(8)]
    result = edgewright.compile(model, inputs, target="ethos-u55-128", quantize="int8", calibration=samples)
    given = [inputs[0].numpy()]
    with patch.dict(os.environ, {"EDGEWRIGHT_ENGINE": "reference"}):
        wanted = Runtime().load_program(result.buffer).load_method("forward").execute(given)[0]
    method = Runtime().load_program(result.buffer).load_method("forward")
    for _ in range(3):
        np.testing.assert_array_equal(method.execute(given)[0], wanted)
