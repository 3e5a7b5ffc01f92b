"""Other quantizers for ``benchmarks/search.py``, on the same calibration data.

``stock``: ExecuTorch's quantizer for the target with torchao's PT2E flow. ``nncf``: NNCF's post-training quantization
with its defaults: fast bias correction, and ranges that are the mean of each input's extremes; ``nncf-minmax``: with
the extremes of all inputs. Both on the same graph, annotated by Edgewright's quantizer for the target, so that the same
tensors have the same number of bits. ``nncf-control``: NNCF's accuracy control, which is of OpenVINO models for the
CPU: int8, with layers in floating point where the metric needs them. It runs in OpenVINO.

Needs ``pip install executorch nncf openvino``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.search_models import Network, Part

Model = Callable[[torch.Tensor], torch.Tensor]


class UnavailableError(Exception):
    """A quantizer that does not run here."""


def stock(network: Network, target: str) -> torch.fx.GraphModule:
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    prepared = prepare_pt2e(_exported(network), _stock_quantizer(target))
    with torch.no_grad():
        for x in network.calibration:
            prepared(x)
    return convert_pt2e(prepared)  # type: ignore[no-any-return]


def _stock_quantizer(target: str) -> Any:
    if target == "xnnpack":
        from executorch.backends.xnnpack.quantizer import xnnpack_quantizer as xnnpack

        return xnnpack.XNNPACKQuantizer().set_global(xnnpack.get_symmetric_quantization_config(is_per_channel=True))
    if target.startswith("ethos-u"):
        from executorch.backends.arm.ethosu import EthosUCompileSpec
        from executorch.backends.arm.quantizer import EthosUQuantizer, get_symmetric_quantization_config

        return EthosUQuantizer(EthosUCompileSpec(target)).set_global(get_symmetric_quantization_config())
    if target.startswith("sm"):
        from executorch.backends.qualcomm.quantizer.quantizer import QnnQuantizer, QuantDtype
        from executorch.backends.qualcomm.serialization.qc_schema import QcomChipset

        quantizer = QnnQuantizer(soc_model=QcomChipset[target.upper()])
        quantizer.set_default_quant_config(QuantDtype.use_8a8w, is_conv_per_channel=True, is_linear_per_channel=True)
        return quantizer
    if target.startswith("e99"):
        from executorch.backends.samsung.quantizer import EnnQuantizer

        return EnnQuantizer()
    raise UnavailableError("ExecuTorch's quantizer for Neutron needs NXP's eIQ Neutron SDK")


def nncf(network: Network, target: str, minmax: bool = False) -> torch.fx.GraphModule:
    import nncf
    from nncf.experimental.torch.fx import quantize_pt2e
    from nncf.quantization.range_estimator import RangeEstimatorParametersSet

    from edgewright.api.recipe import Recipe, apply_recipe
    from edgewright.backends import find_quantizer
    from edgewright.backends.targets import find_target

    device = find_target(target)
    quantizer = find_quantizer(device.backend).for_target(device.argument)
    apply_recipe(quantizer, Recipe("int8"), [], device.name)
    data = nncf.Dataset(network.calibration)
    ranges = RangeEstimatorParametersSet.MINMAX if minmax else None
    return quantize_pt2e(  # type: ignore[no-any-return]
        _exported(network), quantizer, data, len(network.calibration), activations_range_estimator_params=ranges
    )


def nncf_minmax(network: Network, target: str) -> torch.fx.GraphModule:
    return nncf(network, target, minmax=True)


def _exported(network: Network) -> torch.fx.GraphModule:
    module = torch.export.export(network.model, network.example).module()
    assert isinstance(module, torch.fx.GraphModule)
    return module


def nncf_control(network: Network, max_drop: float, folder: Path) -> tuple[Model, str]:
    """The model that NNCF's accuracy control finds, and how many of its operators stay in floating point. ``max_drop``:
    of the share of right answers on the data to choose by."""
    import nncf
    import openvino

    model = openvino.convert_model(network.model, example_input=network.example[0])
    model.reshape(list(network.example[0].shape))

    def right(compiled: Any, data: Any) -> tuple[float, None]:
        classes = [int(np.argmax(next(iter(compiled(x.numpy()).values())))) for x, _ in data]
        return float(np.mean([found == label for found, (_, label) in zip(classes, data, strict=True)])), None

    part: Part = network.choice
    labelled = list(zip(part.inputs, part.labels, strict=True))
    quantized = nncf.quantize_with_accuracy_control(
        model, nncf.Dataset(network.calibration, lambda x: x.numpy()), nncf.Dataset(labelled), right,
        max_drop=max_drop, subset_size=len(network.calibration),
    )  # fmt: skip
    openvino.save_model(quantized, folder / "nncf-control.xml", compress_to_fp16=False)
    core = openvino.Core()
    compiled = core.compile_model(quantized, "CPU", {"INFERENCE_NUM_THREADS": 1})
    weighted = [op for op in quantized.get_ops() if op.get_type_name() in ("Convolution", "GroupConvolution", "MatMul")]
    floats = sum(not _reads_integers(op) for op in weighted)

    def run(x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(next(iter(compiled(x.numpy()).values())).copy())

    return run, f"{floats} of {len(weighted)} layers float"


def _reads_integers(op: Any) -> bool:
    return bool(op.input_value(0).get_node().get_type_name() == "FakeQuantize")
