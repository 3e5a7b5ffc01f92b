"""Where the stock runtime's kernels do not give what eager torch gives.

Each line was seen in ExecuTorch 1.5.1 (x86-64 wheel), with the samples as programs of one operator.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import numpy as np

from tests.ir.aten.harness import Sample


def arrays(s: Sample) -> list[np.ndarray]:
    return [a for a in s.args if isinstance(a, np.ndarray)]


def kinds(s: Sample) -> set[str]:
    return {np.dtype(a.dtype).kind for a in arrays(s)} | {np.dtype(d).kind for d in s.out if d != "bfloat16"}


def dtypes(s: Sample) -> set[str]:
    return {str(a.dtype) for a in arrays(s)}


def largest(s: Sample) -> int:
    """The largest integer among the arguments."""
    found = [int(abs(v)) for v in s.args if isinstance(v, int)]
    return max([*found, *(abs(int(v)) for a in arrays(s) if a.dtype.kind in "iu" for v in a.flat)], default=0)


def mixed_layouts(s: Sample) -> bool:
    images = [a for a in arrays(s) if a.ndim == 4]
    last = [a.strides[1] < a.strides[3] for a in images] + ([s.dim_order is not None] if images else [])
    return len(set(last)) > 1


def has_nan(s: Sample) -> bool:
    first = arrays(s)[0]
    return first.dtype.kind in "fV" and bool(np.isnan(first.astype(np.float64)).any())


def floors(s: Sample) -> bool:
    return s.key == "aten::floor_divide.out" or s.args[2] == "floor"


def outside(s: Sample) -> bool:
    """A shift by a count that a wide type does not have."""
    width = 8 * arrays(s)[0].dtype.itemsize
    return width >= 32 and any(not 0 <= int(v) < width for v in np.asarray(s.args[1]).flat)


def unlike(s: Sample) -> bool:
    return not all(a.flags.c_contiguous for a in arrays(s))


def observations(s: Sample) -> int:
    """How many elements a reduction over ``args[1]`` puts into one result."""
    shape, dims = arrays(s)[0].shape, s.args[1]
    return math.prod(shape) if not dims or not shape else math.prod(shape[d] for d in dims)


QUIRKS: list[tuple[str, Callable[[Sample], bool], str]] = [
    (r"aten::.*", mixed_layouts, "wants one dim order in all tensors"),
    (r"aten::(glu|full_like)\.", lambda s: s.dim_order is not None, "wants the default dim order"),
    (r"aten::(a?(sin|cos|tan)h?|expm?1?|log\w*|reciprocal|rsqrt|sqrt|eq|ne|isnan|isinf|sigmoid|neg|where|ones|_to_copy"
     r"|add|sub|pow)\.", lambda s: "c" in kinds(s), "takes no complex numbers"),
    (r"aten::div\.", lambda s: "c" in kinds(s), "makes infinities of some broadcast complex quotients"),
    (r"aten::logit\.", lambda s: bool(dtypes(s) & {"float16", "bfloat16"}), "takes no 16-bit floats"),
    (r"aten::add\.Scalar_out", lambda s: s.out != (), "does not promote the tensor to the number's kind"),
    (r"aten::(floor_divide|div\.\w*mode\w*)", lambda s: floors(s) and has_nan(s),
     "makes infinity of NaN divided by zero and rounded down"),
    (r"aten::(fmod\.Tensor_out|arange\.start_out)", lambda s: largest(s) >= 2**53, "computes in double"),
    (r"aten::div\.out_mode", lambda s: s.args[2] == "trunc" and largest(s) >= 2**53, "computes in double"),
    (r"aten::pow\.Tensor_Tensor_out", lambda s: dtypes(s) == {"int64"} and arrays(s)[1].ndim == 1
     and arrays(s)[0].ndim == 1, "computes integer powers in double"),
    (r"aten::remainder\.", lambda s: kinds(s) == {"i"} and not isinstance(s.args[1], float) and "bool" not in dtypes(s),
     "gives an integer remainder the sign of the dividend"),
    (r"aten::remainder\.", lambda s: "float64" in dtypes(s), "computes in float32"),
    (r"aten::(ceil|floor|trunc)\.", lambda s: bool(dtypes(s) & {"int32", "int64"}), "rounds integers through a float"),
    (r"aten::sign\.", has_nan, "gives NaN the sign NaN"),
    (r"aten::bitwise_(left|right)_shift", outside, "leaves counts the type does not have to the machine"),
    (r"aten::(eq|ne|lt|le|gt|ge)\.Scalar_out", lambda s: dtypes(s) == {"bfloat16"} and s.args[1] == 0.1,
     "does not round the number to 16 bits"),
    (r"aten::where\.", lambda s: s.note == "0-d", "lets a 0-d tensor widen the result"),
    (r"(aten::empty|dim_order_ops::_empty)", lambda s: True, "leaves an empty tensor undefined"),
    (r"aten::(_log_softmax|_softmax|cat|constant_pad_nd|cumsum|replication_pad2d|slice_copy)\.",
     lambda s: s.dim_order is not None, "reads any layout as contiguous"),
    (r"aten::max_pool2d_with_indices\.", lambda s: s.dim_order is not None or unlike(s),
     "counts indices in another layout"),
    (r"aten::cumsum\.", lambda s: s.note == "float32 inside", "rounds each partial sum to 16 bits"),
    (r"aten::sum\.", lambda s: s.note == "wraps", "sums integers in double"),
    (r"aten::tril\.", lambda s: largest(s) >= 2**62, "lets the diagonal overflow"),
    (r"aten::var(_mean)?\.", lambda s: not isinstance(s.args[2], bool | None) and s.args[2] >= observations(s),
     "gives NaN, not infinity, when the correction leaves no degree of freedom"),
    (r"aten::native_layer_norm\.", lambda s: abs(float(arrays(s)[0].astype(float).sum())) > 50 * arrays(s)[0].size > 0,
     "loses digits far from zero"),
    (r"et_copy::", lambda s: True, "refuses it between tensors of the CPU"),
]  # fmt: skip


def reason(sample: Sample) -> str:
    """What stock does instead, or nothing."""
    return next((why for pattern, applies, why in QUIRKS if re.match(pattern, sample.key) and applies(sample)), "")
