"""``EnnQuantizer`` and its presets; the operator table determines what is quantized."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import fx

import edgewright.quantize  # noqa: F401  (before torchao, which logs when it is imported)

# isort: split
from torchao.quantization.pt2e import FusedMovingAvgObsFakeQuantize, MovingAverageMinMaxObserver
from torchao.quantization.pt2e.quantizer import QuantizationSpec

from edgewright.backends.samsung.ops import BACKEND
from edgewright.errors import UsageError
from edgewright.hints import not_among
from edgewright.quantize.nonfinite import FiniteMinMaxObserver
from edgewright.quantize.quantizer import TableQuantizer
from edgewright.quantize.recipes import EPSILON, QuantizationConfig, weight_spec
from edgewright.quantize.simplify import simplify_operators


@enum.unique
class Precision(enum.IntEnum):
    """Bits of activations (A) and weights (W); ``U``: unsigned activations. ExecuTorch has only ``A8W8``."""

    A8W8 = 3
    A16W16 = 4
    UA8W8 = 5
    UA16W16 = 6


# Type of activations, range of weights, and smallest scale.
_SCHEMES: dict[Precision, tuple[torch.dtype, tuple[int, int], float]] = {
    Precision.A8W8: (torch.int8, (-128, 127), EPSILON),
    Precision.UA8W8: (torch.uint8, (-128, 127), EPSILON),
    Precision.A16W16: (torch.int16, (-32767, 32767), EPSILON / 256),
    Precision.UA16W16: (torch.uint16, (-32767, 32767), EPSILON / 256),
}


def parse_precision(value: Any) -> Precision:
    """A ``Precision`` from a member, its value or its name."""
    if isinstance(value, str) and value in Precision.__members__:
        return Precision[value]
    if isinstance(value, bool) or value not in tuple(Precision):
        raise not_among("precision", value, Precision.__members__)
    return Precision(value)


def get_quant_config(precision: Any, is_per_channel: bool = False, is_qat: bool = False) -> QuantizationConfig:
    """Configuration of a precision: weights per channel or per tensor, scales from calibration or training."""
    for name, flag in (("is_per_channel", is_per_channel), ("is_qat", is_qat)):
        if not isinstance(flag, bool):
            raise UsageError(name, "must be True or False", value=flag)
    dtype, limits, epsilon = _SCHEMES[parse_precision(precision)]
    info = torch.iinfo(dtype)
    low = -info.max if dtype == torch.int16 else info.min
    scheme = torch.per_tensor_symmetric if dtype == torch.int16 else torch.per_tensor_affine
    observer: Any = FiniteMinMaxObserver.with_args(eps=epsilon)
    if is_qat:
        observer = FusedMovingAvgObsFakeQuantize.with_args(observer=MovingAverageMinMaxObserver, eps=epsilon)
    activation = QuantizationSpec(dtype, observer, low, info.max, scheme)
    per_channel, per_tensor = (weight_spec(axis, is_qat, limits, epsilon) for axis in (0, None))
    return QuantizationConfig(activation, per_channel if is_per_channel else per_tensor, per_tensor, is_qat, epsilon)


class EnnQuantizer(TableQuantizer):
    """Static quantization in 8 or 16 bits, through ``prepare_pt2e`` or ``prepare_qat_pt2e`` of torchao.

    >>> from edgewright.backends.samsung import EnnQuantizer, Precision
    >>> quantizer = EnnQuantizer()
    >>> quantizer.setup_quant_params(Precision.A8W8, is_per_channel=True)
    """

    backend = BACKEND
    mixes_signs: ClassVar[bool] = False
    presets: ClassVar = {
        "int8": lambda: get_quant_config(Precision.A8W8, is_per_channel=True),
        "a16w16": lambda: get_quant_config(Precision.A16W16, is_per_channel=True),
        "ua8w8": lambda: get_quant_config(Precision.UA8W8, is_per_channel=True),
        "ua16w16": lambda: get_quant_config(Precision.UA16W16, is_per_channel=True),
    }

    def __init__(self) -> None:
        super().__init__()
        self._annotations: list[Callable[[fx.GraphModule], None]] = []
        self.setup_quant_params(Precision.A8W8)

    def setup_precision(self, quant_dtype: Any) -> None:
        """Set the precision; all other parameters stay unchanged."""
        self.setup_quant_params(quant_dtype, self.is_per_channel, self.is_qat)

    def setup_quant_params(self, quant_dtype: Any, is_per_channel: bool = True, is_qat: bool = False) -> None:
        """Set the default configuration. ``quant_dtype``: a ``Precision`` or its name."""
        config = get_quant_config(quant_dtype, is_per_channel, is_qat)
        self.precision, self.is_per_channel, self.is_qat = parse_precision(quant_dtype), is_per_channel, is_qat
        self.set_global(config)

    set_quant_params = setup_quant_params  # the name in ExecuTorch's documentation

    def add_custom_quant_annotations(
        self, custom_quant_annotations: Sequence[Callable[[fx.GraphModule], None]]
    ) -> None:
        """Functions called with the annotated module, to change annotations."""
        self._annotations = list(custom_quant_annotations)

    def transform_for_annotation(self, model: fx.GraphModule) -> fx.GraphModule:
        """Decompose as lowering does, and simplify operators with several outputs."""
        return simplify_operators(super().transform_for_annotation(model))

    def annotate(self, model: fx.GraphModule) -> fx.GraphModule:
        super().annotate(model)
        for annotation in self._annotations:
            annotation(model)
        return model
