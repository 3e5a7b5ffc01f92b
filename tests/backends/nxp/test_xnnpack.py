"""The same graphs under XNNPACK's rounding, against LiteRT with XNNPACK."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from edgewright.backends.nxp.build_graph import to_tflite
from edgewright.backends.nxp.delegate import NeutronDelegate
from edgewright.backends.nxp.target import generate_neutron_compile_spec
from edgewright.errors import FormatError, UsageError
from edgewright.formats.twin_writer import write_twin
from edgewright.ir.aten.ops import OPS
from edgewright.runtime.delegates import DelegateBlob
from tests.backends.nxp.litert import differences, graph, value
from tests.backends.nxp.lowered import Lowered
from tests.backends.nxp.networks import NETWORKS, TRAINED
from tests.backends.nxp.rows import BACKEND, cases
from tests.support import cifar


@pytest.mark.sample(22)
@pytest.mark.parametrize("op", [name for name in BACKEND.rows if name in OPS])
def test_rows(op: str) -> None:
    for case in cases(op):
        if BACKEND.rejections(case.op):
            continue
        assert differences(to_tflite(case.copy(), BACKEND.rows), case.inputs, "xnnpack") == 0, case.name


@pytest.mark.parametrize("slope", [0.01, 0.25, -0.25])
@pytest.mark.parametrize("scale", [0.01, 0.05, 0.2, 3.0])
def test_slopes_that_xnnpack_takes_and_leaves(scale: float, slope: float) -> None:
    x = np.arange(-128, 128, dtype=np.int8)
    made = graph("LEAKY_RELU", [value("x", x.shape, 0.05, 3)], value("y", x.shape, scale, -7), alpha=slope)
    assert differences(made, [x], "xnnpack") == 0


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", NETWORKS)
def test_networks(name: str) -> None:
    torch.manual_seed(0)
    kind, shape = NETWORKS[name]
    samples = [(torch.randn(shape),) for _ in range(4)]
    lowered = Lowered(kind(), samples[0], samples, numerics="xnnpack")
    for (x,) in samples:
        assert np.array_equal(lowered.host(x), lowered.litert(x, kernels="xnnpack"))


def _images(name: str, count: int) -> None:
    calibration = [(x,) for x in cifar.calibration(16)]
    lowered = Lowered(TRAINED[name](), calibration[0], calibration, numerics="xnnpack")
    for x in cifar.images(count).split(1):
        assert np.array_equal(lowered.host(x), lowered.litert(x, kernels="xnnpack"))


@pytest.mark.slow
@pytest.mark.parametrize("name", TRAINED)
def test_images(name: str) -> None:
    _images(name, 3)


@pytest.mark.slow
@pytest.mark.parametrize("name", TRAINED)
def test_a_thousand_images(name: str) -> None:
    _images(name, 1000)


def test_other_names_are_refused() -> None:
    made = graph("RELU", [value("x", (2,), 1.0)], value("y", (2,), 1.0))
    with pytest.raises(UsageError, match="tflite or xnnpack"):
        generate_neutron_compile_spec("imxrt700", numerics="other")
    with pytest.raises(FormatError, match="tflite or xnnpack"):
        NeutronDelegate(DelegateBlob("NeutronBackend", write_twin({"": made}), {"numerics": b"other"}, {}))
