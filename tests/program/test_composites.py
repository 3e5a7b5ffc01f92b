"""Operators without a kernel: what they decompose to computes what they compute, in our runtime and in stock's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from edgewright.errors import UnsupportedOperatorError
from edgewright.runtime import Runtime
from tests.ir.aten.harness import to_array
from tests.ir.aten.overload_calls import named, overload_named, torch_argument
from tests.ir.aten.overload_samples import CALLS
from tests.program.case import Case, compile_exported
from tests.program.check import check_ours, check_stock
from tests.support.stock import stock

CASES = [(o, i) for o, calls in CALLS.items() for i in range(len(calls)) if o != "aten.sym_size.int"]  # it is a number
REJECTED = ("aten.grid_sampler_3d.default", "aten.scatter_reduce.two")  # without kernel and decomposition
RTOL = {"float64": 1e-6, "float32": 1e-5, "float16": 2e-3}


class Overload(torch.nn.Module):
    """Calls an overload with its tensors as inputs and everything else fixed."""

    def __init__(self, overload: str, args: list[Any]) -> None:
        super().__init__()
        keyword = args[-1] if args and isinstance(args[-1], dict) else {}
        self.op = overload_named(overload)
        kinds = {a.name: str(a.real_type) for a in self.op._schema.arguments}
        given = named(overload, args[:-1] if keyword else args, keyword)
        self.arguments = {n: torch_argument(v, kinds[n]) for n, v in given.items()}
        if not isinstance(self.arguments.get("memory_format"), torch.memory_format):
            self.arguments.pop("memory_format", None)  # a number, as schemas write their default
        self.inputs = {n: v for n, v in self.arguments.items() if isinstance(v, torch.Tensor)}

    def forward(self, *tensors: torch.Tensor) -> Any:
        arguments = {**self.arguments, **dict(zip(self.inputs, tensors, strict=True))}
        schema = {a.name: a.kwarg_only for a in self.op._schema.arguments}
        positional = [v for n, v in arguments.items() if not schema[n]]
        return self.op(*positional, **{n: v for n, v in arguments.items() if schema[n]})


def _storable(tensor: torch.Tensor) -> torch.Tensor:
    """Inputs of stock's runtime are contiguous or channels last."""
    formats = (torch.contiguous_format, *((torch.channels_last,) if tensor.dim() == 4 else ()))
    return tensor if any(tensor.is_contiguous(memory_format=f) for f in formats) else tensor.contiguous()


@pytest.mark.sample(60)
@pytest.mark.parametrize(("overload", "index"), CASES, ids=[f"{o.removeprefix('aten.')}-{i}" for o, i in CASES])
def test_decompositions(overload: str, index: int) -> None:
    module = Overload(overload, CALLS[overload][index]).eval()
    inputs = [_storable(tensor) for tensor in module.inputs.values()]
    result = module(*inputs)
    wanted = [to_array(r) for r in (result if isinstance(result, tuple | list) else [result])]
    exported = torch.export.export(module, tuple(inputs))
    if any(str(node.target) in REJECTED for node in exported.run_decompositions().graph.nodes):
        with pytest.raises(UnsupportedOperatorError, match="has no kernel in the target runtime and no decomposition"):
            compile_exported(exported)
        return
    program = compile_exported(exported)
    ours = Runtime.get().load_program(program).load_method("forward").execute(inputs)
    theirs = stock().run_many(program, "forward", [inputs])[0]
    for name, given in (("ours", ours), ("stock", theirs)):
        assert len(given) == len(wanted)
        for got, want in zip(given, wanted, strict=True):
            got = to_array(got) if isinstance(got, torch.Tensor) else np.asarray(got)
            rtol = RTOL.get(str(want.dtype), 0)
            np.testing.assert_allclose(got, want, rtol, rtol, err_msg=name)


@pytest.mark.parametrize("descending", [False, True])
def test_stable_sorts_of_any_length(descending: bool) -> None:
    """Top-k kernels return equal elements in any order."""
    case = Case(
        "stable",
        lambda x: (*torch.sort(x, dim=1, stable=True, descending=descending), torch.argsort(x, dim=1, stable=True)),
        lambda n: (torch.randint(0, 3, (2, n, 4)).float(),),
        dims={"n": (2, 40)},
        dynamic=({1: "n"},),
    )
    program = compile_exported(case.export())
    for sizes in case.points():
        check_ours(case, program, sizes)
        check_stock(case, program, sizes)
