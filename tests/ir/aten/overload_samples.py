"""Calls of operators that have no kernel of their own, in the order of their schemas; defaults are left out."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.ir.aten.harness import channels_last
from tests.ir.aten.samples.values import array, normal

INT8, FLOAT, DOUBLE = 1, 6, 7
Calls = dict[str, list[list[Any]]]

X2, X3 = normal("float32", 3, 4), normal("float32", 2, 3, 5)
X4, X5 = normal("float32", 2, 4, 6, 5), normal("float32", 1, 4, 4, 5, 3)
POSITIVE = np.abs(X2) + np.float32(0.1)
UNIT = np.clip(X2 / 4, -0.99, 0.99)
WHOLE, COUNTS = array([[3, -2, 7], [0, 5, -6]], "int32"), array([[1, 0, 3], [2, 1, 0]], "int32")
MASK = np.array([[True, False, True, True], [False] * 4, [True] * 4])


def weight(*shape: int) -> np.ndarray:
    return normal("float32", *shape, seed=3)


def _one_argument() -> Calls:
    plain = ["relu6", "hardsigmoid", "hardswish", "silu", "selu", "mish", "square", "sinc"]
    calls: Calls = {f"aten.{name}.default": [[X2 * 3], [normal("float64", 3)], [X4]] for name in plain}
    moved = ["contiguous", "alias", "detach", "alias_copy", "detach_copy", "lift_fresh_copy"]
    calls |= {f"aten.{name}.default": [[X4], [channels_last(X4)]] for name in moved}
    return calls | {
        "aten.celu.default": [[X2], [X2, 0.5]],
        "aten.softplus.default": [[X2 * 9], [X2, 2.0, 1.0]],
        "aten.prelu.default": [[X4, weight(4)], [X4, weight(1)], [X2, weight(4)], [X3, weight(3)]],
        "aten.erfinv.default": [[UNIT], [array([-1, 1, 0, 1.5, np.nan, 0.9999999])], [UNIT.astype("float64")]],
        "aten.dropout.default": [[X2, 0.5, False], [X2, 0.0, True]],
        "aten.to.dtype": [[X2, 3], [X2, 5], [WHOLE, 6]],
        "aten._to_copy.default": [[X2]],
    }


def _two_arguments() -> Calls:
    calls: Calls = {}
    for name in ("and", "or", "xor", "lshift", "rshift"):
        calls[f"aten.__{name}__.Tensor"] = [[WHOLE, COUNTS]]
        calls[f"aten.__{name}__.Scalar"] = [[WHOLE, 2]]
    return calls | {
        "aten.rsub.Tensor": [[X2, POSITIVE], [X2, POSITIVE, {"alpha": 2}]],
        "aten.floor_divide.Scalar": [[X2, 0.7], [WHOLE, 2]],
        "aten.max.other": [[X2, POSITIVE]],
        "aten.min.other": [[X2, POSITIVE]],
        "aten.masked_fill.Tensor": [[X2, MASK, array(2.5)]],
        "aten.expand_as.default": [[weight(4), X2]],
    }


def _images() -> Calls:
    w1, w2, w3 = weight(6, 3, 3), weight(6, 2, 3, 2), weight(6, 4, 2, 3, 2)
    calls: Calls = {
        "aten.conv1d.default": [[X3, w1, weight(6)], [X3, w1, None, [2], [1], [2]], [X3[0], w1, weight(6)]],
        "aten.conv2d.default": [[X4, w2, weight(6), [2, 1], [1, 0], [1, 2], 2], [X4[0], weight(3, 4, 2, 2)]],
        "aten.conv3d.default": [[X5, w3, weight(6), [1, 2, 1], [1, 0, 1]]],
        "aten.conv1d.padding": [[X3, w1, None, [1], "same"], [X3, w1, weight(6), [2], "valid"]],
        "aten.conv2d.padding": [
            [X4, w2, weight(6), [1, 1], "same", [2, 1], 2],
            [X4, w2, None, [2, 2], "valid", [1], 2],
        ],
        "aten.conv3d.padding": [[X5, w3, None, [1, 1, 1], "same"]],
        "aten.conv_transpose1d.default": [[X3, weight(3, 2, 3), weight(2), [2], [1], [1]]],
        "aten.conv_transpose2d.input": [
            [X4, weight(4, 3, 3, 2), weight(6), [2, 3], [1, 0], [1, 2], 2, [1, 1]],
            [X4[0], weight(4, 3, 2, 2), None],
        ],
        "aten.conv_transpose3d.input": [
            [X5, weight(4, 2, 2, 2, 3), weight(2), [2, 1, 2]],
            [X5, weight(4, 2, 2, 2, 3), None, [1, 2, 2]],
        ],
    }
    return calls | _pools() | _resampling()


def _pools() -> Calls:
    calls: Calls = {
        "aten.max_pool1d.default": [[X3, [2]], [X3, [3], [2], [1], [1], True], [X3[0], [2], [1], [0], [2]]],
        "aten.max_pool2d.default": [[X4, [2, 3]], [X4, [3, 3], [2, 2], [1, 1], [1, 1], True], [X4[0], [2, 2]]],
        "aten.avg_pool1d.default": [[X3, [2]], [X3, [3], [2], [1], True, False], [X3[0], [2]]],
        "aten.avg_pool3d.default": [
            [X5, [2, 2, 2]],
            [X5, [3, 2, 2], [2, 1, 1], [1, 1, 0], True, False],
            [X5[0], [2, 2, 3], [1, 1, 1], [0, 0, 0], False, True, 5],
        ],
        "aten.adaptive_avg_pool1d.default": [[X3, [2]], [X3[0], [3]]],
        "aten.adaptive_avg_pool2d.default": [[X4, [1, 1]], [X4, [4, 2]]],
        "aten.adaptive_max_pool2d.default": [[X4, [2, 3]], [X4[0], [4, 4]], [X4, [1, 1]]],
    }
    for name in ("adaptive_avg_pool3d", "_adaptive_avg_pool3d"):
        calls[f"aten.{name}.default"] = [[X5, [2, 3, 1]], [X5, [1, 1, 1]]]
    return calls


def _resampling() -> Calls:
    points, more = normal("float32", 2, 3, 4, 2, scale=0.7), normal("float32", 1, 2, 3, 2, 3, scale=0.7)
    modes = [[i, p, a] for i in (0, 1) for p in (0, 1, 2) for a in (True, False)]
    calls: Calls = {
        "aten.upsample_bicubic2d.vec": [
            [X4, [9, 7], False, None],
            [X4, None, True, [1.5, 2.0]],
            [X4, None, False, [1.5, 2.0]],
        ],
        "aten.upsample_nearest2d.default": [[X4, [9, 7]], [X4, [9, 7], 1.5, 1.4]],
        "aten.grid_sampler.default": [*([X4, points, *m] for m in modes), *([X5, more, *m] for m in modes)],
        "aten.grid_sampler_3d.default": [[X5, more, *m] for m in modes],
        "aten.channel_shuffle.default": [[X4, 2], [X4, 4], [X3, 3]],
    }
    for name in ("bilinear2d", "bicubic2d"):
        calls[f"aten.upsample_{name}.default"] = [[X4, [9, 7], a] for a in (True, False)]
        calls[f"aten.upsample_{name}.default"] += [[X4, [9, 7], False, 1.5, 1.45], [X4, [3, 2], False]]
    return calls


def _products() -> Calls:
    q, k, v = (normal("float32", 2, 4, n, 3, seed=n) for n in (5, 6, 7))
    v = v[:, :, :6]
    mask = normal("bool", 5, 6)
    mask[0] = False
    return {
        "aten.matmul.default": [
            [X2, weight(4, 5)],
            [weight(4), weight(4)],
            [X2, weight(4)],
            [weight(3), X2],
            [weight(2, 1, 3, 4), weight(5, 4, 2)],
        ],
        "aten.scaled_dot_product_attention.default": [
            [q, k, v],
            [q, k, v, mask],
            [q, k, v, weight(5, 6)],
            [q, q, q, None, 0.0, True],
            [q, k, v, None, 0.0, False, {"scale": 0.3}],
            [q, k[:, :2], v[:, :2], None, 0.0, False, {"enable_gqa": True}],
        ],
        "aten.cdist.default": [[X2, weight(5, 4)], [X2, weight(5, 4), 1.0]],
    }


def _norms() -> Calls:
    mean, var = weight(4), np.abs(weight(4)) + np.float32(0.1)
    affine = [weight(4), weight(4)]
    dead = array([[0, -np.inf, 1], [-np.inf] * 3])
    return {
        "aten.softmax.int": [[X2, 1], [X2, 0, DOUBLE]],
        "aten.log_softmax.int": [[X2, -1]],
        "aten._safe_softmax.default": [[X2, -1], [dead, 1], [dead, 0]],
        "aten.batch_norm.default": [
            [X4, *affine, mean, var, False, 0.1, 1e-5, False],
            [X2, None, None, mean, var, False, 0.1, 1e-3, True],
        ],
        "aten.instance_norm.default": [
            [X4, *affine, None, None, True, 0.1, 1e-5, False],
            [X3, None, None, None, None, True, 0.1, 1e-3, False],
            [X4, *affine, mean, var, False, 0.1, 1e-5, False],
        ],
        "aten.group_norm.default": [[X4, 2, *affine], [X4, 4, None, None, 1e-3], [X2, 2]],
        "aten.layer_norm.default": [[X2, [4]], [X2, [4], *affine, 1e-3], [X4, [6, 5]]],
        "aten.rms_norm.default": [[X2, [4]], [X2, [4], weight(4), 1e-5], [X4, [6, 5], None, 1e-3]],
    }


def _movement() -> Calls:
    ones = normal("float32", 2, 1, 3, 1)
    calls: Calls = {}
    for name in ("squeeze", "squeeze_copy"):
        calls[f"aten.{name}.default"] = [[ones], [X2]]
    return calls | {
        "aten._unsafe_view.default": [[X2, [2, 6]]],
        "aten.reshape.default": [[X2, [6, -1]], [X2.T, [12]]],
        "aten.flatten.using_ints": [[X4], [X4, 1], [X4, 1, 2]],
        "aten.chunk.default": [[X4, 2, 1], [X2, 3, -1], [X2, 9]],
        "aten.narrow.default": [[X2, 1, 1, 2]],
        "aten.pad.default": [
            [X4, [1, 2, 0, 1]],
            [X4, [1, -1], "constant", 2.5],
            [X4, [1, 2, 3, 1], "reflect"],
            [X3, [1, 2], "replicate"],
        ],
    }


def _reductions() -> Calls:
    equal = array([3, 1, 3, 2, 1, np.nan])
    many = np.random.default_rng(0).integers(-2, 3, (5, 20, 3)).astype("int32")
    index = np.array([[0, 1, 0, 2], [2, 2, 0, 1]])
    reductions = ("sum", "prod", "mean", "amax", "amin")
    return {
        "aten.sum.default": [[X2], [WHOLE]],
        "aten.var.default": [[X2], [X2, False]],
        "aten.linalg_vector_norm.default": [
            *([X2, p, [1], True] for p in (0, 1, 2, 3.5, float("inf"), -float("inf"))),
            [X4],
        ],
        "aten.sort.default": [[X2], [X2, 0, True]],
        "aten.sort.stable": [
            [equal, {"stable": True}],
            [equal, {"stable": True, "descending": True}],
            [many, {"stable": True, "dim": 1}],
            [many, {"stable": True, "dim": 0, "descending": True}],
            [X2[:1, :1], {"stable": True}],
        ],
        "aten.scatter_reduce.two": [
            [X2, 0, index, weight(2, 4), r, {"include_self": kept}] for r in reductions for kept in (True, False)
        ],
    }


def _creation() -> Calls:
    return {
        "aten.zeros_like.default": [[X2]],
        "aten.ones_like.default": [[X2]],
        "aten.full_like.default": [[X2, 7, {"dtype": 4}]],
        "aten.arange.default": [[5], [5, {"dtype": FLOAT}]],
        "aten.arange.start": [[2, 7]],
        "aten.arange.start_step": [[1, 9, 3], [0.5, 2.0, 0.25]],
        "aten.linspace.default": [[-1.0, 2.0, 7], [0, 1, 1]],
        "aten.eye.default": [[3], [0]],
        "aten.eye.m": [[2, 4]],
        "aten.sym_size.int": [[X4, 2], [X4, -1]],
    }


def _quantization() -> Calls:
    calls: Calls = {}
    row = ([3, 4], [1, 4], [1, 2], [3, 1], [1, 1])
    for mapping in ("SYMMETRIC", "ASYMMETRIC", "SYMMETRIC_NO_CLIPPING_ERR"):
        calls.setdefault("torchao.choose_qparams_affine.default", []).extend(
            [X2, mapping, block, INT8, -128, 127, 1e-6, FLOAT, 3, keep] for block in row[:4] for keep in (True, False)
        )
    quantized = normal("int8", 3, 4)
    for block in row:
        shape = tuple(n // b for n, b in zip((3, 4), block, strict=True))
        scale, zero_point = np.abs(weight(*shape)) + np.float32(0.05), normal("int32", *shape)
        calls.setdefault("torchao.quantize_affine.default", []).append([X2, block, scale, zero_point, INT8, -8, 7])
        calls.setdefault("torchao.dequantize_affine.default", []).append(
            [quantized, block, scale, zero_point, INT8, -128, 127]
        )
    return calls


CALLS: Calls = {}
for _family in (
    _one_argument, _two_arguments, _images, _products, _norms, _movement, _reductions, _creation, _quantization,
):  # fmt: skip
    for _name, _calls in _family().items():
        CALLS.setdefault(_name, []).extend(_calls)
