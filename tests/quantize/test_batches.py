"""Calibration in larger batches than the example's gives what the same inputs give one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e, prepare_qat_pt2e

import edgewright
from edgewright.api.compile import CompileSession, Settings
from edgewright.api.progress import Stages
from edgewright.api.recipe import Recipe
from edgewright.backends.nxp import NeutronQuantizer, calibrate_and_quantize
from edgewright.backends.qualcomm.export_utils import _calibrate, make_quantizer
from edgewright.backends.qualcomm.schemes import QuantDtype
from edgewright.backends.samsung.export_utils import quantize_module
from edgewright.errors import InputError
from edgewright.quantize.batching import in_batches
from tests.quantize.test_training import QUANTIZERS

Batches = list[tuple[torch.Tensor, ...]]


class Net(nn.Module):
    """Its graph has the batch in it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.last = nn.Conv2d(3, 4, 3), nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.conv(x).relu().flatten(1))  # type: ignore[no-any-return]


EXAMPLE = (torch.zeros(1, 3, 4, 4),)


def _nxp(data: Batches) -> Any:
    return calibrate_and_quantize(torch.export.export(Net().eval(), EXAMPLE), data, NeutronQuantizer())


def _samsung(data: Batches) -> Any:
    return quantize_module(Net().eval(), EXAMPLE, data, "A8W8")


def _qualcomm(data: Batches) -> Any:
    """Its example is the first of the data."""
    return _calibrate(Net().eval(), make_quantizer(QuantDtype.use_8a8w), [EXAMPLE, *data])


@pytest.fixture(scope="module")
def images() -> torch.Tensor:
    return torch.randn(6, 3, 4, 4, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("quantize", [_nxp, _samsung, _qualcomm])
def test_scripts_of_each_vendor(quantize: Callable[[Batches], Any], images: torch.Tensor) -> None:
    large, single = quantize([(images[:4],), (images[4:],)]), quantize([(x,) for x in images.split(1)])
    assert torch.equal(large(images[:1]), single(images[:1]))


def test_one_call_cuts_batches(images: torch.Tensor) -> None:
    large = edgewright.compile(Net().eval(), EXAMPLE, quantize="int8", calibration=[(images[:4],), (images[4:],)])
    single = edgewright.compile(Net().eval(), EXAMPLE, quantize="int8", calibration=[(x,) for x in images.split(1)])
    assert large.program.buffer == single.program.buffer
    assert large.report.samples == single.report.samples == 1  # of six, one is held out


def test_as_many_inputs_as_were_asked_for(images: torch.Tensor) -> None:
    settings = Settings(Recipe("int8"), samples=4)
    bench = CompileSession(Net().eval(), EXAMPLE, [(images,)], settings, Stages(quiet=True))
    assert (len(bench.calls), len(bench.evaluated)) == (4, 2)  # what is not calibrated with is measured on


@pytest.mark.parametrize("is_qat", [False, True])
@pytest.mark.parametrize("backend", QUANTIZERS)
def test_a_prepared_model_runs_with_another_batch(backend: str, is_qat: bool, images: torch.Tensor) -> None:
    """As with torchao's quantizers: training loops of ExecuTorch's scripts have a batch of their own."""
    prepare = prepare_qat_pt2e if is_qat else prepare_pt2e
    program = torch.export.export(Net().eval(), EXAMPLE)
    prepared = prepare(program.module(check_guards=False), QUANTIZERS[backend](is_qat))
    assert prepared(images).shape == (6, 5)
    assert convert_pt2e(prepared)(images).shape == (6, 5)


def test_what_is_no_whole_number_of_batches_is_refused(images: torch.Tensor) -> None:
    with pytest.raises(InputError, match="calibration input 0"):
        edgewright.compile(Net().eval(), (torch.zeros(4, 3, 4, 4),), quantize="int8", calibration=[(images,)])


def test_sizes_that_vary_are_left_alone(images: torch.Tensor) -> None:
    exported = torch.export.export(Net().eval(), (images,), dynamic_shapes=({0: torch.export.Dim("n", min=2, max=8)},))
    (part,) = in_batches(exported.module().graph, (images[:4],))
    assert part[0][0] is not None and part[0][0].shape[0] == 4


def test_inputs_of_different_counts_stay_together(images: torch.Tensor) -> None:
    class Sum(nn.Module):
        def forward(self, x: torch.Tensor, *, y: torch.Tensor) -> torch.Tensor:
            return x + y

    graph = torch.export.export(Sum(), (images[:1],), {"y": images[:2]}).module().graph
    cut = list(in_batches(graph, (images[:3],), {"y": images}))
    assert [(args[0].shape[0], kwargs["y"].shape[0]) for args, kwargs in cut] == [(1, 2)] * 3
    assert torch.equal(cut[2][1]["y"], images[4:])
    for given in ((images[:3],), {"y": images[:3]}), ((images[0],), {"y": images}), (("text",), {"y": images}):
        assert len(list(in_batches(graph, *given))) == 1  # type: ignore[arg-type]


class Inferred(Net):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.conv(x).relu().view(x.shape[0], 2, -1).reshape(x.shape[0], -1))  # type: ignore[no-any-return]


def test_views_with_an_inferred_size_of_their_own() -> None:
    program = torch.export.export(Inferred().eval(), EXAMPLE)
    prepared = prepare_pt2e(program.module(check_guards=False), NeutronQuantizer())
    x = torch.randn(3, 3, 4, 4, generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(prepared(x), Inferred().eval()(x))
