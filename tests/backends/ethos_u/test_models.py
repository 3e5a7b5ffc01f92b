"""Whole networks: one delegate each, whose commands give the TOSA reference model's integers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

from edgewright.backends.ethos_u.dialect.numerics import TOSA_NUMERICS
from edgewright.backends.ethos_u.quantizer import EthosUQuantizer, get_symmetric_quantization_config
from edgewright.backends.ethos_u.target import ACCELERATORS, EthosUCompileSpec
from edgewright.engine import make_plan
from edgewright.formats.twin_reader import read_twin
from edgewright.runtime import Runtime
from edgewright.runtime.delegates import DelegateBlob, make_delegate
from tests.backends.ethos_u.lowered import CONFIGS, Lowered, Quantized, lower, network, quantize
from tests.backends.ethos_u.networks import NETWORKS, mobilenet
from tests.support import cifar

SIMULATED = ("ethos-u55-128", "ethos-u55-256", "ethos-u65-256")
CYCLES = json.loads((Path(__file__).parents[2] / "golden/ethos_u/stock_cycles.json").read_text())


def assert_same_as_reference(made: Lowered) -> None:
    ((device, _, module),) = made.groups
    random = np.random.default_rng(0)
    inputs = [random.integers(-128, 128, v.bound).astype(v.dtype) for v in device.inputs]
    twin = read_twin(module.twin)[""] if module.twin is not None else None
    specs, data = dict(module.compile_specs), module.named_data
    blob = DelegateBlob(module.backend_id, module.processed_bytes, specs, data, twin=lambda digest: twin)
    found = make_delegate(blob).execute(inputs)
    wanted = made.reference(inputs)
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        assert np.array_equal(a.ravel(), b.ravel())
        assert len(np.unique(b)) > 1


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("target", [*SIMULATED, "ethos-u85-256"])
def test_networks_are_one_delegate_that_computes_what_the_reference_model_does(name: str, target: str) -> None:
    made = lower(network(name), target)
    assert [v.operator for v in made.report.rejected] == ["quantize", "dequantize"]
    assert_same_as_reference(made)
    if target not in SIMULATED:
        ((device, _, _),) = made.groups
        assert not [s.label for s in make_plan(device, numerics=TOSA_NUMERICS).steps if s.python is not None]


@pytest.mark.sample(2)
@pytest.mark.parametrize("config", [pytest.param(c, marks=pytest.mark.slow) if "qat" in c else c for c in CONFIGS])
@pytest.mark.parametrize("name", ["cifarnet", "ds_cnn"])
def test_every_scheme(name: str, config: str) -> None:
    quantized = network(name, config)
    made = lower(quantized, "ethos-u55-128")
    assert len(made.groups) == 1
    assert_same_as_reference(made)
    (found,) = Runtime().load_program(made.program).load_method("forward").execute(quantized.inputs)
    with torch.no_grad():
        wanted = quantized.converted(*quantized.inputs)
    noise = torch.as_tensor(np.asarray(found)) - wanted
    assert 10 * torch.log10((wanted**2).sum() / (noise**2).sum()) > (50 if config == "a16w8" else 25)


@pytest.mark.sample(4)
@pytest.mark.parametrize("target", ACCELERATORS)
def test_every_accelerator(target: str) -> None:
    made = lower(network("cifarnet"), target)
    assert_same_as_reference(made)
    assert dict(made.groups[0][2].compile_specs) == EthosUCompileSpec(target).to_compile_specs()


@pytest.mark.slow
@pytest.mark.parametrize("case", CYCLES)
def test_estimates_are_no_worse_than_of_stock_lowering(case: str) -> None:
    target, order = case.split()
    quantized = quantize(mobilenet(order == "nhwc"), "a8w8", target)
    ((_, _, module),) = lower(quantized, target).groups
    assert module.estimates is not None
    assert module.estimates["cycles"] <= CYCLES[case]["cycles"]


def cifar_losses(count: int) -> tuple[float, float]:
    """Accuracy on CIFAR-10 of a trained MobileNetV2 in floating point, and of its commands on a simulated U55."""
    model = cifar.mobilenet()
    example = (cifar.images(1),)
    spec = EthosUCompileSpec("ethos-u55-128")
    quantizer = EthosUQuantizer(spec).set_global(get_symmetric_quantization_config(is_per_channel=True))
    prepared = prepare_pt2e(torch.export.export(model, example).module(check_guards=False), quantizer)
    with torch.no_grad():
        for image in cifar.calibration():
            prepared(image)
        real = cifar.accuracy(model, count)
    exported = torch.export.export(convert_pt2e(prepared), example)
    made = lower(Quantized(model, example, prepared, exported), spec.target)
    method = Runtime().load_program(made.program).load_method("forward")
    return real, cifar.accuracy(lambda x: torch.as_tensor(np.asarray(method.execute([x])[0])), count)


@pytest.mark.slow
def test_a_trained_mobilenet_keeps_its_accuracy() -> None:
    real, simulated = cifar_losses(200)
    assert simulated >= real - 0.5


@pytest.mark.slow
def test_a_trained_mobilenet_keeps_its_accuracy_on_more_images() -> None:
    real, simulated = cifar_losses(1000)
    print(f"float {real:.1f} %, simulated {simulated:.1f} %")
    assert real > 90
    assert simulated >= real - 0.5
