"""Weights of 4 bits beside 16-bit activations: told to the HTP so that results are nearer, in as few bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgewright.backends.qualcomm.emit import compile_graph
from edgewright.backends.qualcomm.partitioner import QnnPartitioner, to_qnn
from edgewright.backends.qualcomm.weights_int4 import refine_weight
from edgewright.ir.graph import Array, Graph, Op, QParams, Value
from tests.backends.qualcomm.rows import emulated_result, target_for

INT8, UINT16 = np.dtype(np.int8), np.dtype(np.uint16)
ZERO = 30000
STEP, WEIGHT = 1e-4, 0.03  # scales
FARTHEST = 14  # steps; as bytes of other sizes these are as far


def tensor(name: str, shape: tuple[int, ...], q: QParams | None, data: Array | None = None) -> Value:
    dtype = np.dtype(np.float32) if q is None else q.dtype
    return Value(name, dtype, shape, dim_order=tuple(range(len(shape))), q=q, data=data)


def layer(shape: tuple[int, ...], groups: int = 1, *, bias: float = 1.0, block: int | None = None) -> Op:
    """A convolution, or a linear layer, of weights from -7 to 7."""
    random = np.random.default_rng(0)
    outputs, inputs, *window = shape
    q = QParams(WEIGHT, 0, INT8, -7, 7)
    if block:
        count = outputs * inputs // block
        q = QParams((WEIGHT,) * count, (0,) * count, INT8, -7, 7, axis=0, block=block)
    at = (1, inputs * groups, 5, 5) if window else (3, inputs)
    reach = 4.5 * 8000 * STEP * WEIGHT * 4.3 * (inputs * int(np.prod(window))) ** 0.5  # of nearly all results
    out = tensor("y", (at[0], outputs, *at[2:]), QParams(reach / ZERO + 1e-4, ZERO, UINT16, 0, 65535))
    args: dict[str, Any] = {
        "input": tensor("x", at, QParams(STEP, ZERO, UINT16, 0, 65535)),
        "weight": tensor("w", shape, q, random.integers(-7, 8, shape).astype(np.int8)),
        "bias": tensor("b", (outputs,), None, (bias * random.normal(size=outputs)).astype(np.float32)),
    }
    if window:
        args.update(stride=[1, 1], padding=[n // 2 for n in window], dilation=[1, 1], groups=groups)
    return Op("conv2d" if window else "linear", args, [out])


def exact(op: Op, x: Array) -> Array:
    """In whole numbers, scaled and rounded once."""
    weight, out = op.args["weight"], op.outputs[0]
    assert out is not None and out.q is not None
    w, centred = weight.data.astype(np.int64), x.astype(np.int64) - ZERO
    if w.ndim == 2:
        sums = centred @ w.T
    else:
        pad, groups = w.shape[2] // 2, op.args["groups"]
        whole = np.pad(centred, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
        seen = np.lib.stride_tricks.sliding_window_view(whole, w.shape[2:], (2, 3))  # type: ignore[call-overload]
        parts = zip(np.split(seen, groups, 1), np.split(w, groups), strict=True)
        sums = np.concatenate([np.einsum("nchwij,ocij->nohw", a, b) for a, b in parts], 1)
    shape = (-1,) + (1,) * (w.ndim - 2)
    real = sums * (STEP * WEIGHT) + op.args["bias"].data.astype(np.float64).reshape(shape)
    return np.asarray(np.clip(np.round(real / out.q.scale) + ZERO, 0, 65535))


def graph_of(op: Op) -> Graph:
    return Graph("forward", inputs=[op.args["input"]], outputs=list(op.outputs), ops=[op])


@pytest.mark.parametrize(
    ("shape", "groups", "soc"),
    [((24, 16, 1, 1), 1, "SM8450"), ((24, 16, 1, 1), 1, "SM8750"), ((10, 40), 1, "SM8550"),
     ((32, 1, 3, 3), 32, "SM8550"), ((16, 3, 3, 3), 1, "SM8550"), ((7, 20), 1, "SM8550"),
     ((32, 1, 1, 1), 32, "SM8550")],
)  # fmt: skip
def test_sums_of_small_weights_are_nearly_exact(shape: tuple[int, ...], groups: int, soc: str) -> None:
    """Told as they are, the emulator is 25 to 140 steps off, and thousands of one pixel of one channel."""
    op = layer(shape, groups)
    x = np.clip(np.random.default_rng(1).normal(ZERO, 8000, op.args["input"].shape), 0, 65535).astype(np.uint16)
    made = emulated_result(to_qnn(graph_of(op), target_for(soc)), target_for(soc), [x])
    assert np.abs(made.astype(np.int64) - exact(op, x)).max() <= FARTHEST


def told(op: Op, soc: str = "SM8550") -> QParams:
    weight = refine_weight(op, op.args["weight"], target_for(soc))
    assert weight.q is not None and weight.data is not None
    scale = np.asarray(weight.q.scale).max() * weight.q.qmax / 7
    assert np.isclose(scale, WEIGHT) and weight.data.max() == weight.q.qmax  # the same numbers
    return weight.q


def test_one_pixel_becomes_a_block_and_few_products_become_bytes() -> None:
    assert told(layer((24, 16, 1, 1))).block == 16
    assert told(layer((10, 1280))).block == 1280
    for few in (layer((32, 1, 3, 3), 32), layer((16, 3, 3, 3)), layer((7, 20))):
        assert told(few).qmax == 112 and told(few).block is None


@pytest.mark.parametrize(
    ("op", "soc"),
    [
        (layer((24, 16, 3, 3)), "SM8550"),  # blocks are for one pixel, and 8 bits would take twice the room
        (layer((24, 100, 1, 1)), "SM8550"),  # blocks are of multiples of 8
        (layer((24, 64, 1, 1)), "SA8295"),  # blocks are of v69 on
        (layer((24, 16, 1, 1), bias=3e3), "SM8550"),  # the bias would not fit into 32 bits
    ],
)
def test_others_stay_as_they_are(op: Op, soc: str) -> None:
    weight = op.args["weight"]
    assert refine_weight(op, weight, target_for(soc)) is weight


def test_a_block_takes_no_more_room_than_4_bits() -> None:
    target = target_for("SM8550")
    plain, block, byte = (layer((256, 256, 1, 1)) for _ in range(3))
    byte.args["weight"].data = byte.args["weight"].data * np.int8(16)
    byte.args["weight"].q = QParams(WEIGHT / 16, 0, INT8, -127, 127)
    plain.args["bias"].data *= np.float32(1e4)  # so that it is told as it is
    sizes = [len(compile_graph(to_qnn(graph_of(op), target), target, "forward")) for op in (plain, block, byte)]
    assert sizes[1] - sizes[0] < 8192 and sizes[2] - sizes[0] > 24000


@pytest.mark.parametrize(("block", "fits"), [(8, True), (24, True), (4, False), (12, False), (6, False)])
def test_blocks_are_of_multiples_of_8(block: int, fits: bool) -> None:
    """Qualcomm's compiler takes others, and its numbers are wrong."""
    op = layer((16, 48, 1, 1), block=block)
    rejections = QnnPartitioner.for_target("SM8550").rejections(op)
    assert not rejections if fits else any("a multiple of 8 channels" in text for text in rejections), rejections
