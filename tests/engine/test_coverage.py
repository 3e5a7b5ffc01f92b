"""What of XNNPACK's node types and of portable kernels still runs in numpy: a table with the reason of each.

A node type or a kernel that is added, or gets machine code, makes these tests fail until the table says so.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from edgewright.runtime.portable import ROWS as PORTABLE
from tests.backends.node_cases import EXACT, FLOAT, ROWS, Made
from tests.engine.graphs import cpus, steps_in_python

CASES: dict[str, Callable[[], Made]] = {
    **{f"real {name}": make for name, make in FLOAT.items()},
    **{f"bytes {name}": make for name, make in EXACT.items()},
    **{f"rows {name}": make for name, make in ROWS.items()},
}
_MULTIPLIED = "several filters for each channel: no network that was looked at has them"
_SPREAD = "a transposed convolution whose filters have gaps: no network that was looked at has one"
_NARROW = "groups of fewer than 16 channels of bytes: kernels store whole vectors"
_WHOLE = "an image that is quantized as a whole when it comes: only rows and pixels are"
IN_NUMPY = {
    "real depthwise_conv2d": _MULTIPLIED,
    "real depthwise_conv2d_no_bias": _MULTIPLIED,
    "real depthwise_conv2d_fp16": _MULTIPLIED,
    "bytes depthwise_conv2d_by_tensor": _MULTIPLIED,
    "bytes depthwise_conv2d_by_channel": _MULTIPLIED,
    "real conv_transpose2d": _SPREAD,
    "real conv_transpose2d_no_bias": _SPREAD,
    "real conv_transpose2d_fp16": _SPREAD,
    "bytes conv_transpose2d_by_tensor": _SPREAD,
    "bytes conv_transpose2d_by_channel": _SPREAD,
    "bytes conv_transpose2d_grouped_by_tensor": _NARROW,
    "bytes conv2d_grouped_by_tensor": _NARROW,
    "bytes conv2d_grouped_by_channel": _NARROW,
    "rows conv2d_8": _WHOLE,
    "rows conv2d_grouped_8": _WHOLE,
}


@pytest.mark.parametrize("cpu", cpus())
def test_nodes_of_xnnpack(cpu: str) -> None:
    found = {name for name, make in CASES.items() if steps_in_python(make()[0], cpu)}
    assert found == set(IN_NUMPY)


# Kernels of portable programs that join a segment of the engine; all others are numpy's, one call at a time.
NATIVE = """
    _native_batch_norm_legit_no_training.out _softmax.out abs.out add.Scalar_out add.out addmm.out amax.out amin.out
    bmm.out cat.out ceil.out clamp.out clone.out convolution.out div.Scalar_out div.out embedding.out exp.out
    expand_copy.out floor.out gelu.out hardtanh.out index.Tensor_out index_put.out linear.out log.out maximum.out
    mean.out minimum.out mm.out mul.Scalar_out mul.out native_group_norm.out native_layer_norm.out neg.out
    permute_copy.out pow.Tensor_Scalar_out relu.out rsqrt.out select_copy.int_out sigmoid.out slice_copy.Tensor_out
    split_copy.Tensor_out split_with_sizes_copy.out sqrt.out squeeze_copy.dim_out squeeze_copy.dims_out stack.out
    sub.Scalar_out sub.out sum.IntList_out t_copy.out tanh.out transpose_copy.int_out unbind_copy.int_out
    unsqueeze_copy.out view_copy.out
"""


def test_kernels_of_portable_programs() -> None:
    listed = {f"aten::{name}" for name in NATIVE.split()} | {"dim_order_ops::_clone_dim_order.out"}
    assert set(PORTABLE) == listed
