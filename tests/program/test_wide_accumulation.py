"""16-bit floats are added up in float32, whatever the stock runtime's kernels would do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from edgewright.program.edge import to_edge_transform_and_lower
from edgewright.runtime import Runtime
from tests.ir.aten.harness import to_array
from tests.program.case import Call
from tests.support.stock import stock

MANY = 3000


def ones(*shape: int) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(len(shape))) + 0.2


# Functions of many numbers. In 16 bits most of these were wrong in the stock runtime, some in older releases only.
CASES: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "sum": (lambda x: x.sum(0), (ones(MANY),)),
    "sum to a type": (lambda x: x.sum(0, dtype=x.dtype), (ones(MANY),)),
    "mean": (lambda x: x.mean(-1), (ones(2, MANY),)),
    "mean of all": (lambda x: x.mean(), (ones(2, MANY),)),
    "var": (lambda x: x.var(-1), (ones(2, MANY),)),
    "var_mean": (lambda x: torch.var_mean(x, -1), (ones(2, MANY),)),
    "cumsum": (lambda x: x.cumsum(1), (ones(2, MANY),)),
    "softmax": (lambda x: x.softmax(-1), (ones(2, MANY),)),
    "log_softmax": (lambda x: x.log_softmax(-1), (ones(2, MANY),)),
    "layer_norm": (lambda x: F.layer_norm(x, [MANY]), (ones(2, MANY),)),
    "layer_norm with weights": (lambda x, w: F.layer_norm(x, [MANY], w, w), (ones(2, MANY), ones(MANY))),
    "group_norm": (lambda x: F.group_norm(x, 2), (ones(1, 4, 30, 30),)),
    "mm": (torch.mm, (ones(2, MANY), ones(MANY, 2))),
    "bmm": (torch.bmm, (ones(1, 2, MANY), ones(1, MANY, 2))),
    "addmm": (torch.addmm, (ones(4), ones(2, MANY), ones(MANY, 4))),
    "linear": (F.linear, (ones(2, MANY), ones(4, MANY), ones(4))),
    "convolution": (F.conv2d, (ones(1, 300, 5, 5), ones(2, 300, 3, 3), ones(2))),
    "channels last": (
        lambda x, w: F.conv2d(x.to(memory_format=torch.channels_last), w), (ones(1, 300, 5, 5), ones(2, 300, 3, 3))
    ),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, 50), (ones(1, 2, 50, 50),)),
    "adaptive_avg_pool2d": (lambda x: F.adaptive_avg_pool2d(x, 1), (ones(1, 2, 50, 50),)),
    "in a branch": (
        lambda x: torch.cond(x[0] > 0, lambda y: y.sum(0), lambda y: y.prod(0), (x,)), (ones(MANY),)
    ),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize("name", CASES)
def test_many_16_bit_floats_are_added_up_in_float32(name: str, dtype: torch.dtype) -> None:
    function, inputs = CASES[name][0], tuple(i.to(dtype) for i in CASES[name][1])
    buffer = to_edge_transform_and_lower(torch.export.export(Call(function), inputs)).to_executorch().buffer
    exact = function(*(i.float() for i in inputs))
    arrays = [to_array(i) for i in inputs]
    ours = Runtime.get().load_program(buffer).load_method().execute(arrays)
    for outputs in (ours, stock().run(buffer, "forward", arrays)):
        for found, wanted in zip(outputs, exact if isinstance(exact, tuple) else [exact], strict=True):
            assert str(found.dtype) == str(dtype).removeprefix("torch.")
            found, wanted = np.asarray(found, np.float64), wanted.numpy().astype(np.float64)
            error = np.abs(found - wanted).max() / np.abs(wanted).max()
            assert error < (1e-3 if dtype == torch.float16 else 8e-3), error
