"""QNN's operators that Edgewright emits: what they take, and what they mean, each said once.

In a host twin they are called ``qnn.<name>``, with all tensors as ``inputs`` and their parameters as further arguments:
numbers, or nested lists of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edgewright.ir.qnn import binary, conv, dtypes, image, move, norm_softmax, norms, reduce
from edgewright.ir.qnn import elementwise as el

PREFIX = "qnn."
REAL, STORED, WHOLE = "real", "stored", "whole"
_LOWEST, _HIGHEST = (float(f(np.finfo(np.float32).max)) for f in (np.negative, np.positive))


@dataclass(frozen=True)
class Numbers:
    """A parameter: ``dims`` lists within lists of whole numbers from ``low``; ``real`` if they need not be whole."""

    dims: int = 0
    low: int = 0
    default: Any = None
    real: bool = False


@dataclass(frozen=True)
class QnnOp:
    """``meaning`` is of real numbers, of what is stored (in the result's scale), or has the whole operator to itself.
    ``operands``: how many there are, at least and at most (0: any). ``single``: it works element by element, on one."""

    meaning: Callable[..., Any]
    operands: tuple[int, int] = (1, 1)
    domain: str = REAL
    params: dict[str, Numbers] = field(default_factory=dict)
    single: bool = False


def _flag(default: bool | None = None) -> Numbers:
    return Numbers(default=default)


def _f32(default: float | None = None) -> Numbers:
    return Numbers(default=default, real=True)


_STEPS, _COUNT, _AXIS = Numbers(1, 1), Numbers(0), Numbers(0)
_PAIRS, _AXES = Numbers(2), Numbers(1)
_KEPT = {"axes": _AXES, "keep_dims": _flag(False)}
_CONV = {"stride": _STEPS, "pad_amount": _PAIRS, "dilation": _STEPS, "group": Numbers(0, 1, 1)}
_GROWN = {"stride": _STEPS, "pad_amount": _PAIRS, "output_padding": Numbers(1), "group": Numbers(0, 1, 1)}
_POOL = {"filter_size": _STEPS, "stride": _STEPS, "pad_amount": _PAIRS, "rounding_mode": Numbers(default=0)}
_AVERAGE = {**_POOL, "count_pad_for_edges": _flag(True)}
_RESIZED = {"align_corners": _flag(False), "half_pixel_centers": _flag(False)}
_BLOCKS = {"block_size": _STEPS, "mode": Numbers(default=0)}
_NEURON = {
    "operation": _COUNT, "alpha": _f32(1.0), "beta": _f32(1.0), "threshold": _f32(20.0), "min_value": _f32(_LOWEST),
    "max_value": _f32(_HIGHEST),
}  # fmt: skip
_LIMITS = {"min_value": _f32(), "max_value": _f32()}
_EPSILON = _f32(1e-6)
_SLICE = {
    "ranges": Numbers(2, -(1 << 31)),
    **dict.fromkeys(("begin_mask", "end_mask", "shrink_axes"), Numbers(0, 0, 0)),
}
_PAD = {"scheme": _COUNT, "pad_amount": _PAIRS, "pad_constant_value": _f32(0.0)}
_GRID = {"align_corners": _flag(False), "mode": Numbers(default=0), "padding_mode": Numbers(default=0)}
_RESIZE = {
    "exclude_outside": _flag(False), "cubic_coeff": _f32(-0.75),
    **dict.fromkeys(("transformation_mode", "interpolation_mode", "nearest_mode"), Numbers(default=0)),
}  # fmt: skip
_TURNED = {"transpose_in0": _flag(False), "transpose_in1": _flag(False)}
_SOFTMAX = {"axis": _AXIS, "beta": _f32(1.0)}
_SUMS = {"axis": _AXIS, "exclusive": _flag(False), "reverse": _flag(False)}
_NORM = {"epsilon": _EPSILON, "axes": _AXES}
_REDUCTION = Numbers(default=0)
_INSTANCE = {
    "epsilon": _EPSILON, "mode": Numbers(default=0), "normalize_variance": _flag(True), "region": Numbers(default=0),
}  # fmt: skip

QNN: dict[str, QnnOp] = {
    **{f"ElementWise{name}": QnnOp(meaning, single=True) for name, meaning in el.UNARY.items()},
    **{f"ElementWise{name}": QnnOp(meaning, (2, 2)) for name, meaning in el.BINARY.items()},
    **{f"ElementWise{name}": QnnOp(binary.paired, (2, 2), WHOLE) for name in binary.PAIRS},
    "ElementWiseUnary": QnnOp(el.unary, params={"operation": _COUNT}, single=True),
    "ElementWiseBinary": QnnOp(el.binary, (2, 2), params={"operation": _COUNT}),
    "ElementWiseNeuron": QnnOp(el.neuron, params=_NEURON, single=True),
    "ElementWiseSelect": QnnOp(el.select, (3, 3)),
    "Relu": QnnOp(dtypes.limited, domain=WHOLE, single=True),
    "Relu6": QnnOp(dtypes.limited, domain=WHOLE, single=True),
    "ReluMinMax": QnnOp(dtypes.limited, domain=WHOLE, params=_LIMITS, single=True),
    "Sigmoid": QnnOp(el.sigmoid, single=True),
    "Tanh": QnnOp(el.tanh, single=True),
    "Gelu": QnnOp(el.gelu, single=True),
    "HardSwish": QnnOp(el.hard_swish, single=True),
    "Elu": QnnOp(el.elu, params={"alpha": _f32(1.0)}, single=True),
    "Prelu": QnnOp(el.prelu, (2, 2)),
    "IsNan": QnnOp(el.is_nan, single=True),
    "IsInf": QnnOp(el.is_inf, params={"detect_negative": _flag(True), "detect_positive": _flag(True)}, single=True),
    "Cast": QnnOp(el.cast, single=True),
    "Convert": QnnOp(dtypes.convert, domain=WHOLE, single=True),
    "Quantize": QnnOp(conv.quantize, domain=WHOLE),
    "Dequantize": QnnOp(conv.dequantize, domain=WHOLE),
    **{name: QnnOp(conv.convolution, (2, 3), WHOLE, _CONV) for name in ("Conv2d", "Conv3d")},
    "DepthWiseConv2d": QnnOp(conv.convolution, (2, 3), WHOLE, {n: p for n, p in _CONV.items() if n != "group"}),
    **{name: QnnOp(conv.transposed, (2, 3), WHOLE, _GROWN) for name in ("TransposeConv2d", "TransposeConv3d")},
    "FullyConnected": QnnOp(conv.fully_connected, (2, 3), WHOLE, {"keep_dims": _flag(False)}),
    "MatMul": QnnOp(conv.matmul, (2, 3), WHOLE, _TURNED),
    "PoolMax2d": QnnOp(image.max_pool, domain=STORED, params=_POOL),
    **{name: QnnOp(reduce.average, domain=WHOLE, params=_AVERAGE) for name in ("PoolAvg2d", "PoolAvg3d")},
    "ResizeNearestNeighbor": QnnOp(image.nearest, domain=STORED, params=_RESIZED),
    "ResizeBilinear": QnnOp(image.bilinear, params=_RESIZED),
    "Resize": QnnOp(image.resize, params=_RESIZE),
    "GridSample": QnnOp(image.grid_sample, (2, 2), params=_GRID),
    "ReduceMean": QnnOp(reduce.reduced, domain=WHOLE, params=_KEPT),
    "ReduceSum": QnnOp(reduce.reduced, domain=WHOLE, params=_KEPT),
    "ReduceMax": QnnOp(reduce.extreme(np.max), domain=WHOLE, params=_KEPT),
    "ReduceMin": QnnOp(reduce.extreme(np.min), domain=WHOLE, params=_KEPT),
    "CumulativeSum": QnnOp(reduce.running, domain=WHOLE, params=_SUMS),
    "Argmax": QnnOp(image.place(np.argmax), params={"axis": _AXIS, "keep_dims": _flag(False)}),
    "Argmin": QnnOp(image.place(np.argmin), params={"axis": _AXIS, "keep_dims": _flag(False)}),
    **{name: QnnOp(norm_softmax.shares, domain=WHOLE, params=_SOFTMAX) for name in ("Softmax", "LogSoftmax")},
    "Batchnorm": QnnOp(norms.batch_norm, (2, 3)),
    "LayerNorm": QnnOp(norm_softmax.normed, (1, 3), WHOLE, _NORM),
    "RmsNorm": QnnOp(norm_softmax.normed, (1, 3), WHOLE, _NORM),
    "GroupNorm": QnnOp(norm_softmax.normed, (1, 3), WHOLE, {"epsilon": _EPSILON, "group": Numbers(0, 1)}),
    "InstanceNorm": QnnOp(norm_softmax.normed, (1, 3), WHOLE, _INSTANCE),
    "L2Norm": QnnOp(norms.l2_norm, params={"axis": _AXIS, "epsilon": _f32(1e-12)}),
    "HadamardTransform": QnnOp(norms.hadamard, params={"scale": _f32(1.0)}),
    "Reshape": QnnOp(move.reshape, domain=STORED),
    "Transpose": QnnOp(move.transpose, domain=STORED, params={"perm": _AXES}),
    "Concat": QnnOp(move.concat, (1, 0), STORED, {"axis": _AXIS}),
    "Pack": QnnOp(move.pack, (1, 0), STORED, {"axis": _AXIS}),
    "UnPack": QnnOp(move.unpack, domain=STORED, params={"axis": _AXIS}),
    "Split": QnnOp(move.split, domain=STORED, params={"axis": _AXIS, "split_index": _AXES}),
    "StridedSlice": QnnOp(move.strided_slice, domain=STORED, params=_SLICE),
    "Tile": QnnOp(move.tile, domain=STORED, params={"multiples": _STEPS}),
    "Pad": QnnOp(move.pad, domain=STORED, params=_PAD),
    "ChannelShuffle": QnnOp(move.channel_shuffle, domain=STORED, params={"num_groups": Numbers(0, 1), "axis": _AXIS}),
    "DepthToSpace": QnnOp(move.depth_to_space, domain=STORED, params=_BLOCKS),
    "SpaceToDepth": QnnOp(move.space_to_depth, domain=STORED, params=_BLOCKS),
    "Gather": QnnOp(move.gather, (2, 2), STORED, {"axis": _AXIS}),
    "GatherElements": QnnOp(move.gather_elements, (2, 2), STORED, {"axis": _AXIS}),
    "ScatterElements": QnnOp(move.scatter_elements, (3, 3), WHOLE, {"axis": _AXIS, "reduction": _REDUCTION}),
    "ScatterNd": QnnOp(move.scatter_nd, (3, 3), WHOLE, {"reduction": _REDUCTION}),
    "TopK": QnnOp(move.top_k, domain=STORED, params={"k": Numbers(0, 1), "largest": _flag(True)}),
}
