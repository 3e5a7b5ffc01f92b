"""Arguments that ExecuTorch's kernels refuse, abort on or get wrong never reach a file: rewritten, or rejected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from edgewright.errors import UnsupportedOperatorError
from edgewright.frontend.decompose.canonical import RULES
from edgewright.program.edge import to_edge_transform_and_lower
from edgewright.runtime import Runtime
from tests.ir.aten.harness import to_array
from tests.program.case import Call
from tests.support.stock import stock

NUMBER = torch.tensor(3.5)
COMPLEX = torch.complex(torch.arange(12.0).view(3, 4), torch.ones(3, 4))
STATISTICS = (torch.tensor([0.5, 1.0, 2.0]), torch.tensor([1.0, 2.0, 4.0]))

REWRITTEN: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "sum of a number": (lambda x: x.sum(0), (NUMBER,)),
    "sum of an integer": (lambda x: x.sum(0), (torch.tensor(3, dtype=torch.int32),)),
    "cumsum of a number": (lambda x: x.cumsum(0), (NUMBER,)),
    "unfold of a number": (lambda x: x.unfold(0, 1, 1), (NUMBER,)),
    "median of a number": (lambda x: x.median(0)[0], (NUMBER,)),
    "kthvalue of a number": (lambda x: x.kthvalue(1)[0], (NUMBER,)),
    "log_softmax of nothing": (lambda x: x.log_softmax(1), (torch.zeros(3, 0),)),
    "amax of nothing": (lambda x: x.amax(1), (torch.zeros(0, 3),)),
    "amin of nothing": (lambda x: x.amin(1, keepdim=True), (torch.zeros(0, 3),)),
    "product of nothing": (lambda x: x.prod(1), (torch.zeros(3, 0),)),
    "any of nothing": (lambda x: x.any(0), (torch.zeros(0, 3),)),
    "concatenation of nothing": (lambda x, y: torch.cat([x, y], 1), (torch.zeros(0, 3), torch.zeros(0, 2))),
    "batch norm of two types": (lambda x: F.batch_norm(x, *STATISTICS), (torch.ones(2, 3, 2, 2).bfloat16(),)),
    "constant indices from the end": (lambda x: x[[0, -1]], (torch.arange(12.0).view(4, 3),)),
    "the same in the second dimension": (lambda x: x[:, [-3, 1]], (torch.arange(12.0).view(4, 3),)),
    "sum of complex numbers": (lambda x: x.sum(1), (COMPLEX,)),
    "products of complex numbers": (lambda x, y: x * y + y, (COMPLEX, COMPLEX)),
}


def compiled(function: Callable[..., Any], inputs: tuple[Tensor, ...]) -> bytes:
    exported = torch.export.export(Call(function), inputs, strict=False)
    return bytes(to_edge_transform_and_lower(exported).to_executorch().buffer)


@pytest.mark.parametrize("name", REWRITTEN)
def test_what_kernels_do_not_take_is_rewritten(name: str) -> None:
    function, inputs = REWRITTEN[name]
    program, arrays = compiled(function, inputs), [to_array(i) for i in inputs]
    wanted = to_array(function(*inputs))
    ours = Runtime.get().load_program(program).load_method().execute(arrays)
    for (got,) in (ours, stock().run(program, "forward", arrays)):
        assert (np.shape(got), got.dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_allclose(np.asarray(got, np.complex64), np.asarray(wanted, np.complex64), rtol=1e-2)


def test_constant_indices_are_counted_from_the_start() -> None:
    """Release 1.0.0 takes no others."""
    program = compiled(lambda x: x[[0, -1, -4]], (torch.arange(12.0).view(4, 3),))
    assert np.array([0, 3, 0]).tobytes() in program
    assert np.array([0, -1, -4]).tobytes() not in program


@pytest.mark.parametrize(
    ("function", "operator"),
    [
        (lambda x: x.flip(0), "aten.flip"),
        (lambda x: x.mean(1), "aten.mean"),
        (lambda x: torch.stack([x, x]), "aten.stack"),
        (lambda x: x * 2, "aten.mul"),
        (lambda x: x / x, "aten.div"),
        (lambda x: x + torch.ones(3, 4), "aten.add"),
        (lambda x: x.to(torch.complex128), "aten._to_copy"),
        (lambda x: x.real.to(torch.complex64), "aten._to_copy"),
        (torch.exp, "aten.exp"),
        (lambda x: x.norm(), "aten.sqrt"),
    ],
)
def test_complex_numbers_that_kernels_do_not_take_are_rejected(function: Callable[..., Any], operator: str) -> None:
    with pytest.raises(UnsupportedOperatorError, match="takes real numbers only in ExecuTorch's runtime") as caught:
        compiled(function, (COMPLEX,))
    assert operator in str(caught.value)


def test_average_over_windows_of_dynamic_sizes() -> None:
    """A mean where one window is all of it; else a newer release's kernel, never the example's windows."""
    image = torch.rand(1, 2, 8, 6)
    heights = ({2: torch.export.Dim("height", min=4, max=12)},)

    def export(size: tuple[int, int]) -> torch.export.ExportedProgram:
        model = torch.nn.AdaptiveAvgPool2d(size)
        return torch.export.export(model, (image,), dynamic_shapes=heights)

    program = to_edge_transform_and_lower(export((1, 3))).to_executorch().buffer
    for height in (4, 5, 12):
        taller = torch.rand(1, 2, height, 6)
        (got,) = Runtime.get().load_program(program).load_method().execute([taller.numpy()])
        np.testing.assert_allclose(got, F.adaptive_avg_pool2d(taller, (1, 3)).numpy(), rtol=1e-5)
    with pytest.raises(UnsupportedOperatorError, match=r"windows that depend on a dynamic size(?s:.)*ExecuTorch 1\.3"):
        to_edge_transform_and_lower(export((2, 3)))


def test_decompositions_for_the_examples_size_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(RULES, torch.ops.aten._adaptive_avg_pool2d.default)
    sizes = ({2: torch.export.Dim("height", min=4, max=12)},)
    exported = torch.export.export(torch.nn.AdaptiveAvgPool2d(2), (torch.rand(1, 2, 8, 6),), dynamic_shapes=sizes)
    for _ in range(2):  # torch evaluates a guard once: the second time it is known, and still an assumption
        with pytest.raises(UnsupportedOperatorError) as caught:
            to_edge_transform_and_lower(exported)
        assert "is decomposed for one size only: Eq(" in str(caught.value.__cause__)
