"""torchao's ``prepare_pt2e`` with a check of the prepared model, and ``convert_pt2e`` without its costly search for
training patterns in models that were not trained."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from torch import fx
from torchao.quantization.pt2e import FakeQuantizeBase
from torchao.quantization.pt2e import quantize_pt2e as torchao
from torchao.quantization.pt2e.constant_fold import ConstantFolder
from torchao.quantization.pt2e.quantizer import Quantizer

from edgewright.quantize.batch_norm_guard import hide_norms, norms_of, show_norms
from edgewright.quantize.equivalence import float_copy, require_same_results
from edgewright.quantize.nonfinite import report_nonfinite
from edgewright.quantize.small_ranges import report_small_ranges

_folding = import_module("torchao.quantization.pt2e.constant_fold")  # the package has a function of this name


def prepare_pt2e(
    module: fx.GraphModule, quantizer: Quantizer, inputs: tuple[Any, ...] | None = None,
    kwargs: Mapping[str, Any] | None = None,
) -> fx.GraphModule:  # fmt: skip
    """Insert observers into a model, for calibration.

    With ``inputs`` (and ``kwargs``) of a call, raise ``AccuracyError``, naming the module, unless the prepared model
    computes the same results as the original.
    """
    original = None if inputs is None else float_copy(module)
    prepared: fx.GraphModule = torchao.prepare_pt2e(module, quantizer)
    if original is not None and inputs is not None:
        require_same_results(original, prepared, inputs, kwargs)
    return prepared


def convert_pt2e(calibrated: fx.GraphModule) -> fx.GraphModule:
    """Convert a calibrated or trained model to one with quantize and dequantize operators.

    Values that were infinite or NaN during calibration are reported by module (``report_nonfinite``), and
    ranges below the smallest scale (``report_small_ranges``).
    """
    report_nonfinite(calibrated)
    report_small_ranges(calibrated)
    trained = any(isinstance(module, FakeQuantizeBase) for module in calibrated.modules())
    hide_norms([] if trained else norms_of(calibrated.graph))
    _folding.ConstantFolder = _QuantizingFolder  # type: ignore[attr-defined]
    converted: fx.GraphModule = torchao.convert_pt2e(calibrated)
    return show_norms(converted)


class _QuantizingFolder(ConstantFolder):  # type: ignore[misc]
    """Folds weights up to the operator that quantizes them. torchao's class dequantizes each of them again, to find
    that this must not be folded: more time and memory than quantizing a large model takes otherwise."""

    def _deduce_value(self, node: fx.Node) -> Any:
        is_dequantize = "dequantize" in str(node.target) and self.is_impure(node)
        return self.unknown_value if is_dequantize else super()._deduce_value(node)
