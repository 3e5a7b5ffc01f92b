"""torchao's ``prepare_pt2e`` and ``convert_pt2e``: the first with a check of what it made, the second without a search
for patterns of training where nothing was trained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import fx
from torchao.quantization.pt2e import FakeQuantizeBase
from torchao.quantization.pt2e import quantize_pt2e as torchao
from torchao.quantization.pt2e.quantizer import Quantizer

from edgewright.quantize.batch_norm_guard import hide_norms, norms_of, show_norms
from edgewright.quantize.equivalence import float_copy, require_same_results
from edgewright.quantize.nonfinite import report_nonfinite


def prepare_pt2e(
    module: fx.GraphModule, quantizer: Quantizer, inputs: tuple[Any, ...] | None = None,
    kwargs: Mapping[str, Any] | None = None,
) -> fx.GraphModule:  # fmt: skip
    """A model with observers, to be calibrated.

    With ``inputs`` (and ``kwargs``) that the model can be called with, what was prepared must compute what the model
    does, or ``AccuracyError`` names the module that does not.
    """
    original = None if inputs is None else float_copy(module)
    made: fx.GraphModule = torchao.prepare_pt2e(module, quantizer)
    if original is not None and inputs is not None:
        require_same_results(original, made, inputs, kwargs)
    return made


def convert_pt2e(calibrated: fx.GraphModule) -> fx.GraphModule:
    """A calibrated or trained model as one that quantizes and dequantizes.

    What was infinite or NaN in calibration is reported by module: ``report_nonfinite``.
    """
    report_nonfinite(calibrated)
    trained = any(isinstance(module, FakeQuantizeBase) for module in calibrated.modules())
    hide_norms([] if trained else norms_of(calibrated.graph))
    made: fx.GraphModule = torchao.convert_pt2e(calibrated)
    return show_norms(made)
