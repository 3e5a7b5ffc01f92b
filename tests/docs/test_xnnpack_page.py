"""The code of ExecuTorch's page about XNNPACK, with our imports; the network is defined here, not downloaded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import edgewright.backends.xnnpack as public
from edgewright import to_edge_transform_and_lower
from edgewright.backends.xnnpack import XnnpackPartitioner
from edgewright.runtime import Runtime
from tests.program.networks import MobileNetV2
from tests.support.stock import stock


@pytest.mark.slow
def test_mobilenet_v2_as_the_page_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    mobilenet_v2 = MobileNetV2().eval()
    sample_inputs = (torch.randn(1, 3, 224, 224),)

    et_program = to_edge_transform_and_lower(
        torch.export.export(mobilenet_v2, sample_inputs),
        partitioner=[XnnpackPartitioner()],
    ).to_executorch()

    with open("mv2_xnnpack.pte", "wb") as file:
        et_program.write_to_file(file)

    (plan,) = et_program.executorch_program.execution_plan
    assert len(plan.delegates) == 1
    assert not plan.operators
    with torch.no_grad():
        wanted = mobilenet_v2(*sample_inputs).numpy()
    x = sample_inputs[0].numpy()
    bound = 1e-4 * np.abs(wanted).max()
    (ours,) = Runtime.get().load_program("mv2_xnnpack.pte").load_method("forward").execute([x])
    assert np.abs(ours - wanted).max() <= bound
    (theirs,) = stock().run(Path("mv2_xnnpack.pte").read_bytes(), "forward", [x])
    assert np.abs(theirs - wanted).max() <= bound


# What users of ExecuTorch's partitioner may name; its own list, less what it has no code for.
NAMES = """
    AbsConfig AddConfig AddmmConfig AvgPoolingConfig BatchNormConfig BMMConfig CatConfig CeilConfig
    ClampConfig CloneConfig CloneDimOrderConfig ConstantPadConfig ConvolutionConfig CosConfig
    DeQuantizedPerTensorConfig DivConfig ExpConfig FloorConfig GeluConfig HardswishConfig HardtanhConfig
    LeakyReLUConfig LinearConfig LogConfig MaxDimConfig MaxPool2dConfig MaximumConfig MeanDimConfig
    MinimumConfig MMConfig MulConfig NegConfig PermuteConfig PowConfig PreluConfig QuantizedPerTensorConfig
    ReLUConfig ReciprocalSquareRootConfig SigmoidConfig SinConfig SliceCopyConfig SoftmaxConfig
    SquareRootConfig SubConfig TanhConfig ToDimOrderCopyConfig UnsqueezeCopyConfig UpsampleBilinear2dConfig
    ViewCopyConfig QuantizeAffineConfig DeQuantizeAffineConfig ChooseQParamsAffineConfig
"""


@pytest.mark.parametrize("name", NAMES.split())
def test_operator_configs_have_the_names_users_know(name: str) -> None:
    config = getattr(public, name)
    assert config.operators
    assert XnnpackPartitioner(configs=[config]).configs == {name}


def test_every_public_name_resolves() -> None:
    for name in public.__all__:
        assert getattr(public, name).__name__ == name
    with pytest.raises(AttributeError, match="NoSuchConfig"):
        _ = public.NoSuchConfig
