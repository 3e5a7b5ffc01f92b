"""Runtimes of older releases: what only newer ones have kernels for is decomposed, or rejected with the release."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

import edgewright as ew
from edgewright.backends.xnnpack.partitioner import XnnpackPartitioner
from edgewright.errors import UnsupportedOperatorError
from edgewright.formats.executorch_releases import (
    NEWEST,
    OLDEST,
    RELEASES,
    RUNTIMES,
    first_release,
    operators_of,
    split_runtime,
)
from edgewright.formats.operator_signatures import OPERATORS
from edgewright.lowering.kernel_resolution import kernel_set
from edgewright.program import manifest
from edgewright.program.config import EdgeCompileConfig
from edgewright.program.edge import to_edge_transform_and_lower
from edgewright.runtime import Runtime
from tests.backends.lowered import Lowered
from tests.program.case import Call

NEWER = sorted(key for key in OPERATORS if first_release(key) != OLDEST)
INTS = torch.tensor([-70000, -7, -1, 0, 1, 6, 12345, 2**30], dtype=torch.int32)
BYTES = torch.tensor([0, 1, 15, 16, 200, 255], dtype=torch.uint8)
IMAGE = torch.randn(2, 3, 7, 5, generator=torch.Generator().manual_seed(0))
GRID = torch.rand(2, 4, 3, 2, generator=torch.Generator().manual_seed(1)) * 2 - 1

# Functions that call newer kernels, and what they are called with.
DECOMPOSED: dict[str, tuple[str, Callable[..., Any], tuple[Tensor, ...]]] = {
    "left shift": ("aten::bitwise_left_shift.Tensor_Scalar_out", lambda x: x << 1, (INTS.clamp(-9, 99),)),
    "right shift": ("aten::bitwise_right_shift.Tensor_Scalar_out", lambda x: x >> 3, (INTS,)),
    "right shift of bytes": ("aten::bitwise_right_shift.Tensor_Scalar_out", lambda x: x >> 4, (BYTES,)),
    "grid sampler": (
        "aten::grid_sampler_2d.out", lambda x, g: F.grid_sample(x, g, align_corners=False), (IMAGE, GRID)
    ),
    "adaptive pooling": ("aten::_adaptive_avg_pool2d.out", lambda x: F.adaptive_avg_pool2d(x, (3, 2)), (IMAGE,)),
    "pooling to one": ("aten::_adaptive_avg_pool2d.out", lambda x: F.adaptive_avg_pool2d(x, 1), (IMAGE,)),
    "variance and mean": ("aten::var_mean.correction_out", lambda x: torch.var_mean(x, (1, 3), correction=1), (IMAGE,)),
    "variance of all": ("aten::var_mean.correction_out", lambda x: torch.var_mean(x, correction=0), (IMAGE,)),
    "kept dimensions": ("aten::var_mean.correction_out", lambda x: torch.var_mean(x, -1, keepdim=True), (IMAGE,)),
    "antialiased resize": (
        "aten::_upsample_bilinear2d_aa.out",
        lambda x: F.interpolate(x, (2, 9), mode="bilinear", antialias=True), (IMAGE,),
    ),
    "antialiased resize to one": (
        "aten::_upsample_bilinear2d_aa.out",
        lambda x: F.interpolate(x, (1, 1), mode="bilinear", antialias=True, align_corners=False), (IMAGE,),
    ),
    "antialiased resize with corners": (
        "aten::_upsample_bilinear2d_aa.out",
        lambda x: F.interpolate(x, (3, 2), mode="bilinear", antialias=True, align_corners=True), (IMAGE,),
    ),
}  # fmt: skip
REJECTED: dict[str, tuple[str, Callable[..., Any], tuple[Tensor, ...]]] = {
    "left shift by a tensor": ("aten::bitwise_left_shift.Tensor_out", lambda x, y: x << y, (INTS, INTS % 4)),
    "right shift by a tensor": ("aten::bitwise_right_shift.Tensor_out", lambda x, y: x >> y, (INTS, INTS % 4)),
    "right shift of int64": ("aten::bitwise_right_shift.Tensor_Scalar_out", lambda x: x >> 1, (INTS.long(),)),
    "shift by more than the type has": (
        "aten::bitwise_left_shift.Tensor_Scalar_out", lambda x: x << 31, (INTS.clamp(-9, 99),)
    ),
}  # fmt: skip


def compiled(function: Callable[..., Any], inputs: tuple[Tensor, ...], runtime: str) -> Any:
    exported = torch.export.export(Call(function), inputs)
    return to_edge_transform_and_lower(exported, compile_config=EdgeCompileConfig(runtime=runtime)).to_executorch()


def called(program: Any) -> set[str]:
    return {o.key for plan in program.executorch_program.execution_plan for o in plan.operators}


@pytest.mark.parametrize("name", DECOMPOSED)
def test_newer_operators_are_decomposed_for_older_runtimes(name: str) -> None:
    key, function, inputs = DECOMPOSED[name]
    old, new = compiled(function, inputs, "wheel"), compiled(function, inputs, f"wheel-{first_release(key)}")
    assert called(old) <= operators_of(OLDEST)
    assert key in called(new)
    expected = function(*inputs)
    for program in (old, new):
        outputs = Runtime.get().load_program(program.buffer).load_method().execute([i.numpy() for i in inputs])
        for found, wanted in zip(outputs, expected if isinstance(expected, tuple) else [expected], strict=True):
            assert found.dtype == wanted.numpy().dtype
            np.testing.assert_allclose(found, wanted.numpy(), 1e-5, 1e-6)


@pytest.mark.parametrize("name", REJECTED)
def test_what_cannot_be_decomposed_names_the_release_that_has_it(name: str) -> None:
    key, function, inputs = REJECTED[name]
    first = first_release(key)
    with pytest.raises(UnsupportedOperatorError) as caught:
        compiled(function, inputs, "android")
    assert f"needs ExecuTorch {first} or newer: pass runtime='android-{first}'" in str(caught.value)
    assert key in called(compiled(function, inputs, f"android-{first}"))


def test_parts_that_count_from_the_end_are_counted_from_the_start() -> None:
    """Releases before 1.1 read in front of the tensor."""
    program = compiled(lambda x: x.narrow(0, -3, 2) + 0, (INTS,), "wheel")
    (plan,) = program.executorch_program.execution_plan
    assert not [v for v in plan.values if getattr(v, "int_val", 0) < 0]
    (found,) = Runtime.get().load_program(program.buffer).load_method().execute([INTS.numpy()])
    np.testing.assert_array_equal(found, INTS.numpy()[-3:-1])


@pytest.mark.parametrize("function", [torch.sin, torch.cos])
def test_nodes_that_older_delegates_lack_are_left_to_the_cpu(function: Callable[[Tensor], Tensor]) -> None:
    def wave(x: Tensor) -> Tensor:
        return function(x) * 2

    reports = {}
    for runtime in ("android", "android-1.1"):
        partitioner = XnnpackPartitioner()
        config = EdgeCompileConfig(runtime=runtime)
        to_edge_transform_and_lower(torch.export.export(Call(wave), (IMAGE,)), partitioner=[partitioner],
                                    compile_config=config)  # fmt: skip
        reports[runtime] = partitioner.reports["forward"]
    name = function.__name__
    assert name in {v.operator for v in reports["android-1.1"].delegated}
    (verdict,) = [v for v in reports["android"].verdicts if v.operator == name]
    assert not verdict.backend
    assert "needs ExecuTorch 1.1 or newer" in "; ".join(verdict.rejections)


@pytest.mark.parametrize("layer", [nn.Identity(), nn.Linear(5, 3), nn.Conv2d(3, 4, 1)], ids=["alone", "linear", "conv"])
def test_clamps_whose_bounds_are_in_the_wrong_order_are_left_to_the_cpu(layer: nn.Module) -> None:
    """XNNPACK rejects the program: alone in ExecuTorch 1.0, after a layer in every release."""
    lowered = Lowered(nn.Sequential(layer, Call(lambda x: torch.clamp(x, 3, -1))), (IMAGE,))
    assert "lower bound must not be above" in lowered.refusal("clamp")
    lowered.check((IMAGE,))


class ShiftInBranch(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda a, b: a << b, lambda a, b: a + b, (x, y))


def test_the_release_is_named_inside_branches() -> None:
    exported = torch.export.export(ShiftInBranch(), (INTS, INTS % 4))
    with pytest.raises(UnsupportedOperatorError, match=r"needs ExecuTorch 1\.1 or newer"):
        to_edge_transform_and_lower(exported)


def test_a_kernel_that_no_release_of_a_build_has_suggests_none() -> None:
    assert kernel_set("portable-only").remedy(torch.ops.aten.linear.default) == ""
    assert kernel_set(["aten::add.out"]).remedy(torch.ops.aten.grid_sampler_2d.default) == ""
    assert kernel_set("wheel").remedy(torch.ops.aten.bincount.default) == ""


@pytest.mark.parametrize("name", ["sym_not", "sym_ite", "sym_int"])
def test_arithmetic_on_sizes_that_older_runtimes_lack_names_the_release(name: str) -> None:
    assert not kernel_set("ios-1.3").supports(getattr(torch, name))
    assert "runtime='ios-1.4'" in kernel_set("ios-1.3").remedy_by_kind(f"torch.{name}")
    assert kernel_set("ios-1.4").supports(getattr(torch, name))


def test_every_runtime_has_what_older_ones_have() -> None:
    assert operators_of(NEWEST) == frozenset(OPERATORS)
    for older, newer in itertools.pairwise(RELEASES):
        assert operators_of(older) <= operators_of(newer)
    assert len(NEWER) == 14
    for name in RUNTIMES:
        build, release = split_runtime(name)
        assert kernel_set(name).keys <= operators_of(release)
        assert kernel_set(name).name == f"{build}-{release}"


def test_the_manifest_and_the_default_name_the_release() -> None:
    result = ew.compile(nn.Linear(4, 3), torch.ones(2, 4), target="xnnpack", quiet=True)
    assert manifest.read(result.program.executorch_program)["runtime"] == f"wheel-{OLDEST}"  # type: ignore[index]


@pytest.mark.parametrize(("target", "preset"), [("ethos-u85-256", "int8"), ("sm8650", "int8"), ("e9955", "int8")])
def test_what_a_backend_runs_does_not_depend_on_the_runtime(target: str, preset: str) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.AdaptiveAvgPool2d((2, 3)))
    x = torch.randn(1, 3, 8, 6)
    reports = []
    for runtime in (f"android-{OLDEST}", f"android-{NEWEST}"):
        result = ew.compile(model.eval(), (x,), target, quantize=preset, calibration=[(x,)], runtime=runtime,
                            simulate=True, quiet=True, evaluate=0)  # fmt: skip
        report = result.program.partition_reports["forward"]
        reports.append(sorted((v.operator, bool(v.backend)) for v in report.verdicts))
    assert reports[0] == reports[1]
